"""The one answer of a tool: success, failure and waiting have the same members, at every face and in every run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from deedbox.model.tool_codes import is_retryable
from deedbox.store.rows import encode

Status = Literal["success", "error", "pending"]

MOST_DATA = 32 << 10
"""The longest `data` in bytes of JSON; longer is given by link."""
MOST_SENTENCE = 600
MOST_ERRORS = 50


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that went wrong: a field of the arguments (an RFC 6901 pointer) or an effect (its slot), and what to do."""

    code: str
    message: str
    pointer: str | None = None
    slot: str | None = None

    def shown(self) -> dict[str, Any]:
        """As it is sent; every member is always there."""
        return {"code": self.code, "pointer": self.pointer, "slot": self.slot, "message": self.message}


@dataclass(frozen=True, slots=True)
class Envelope:
    """What a tool answers.

    `human_message` is a sentence that a model can say. `retryable`: for a failure, the same call can help later; for one that
    is pending, asking again tells more. `audit_id` names this call in the journal. `object_id` is the provider's id of the
    thing that was done or found. `data` is the action's output, or what there is to know while it is pending. `retry_after_s`
    is a wish in seconds, for the face's own way of saying it; it is no member of the answer.
    """

    status: Status
    action: str
    job_id: str | None
    human_message: str
    audit_id: str
    object_id: str | None = None
    error_code: str | None = None
    retryable: bool = False
    errors: tuple[Fault, ...] = ()
    data: Mapping[str, Any] | None = None
    task_error: bool = False
    """The action wants a failure told as the protocol's own (MCP's `isError`)."""
    state: str | None = None
    """The job's state where there is one."""
    retry_after_s: float | None = None

    def shown(self) -> dict[str, Any]:
        """The answer as it is sent, with every member of `ENVELOPE_SCHEMA`."""
        return {
            "status": self.status,
            "action": self.action,
            "job_id": self.job_id,
            "object_id": self.object_id,
            "human_message": self.human_message,
            "retryable": self.retryable,
            "audit_id": self.audit_id,
            "error_code": self.error_code,
            "errors": [fault.shown() for fault in self.errors],
            "data": None if self.data is None else dict(self.data),
        }

    @property
    def text(self) -> str:
        """The answer in one line, for clients that keep the text alone: a failure's code stands in it."""
        if self.status == "error":
            return f"{self.error_code}: {self.human_message}"
        return self.human_message


def refusal(
    action: str,
    audit_id: str,
    error_code: str,
    message: str,
    *,
    faults: tuple[Fault, ...] = (),
    retry_after_s: float | None = None,
    task_error: bool = False,
    job_id: str | None = None,
) -> Envelope:
    """A failure of which no job tells."""
    return Envelope(
        "error",
        action,
        job_id,
        message,
        audit_id,
        error_code=error_code,
        retryable=is_retryable(error_code),
        errors=faults[:MOST_ERRORS],
        retry_after_s=retry_after_s,
        task_error=task_error,
    )


def bounded(data: Any, link: str | None) -> Any:
    """The data where it is short enough; else its link and its size in bytes."""
    size = len(encode(data).encode())
    if size <= MOST_DATA:
        return data
    return {"too_large": True, "size": size, "link": link}


@dataclass(frozen=True, slots=True)
class Tool:
    """An action as it is offered to an agent; schemas are JSON Schema (2020-12) and refuse what they do not name."""

    name: str
    title: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any]
    version: int
    annotations: Mapping[str, bool] = field(default_factory=dict[str, bool])
    task_error: bool = False

    def shown(self) -> dict[str, Any]:
        """The tool as the list shows it."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "version": self.version,
            "input_schema": self.input_schema,
            "data_schema": self.output_schema,
            "annotations": dict(self.annotations),
        }


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


ENVELOPE_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": [
        "status",
        "action",
        "job_id",
        "object_id",
        "human_message",
        "retryable",
        "audit_id",
        "error_code",
        "errors",
        "data",
    ],
    "properties": {
        "status": {"enum": ["success", "error", "pending"]},
        "action": {"type": "string", "maxLength": 100},
        "job_id": _or_null({"type": "string", "maxLength": 36}),
        "object_id": _or_null({"type": "string", "maxLength": 500, "description": "The provider's id of the thing."}),
        "human_message": {"type": "string", "maxLength": MOST_SENTENCE, "description": "A sentence that can be said."},
        "retryable": {
            "type": "boolean",
            "description": "error: the same call can help later; pending: asking again tells more.",
        },
        "audit_id": {"type": "string", "maxLength": 36, "description": "This call in the journal."},
        "error_code": _or_null({"type": "string", "maxLength": 100}),
        "errors": {
            "type": "array",
            "maxItems": MOST_ERRORS,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["code", "pointer", "slot", "message"],
                "properties": {
                    "code": {"type": "string", "maxLength": 100},
                    "pointer": _or_null({"type": "string", "maxLength": 1000}),
                    "slot": _or_null({"type": "string", "maxLength": 100}),
                    "message": {"type": "string", "maxLength": 1000},
                },
            },
        },
        "data": _or_null({"type": "object", "description": "The action's output; longer than 32 KiB it is a link."}),
    },
}
"""What every tool answers, as JSON Schema: one for all actions, and for the job that one started."""
