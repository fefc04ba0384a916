"""The console's routes: who may see what, and the one form that decides.

GET and HEAD show and change nothing, whoever or whatever opens them. A decision takes a POST, a person's session, the CSRF
token of that session, the browser's word that the form is ours, and the digest of what was shown.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from deedbox.access import IdSource, LoginGuard, Pool, SessionInfo, preview_link
from deedbox.access.fresh import proved_lately
from deedbox.gate.confirm import Confirmed
from deedbox.model.errors import CODES, DeedboxError
from deedbox.operate.alerts import AlertDesk
from deedbox.operate.announced import CancelEffect, ListAnnounced
from deedbox.operate.cards import SHOWS, Decide, Decision, ListInbox, ReadDocument, ShowCard
from deedbox.telemetry import log
from deedbox.web.account import Account
from deedbox.web.alerts import AlertPages
from deedbox.web.approving import Approves, Approving
from deedbox.web.coming import Coming
from deedbox.web.forms import Site
from deedbox.web.headings import HEADINGS
from deedbox.web.pages import HEADERS, STYLE_PATH, Pages, Shown, style
from deedbox.web.remarks import Remarking, Remarks
from deedbox.web.switch_pages import SwitchPages
from deedbox.web.target_pages import TargetPages
from deedbox.web.visits import Visits, own_id

if TYPE_CHECKING:
    from deedbox.access.provider_login import Providers
    from deedbox.operate.cards import Show
    from deedbox.operate.targets import Targets
    from deedbox.operate.verbs import Verbs

_Handler = Callable[[Request], Awaitable[Response]]
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LONGEST_REASON = 2000
_SHOWS = (
    ("all", "All"),
    ("mine", "Mine to decide"),
    ("groups", "My groups"),
    ("soon", "Within the hour"),
    ("snoozed", "Snoozed"),
    ("decided", "Decided by me"),
)


@dataclass(frozen=True, slots=True)
class WebDeps:
    """What the console stands on; `public_url` is where people reach it. The functions come from `operate`.

    `tenant` is where local accounts log in to; `providers` may lead to others. `local` says whether passwords are taken, and
    `ids` makes personal keys: without it the account's page makes none.
    """

    pool: Pool
    public_url: str
    tenant: str
    card: ShowCard
    decide: Decide
    inbox: ListInbox
    document: ReadDocument | None = None
    announced: ListAnnounced | None = None
    cancel_effect: CancelEffect | None = None
    approvals: Approves | None = None
    remarks: Remarking | None = None
    alerts: AlertDesk | None = None
    targets: "Targets | None" = None
    verbs: "Verbs | None" = None
    guard: LoginGuard = field(default_factory=LoginGuard)
    ids: IdSource | None = None
    providers: "Providers | None" = None
    local: bool = True

    @property
    def places(self) -> list[tuple[str, str]]:
        """The pages that every other one leads to."""
        more = (("/alerts", "Alerts", self.alerts), ("/targets", "Targets", self.targets), ("/switch", "Switch", self.verbs))
        return [("/", "Inbox"), *((path, name) for path, name, desk in more if desk is not None)]


def routes(deps: WebDeps) -> list[BaseRoute]:
    """The console's routes. Raises ValueError for a public URL that links must not be sent with."""
    console = _Console(deps)
    coming = Coming(
        deps.pool, deps.tenant, deps.guard, console.site, console.visits, providers=deps.providers, local=deps.local
    )
    found: list[BaseRoute] = [
        Route("/", console.page(console.inbox), methods=["GET"]),
        Route("/login", console.page(coming.login_page), methods=["GET"]),
        Route("/login", console.page(coming.log_in), methods=["POST"]),
        Route("/logout", console.page(coming.log_out), methods=["POST"]),
        Route("/approvals/{approval_id}", console.page(console.approval), methods=["GET"]),
        Route("/approvals/{approval_id}", console.page(console.decide), methods=["POST"]),
        Route("/account", console.page(console.account.page), methods=["GET"]),
        Route("/account/keys", console.page(console.account.mint), methods=["POST"]),
        Route("/account/keys/{key_id}", console.page(console.account.end_key), methods=["POST"]),
        Route("/account/sessions", console.page(console.account.end_sessions), methods=["POST"]),
        Route(STYLE_PATH, _style, methods=["GET"]),
    ]
    if deps.cancel_effect is not None:
        found.append(Route("/effects/{effect_id}/cancel", console.page(console.cancel_effect), methods=["POST"]))
    if deps.alerts is not None:
        alerts = AlertPages(console.visits, deps.alerts)
        found += [
            Route("/alerts", console.page(alerts.listed), methods=["GET"]),
            Route("/alerts/{alert_id}", console.page(alerts.close), methods=["POST"]),
        ]
    if deps.targets is not None:
        targets = TargetPages(console.visits, deps.targets)
        found.append(Route("/targets", console.page(targets.page), methods=["GET"]))
        found.append(Route("/targets", console.page(targets.change), methods=["POST"]))
    if deps.verbs is not None:
        switch = SwitchPages(console.visits, deps.verbs)
        found.append(Route("/switch", console.page(switch.page), methods=["GET"]))
        found.append(Route("/switch", console.page(switch.change), methods=["POST"]))
    if deps.providers is not None:
        # Imported late: it brings the libraries of the protocol.
        from deedbox.web.leaving import Leaving  # noqa: PLC0415

        leaving = Leaving(deps.providers, console.site, console.pages, console.visits)
        found += [
            Route("/login/{provider}", console.page(leaving.leave), methods=["POST"]),
            Route("/login/{provider}/callback", console.page(leaving.return_), methods=["GET"]),
        ]
    if deps.document is not None:
        found.append(Route("/documents/{document_id}", console.page(console.document), methods=["GET"]))
    if deps.approvals is not None:
        found += Approving(console.visits, deps.card, deps.approvals).routes(console.page)
    if deps.remarks is not None:
        found += Remarks(console.visits, deps.remarks).routes(console.page)
    return found


