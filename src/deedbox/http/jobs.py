"""Accepting jobs, asking about them, canceling them, and the documents they carry."""

import base64
import json
import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote
from uuid import UUID

from pydantic import Field
from pydantic_core import to_jsonable_python
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from deedbox import telemetry
from deedbox.extend.action import Action
from deedbox.http import headers
from deedbox.http.body import StrictBody, is_json, media_type, read_bytes, read_model, require_utf8
from deedbox.http.browsers import Browsers
from deedbox.http.deps import HttpDeps
from deedbox.http.headers import wire_name
from deedbox.http.multipart import read_form
from deedbox.http.routing import known, note_job, patiently, route
from deedbox.intake.documents import Parsed, parse_canonically
from deedbox.intake.request import Accepted, Upload
from deedbox.intake.request import Request as Submission
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.operate.follow import Follow
from deedbox.operate.job_view import Failed, JobView

_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_ASK_AGAIN_S = {"awaiting_human": 10}
_FOR_BROWSERS = frozenset(
    {
        "job_id",
        "action",
        "state",
        "round",
        "progress",
        "partial",
        "failure",
        "created_at",
        "updated_at",
        "next_attempt_at",
        "last_seq",
        "result",
        "status_url",
        "events_url",
    }
)
"""What a status token shows of a job: neither who decides, nor whom its effects reach, nor its documents."""
_SAFE_TYPE = re.compile(r"[a-z0-9][a-z0-9.+-]*/[a-z0-9][a-z0-9.+-]*")


class Cancel(StrictBody):
    """Why a job is canceled."""

    reason: str = Field(default="Canceled by the caller.", max_length=1000)


class _Written(Response):
    """A JSON answer that nobody caches, whose text is written already."""

    def __init__(self, text: str, status: int, headers: Mapping[str, str] | None) -> None:
        # Puts together what the framework would, knowing what is in it.
        self.status_code = status
        self.background = None
        self.body = text.encode()
        self.raw_headers = [(b"cache-control", b"no-store")]
        if headers:
            self.raw_headers += [(wire_name(name), value.encode("latin-1")) for name, value in headers.items()]
        self.raw_headers += ((b"content-length", b"%d" % len(self.body)), (b"content-type", b"application/json"))


