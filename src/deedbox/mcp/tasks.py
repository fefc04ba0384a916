"""Jobs as tasks (`io.modelcontextprotocol/tasks`, SEP-2663): the same rows, told in the extension's words.

A task is one round of a job: `JOB.ROUND`. One that was told as failed stays failed; a later round is another task.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RequestParams

from deedbox.mcp.context import Ctx, is_modern, note_job, principal_of, require_tasks
from deedbox.mcp.deps import McpDeps
from deedbox.mcp.results import wire_result
from deedbox.operate.job_view import JobView
from deedbox.operate.tools import Envelope

_TASK = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.([1-9][0-9]{0,8})")
_BROKEN = frozenset({"INTERNAL_ERROR", "UNAVAILABLE", "INVALID_OUTPUT"})
"""What did not come to an answer at all; every other failure is one that the business knows, and a result."""
_POLL_MS = 1000
_POLL_PERSON_MS = 5000
_FIRST_ROUND = 1


class TaskParams(RequestParams):
    """Which task."""

    task_id: str


class UpdateParams(TaskParams):
    """Responses by the key of their request."""

    input_responses: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TaskId:
    """A task's id: the job, and which round of it."""

    job_id: UUID
    round: int

    @classmethod
    def of(cls, text: str) -> "TaskId | None":
        """The id that a text is, None where it is none."""
        match = _TASK.fullmatch(text)
        return None if match is None else cls(UUID(match[1]), int(match[2]))

    def __str__(self) -> str:
        """As it goes over the wire."""
        return f"{self.job_id}.{self.round}"


class Tasks:
    """The methods of tasks."""

    def __init__(self, deps: McpDeps) -> None:
        """Whose a job is, is decided where it is read."""
        self._deps = deps
        self._asks = deps.asks

    async def created(self, ctx: Ctx, job_id: UUID) -> dict[str, Any]:
        """The answer to a call that became a task. The job is committed: whoever asks for it next finds it."""
        view = await self._deps.views.job(principal_of(ctx), job_id)
        if view is None:
            raise _unknown()
        status = await self._status(ctx, view)
        return {"resultType": "task", **_head(view, view.round, status)}

    async def get(self, ctx: Ctx, params: TaskParams) -> dict[str, Any]:
        """tasks/get: the task as it stands, with its result, its error, or what is asked."""
        self._require(ctx)
        task = TaskId.of(params.task_id)
        shown = None if task is None else await self.shown(ctx, task)
        if shown is None:
            raise _unknown()
        return shown

    async def update(self, ctx: Ctx, params: UpdateParams) -> dict[str, Any]:
        """tasks/update: takes responses; keys that are unknown or were answered are passed over."""
        self._require(ctx)
        view = await self._view(ctx, params.task_id)
        await self._asks.answered(ctx, view, params.input_responses)
        return {}

    async def cancel(self, ctx: Ctx, params: TaskParams) -> dict[str, Any]:
        """tasks/cancel: told to the job, if it is not over; what becomes of that is seen in the task."""
        self._require(ctx)
        view = await self._view(ctx, params.task_id)
        task = TaskId.of(params.task_id)
        if view.is_over or task is None or task.round != view.round:
            return {}
        envelope = await self._deps.tools.cancel(principal_of(ctx), view.job_id)
        if envelope.error_code == "PERMISSION_DENIED":
            raise MCPError(INVALID_PARAMS, envelope.human_message, {"error_code": envelope.error_code})
        if envelope.error_code == "UNAVAILABLE":
            raise MCPError(INTERNAL_ERROR, envelope.human_message, {"error_code": envelope.error_code})
        return {}

    async def shown(self, ctx: Ctx, task: TaskId) -> dict[str, Any] | None:
        """The task as `tasks/get` and notifications tell it; None for one that is unknown or not the caller's."""
        who = principal_of(ctx)
        view = await self._deps.views.job(who, task.job_id)
        if view is None or not _FIRST_ROUND <= task.round <= view.round:
            return None
        note_job(ctx, str(view.job_id))
        if task.round < view.round:
            return await self._former(ctx, view, task.round)
        wanted = await self._asks.wanted(ctx, view) if view.state == "awaiting_human" else {}
        if wanted:
            return {**_head(view, task.round, "input_required"), "inputRequests": wanted}
        envelope = await self._deps.tools.outcome(who, view.job_id)
        if not view.is_over:
            return {**_head(view, task.round, "working"), "statusMessage": envelope.human_message}
        status = _ended(view, envelope)
        head = {**_head(view, task.round, status), "statusMessage": envelope.human_message}
        if status == "completed":
            return {**head, "result": wire_result(envelope)}
        return {**head, "error": _error(envelope)} if status == "failed" else head

    async def _former(self, ctx: Ctx, view: JobView, number: int) -> dict[str, Any]:
        """A round that was given up and taken up again: it failed, whatever the job came to later."""
        ended, after = view.updated_at, 0
        said = "It did not work; it was taken up again as another task."
        while True:
            page = await self._deps.views.events(principal_of(ctx), view.job_id, after)
            if page is None or not page.events:
                break
            for event in page.events:
                if event.round == number and event.type == "job.failed":
                    ended = event.timestamp
                    said = str(event.payload.get("message") or said)
            after = page.next_after
            if page.events[-1].round > number:
                break
        head = _head(view, number, "failed", updated_at=ended)
        error = {"code": INTERNAL_ERROR, "message": said, "data": {"job_id": str(view.job_id), "round": number}}
        return {**head, "statusMessage": said, "error": error}

    async def _status(self, ctx: Ctx, view: JobView) -> str:
        if view.state == "awaiting_human" and await self._asks.wanted(ctx, view):
            return "input_required"
        if not view.is_over:
            return "working"
        return _ended(view, await self._deps.tools.outcome(principal_of(ctx), view.job_id))

    async def _view(self, ctx: Ctx, task_id: str) -> JobView:
        task = TaskId.of(task_id)
        view = None if task is None else await self._deps.views.job(principal_of(ctx), task.job_id)
        if view is None or task is None or not _FIRST_ROUND <= task.round <= view.round:
            raise _unknown()
        note_job(ctx, str(view.job_id))
        return view

    @staticmethod
    def _require(ctx: Ctx) -> None:
        if not is_modern(ctx):
            raise MCPError(METHOD_NOT_FOUND, "Method not found", ctx.method)
        require_tasks(ctx)


def _unknown() -> MCPError:
    return MCPError(INVALID_PARAMS, "There is no such task, or it is not yours.")


def _ended(view: JobView, envelope: Envelope) -> str:
    if view.state == "canceled":
        return "cancelled"
    broken = view.state == "failed_retryable" or envelope.error_code in _BROKEN
    return "failed" if envelope.status == "error" and broken else "completed"


def _error(envelope: Envelope) -> dict[str, Any]:
    return {"code": INTERNAL_ERROR, "message": envelope.human_message, "data": envelope.shown()}


def _head(view: JobView, number: int, status: str, *, updated_at: datetime | None = None) -> dict[str, Any]:
    """What every telling of a task has. Times are the database's; a task stays as long as its job's records do."""
    live = status in {"working", "input_required"}
    poll = {"pollIntervalMs": _POLL_PERSON_MS if view.state == "awaiting_human" else _POLL_MS} if live else {}
    return {
        "taskId": str(TaskId(view.job_id, number)),
        "status": status,
        "createdAt": view.created_at.isoformat(),
        "lastUpdatedAt": (updated_at or view.updated_at).isoformat(),
        "ttlMs": None,
        **poll,
    }
