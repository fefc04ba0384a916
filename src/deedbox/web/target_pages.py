"""The page of targets: how each stands, what waits and why, where it leads to, and the verbs that hold it back or let it go."""

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from deedbox.access import SessionInfo
from deedbox.model.errors import DeedboxError, Problem
from deedbox.operate.targets import Reach, TargetLimits
from deedbox.web.sure import notice_of, require_sure
from deedbox.web.visits import Visits

if TYPE_CHECKING:
    from deedbox.operate.targets import Targets

_DOOR = "page"
_LONGEST = 1000


class TargetPages:
    """The handlers of the page, over the same verbs as the API and the command line."""

    def __init__(self, visits: Visits, targets: "Targets") -> None:
        """Who asks is found by the session that the browser sends."""
        self._visits = visits
        self._targets = targets

    async def page(self, request: Request) -> Response:
        """GET /targets: all of them; with `connector` and `target` in the query that one, with its verbs. Changes nothing."""
        session = await self._visits.session(request)
        if session is None:
            return self._visits.go("/login?next=/targets")
        connector, target = request.query_params.get("connector"), request.query_params.get("target")
        if connector is None or target is None:
            lines = await self._targets.listed(session.principal)
            return self._visits.pages.render("targets.html", self._visits.shown(request, session), {"lines": lines})
        return await self._one(request, session, connector[:_LONGEST], target[:_LONGEST])

    async def change(self, request: Request) -> Response:
        """POST /targets: pause one, resume it, limit it; with a reason, and a tick that says it is meant."""
        found = await self._visits.own_form(request)
        if found is None:
            return self._visits.logged_out("/targets", kept="nothing was changed")
        session, form = found
        connector, target = form.get("connector", ""), form.get("target", "")
        try:
            require_sure(form)
            await self._do(session, form, connector, target)
        except DeedboxError as refused:
            if refused.code == "not_found":
                raise
            return await self._one(request, session, connector, target, refused=refused, typed=form)
        return self._visits.go(f"/targets?{urlencode({'connector': connector, 'target': target})}")

    async def _do(self, session: SessionInfo, form: dict[str, str], connector: str, target: str) -> None:
        person, reason = session.principal, form.get("reason", "")
        match form.get("verb"):
            case "pause":
                await self._targets.pause(person, connector, target, reason, door=_DOOR)
            case "resume":
                await self._targets.resume(person, connector, target, reason, door=_DOOR)
            case "limit":
                await self._targets.limit(person, connector, target, _limits(form), reason, door=_DOOR)
            case _:
                raise DeedboxError("invalid_input", "The form said none of the verbs there are.")

    async def _one(
        self,
        request: Request,
        session: SessionInfo,
        connector: str,
        target: str,
        *,
        refused: DeedboxError | None = None,
        typed: dict[str, str] | None = None,
    ) -> Response:
        person = session.principal
        context = {
            "one": await self._targets.shown(person, connector, target),
            "waiting": await self._targets.waiting(person, connector, target),
            "reach": await self._reach(session, connector, target),
            "may_change": person.may("cancel"),
            "notice": notice_of(refused),
            "typed": typed or {},
        }
        status = 200 if refused is None else refused.status
        return self._visits.pages.render("target.html", self._visits.shown(request, session), context, status=status)

    async def _reach(self, session: SessionInfo, connector: str, target: str) -> Reach | None:
        try:
            return await self._targets.egress(session.principal, connector, target)
        except DeedboxError:
            return None


def _limits(form: dict[str, str]) -> TargetLimits:
    """Rate, burst and order as they were typed; what is empty is lifted. Raises DeedboxError invalid_input for no numbers."""
    rate, burst, order = (form.get(name, "").strip() for name in ("rate_per_s", "burst", "order_by"))
    try:
        return TargetLimits(float(rate) if rate else None, int(burst) if burst else None, order or None)
    except ValueError as error:
        problem = Problem("/limits", "number", "rate and burst are numbers")
        raise DeedboxError("invalid_input", "Rate and burst are numbers, or empty.", problems=(problem,)) from error
