"""The report over HTTP: what actions have spent on models lately."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from deedbox.http.deps import HttpDeps
from deedbox.http.jobs import answer, plain
from deedbox.http.routing import known, route
from deedbox.model.backoff import seconds
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.operate.report import Reports


class ReportRoutes:
    """The handler of the report."""

    def __init__(self, deps: HttpDeps, reports: Reports) -> None:
        """Only what is given is called."""
        self._deps = deps
        self._reports = reports

    def routes(self) -> list[BaseRoute]:
        """The one route; it changes nothing."""
        return [route("/api/report", GET=known(self._deps, self.shown))]

    async def shown(self, request: Request, principal: Principal) -> Response:
        """GET /api/report?since=7d: calls, tokens and cost of models, by action, endpoint and model."""
        try:
            since_s = seconds(request.query_params.get("since", "7d"), name="since")
        except ValueError as error:
            raise DeedboxError("invalid_parameter", str(error)) from error
        return answer(plain((await self._reports.models(principal, since_s)).shown()))
