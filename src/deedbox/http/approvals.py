"""Beside deciding one approval: editing it, handing one's say on, and deciding several at once."""

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AwareDatetime, BeforeValidator, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from deedbox.gate.batch import MOST, Line
from deedbox.gate.remarks import LONGEST
from deedbox.http import headers
from deedbox.http.body import StrictBody, read_model
from deedbox.http.deps import HttpDeps
from deedbox.http.jobs import answer, plain
from deedbox.http.routing import known, route
from deedbox.model.identity import Principal

_DOOR = "api"
_LONGEST_REASON = 2000
_DIGEST = "^[0-9a-f]{64}$"
Reason = Annotated[str | None, Field(max_length=_LONGEST_REASON)]


def _text(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("a moment is a text in RFC 3339")  # noqa: TRY004 -- pydantic takes this one for a refusal
    return value


def _moment(value: object) -> object:
    return None if value is None else _text(value)


class EditBody(StrictBody):
    """The digest of what was shown, and the new payloads by slot; slots that are not named stay as they are."""

    digest: str = Field(pattern=_DIGEST)
    payloads: dict[str, Any] = Field(min_length=1, max_length=100)
    reason: Reason = None


class DelegateBody(StrictBody):
    """To whom one's say in an approval is handed, by name."""

    to: str = Field(min_length=1, max_length=200)
    reason: Reason = None


class HandOverBody(DelegateBody):
    """To whom one's say in every approval is handed until a moment, which names its zone."""

    until: Annotated[AwareDatetime, Field(strict=False), BeforeValidator(_text)]


class CommentBody(StrictBody):
    """What is said of an approval that waits."""

    text: str = Field(min_length=1, max_length=LONGEST)


class SnoozeBody(StrictBody):
    """Until when one looks away from an approval, with its zone; null to look at it again."""

    until: Annotated[AwareDatetime | None, Field(strict=False), BeforeValidator(_moment)]


class ManyLine(StrictBody):
    """One approval among several, and the digest of what was shown of it."""

    approval_id: Annotated[UUID, Field(strict=False)]
    digest: str = Field(pattern=_DIGEST)


class ManyBody(StrictBody):
    """One decision for several approvals of one action and policy, none of them more than reversible."""

    decision: Literal["approve", "reject"]
    approvals: list[ManyLine] = Field(min_length=1, max_length=MOST)
    reason: Reason = None


class Approving:
    """The handlers, over the same functions as the page and the command line."""

    def __init__(self, deps: HttpDeps) -> None:
        """Only what `deps` holds is called."""
        self._deps = deps
        self._approvals = deps.approvals

    def routes(self) -> list[BaseRoute]:
        """The routes; those with a name in the place of an id come before the ones with an id."""
        deps = self._deps
        return [
            route("/api/approvals/decisions", POST=known(deps, self.decide_many)),
            route("/api/approvals/{approval_id}/edit", POST=known(deps, self.edit)),
            route("/api/approvals/{approval_id}/comments", POST=known(deps, self.comment)),
            route("/api/approvals/{approval_id}/snooze", POST=known(deps, self.snooze)),
            route("/api/approvals/{approval_id}/delegate", POST=known(deps, self.delegate)),
            route("/api/delegations", GET=known(deps, self.delegations), POST=known(deps, self.hand_over)),
            route("/api/delegations/{delegation_id}/withdraw", POST=known(deps, self.withdraw)),
        ]

    async def decide_many(self, request: Request, principal: Principal) -> Response:
        """POST /api/approvals/decisions: an answer for each, in the same order."""
        body = await read_model(request, ManyBody, self._deps.limits.json_bytes)
        lines = [Line(one.approval_id, one.digest) for one in body.approvals]
        answers = await self._approvals.decide_many(principal, lines, body.decision, body.reason, _DOOR)
        return answer({"answers": plain(answers)})

    async def edit(self, request: Request, principal: Principal) -> Response:
        """POST /api/approvals/{id}/edit: what waits then, under a new id and a new digest."""
        approval_id = headers.path_id(request, "approval_id", "approval")
        body = await read_model(request, EditBody, self._deps.limits.json_bytes)
        done = await self._approvals.edit(principal, approval_id, body.digest, body.payloads, body.reason, _DOOR)
        return answer(
            {
                "approval_id": str(done.approval_id),
                "digest": done.digest.hex(),
                "revision": done.revision,
                "slots": list(done.slots),
                "supersedes": str(approval_id),
            }
        )

    async def delegate(self, request: Request, principal: Principal) -> Response:
        """POST /api/approvals/{id}/delegate: as long as this approval is open."""
        approval_id = headers.path_id(request, "approval_id", "approval")
        body = await read_model(request, DelegateBody, self._deps.limits.json_bytes)
        done = await self._approvals.delegate(
            principal, body.to, approval_id=approval_id, until=None, reason=body.reason, how=_DOOR
        )
        return answer(plain(done))

    async def comment(self, request: Request, principal: Principal) -> Response:
        """POST /api/approvals/{id}/comments: everybody who opens it reads what was said; nothing is decided by it."""
        approval_id = headers.path_id(request, "approval_id", "approval")
        body = await read_model(request, CommentBody, self._deps.limits.json_bytes)
        at = await self._approvals.comment(principal, approval_id, body.text, _DOOR)
        return answer(plain({"approval_id": approval_id, "name": principal.name, "text": body.text.strip(), "at": at}))

    async def snooze(self, request: Request, principal: Principal) -> Response:
        """POST /api/approvals/{id}/snooze: one's own, never past the deadline."""
        approval_id = headers.path_id(request, "approval_id", "approval")
        body = await read_model(request, SnoozeBody, self._deps.limits.json_bytes)
        until = await self._approvals.snooze(principal, approval_id, _DOOR, until=body.until)
        return answer(plain({"approval_id": approval_id, "snoozed_until": until}))

    async def hand_over(self, request: Request, principal: Principal) -> Response:
        """POST /api/delegations: in every approval, until a moment."""
        body = await read_model(request, HandOverBody, self._deps.limits.json_bytes)
        done = await self._approvals.delegate(
            principal, body.to, approval_id=None, until=body.until, reason=body.reason, how=_DOOR
        )
        return answer(plain(done))

    async def delegations(self, _request: Request, principal: Principal) -> Response:
        """GET /api/delegations: what one handed on and was handed, the newest first."""
        return answer({"delegations": plain(await self._approvals.delegations(principal))})

    async def withdraw(self, request: Request, principal: Principal) -> Response:
        """POST /api/delegations/{id}/withdraw: by whoever gave it or has it."""
        delegation_id = headers.path_id(request, "delegation_id", "delegation")
        await self._approvals.withdraw(principal, delegation_id, _DOOR)
        return answer({"delegation_id": str(delegation_id), "withdrawn": True})