async def _style(_request: Request) -> Response:
    return style()


class _Console:
    """The handlers, over one set of dependencies."""

    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps
        self.site = self._site = Site.of(deps.public_url)
        self.pages = self._pages = Pages(self._site.base, deps.places)
        tenants = frozenset[str]({deps.tenant}) | (deps.providers.tenants if deps.providers else frozenset[str]())
        self.visits = self._visits = Visits(deps.pool, self._site, self._pages, tenants)
        self.account = Account(deps.pool, deps.ids, self._site, self._pages, self._visits)
        self._log = log("web")

    def page(self, handler: _Handler) -> _Handler:
        """The handler with every refusal and failure turned into a page."""

        async def run(request: Request) -> Response:
            try:
                return await handler(request)
            except DeedboxError as error:
                return self._refusal(error)
            except Exception:  # noqa: BLE001 -- a person gets a page whatever it was; the log has the rest
                self._log.exception("a page failed", route=getattr(request.scope.get("route"), "path", ""))
                return self._pages.message(
                    Shown(),
                    status=500,
                    heading="Something went wrong here",
                    sentences=(
                        "We could not finish this page.",
                        "If you were deciding something, open it again: it shows whether your decision was kept.",
                    ),
                    way_on=("/", "Go to the inbox"),
                )

        return run

    # What waits, and what it is --------------------------------------------------------------------------------------

    async def inbox(self, request: Request) -> Response:
        """GET /."""
        session = await self._session(request)
        if session is None:
            return self._go("/login")
        given = request.query_params.get("show")
        show: Show = given if given in SHOWS else "all"
        lines = await self._deps.inbox(session.principal.tenant, session.principal, show)
        if show != "decided":
            lines = sorted(lines, key=lambda line: (line.deadline, line.approval_id))
        soon = await self._deps.announced(session.principal.tenant, session.principal) if self._deps.announced else []
        many = show != "decided" and self._deps.approvals is not None and sum(line.many for line in lines) > 1
        context = {
            "lines": lines,
            "show": show,
            "shows": _SHOWS,
            "many": many,
            "more": self._deps.approvals is not None,
            "announced": soon,
        }
        context["closed"] = await self._closed(session)
        return self._pages.render("inbox.html", self._shown(request, session), context)

    async def _closed(self, session: SessionInfo) -> bool:
        """Whether the switch is off, so that what is approved waits."""
        verbs = self._deps.verbs
        return verbs is not None and not (await verbs.switch_state(session.principal.tenant))["open"]

    async def cancel_effect(self, request: Request) -> Response:
        """POST /effects/{id}/cancel: what leaves by itself does not."""
        found = await self._visits.own_form(request)
        if found is None:
            return self._visits.logged_out("/")
        session, form = found
        effect_id = own_id(request.path_params["effect_id"])
        if effect_id is None or self._deps.cancel_effect is None:
            raise _not_found()
        await self._deps.cancel_effect(session.principal, effect_id, form.get("reason", ""))
        return self._go("/")

    async def approval(self, request: Request) -> Response:
        """GET /approvals/{id}, also as a link with a token."""
        approval_id = own_id(request.path_params["approval_id"])
        session = await self._session(request)
        if session is None:
            return await self._landing(request, approval_id)
        if approval_id is None:
            raise _not_found()
        if "t" in request.query_params:
            # The token has done its work; it should not stay in the address bar and the history.
            return self._go(f"/approvals/{approval_id}")
        return await self._card(request, session, approval_id)

    async def decide(self, request: Request) -> Response:
        """POST /approvals/{id}."""
        approval_id = own_id(request.path_params["approval_id"])
        found = await self._visits.own_form(request)
        if found is None:
            return self._visits.logged_out("/" if approval_id is None else f"/approvals/{approval_id}")
        session, form = found
        if approval_id is None:
            raise _not_found()
        try:
            decision, digest, reason = _decision_of(form)
            repeat = [slot for name, slot in form.items() if name.startswith("repeat-")]
            confirmed = await self._confirmed(request, session, form) if decision == "approve" and "stake" in form else None
            await self._deps.decide(session.principal, approval_id, digest, decision, reason, "page", repeat, confirmed)
        except DeedboxError as error:
            if error.code == "not_found":
                raise
            return await self._card(request, session, approval_id, refused=error, typed=form.get("reason", ""))
        return self._go(f"/approvals/{approval_id}")

    async def _confirmed(self, request: Request, session: SessionInfo, form: dict[str, str]) -> Confirmed:
        """What the form of something grave asked once more."""
        fresh = await proved_lately(
            self._deps.pool,
            session.principal,
            form.get("password", ""),
            guard=self._deps.guard,
            peer=request.client.host if request.client else "",
        )
        return Confirmed(fresh, form["stake"])

    async def document(self, request: Request) -> Response:
        """GET /documents/{id}: an upload, handed over as a file that no browser runs."""
        session = await self._session(request)
        if session is None:
            return self._go("/login")
        document_id = own_id(request.path_params["document_id"])
        if document_id is None or self._deps.document is None:
            raise _not_found()
        found = await self._deps.document(session.principal.tenant, document_id, session.principal)
        if found is None:
            raise _not_found()
        headers = {
            **HEADERS,
            "Content-Security-Policy": "default-src 'none'; sandbox",
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(found.name, safe='')}",
        }
        return Response(found.content, media_type="application/octet-stream", headers=headers)

    # Shared by the handlers ------------------------------------------------------------------------------------------

    async def _session(self, request: Request) -> SessionInfo | None:
        return await self._visits.session(request)

    def _shown(self, request: Request, session: SessionInfo) -> Shown:
        return self._visits.shown(request, session)

    def _go(self, path: str) -> Response:
        return self._visits.go(path)

    async def _landing(self, request: Request, approval_id: UUID | None) -> Response:
        token = request.query_params.get("t", "")
        preview = None
        if approval_id is not None:
            preview = await preview_link(self._deps.pool, self._deps.tenant, approval_id, token)
        where = "/login" if approval_id is None else f"/login?next={quote(f'/approvals/{approval_id}')}"
        return self._pages.render("landing.html", Shown(), {"preview": preview, "login_path": where})

    async def _card(
        self,
        request: Request,
        session: SessionInfo,
        approval_id: UUID,
        *,
        refused: DeedboxError | None = None,
        typed: str = "",
    ) -> Response:
        card = await self._deps.card(session.principal.tenant, approval_id, session.principal)
        if card is None:
            raise refused or _not_found()
        notice = None if refused is None else (HEADINGS.get(refused.code, CODES[refused.code].title), refused.detail)
        context = {
            "card": card,
            "notice": notice,
            "typed": typed,
            "refused": refused.code if refused else None,
            "more": self._deps.approvals is not None,
            "remarks": self._deps.remarks is not None,
        }
        status = 200 if refused is None else refused.status
        return self._pages.render("approval.html", self._shown(request, session), context, status=status)

    def _refusal(self, error: DeedboxError) -> Response:
        heading = HEADINGS.get(error.code, CODES[error.code].title)
        return self._pages.message(
            Shown(), status=error.status, heading=heading, sentences=(error.detail,), way_on=("/", "Go to the inbox")
        )


def _not_found() -> DeedboxError:
    return DeedboxError("not_found", "The address is wrong, or what it names is not yours to see.")


def _decision_of(form: dict[str, str]) -> tuple[Decision, str, str | None]:
    """Exactly one of two words, the digest that was shown, and a reason where one is needed."""
    digest = form.get("digest", "")
    if not _DIGEST.fullmatch(digest):
        raise DeedboxError("invalid_input", "The form did not say which version it decides. Read it again below.")
    reason = form.get("reason", "").strip()
    if len(reason) > _LONGEST_REASON:
        raise DeedboxError("invalid_input", f"A reason has at most {_LONGEST_REASON} characters.")
    match form.get("decision"):
        case "approve":
            return "approve", digest, reason or None
        case "reject":
            if not reason:
                raise DeedboxError("invalid_input", "A rejection needs a reason: who asked for this will read it.")
            return "reject", digest, reason
        case _:
            raise DeedboxError("invalid_input", "The form said neither approve nor reject.")
