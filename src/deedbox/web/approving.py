"""Beside deciding one approval: editing it, handing one's say on, and deciding several that were looked at together.

As everywhere: GET shows and changes nothing; a change takes a POST, a session, its token and the digests of what was shown.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from deedbox.access import SessionInfo
from deedbox.gate.batch import MOST, Answer, Line
from deedbox.gate.delegate import HandedOver
from deedbox.gate.edit import Edited
from deedbox.model.consequence import LOW
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.operate.cards import Decision, ShowCard
from deedbox.operate.edit_form import EditField
from deedbox.web.visits import Visits

Handler = Callable[[Request], Awaitable[Response]]
Wrap = Callable[[Handler], Handler]
_ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_FIELD = re.compile(r"f-(?P<effect>\d{1,3})-(?P<field>\d{1,3})")
_PICK = re.compile(rf"pick-(?P<id>{_ID})")
_LONGEST_REASON = 2000


class Approves(Protocol):
    """What the pages call: deedbox.operate.approvals.Approvals is one."""

    async def edit_form(self, principal: Principal, approval_id: UUID) -> list[tuple[str, tuple[EditField, ...]]]:
        """The fields of each effect, by slot."""
        ...

    async def entered(self, principal: Principal, approval_id: UUID, given: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
        """The payloads that come of what was entered."""
        ...

    async def edit(
        self,
        principal: Principal,
        approval_id: UUID,
        digest_hex: str,
        payloads: Mapping[str, Any],
        reason: str | None,
        how: str,
    ) -> Edited:
        """Change payloads and hold the group again."""
        ...

    async def decide_many(
        self, principal: Principal, lines: Sequence[Line], decision: Decision, reason: str | None, how: str
    ) -> list[Answer]:
        """Decide several alike."""
        ...

    async def delegate(
        self,
        principal: Principal,
        to: str,
        *,
        approval_id: UUID | None,
        until: datetime | None,
        reason: str | None,
        how: str,
    ) -> HandedOver:
        """Hand one's say on."""
        ...

    async def withdraw(self, principal: Principal, delegation_id: UUID, how: str) -> None:
        """End a delegation."""
        ...

    async def delegations(self, principal: Principal) -> Sequence[Any]:
        """What was handed on either way."""
        ...


