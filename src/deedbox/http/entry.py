"""Where every request comes in: the shortest way to its route, one line in the log, and the last resort for what nobody caught.

Nothing is wrapped around a request that it does not need: a route of ours is found by the parts of its path, and called without
the layers of the framework, which are for the pages and for what no route takes.
"""

import time
from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deedbox import telemetry
from deedbox.http.problems import from_router, internal
from deedbox.http.routing import JOB, TEMPLATE, Endpoint


class Table:
    """Our own routes by the number of parts of their path.

    What it finds is what the router would find, the first route that matches; where it finds nothing the router decides.
    """

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        """Takes the routes from the beginning on up to the first that is none of ours, and of them those without a kind."""
        self._by_length: dict[int, list[tuple[list[tuple[int, str]], list[tuple[int, str]], Endpoint]]] = {}
        for one in routes:
            if not isinstance(one, Route) or not isinstance(one.endpoint, Endpoint) or one.app is not one.endpoint:
                break
            parts = one.path.split("/")
            if set(one.param_convertors) != {part[1:-1] for part in parts if part.startswith("{")}:
                break
            fixed = [(place, part) for place, part in enumerate(parts) if not part.startswith("{")]
            named = [(place, part[1:-1]) for place, part in enumerate(parts) if part.startswith("{")]
            self._by_length.setdefault(len(parts), []).append((fixed, named, one.endpoint))

    def find(self, path: str) -> tuple[Endpoint, dict[str, str]] | None:
        """The route's endpoint and what its path names, or None."""
        parts = path.split("/")
        for fixed, named, endpoint in self._by_length.get(len(parts), ()):
            for place, part in fixed:
                if parts[place] != part:
                    break
            else:
                params = {name: parts[place] for place, name in named}
                if all(params.values()):
                    return endpoint, params
        return None


class Face(Starlette):
    """The application: the framework's, with a short way to our own routes.

    The log holds the route's template, never the path or the query, in which tokens and names travel.
    """

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        """Serves the routes; each is found by the first that matches."""
        super().__init__(routes=routes)
        self.router.redirect_slashes = False
        self._table = Table(routes)
        self._rest: ASGIApp = ExceptionMiddleware(self.router, {HTTPException: from_router})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request and log its end."""
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        began, status = time.monotonic(), 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        scope["app"] = self
        try:
            found = None if scope.get("root_path") else self._table.find(scope["path"])
            if found is None:
                await self._rest(scope, receive, noted)
            else:
                endpoint, scope["path_params"] = found
                await endpoint(scope, receive, noted)
        except Exception:  # noqa: BLE001 -- as in Endpoint, for routes that are not ours
            telemetry.log("http").exception("request_failed", route=_route(scope))
            if not status:
                await internal()(scope, receive, noted)
        finally:
            spent_ms = round((time.monotonic() - began) * 1000, 1)
            telemetry.log_request(scope["method"], _route(scope), status, spent_ms, scope.get(JOB))


def _route(scope: Scope) -> str:
    template: str | None = scope.get(TEMPLATE) or getattr(scope.get("route"), "path", None)
    return template or ("unmatched" if "endpoint" not in scope else "page")
