"""An envelope as MCP says it: a sentence for whoever reads text alone, the whole of it as JSON, and the flag for faults."""

import json
from typing import Any
from uuid import UUID

from mcp_types import CallToolResult, TextContent

from deedbox.model.errors import DeedboxError, Problem
from deedbox.operate.tools import Envelope

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def result_of(envelope: Envelope, *, fault: bool = False) -> CallToolResult:
    """The result of a call. `fault`: it could not be made at all, which clients tell apart from an answer of the business."""
    shown = envelope.shown()
    return CallToolResult(
        content=[TextContent(text=_sentence(envelope)), TextContent(text=_encode(shown))],
        structured_content=shown,
        is_error=envelope.status == "error" and (fault or envelope.task_error),
    )


def wire_result(envelope: Envelope) -> dict[str, Any]:
    """The result as it stands in a task."""
    result = result_of(envelope).model_dump(by_alias=True, mode="json", exclude_none=True)
    result.pop("resultType", None)
    return result


def _sentence(envelope: Envelope) -> str:
    if envelope.status == "pending" and envelope.job_id is not None:
        return f"{envelope.text} Its job is {envelope.job_id}: get_job says how it stands."
    return envelope.text


def job_id_of(value: object) -> UUID:
    """A job's id from an argument. Raises DeedboxError not_found for what is none."""
    try:
        return UUID(str(value))
    except ValueError:
        problem = Problem("/job_id", "id", "is not the id of a job")
        raise DeedboxError("not_found", "There is no such job, or it is not yours.", problems=(problem,)) from None
