"""The audit over HTTP: its entries, the check of its chain, an export that can be verified, the questions, and erasing."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any, Literal, cast

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute

from deedbox import telemetry
from deedbox.http import headers
from deedbox.http.body import StrictBody, read_model
from deedbox.http.deps import HttpDeps
from deedbox.http.jobs import answer, plain
from deedbox.http.routing import known, route
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.operate.answers import QUESTIONS
from deedbox.operate.auditing import Auditing
from deedbox.operate.views import AWAY

_MEDIA_TYPES: dict[str, str] = {"ndjson": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}


class ErasureBody(StrictBody):
    """Whose data is to be erased, by the name under which an action's `data_subject` finds them, and why."""

    data_subject: str = Field(max_length=1000)
    reason: str = Field(max_length=1000)


class AuditRoutes:
    """The handlers of the audit."""

    def __init__(self, deps: HttpDeps, auditing: Auditing) -> None:
        """`auditing` reads and erases; of `deps` the limits are taken."""
        self._deps = deps
        self._auditing = auditing

    def routes(self) -> list[BaseRoute]:
        """The routes."""
        deps = self._deps
        return [
            route("/api/audit", GET=known(deps, self.listed)),
            route("/api/audit/check", GET=known(deps, self.check)),
            route("/api/audit/export", GET=known(deps, self.export)),
            route("/api/audit/key", GET=known(deps, self.key)),
            route("/api/audit/answers", GET=known(deps, self.answers)),
            route("/api/erasures", POST=known(deps, self.erase)),
        ]

    async def listed(self, request: Request, principal: Principal) -> Response:
        """GET /api/audit: entries, newest first; `actor`, `verb`, `subject`, `since`, `until`, `before`, `limit`."""
        wanted = {name: headers.text_parameter(request, name) for name in ("actor", "verb", "subject")}
        before = request.query_params.get("before")
        page = await self._auditing.listed(
            principal,
            **wanted,
            since=_moment(request, "since"),
            until=_moment(request, "until"),
            before=None if before is None else headers.number(before, "before"),
            limit=headers.number(request.query_params.get("limit", "100"), "limit"),
        )
        return answer({"entries": plain(page.entries), "before": page.before})

    async def check(self, request: Request, principal: Principal) -> Response:
        """GET /api/audit/check: walks the whole chain; `?head=NUMBER:HASH` is one that was kept elsewhere."""
        found = await self._auditing.check(principal, headers.text_parameter(request, "head"))
        return answer({**plain(found), "whole": found.whole})

    async def export(self, request: Request, principal: Principal) -> Response:
        """GET /api/audit/export: lines of JSON with the head last, or CSV with `?format=csv`; `since` and `until`."""
        form = request.query_params.get("format", "ndjson")
        if form not in _MEDIA_TYPES:
            raise DeedboxError("invalid_parameter", "The format is `ndjson` or `csv`.")
        lines = self._auditing.export(
            principal,
            since=_moment(request, "since"),
            until=_moment(request, "until"),
            form=cast("Literal['ndjson', 'csv']", form),
        )
        sent = {"Cache-Control": "no-store", "Content-Disposition": f'attachment; filename="audit.{form}"'}
        if request.method == "HEAD":
            return Response(headers=sent, media_type=_MEDIA_TYPES[form])
        return StreamingResponse(_written(lines), headers=sent, media_type=_MEDIA_TYPES[form])

    async def key(self, request: Request, principal: Principal) -> Response:
        """GET /api/audit/key?action=…&key=…: was this key processed?"""
        action, key = headers.text_parameter(request, "action"), headers.text_parameter(request, "key")
        if not action or not key:
            raise DeedboxError("invalid_parameter", "Name an `action` and a `key`.")
        return answer(plain(await self._auditing.ask_key(principal, action, key)))

    async def answers(self, request: Request, principal: Principal) -> Response:
        """GET /api/audit/answers?question=…&what=…: whose request, was it sent, who approved it, which model drafted it."""
        question, what = request.query_params.get("question", ""), headers.text_parameter(request, "what")
        if question not in QUESTIONS or not what:
            raise DeedboxError("invalid_parameter", f"Name `what`, and a `question`: {', '.join(QUESTIONS)}.")
        found = await self._auditing.ask(principal, question, what)
        return answer({"answers": plain(found)})

    async def erase(self, request: Request, principal: Principal) -> Response:
        """POST /api/erasures: erase the ended jobs about a person; ask again where it is not `complete`."""
        body = await read_model(request, ErasureBody, self._deps.limits.json_bytes)
        done = await self._auditing.erase(principal, body.data_subject, body.reason)
        return answer(plain(done), 200 if done.complete else 202)


async def _written(lines: AsyncIterator[str]) -> AsyncIterator[bytes]:
    """The lines as they are read. A failure cuts the export off, which whoever verifies it sees: its last line is not there."""
    try:
        async for line in lines:
            yield f"{line}\n".encode()
    except (DeedboxError, *AWAY) as error:
        telemetry.log("http").warning("export_cut_off", error=type(error).__name__)


def _moment(request: Request, name: str) -> datetime | None:
    text: Any = headers.text_parameter(request, name)
    if text is None:
        return None
    # A plus sign that was not encoded arrives as a blank.
    found = headers.moment_of(str(text).replace(" ", "+"))
    if found is None:
        raise DeedboxError("invalid_parameter", f"The parameter {name} is a date and time with zone: 2027-03-01T09:00:00Z.")
    return found