@dataclass(frozen=True, slots=True)
class Approving:
    """The pages, over the functions that every door calls."""

    visits: Visits
    card: ShowCard
    approvals: Approves

    def routes(self, wrap: Wrap) -> list[BaseRoute]:
        """The routes; `wrap` turns refusals into pages."""
        return [
            Route("/many", wrap(self.many), methods=["GET"]),
            Route("/many", wrap(self.decide_many), methods=["POST"]),
            Route("/approvals/{approval_id}/edit", wrap(self.edit_page), methods=["GET"]),
            Route("/approvals/{approval_id}/edit", wrap(self.edit), methods=["POST"]),
            Route("/approvals/{approval_id}/delegate", wrap(self.delegate), methods=["POST"]),
            Route("/delegations", wrap(self.delegations), methods=["GET"]),
            Route("/delegations", wrap(self.hand_over), methods=["POST"]),
            Route("/delegations/{delegation_id}/withdraw", wrap(self.withdraw), methods=["POST"]),
        ]

    # Editing ---------------------------------------------------------------------------------------------------------

    async def edit_page(self, request: Request) -> Response:
        """GET /approvals/{id}/edit: the fields as they are."""
        approval_id = _id(request, "approval_id")
        session = await self.visits.session(request)
        if session is None:
            return self.visits.go("/login")
        return await self._edit_form(request, session, approval_id)

    async def edit(self, request: Request) -> Response:
        """POST /approvals/{id}/edit: what waits then is shown."""
        session = await self.visits.session(request)
        if session is None:
            return self.visits.logged_out("/")
        approval_id = _id(request, "approval_id")
        form = await self.visits.form(request, session, large=True)
        try:
            fields = await self.approvals.edit_form(session.principal, approval_id)
            entered = _entered(form, fields)
            payloads = await self.approvals.entered(session.principal, approval_id, entered)
            done = await self.approvals.edit(
                session.principal, approval_id, form.get("digest", ""), payloads, _reason(form), "page"
            )
        except DeedboxError as error:
            if error.code == "not_found":
                raise
            return await self._edit_form(request, session, approval_id, refused=error, form=form)
        return self.visits.go(f"/approvals/{done.approval_id}")

    async def _edit_form(
        self,
        request: Request,
        session: SessionInfo,
        approval_id: UUID,
        *,
        refused: DeedboxError | None = None,
        form: Mapping[str, str] | None = None,
    ) -> Response:
        card = await self.card(session.principal.tenant, approval_id, session.principal)
        if card is None:
            raise _not_found()
        if not card.may_edit and refused is None:
            raise DeedboxError("permission_denied", card.why_not or "This cannot be edited, or not by you.")
        fields = await self.approvals.edit_form(session.principal, approval_id)
        typed = form or {}
        effects = [
            (card.effects[number], [(f"f-{number}-{place}", field) for place, field in enumerate(found)])
            for number, (_, found) in enumerate(fields)
        ]
        heading = "It cannot be held like this" if refused and refused.code == "invalid_input" else "Nothing was changed"
        notice = None if refused is None else (heading, refused.sentence)
        context = {"card": card, "effects": effects, "typed": typed, "notice": notice, "low": card.consequence in LOW}
        status = 200 if refused is None else refused.status
        return self.visits.pages.render("edit.html", self.visits.shown(request, session), context, status=status)

    # Handing one's say on --------------------------------------------------------------------------------------------

    async def delegate(self, request: Request) -> Response:
        """POST /approvals/{id}/delegate: in this approval, as long as it is open."""
        session = await self.visits.session(request)
        if session is None:
            return self.visits.logged_out("/")
        approval_id = _id(request, "approval_id")
        form = await self.visits.form(request, session)
        await self.approvals.delegate(
            session.principal,
            form.get("to", ""),
            approval_id=approval_id,
            until=None,
            reason=_reason(form),
            how="page",
        )
        return self.visits.go("/delegations")

    async def delegations(self, request: Request) -> Response:
        """GET /delegations: what one handed on and was handed, and a form to hand everything on until a moment."""
        session = await self.visits.session(request)
        if session is None:
            return self.visits.go("/login")
        return await self._delegations(request, session)

    async def hand_over(self, request: Request) -> Response:
        """POST /delegations: in all approvals until a moment, which is entered in UTC."""
        session = await self.visits.session(request)
        if session is None:
            return self.visits.logged_out("/")
        form = await self.visits.form(request, session)
        try:
            until = _moment(form.get("until", ""))
            await self.approvals.delegate(
                session.principal, form.get("to", ""), approval_id=None, until=until, reason=_reason(form), how="page"
            )
        except DeedboxError as error:
            return await self._delegations(request, session, refused=error, form=form)
        return self.visits.go("/delegations")

    async def withdraw(self, request: Request) -> Response:
        """POST /delegations/{id}/withdraw: by whoever gave it or has it."""
        session = await self.visits.session(request)
        if session is None:
            return self.visits.logged_out("/")
        await self.visits.form(request, session)
        await self.approvals.withdraw(session.principal, _id(request, "delegation_id"), "page")
        return self.visits.go("/delegations")

    async def _delegations(
        self,
        request: Request,
        session: SessionInfo,
        *,
        refused: DeedboxError | None = None,
        form: Mapping[str, str] | None = None,
    ) -> Response:
        found = await self.approvals.delegations(session.principal)
        notice = None if refused is None else ("Nothing was handed on", refused.sentence)
        may = session.principal.may("decide")
        context = {"found": found, "me": session.principal.name, "may": may, "notice": notice, "typed": form or {}}
        status = 200 if refused is None else refused.status
        return self.visits.pages.render("delegations.html", self.visits.shown(request, session), context, status=status)

    # Several at once -------------------------------------------------------------------------------------------------

    async def many(self, request: Request) -> Response:
        """GET /many?pick=…: those that were ticked, each with exactly what leaves. Changes nothing."""
        session = await self.visits.session(request)
        if session is None:
            return self.visits.go("/login")
        wanted = list(dict.fromkeys(request.query_params.getlist("pick")))
        if not 0 < len(wanted) <= MOST or not all(re.fullmatch(_ID, one) for one in wanted):
            raise DeedboxError("invalid_input", f"Tick from one to {MOST} approvals in the inbox.")
        cards = [await self.card(session.principal.tenant, UUID(one), session.principal) for one in wanted]
        known = [card for card in cards if card is not None]
        if len(known) != len(wanted):
            raise _not_found()
        alike = len({(card.action, card.policy_version) for card in known}) == 1
        low = all(card.consequence in LOW for card in known)
        context = {"cards": known, "alike": alike and low}
        return self.visits.pages.render("many.html", self.visits.shown(request, session), context)

    async def decide_many(self, request: Request) -> Response:
        """POST /many: an answer for each."""
        session = await self.visits.session(request)
        if session is None:
            return self.visits.logged_out("/")
        form = await self.visits.form(request, session, large=True)
        picks = [(match["id"], digest) for name, digest in form.items() if (match := _PICK.fullmatch(name))]
        lines = [Line(UUID(approval_id), digest) for approval_id, digest in picks]
        choice = form.get("decision")
        if choice not in ("approve", "reject"):
            raise DeedboxError("invalid_input", "The form said neither approve nor reject.")
        decision: Decision = "approve" if choice == "approve" else "reject"
        answers = await self.approvals.decide_many(session.principal, lines, decision, _reason(form), "page")
        return self.visits.pages.render("answers.html", self.visits.shown(request, session), {"answers": answers})


def _id(request: Request, name: str) -> UUID:
    text = str(request.path_params[name])
    if not re.fullmatch(_ID, text):
        raise _not_found()
    return UUID(text)


def _not_found() -> DeedboxError:
    return DeedboxError("not_found", "The address is wrong, or what it names is not yours to see.")


def _reason(form: Mapping[str, str]) -> str | None:
    reason = form.get("reason", "").strip()
    if len(reason) > _LONGEST_REASON:
        raise DeedboxError("invalid_input", f"A reason has at most {_LONGEST_REASON} characters.")
    return reason or None


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError as error:
        raise DeedboxError("invalid_input", "Until when? A day and a time, in UTC.") from error


def _entered(form: Mapping[str, str], fields: Sequence[tuple[str, tuple[EditField, ...]]]) -> dict[str, dict[str, str]]:
    """What was entered, by slot and name of the field; places that are not there are left out."""
    found: dict[str, dict[str, str]] = {}
    for name, text in form.items():
        match = _FIELD.fullmatch(name)
        if match is None or int(match["effect"]) >= len(fields):
            continue
        slot, known = fields[int(match["effect"])]
        if int(match["field"]) < len(known):
            found.setdefault(slot, {})[known[int(match["field"])].name] = text
    return found
