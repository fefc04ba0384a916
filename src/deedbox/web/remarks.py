"""Beside deciding, on the card: saying something of it, and looking away from it for a while."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Protocol
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.web.visits import Visits, own_id

_DOOR = "page"
_WHILES = {"1": 3600.0, "4": 4 * 3600.0, "24": 24 * 3600.0, "72": 72 * 3600.0}
_Handler = Callable[[Request], Awaitable[Response]]


class Remarking(Protocol):
    """What the page needs of remarks."""

    async def comment(self, principal: Principal, approval_id: UUID, text: str, how: str) -> datetime:
        """Say something of an approval that waits. Raises DeedboxError, see deedbox.gate.remarks."""
        ...

    async def snooze(
        self, principal: Principal, approval_id: UUID, how: str, *, until: datetime | None = None, for_s: float | None = None
    ) -> datetime | None:
        """Look away from an approval for a while, or at it again. Raises DeedboxError, see deedbox.gate.remarks."""
        ...


class Remarks:
    """The handlers; each leads back to the card."""

    def __init__(self, visits: Visits, approvals: Remarking) -> None:
        """Who asks is found by the session that the browser sends."""
        self._visits = visits
        self._approvals = approvals

    def routes(self, page: Callable[[_Handler], _Handler]) -> list[BaseRoute]:
        """The routes; `page` turns every refusal into a page."""
        return [
            Route("/approvals/{approval_id}/comment", page(self.comment), methods=["POST"]),
            Route("/approvals/{approval_id}/snooze", page(self.snooze), methods=["POST"]),
        ]

    async def comment(self, request: Request) -> Response:
        """POST /approvals/{id}/comment."""
        found = await self._visits.own_form(request)
        if found is None:
            return self._visits.logged_out("/", kept="nothing was said")
        session, form = found
        approval_id = _id(request)
        await self._approvals.comment(session.principal, approval_id, form.get("text", ""), _DOOR)
        return self._visits.go(f"/approvals/{approval_id}")

    async def snooze(self, request: Request) -> Response:
        """POST /approvals/{id}/snooze: for so many hours, or not any more."""
        found = await self._visits.own_form(request)
        if found is None:
            return self._visits.logged_out("/", kept="nothing was changed")
        session, form = found
        approval_id, hours = _id(request), form.get("hours", "")
        if hours != "none" and hours not in _WHILES:
            raise DeedboxError("invalid_input", "The form did not say for how long.")
        await self._approvals.snooze(session.principal, approval_id, _DOOR, for_s=_WHILES.get(hours))
        return self._visits.go("/" if hours != "none" else f"/approvals/{approval_id}")


def _id(request: Request) -> UUID:
    approval_id = own_id(str(request.path_params["approval_id"]))
    if approval_id is None:
        raise DeedboxError("not_found", "The address is wrong, or what it names is not yours to see.")
    return approval_id
