"""Targets over HTTP: how each stands, paused, resumed and limited."""

from pydantic import Field, StrictBool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from deedbox.http import headers
from deedbox.http.body import StrictBody, read_model
from deedbox.http.deps import HttpDeps
from deedbox.http.jobs import answer, plain
from deedbox.http.routing import known, route
from deedbox.model.errors import DeedboxError, Problem
from deedbox.model.identity import Principal
from deedbox.operate.targets import TargetLimits


class LimitsBody(StrictBody):
    """Rate, burst and order of a target, all three: what is null or not there is lifted."""

    rate_per_s: float | None = None
    burst: int | None = Field(default=None, strict=True)
    order_by: str | None = Field(default=None, max_length=200)


class TargetBody(StrictBody):
    """What is to change about a target (`*` for all of a connector), its pause or its limits, and why."""

    connector: str = Field(max_length=100)
    target: str = Field(max_length=1000)
    paused: StrictBool | None = None
    limits: LimitsBody | None = None
    reason: str = Field(max_length=1000)


class TargetRoutes:
    """The handlers of targets."""

    def __init__(self, deps: HttpDeps) -> None:
        """Only what `deps` holds is called."""
        self._deps = deps

    def routes(self) -> list[BaseRoute]:
        """The two routes."""
        return [
            route("/api/targets", GET=known(self._deps, self.listed), PUT=known(self._deps, self.change)),
            route("/api/targets/egress", GET=known(self._deps, self.egress)),
        ]

    async def listed(self, request: Request, principal: Principal) -> Response:
        """GET /api/targets: every target with its state and limits; `?connector=` and `?target=` name some."""
        found = await self._deps.targets.listed(
            principal,
            connector=headers.text_parameter(request, "connector"),
            target=headers.text_parameter(request, "target"),
        )
        return answer({"targets": plain(found)})

    async def egress(self, request: Request, principal: Principal) -> Response:
        """GET /api/targets/egress: where one leads to, and whether that may be dialled; nothing is."""
        connector, target = (headers.text_parameter(request, name) or "" for name in ("connector", "target"))
        return answer(plain(await self._deps.targets.egress(principal, connector, target)))

    async def change(self, request: Request, principal: Principal) -> Response:
        """PUT /api/targets: pause one, resume it, limit it."""
        body = await read_model(request, TargetBody, self._deps.limits.json_bytes)
        if (body.paused is None) == (body.limits is None):
            problem = Problem("/paused", "one", "say what is to change: `paused` or `limits`, one of them")
            raise DeedboxError("invalid_input", "One thing is changed at a time.", problems=(problem,))
        verbs = self._deps.targets
        if body.limits is not None:
            limits = TargetLimits(body.limits.rate_per_s, body.limits.burst, body.limits.order_by)
            changed = await verbs.limit(principal, body.connector, body.target, limits, body.reason)
        else:
            verb = verbs.pause if body.paused else verbs.resume
            changed = await verb(principal, body.connector, body.target, body.reason)
        return answer(plain(changed))
