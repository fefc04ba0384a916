"""Lanes over HTTP: what waits and runs in each, paused and limited, one by one or all of an action."""

from pydantic import Field, StrictBool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from deedbox.http.body import StrictBody, read_model
from deedbox.http.deps import HttpDeps
from deedbox.http.headers import no_such
from deedbox.http.jobs import answer, plain
from deedbox.http.routing import known, route
from deedbox.model.identity import Principal


class LaneBody(StrictBody):
    """What is to change about a lane, and why; a limit below zero lifts it."""

    paused: StrictBool | None = None
    limit: int | None = Field(default=None, ge=-1, strict=True)
    reason: str = Field(max_length=1000)


class ActionLimitBody(StrictBody):
    """How many jobs of an action may run at once over all its lanes, and why; a limit below zero lifts it."""

    limit: int = Field(ge=-1, strict=True)
    reason: str = Field(max_length=1000)


class LaneRoutes:
    """The handlers of lanes."""

    def __init__(self, deps: HttpDeps) -> None:
        """Only what `deps` holds is called."""
        self._deps = deps

    def routes(self) -> list[BaseRoute]:
        """The three routes."""
        deps = self._deps
        return [
            route("/api/lanes", GET=known(deps, self.listed)),
            route("/api/lanes/{lane_id}", PUT=known(deps, self.change)),
            route("/api/lanes/actions/{action}", PUT=known(deps, self.limit_action)),
        ]

    async def listed(self, _request: Request, principal: Principal) -> Response:
        """GET /api/lanes: every lane of the tenant, with what waits and runs."""
        return answer({"lanes": plain(await self._deps.lanes.listed(principal))})

    async def change(self, request: Request, principal: Principal) -> Response:
        """PUT /api/lanes/{id}: pause it, let it go on, limit it."""
        lane_id = str(request.path_params["lane_id"])
        if not lane_id.isascii() or not lane_id.isdecimal() or len(lane_id) > 18:  # noqa: PLR2004 -- digits of a bigint
            raise no_such("lane")
        body = await read_model(request, LaneBody, self._deps.limits.json_bytes)
        changed = await self._deps.lanes.change(principal, int(lane_id), body.reason, paused=body.paused, limit=body.limit)
        return answer(plain(changed))

    async def limit_action(self, request: Request, principal: Principal) -> Response:
        """PUT /api/lanes/actions/{action}: limit an action over all queues and tenants."""
        body = await read_model(request, ActionLimitBody, self._deps.limits.json_bytes)
        action = str(request.path_params["action"])
        found = await self._deps.lanes.limit_action(principal, action, body.limit, body.reason)
        return answer({"action": action, "max_running": None if body.limit < 0 else body.limit, "lanes": plain(found)})
