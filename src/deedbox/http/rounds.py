"""Running again over HTTP: take up, close, and replace by a correction."""

from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from deedbox.http import headers
from deedbox.http.body import StrictBody, read_model
from deedbox.http.deps import HttpDeps
from deedbox.http.jobs import answer, links
from deedbox.http.routing import known, note_job, route
from deedbox.model.identity import Principal

_LONGEST_REASON = 1000


class AgainBody(StrictBody):
    """Why a job is taken up or closed."""

    reason: str = Field(max_length=_LONGEST_REASON)


class ReplacementBody(StrictBody):
    """The corrected input, the key that was issued for the correction, and why."""

    input: dict[str, Any]
    key: str = Field(max_length=255)
    reason: str = Field(max_length=_LONGEST_REASON)


class RoundRoutes:
    """The handlers of the verbs by which something runs again."""

    def __init__(self, deps: HttpDeps) -> None:
        """Only what `deps` holds is called."""
        self._deps = deps

    def routes(self) -> list[BaseRoute]:
        """The routes, in the order of faces.md."""
        deps = self._deps
        return [
            route("/api/jobs/{job_id}/retry", POST=known(deps, self.take_up)),
            route("/api/jobs/{job_id}/close", POST=known(deps, self.close)),
            route("/api/jobs/{job_id}/replacement", POST=known(deps, self.replace)),
        ]

    async def take_up(self, request: Request, principal: Principal) -> Response:
        """POST /api/jobs/{id}/retry: a new round of a parked job; 409 for any other."""
        job_id = headers.path_id(request, "job_id", "job")
        note_job(request, job_id)
        body = await read_model(request, AgainBody, self._deps.limits.json_bytes)
        number = await self._deps.rounds.take_up(principal, job_id, body.reason)
        where = links(self._deps.base_url, job_id)
        return answer({"job_id": str(job_id), "status": "queued", "round": number, **where}, 202)

    async def close(self, request: Request, principal: Principal) -> Response:
        """POST /api/jobs/{id}/close: a parked job has failed for good; 409 for any other."""
        job_id = headers.path_id(request, "job_id", "job")
        note_job(request, job_id)
        body = await read_model(request, AgainBody, self._deps.limits.json_bytes)
        await self._deps.rounds.close(principal, job_id, body.reason)
        return answer({"job_id": str(job_id), "status": "failed_terminal", **links(self._deps.base_url, job_id)})

    async def replace(self, request: Request, principal: Principal) -> Response:
        """POST /api/jobs/{id}/replacement: a correction of an ended job, a job of its own under a key of its own."""
        job_id = headers.path_id(request, "job_id", "job")
        note_job(request, job_id)
        body = await read_model(request, ReplacementBody, self._deps.limits.json_bytes)
        accepted = await self._deps.rounds.replace(principal, job_id, body.input, body.key, body.reason)
        where = links(self._deps.base_url, accepted.job_id)
        extra = {"Idempotent-Replayed": "true"} if accepted.replayed else {}
        sent = {"job_id": str(accepted.job_id), "status": accepted.state, "replaces": str(job_id), **where}
        return answer(sent, 202, {"Location": where["status_url"], **extra})
