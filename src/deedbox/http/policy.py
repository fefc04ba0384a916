"""Policies over HTTP: as they are, and tried on what was proposed lately."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from deedbox.http.deps import HttpDeps
from deedbox.http.jobs import answer, plain
from deedbox.http.routing import known, route
from deedbox.model.backoff import seconds
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal


class PolicyRoutes:
    """The handlers of policies."""

    def __init__(self, deps: HttpDeps) -> None:
        """Only what `deps` holds is called."""
        self._deps = deps

    def routes(self) -> list[BaseRoute]:
        """The two routes; both change nothing."""
        return [
            route("/api/policy", GET=known(self._deps, self.shown)),
            route("/api/policy/trial", GET=known(self._deps, self.tried)),
        ]

    async def shown(self, _request: Request, principal: Principal) -> Response:
        """GET /api/policy: the policy of each action, rule by rule."""
        return answer({"policies": plain(self._deps.policies.shown(principal))})

    async def tried(self, request: Request, principal: Principal) -> Response:
        """GET /api/policy/trial?since=7d: what was proposed lately under the rules of now, beside what it got."""
        try:
            since_s = seconds(request.query_params.get("since", "7d"), name="since")
        except ValueError as error:
            raise DeedboxError("invalid_parameter", str(error)) from error
        return answer(plain((await self._deps.policies.tried(principal, since_s)).shown()))
