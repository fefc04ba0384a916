"""Callbacks over HTTP: what was told since a moment, telling it again, and receivers that said they want to hear no more."""

from typing import Any

from pydantic import Field
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
from deedbox.operate.callbacks import FIRST, Callbacks

_LONGEST_REASON = 1000


class ReplayBody(StrictBody):
    """What is to be told again: since a moment, or of a job; to one receiver, or to all."""

    since: str | None = Field(default=None, max_length=50)
    job_id: str | None = Field(default=None, max_length=36)
    target: str | None = Field(default=None, max_length=63)
    cursor: str | None = Field(default=None, max_length=36)


class EnableBody(StrictBody):
    """Why a receiver is told again."""

    reason: str = Field(max_length=_LONGEST_REASON)


class CallbackRoutes:
    """The handlers of callbacks."""

    def __init__(self, deps: HttpDeps) -> None:
        """Only what `deps` holds is called."""
        self._deps = deps

    def routes(self) -> list[BaseRoute]:
        """The routes; none where nobody looks after callbacks."""
        deps = self._deps
        if deps.callbacks is None:
            return []
        return [
            route("/api/callbacks", GET=known(deps, self.listed)),
            route("/api/callbacks/replay", POST=known(deps, self.replay)),
            route("/api/callbacks/disabled", GET=known(deps, self.disabled)),
            route("/api/callbacks/{target}/enable", POST=known(deps, self.enable)),
        ]

    @property
    def _callbacks(self) -> Callbacks:
        if self._deps.callbacks is None:
            raise DeedboxError("not_found", "There are no callbacks here.")
        return self._deps.callbacks

    async def listed(self, request: Request, principal: Principal) -> Response:
        """GET /api/callbacks?since=…: what was told since then, oldest first, by pages."""
        job = request.query_params.get("job_id")
        cursor = request.query_params.get("cursor")
        page = await self._callbacks.listed(
            principal,
            since=headers.moment_parameter(request, "since"),
            job_id=None if job is None else headers.parameter_id(job, "job_id"),
            target=headers.text_parameter(request, "target"),
            state=headers.text_parameter(request, "state"),
            after=FIRST if cursor is None else headers.parameter_id(cursor, "cursor"),
            limit=headers.number(request.query_params.get("limit", "100"), "limit"),
        )
        return answer(plain(page))

    async def replay(self, request: Request, principal: Principal) -> Response:
        """POST /api/callbacks/replay: tell it again under the same ids; 202 with how many."""
        body = await read_model(request, ReplayBody, self._deps.limits.json_bytes)
        since = None if body.since is None else headers.moment_of(body.since)
        if body.since is not None and since is None:
            problem = Problem("/since", "date_time", "must be a date and time with zone, such as 2027-03-01T09:00:00Z")
            raise DeedboxError("invalid_input", "since cannot be read.", problems=(problem,))
        replayed = await self._callbacks.replay(
            principal,
            since=since,
            job_id=None if body.job_id is None else headers.parameter_id(body.job_id, "job_id"),
            target=body.target,
            after=FIRST if body.cursor is None else headers.parameter_id(body.cursor, "cursor"),
        )
        return answer(plain(replayed), 202)

    async def disabled(self, _request: Request, principal: Principal) -> Response:
        """GET /api/callbacks/disabled: receivers that are told nothing more, since when and why."""
        return answer({"disabled": plain(await self._callbacks.disabled(principal))})

    async def enable(self, request: Request, principal: Principal) -> Response:
        """POST /api/callbacks/{target}/enable: tell a disabled receiver again."""
        body = await read_model(request, EnableBody, self._deps.limits.json_bytes)
        target = str(request.path_params["target"])
        await self._callbacks.enable(principal, target, body.reason)
        return answer({"target": target, "enabled": True})


def parameters() -> list[dict[str, Any]]:
    """The filters of the list, for the description."""
    formats = {"since": "date-time", "job_id": "uuid", "cursor": "uuid"}
    texts = [
        {"name": name, "in": "query", "schema": {"type": "string", **({"format": formats[name]} if name in formats else {})}}
        for name in ("since", "job_id", "target", "state", "cursor")
    ]
    return [*texts, {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": 1000}}]
