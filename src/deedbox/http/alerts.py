"""Alerts over HTTP: what a person should look at, and closing it."""

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from deedbox.http import headers
from deedbox.http.body import StrictBody, read_model
from deedbox.http.deps import HttpDeps
from deedbox.http.jobs import answer, plain
from deedbox.http.routing import known, route
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal

_STATES = {"open": True, "closed": False, "all": None}


class CloseBody(StrictBody):
    """Why an alert is closed."""

    reason: str = Field(max_length=1000)


class AlertRoutes:
    """The handlers of alerts."""

    def __init__(self, deps: HttpDeps) -> None:
        """Only what `deps` holds is called."""
        self._deps = deps

    def routes(self) -> list[BaseRoute]:
        """The two routes."""
        deps = self._deps
        return [
            route("/api/alerts", GET=known(deps, self.listed)),
            route("/api/alerts/{alert_id}/close", POST=known(deps, self.close)),
        ]

    async def listed(self, request: Request, principal: Principal) -> Response:
        """GET /api/alerts: newest first; `?state=open|closed|all`, `?limit=` and `?before=ID`."""
        state = headers.text_parameter(request, "state") or "open"
        if state not in _STATES:
            raise DeedboxError("invalid_parameter", f"state: one of {', '.join(_STATES)}.")
        before = request.query_params.get("before")
        found = await self._deps.alerts.listed(
            principal,
            is_open=_STATES[state],
            limit=headers.number(request.query_params.get("limit", "100"), "limit"),
            before=None if before is None else headers.parameter_id(before, "before"),
        )
        return answer({"alerts": plain(found)})

    async def close(self, request: Request, principal: Principal) -> Response:
        """POST /api/alerts/{id}/close, by a person, with a reason."""
        alert_id = headers.path_id(request, "alert_id", "alert")
        body = await read_model(request, CloseBody, self._deps.limits.json_bytes)
        return answer(plain(await self._deps.alerts.close(principal, alert_id, body.reason, door="api")))