def answer(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer that nobody caches."""
    return _Written(_ENCODE(body), status, headers)


def plain(value: Any) -> Any:
    """The value as JSON can hold it: times in RFC 3339, ids as text, bytes in hexadecimal."""
    return to_jsonable_python(value, bytes_mode="hex")


def links(base_url: str, job_id: UUID) -> dict[str, str]:
    """Where a job is asked about; absolute, from the public URL."""
    where = f"{base_url}/api/jobs/{job_id}"
    return {"status_url": where, "events_url": f"{where}/events"}


def job_body(view: JobView, base_url: str) -> dict[str, Any]:
    """A job as the API shows it; `result` is there only where it is completed."""
    body: dict[str, Any] = {
        "job_id": view.job_id,
        "action": view.action,
        "version": view.version,
        "state": view.state,
        "round": view.round,
        "replaces": view.replaces,
        "replaced_by": view.replaced_by,
        "parent_job_id": view.parent_job_id,
        "deadline": view.deadline,
        "contents_pruned_at": view.contents_pruned_at,
        "attempts": view.attempts,
        "max_attempts": view.max_attempts,
        "progress": view.progress,
        "partial": view.partial,
        "last_error": _failed(view.last_error),
        "failure": _failed(view.failure),
        "needs_attention": view.needs_attention,
        "models": view.models,
        "cancel_requested": view.cancel_requested,
        "approvals": view.approvals,
        "effects": view.effects,
        "done": view.done,
        "not_done": view.not_done,
        "declined": view.declined,
        "documents": [
            {**plain(document), "url": f"{base_url}/api/documents/{document.document_id}"} for document in view.documents
        ],
        "created_at": view.created_at,
        "updated_at": view.updated_at,
        "next_attempt_at": view.next_attempt_at,
        "last_seq": view.last_seq,
        **links(base_url, view.job_id),
    }
    if view.state == "completed":
        body["result"] = view.result
    return plain(body)


def _failed(failed: Failed | None) -> dict[str, str] | None:
    return failed and {"class": failed.failure_class, "code": failed.code, "message": failed.message}


class Jobs:
    """The handlers of jobs and documents."""

    def __init__(self, deps: HttpDeps, follow: Follow, browsers: Browsers) -> None:
        """`follow` waits for jobs."""
        self._deps = deps
        self._browsers = browsers
        self._follow = follow
        # A prefix of a text in JSON, without the quotation mark at its end.
        self._where = f"{deps.base_url}/api/jobs/"
        self._where_written = _ENCODE(self._where)[:-1]
        self._fields = {name: _fields(action) for name, action in deps.app.actions.items()}

    def routes(self) -> list[BaseRoute]:
        """The routes, in the order of faces.md."""
        deps, browsers = self._deps, self._browsers
        return [
            route("/api/actions/{action}/jobs", POST=browsers.submitting(self.accept), OPTIONS=browsers.asking("POST")),
            route("/api/jobs", GET=known(deps, self.page)),
            route("/api/jobs/{job_id}", GET=browsers.showing(self.show), OPTIONS=browsers.asking("GET")),
            route("/api/jobs/{job_id}/cancel", POST=known(deps, self.cancel)),
            route("/api/documents/{document_id}", GET=known(deps, self.document)),
        ]

    async def accept(self, request: Request, principal: Principal) -> Response:
        """POST /api/actions/{action}/jobs: 202 once the job is committed, or the job that the key has."""
        began = time.monotonic()
        wish = headers.prefer(request)
        submission = await self._submission(request, principal)
        accepted = await self._deps.intake.submit(submission)
        telemetry.ACCEPT_SECONDS.observe(time.monotonic() - began)
        note_job(request, accepted.job_id)
        extra = {"Preference-Applied": "respond-async"} if wish.at_once and not wish.wait_s else {}
        state = accepted.state
        if wish.wait_s and principal.form is None:
            view = await patiently(
                request,
                self._deps,
                wish.wait_s,
                lambda wait_s: self._follow.job(principal, accepted.job_id, wait_s, known=state),
            )
            if view is not None and view.is_over:
                applied = {"Preference-Applied": f"wait={wish.wait_s:g}", **self._replayed(accepted)}
                where = links(self._deps.base_url, accepted.job_id)["status_url"]
                return answer(job_body(view, self._deps.base_url), 200, {"Content-Location": where, **applied})
            state = view.state if view is not None else state
        return self._taken(accepted, state, extra, await self._browsers.token(principal, accepted.job_id))

    def _taken(self, accepted: Accepted, state: str, extra: Mapping[str, str], token: str | None) -> Response:
        job, where = str(accepted.job_id), self._where_written
        more = ',"taken_up":true' if accepted.taken_up else ""
        # In the body alone: it opens the job, and headers are logged more easily than bodies.
        more += f',"status_token":"{token}"' if token else ""
        text = f'{{"job_id":"{job}","status":"{state}","status_url":{where}{job}","events_url":{where}{job}/events"{more}}}'
        sent = {"Location": self._where + job, "Retry-After": str(_ASK_AGAIN_S.get(state, 1))}
        return _Written(text, 202, {**sent, **self._replayed(accepted), **extra})

    @staticmethod
    def _replayed(accepted: Accepted) -> dict[str, str]:
        return {"Idempotent-Replayed": "true"} if accepted.replayed else {}

    async def _submission(self, request: Request, principal: Principal) -> Submission:
        """The call as intake takes it. What is refused here is journalled as intake journals what it refuses."""
        name = str(request.path_params["action"])
        key: str | None = None
        run: str | None = None
        try:
            action = self._action(name)
            key = headers.idempotency_key(request)
            run = headers.caller_run(request)
            priority = headers.priority(request)
            run_at, deadline = headers.moment(request, "Deedbox-Run-At"), headers.moment(request, "Deedbox-Deadline")
            callback = headers.callback(request)
            body, parsed, uploads, form_key = await self._input(request, action)
        except DeedboxError as error:
            if self._deps.refused is not None:
                await self._deps.refused(Submission(principal, name, None, key, "http", caller_run=run), error)
            raise
        return Submission(
            principal=principal,
            action=name,
            body=body,
            key=key,
            source="http" if principal.form is None else "form",
            uploads=uploads,
            caller_run=run,
            trace=headers.traceparent(request),
            form_key=form_key,
            priority=priority,
            run_at=run_at,
            deadline=deadline,
            callback=callback,
            parsed=parsed,
        )

    def _action(self, name: str) -> Action:
        action = self._deps.app.actions.get(name)
        if action is None:
            raise DeedboxError("not_found", f"There is no action {name[:100]!r}.")
        return action

    async def _input(
        self, request: Request, action: Action
    ) -> tuple[Any, Parsed | None, Mapping[str, list[Upload]], str | None]:
        """The body, what it was read from where it is JSON, the uploads, and the key that a form holds."""
        limits = self._deps.limits
        name, options = media_type(request)
        if is_json(name):
            require_utf8(options)
            parsed = parse_canonically(await read_bytes(request, limits.json_bytes))
            return parsed.value, parsed, {}, None
        if name == "multipart/form-data":
            form = await read_form(request, options, limits, self._fields[action.name])
            return form.body, None, form.uploads, form.key
        raise DeedboxError("unsupported_media_type", "Send application/json, or multipart/form-data with files.")

    async def show(self, request: Request, principal: Principal) -> Response:
        """GET /api/jobs/{id}, with `?wait=20` as soon as it is over or waits for a person."""
        job_id = headers.path_id(request, "job_id", "job")
        note_job(request, job_id)
        wait_s = headers.seconds(request, "wait") if request.method == "GET" else 0.0
        view = await patiently(request, self._deps, wait_s, lambda seconds: self._follow.job(principal, job_id, seconds))
        if view is None:
            raise headers.no_such("job")
        again = {} if view.is_over else {"Retry-After": str(_ASK_AGAIN_S.get(view.state, 1))}
        body = job_body(view, self._deps.base_url)
        if principal.method == "status_token":
            body = {name: value for name, value in body.items() if name in _FOR_BROWSERS}
        return answer(body, 200, again)

    async def page(self, request: Request, principal: Principal) -> Response:
        """GET /api/jobs with filters: a page of the caller's own jobs, or of the tenant's for people who may read."""
        wanted = {name: headers.text_parameter(request, name) for name in ("action", "state", "key", "caller_run", "cursor")}
        limit = headers.number(request.query_params.get("limit", "50"), "limit")
        page = await self._deps.views.jobs(principal, **wanted, limit=limit)
        lines = [{**plain(line), **links(self._deps.base_url, line.job_id)} for line in page.jobs]
        return answer({"jobs": lines, "cursor": page.cursor})

    async def cancel(self, request: Request, principal: Principal) -> Response:
        """POST /api/jobs/{id}/cancel: 200 when it is canceled, 202 when its attempt was told to stop, 409 with the reason."""
        job_id = headers.path_id(request, "job_id", "job")
        note_job(request, job_id)
        wish = await read_model(request, Cancel, self._deps.limits.json_bytes, optional=True)
        became = await self._deps.verbs.cancel_job(principal, job_id, wish.reason, door="api")
        view = await self._deps.views.job(principal, job_id)
        if view is None:
            raise headers.no_such("job")
        return answer(job_body(view, self._deps.base_url), 200 if became == "canceled" else 202)

    async def document(self, request: Request, principal: Principal) -> Response:
        """GET /api/documents/{id}: the bytes as they came, handed over as a file that no browser shows or runs."""
        document_id = headers.path_id(request, "document_id", "document")
        found = await self._deps.views.document(principal, document_id)
        if found is None:
            raise headers.no_such("document")
        bare = found.media_type.split(";", 1)[0].strip().lower()
        sent = {
            "Cache-Control": "private, no-store",
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(found.name, safe='')}",
            "Content-Security-Policy": "default-src 'none'; sandbox",
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
            "ETag": f'"{found.sha256.hex()}"',
            "Repr-Digest": f"sha-256=:{base64.b64encode(found.sha256).decode()}:",
            "Content-Type": bare if _SAFE_TYPE.fullmatch(bare) else "application/octet-stream",
        }
        return Response(found.content, headers=sent)


def _fields(action: Action) -> frozenset[str]:
    return frozenset(info.alias or name for name, info in action.input_model.model_fields.items())
