"""Whether the process is up, whether it can do its work, and its figures."""

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from deedbox import telemetry
from deedbox.http.deps import HttpDeps
from deedbox.http.jobs import answer
from deedbox.http.routing import route
from deedbox.model.errors import DeedboxError


class Health:
    """The handlers of `/healthz`, `/readyz` and `/metrics`; none of them asks who is there."""

    def __init__(self, deps: HttpDeps) -> None:
        """`deps.ready` decides about readiness."""
        self._deps = deps

    def routes(self) -> list[BaseRoute]:
        """The three routes."""
        return [
            route("/healthz", GET=self.alive),
            route("/readyz", GET=self.ready),
            route("/metrics", GET=self.metrics),
        ]

    async def alive(self, _request: Request) -> Response:
        """GET /healthz: the process answers, whatever the database does."""
        return answer({"status": "ok"})

    async def ready(self, _request: Request) -> Response:
        """GET /readyz: 200 when work gets done, 503 with what is missing."""
        try:
            missing = dict(await self._deps.ready())
        except Exception as error:  # noqa: BLE001 -- a readiness that cannot be found out is none
            telemetry.log("http").warning("readiness_failed", error=type(error).__name__)
            missing = {"ready": "could not be found out"}
        if self._deps.stopping.is_set():
            missing["stopping"] = "the server is being stopped"
        return answer({"status": "not ready" if missing else "ready", "missing": missing}, 503 if missing else 200)

    async def metrics(self, _request: Request) -> Response:
        """GET /metrics for Prometheus. While the database is away the figures of this process are shown all the same."""
        try:
            await self._deps.views.measure()
        except DeedboxError as error:
            telemetry.log("http").warning("not_measured", code=error.code)
        content = generate_latest(self._deps.metrics)
        return Response(content, headers={"Cache-Control": "no-store", "Content-Type": CONTENT_TYPE_LATEST})
