"""A job's history as it grows: server-sent events, or pages of JSON for who asks for that."""

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute

from deedbox import telemetry
from deedbox.http import headers
from deedbox.http.browsers import Browsers
from deedbox.http.deps import HttpDeps
from deedbox.http.jobs import answer, plain
from deedbox.http.routing import note_job, patiently, route
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.operate.follow import Follow
from deedbox.operate.views import AWAY, Event, EventPage

SSE = "text/event-stream"
_RETRY_MS = 2000
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


_FOR_BROWSERS = frozenset({"job.progress", "job.partial", "job.completed", "job.failed", "job.canceled"})
"""The events whose payload a status token shows; others keep their place, and do not say who decided or whom effects reach."""


def envelope(event: Event, principal: Principal | None = None) -> dict[str, Any]:
    """An event as every subscriber gets it, and as the bearer of a status token does."""
    shown: dict[str, Any] = plain(event)
    if principal is not None and principal.method == "status_token" and event.type not in _FOR_BROWSERS:
        shown["payload"] = {}
    return shown


def frame(event: Event, principal: Principal | None = None) -> bytes:
    """An event as a server-sent one; its number is what a client resumes after."""
    data = json.dumps(envelope(event, principal), ensure_ascii=False, separators=(",", ":"))
    return f"id: {event.seq}\nevent: {event.type}\ndata: {data}\n\n".encode()


def _weight(accept: str, wanted: str) -> float:
    """The quality an Accept header gives to a media type (RFC 9110), 0 where it does not name it."""
    for part in accept.split(","):
        name, *parameters = (item.strip().lower() for item in part.split(";"))
        if name == wanted:
            quality = next((item[2:] for item in parameters if item.startswith("q=")), "1")
            try:
                return float(quality)
            except ValueError:
                return 0.0
    return 0.0


class Events:
    """The handler of events."""

    def __init__(self, deps: HttpDeps, follow: Follow, browsers: Browsers) -> None:
        """`follow` waits for events."""
        self._deps = deps
        self._browsers = browsers
        self._follow = follow

    def routes(self) -> list[BaseRoute]:
        """The one route."""
        browsers = self._browsers
        return [route("/api/jobs/{job_id}/events", GET=browsers.showing(self.events), OPTIONS=browsers.asking("GET"))]

    async def events(self, request: Request, principal: Principal) -> Response:
        """GET /api/jobs/{id}/events: from after `Last-Event-ID`, else `?after=N`, else from the beginning."""
        job_id = headers.path_id(request, "job_id", "job")
        note_job(request, job_id)
        accept = ",".join(request.headers.getlist("accept"))
        as_json = _weight(accept, "application/json") > _weight(accept, SSE)
        last = None if as_json else headers.one_header(request, "Last-Event-ID")
        if last:
            after = headers.number(last, "Last-Event-ID", header=True)
        else:
            after = headers.number(request.query_params.get("after", "0"), "after")
        wait_s = headers.seconds(request, "wait") if as_json and request.method == "GET" else 0.0
        page = await patiently(
            request, self._deps, wait_s, lambda seconds: self._follow.page(principal, job_id, after, seconds)
        )
        if page is None:
            raise headers.no_such("job")
        if as_json:
            return answer(
                {
                    "events": [envelope(event, principal) for event in page.events],
                    "next_after": page.next_after,
                    "state": page.state,
                    "complete": page.complete,
                }
            )
        if page.complete and not page.events:
            # The client that reconnects after the end is told to stop doing so.
            return Response(status_code=204, headers=_HEADERS)
        if request.method == "HEAD":
            return Response(headers=_HEADERS, media_type=SSE)
        return StreamingResponse(self._stream(request, principal, page), headers=_HEADERS, media_type=SSE)

    async def _stream(self, request: Request, principal: Principal, first: EventPage) -> AsyncIterator[bytes]:
        """The frames: those read already, then what follows. A failure ends the stream, and the client resumes."""
        yield f"retry: {_RETRY_MS}\n\n".encode()
        for event in first.events:
            yield frame(event, principal)
        if first.complete:
            return
        job_id = headers.path_id(request, "job_id", "job")
        follow = self._follow.events(
            principal,
            job_id,
            first.next_after,
            quiet_s=self._deps.keep_alive_s,
            until=self._deps.stopping.is_set,
        )
        try:
            async with aclosing(follow):
                async for page in follow:
                    if not page.events:
                        if await self._still(request) is None:
                            return
                        yield b": keep-alive\n\n"
                    for event in page.events:
                        yield frame(event, principal)
        except (DeedboxError, *AWAY) as error:
            telemetry.log("http").warning("stream_ended", job_id=str(job_id), error=type(error).__name__)

    async def _still(self, request: Request) -> Principal | None:
        """Whether the key or token that opened the stream is still good: a stream outlives no revocation by much."""
        found = await self._browsers.reader(request)
        return found if isinstance(found, Principal) else None
