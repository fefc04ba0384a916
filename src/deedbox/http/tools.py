"""Tools over HTTP: what somebody may call, and calling it. Whoever is known is answered in the one shape of tools, with 200.

Agents' clients keep little of an answer that is not 200, so a refused or failed call is an answer like any other. Only who is
not known at all, and a route that is not there, are problems of the protocol.
"""

import re
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from deedbox.http import headers
from deedbox.http.body import is_json, media_type, read_bytes, require_utf8
from deedbox.http.deps import LONGEST_WAIT_S, HttpDeps
from deedbox.http.jobs import answer
from deedbox.http.routing import known, note_job, route, unless_gone
from deedbox.intake.documents import Parsed, parse_canonically
from deedbox.model.errors import DeedboxError, Problem
from deedbox.model.identity import Principal
from deedbox.operate.tools import ENVELOPE_SCHEMA, Envelope, ToolCall, Tools

if TYPE_CHECKING:
    from collections.abc import Mapping

WAIT_S = 5.0
"""How long a call waits for its end where it does not say, in seconds."""
_SOURCES = frozenset({"http", "n8n"})
_SECONDS = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,3})?")


class ToolRoutes:
    """The handlers of tools."""

    def __init__(self, deps: HttpDeps, tools: Tools) -> None:
        """`tools` is the contract; of `deps` the limits are taken."""
        self._deps = deps
        self._tools = tools

    def routes(self) -> list[BaseRoute]:
        """The routes."""
        return [
            route("/api/tools", GET=known(self._deps, self.listed)),
            route("/api/tools/{action}", POST=known(self._deps, self.call)),
        ]

    async def listed(self, _request: Request, principal: Principal) -> Response:
        """GET /api/tools: what the caller may call, with schemas and annotations, and the schema of every answer."""
        tools = [tool.shown() for tool in self._tools.listed(principal)]
        return answer({"tools": tools, "envelope_schema": dict(ENVELOPE_SCHEMA)})

    async def call(self, request: Request, principal: Principal) -> Response:
        """POST /api/tools/{action}: the body holds the arguments; `?wait_s=` is at most 25, else 5 or the action's own."""
        name = str(request.path_params["action"])
        call, refused = await self._read(request, name)
        if refused is not None:
            return self._said(request, await self._tools.refuse(principal, call, refused))
        # Not asked again where the server stops, as a wait elsewhere is: a call is made once.
        envelope = await unless_gone(request, self._tools.call(principal, call, hurry=self._deps.stopping))
        return self._said(request, envelope)

    async def _read(self, request: Request, name: str) -> tuple[ToolCall, DeedboxError | None]:
        """The call as it was sent, and why it is refused before anything of it counts."""
        call = ToolCall(name, None)
        try:
            call = ToolCall(
                name,
                None,
                key=headers.idempotency_key(request),
                source=_source(request),
                wait_s=self._wait(request, name),
                caller_run=headers.caller_run(request),
                traceparent=headers.traceparent(request),
                parent_job_id=headers.one_header(request, "Deedbox-Parent-Job"),
                version=_version(request),
            )
            parsed = await self._arguments(request)
        except DeedboxError as error:
            return call, error
        return replace(call, arguments=parsed.value, parsed=parsed), None

    def _wait(self, request: Request, name: str) -> float:
        asked = request.query_params.get("wait_s")
        return self._tools.wait_s(name, WAIT_S) if asked is None else _seconds(asked)

    async def _arguments(self, request: Request) -> Parsed:
        name, options = media_type(request)
        if not is_json(name):
            raise DeedboxError("unsupported_media_type", "Send the arguments as application/json.")
        require_utf8(options)
        return parse_canonically(await read_bytes(request, self._deps.limits.json_bytes))

    @staticmethod
    def _said(request: Request, envelope: Envelope) -> Response:
        if envelope.job_id is not None:
            note_job(request, UUID(envelope.job_id))
        again: Mapping[str, str] = {}
        if envelope.retry_after_s is not None:
            again = {"Retry-After": str(max(1, round(envelope.retry_after_s)))}
        return answer(envelope.shown(), 200, again)


def _seconds(text: str) -> float:
    if not _SECONDS.fullmatch(text):
        problem = Problem("/wait_s", "parameter", "must be a number of seconds such as 5")
        raise DeedboxError("invalid_parameter", "wait_s must be a number of seconds such as 5.", problems=(problem,))
    return min(float(text), LONGEST_WAIT_S)


def _version(request: Request) -> int | None:
    text = headers.one_header(request, "Deedbox-Tool-Version")
    return None if text is None else headers.number(text, "Deedbox-Tool-Version", header=True)


def _source(request: Request) -> str:
    """Where the call says it comes from; what is said otherwise is plain HTTP."""
    said = headers.one_header(request, "Deedbox-Source")
    return said if said in _SOURCES else "http"
