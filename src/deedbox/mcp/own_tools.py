"""The tools beside the actions: how a job stands, cancelling it, and deciding an approval, for a person who may."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar
from uuid import UUID

from mcp_types import Tool, ToolAnnotations
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from deedbox.intake.documents import input_problems
from deedbox.mcp.cards import with_card
from deedbox.mcp.context import Ctx, Result, note_job, principal_of
from deedbox.mcp.deps import LONGEST_WAIT_S, McpDeps
from deedbox.mcp.exchange import patiently
from deedbox.mcp.following import Following
from deedbox.mcp.results import result_of
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.operate.tools import ENVELOPE_SCHEMA, Envelope, ToolCall

_DOOR = "mcp"
_ID = 36
_LONGEST_REASON = 1000
Model = TypeVar("Model", bound=BaseModel)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class JobArguments(_Strict):
    """Which job, from which event on, and how long to wait for the next one."""

    job_id: str = Field(max_length=_ID, description="The job_id of an earlier answer.")
    after: int = Field(default=0, ge=0, description="Only events after this number: next_after of the last answer.")
    wait_s: float = Field(default=0, ge=0, le=LONGEST_WAIT_S, description="Seconds to wait for something new.")


class CancelArguments(_Strict):
    """Which job, and why."""

    job_id: str = Field(max_length=_ID, description="The job_id of an earlier answer.")
    reason: str = Field(default="Canceled by the caller.", min_length=1, max_length=_LONGEST_REASON, description="Why.")


class DecideArguments(_Strict):
    """Which approval, exactly what was shown of it, and the decision."""

    approval_id: UUID = Field(description="The approval.")
    digest: str = Field(pattern="^[0-9a-f]{64}$", description="The digest of what the person was shown.")
    decision: Literal["approve", "reject"] = Field(description="The person's decision.")
    reason: str | None = Field(default=None, max_length=2000, description="Why; a rejection needs one.")


@dataclass(frozen=True, slots=True)
class Own:
    """One of these tools: as it is listed, who may use it, and what it does."""

    tool: Tool
    may: Callable[[Principal], bool]
    call: Callable[[Ctx, Any], Awaitable[Result]]


class OwnTools:
    """The three tools."""

    def __init__(self, deps: McpDeps, following: Following) -> None:
        """`following` tells of a job's progress while a call waits."""
        self._deps = deps
        self._following = following

    def all(self) -> tuple[Own, ...]:
        """Each with who may use it."""
        return (
            Own(_JOB, lambda who: who.may("submit") or who.may("read"), self._job),
            Own(_CANCEL, lambda who: who.may("cancel"), self._cancel),
            Own(_DECIDE, lambda who: who.kind == "person" and who.may("decide"), self._decide),
        )

    async def _job(self, ctx: Ctx, arguments: Any) -> Result:
        who = principal_of(ctx)
        given = await self._read(who, "get_job", JobArguments, arguments)
        if isinstance(given, Envelope):
            return result_of(given, fault=True)
        note_job(ctx, given.job_id)
        async with self._following.told(ctx, given.job_id, given.after):
            envelope = await patiently(
                self._deps.stopping,
                given.wait_s,
                lambda wait_s: self._deps.tools.job(who, given.job_id, after=given.after, wait_s=wait_s),
            )
        return result_of(await with_card(self._deps.approvals, who, envelope))

    async def _cancel(self, ctx: Ctx, arguments: Any) -> Result:
        who = principal_of(ctx)
        given = await self._read(who, "cancel_job", CancelArguments, arguments)
        if isinstance(given, Envelope):
            return result_of(given, fault=True)
        note_job(ctx, given.job_id)
        return result_of(await self._deps.tools.cancel(who, given.job_id, reason=given.reason))

    async def _decide(self, ctx: Ctx, arguments: Any) -> Result:
        who = principal_of(ctx)
        given = await self._read(who, "decide_approval", DecideArguments, arguments)
        if isinstance(given, Envelope):
            return result_of(given, fault=True)
        try:
            done = await self._deps.approvals.decide(who, given.approval_id, given.digest, given.decision, given.reason, _DOOR)
        except DeedboxError as error:
            return result_of(await self._deps.tools.refuse(who, _call("decide_approval", arguments), error))
        shown = {"approval_id": str(given.approval_id), "state": done.state, "by": done.by, "at": done.at.isoformat()}
        return result_of(Envelope("success", "decide_approval", None, done.message, str(given.approval_id), data=shown))

    async def _read(self, who: Principal, name: str, model: type[Model], arguments: Any) -> Model | Envelope:
        """The arguments, or the refusal that points at what is wrong with them."""
        try:
            return model.model_validate(arguments)
        except ValidationError as error:
            problems = input_problems(error.errors(include_url=False, include_input=False, include_context=False))
            refusal = DeedboxError("invalid_input", f"The arguments of {name} do not fit.", problems=problems)
            return await self._deps.tools.refuse(who, _call(name, arguments), refusal)


def _call(name: str, arguments: Any) -> ToolCall:
    return ToolCall(name, arguments, source=_DOOR)


def _tool(
    name: str, title: str, description: str, model: type[BaseModel], annotations: ToolAnnotations, visibility: list[str]
) -> Tool:
    return Tool(
        name=name,
        title=title,
        description=description,
        input_schema=model.model_json_schema(),
        output_schema=dict(ENVELOPE_SCHEMA),
        annotations=annotations,
        _meta={"ui": {"visibility": visibility}},
    )


_JOB = _tool(
    "get_job",
    "How a job stands",
    "How a job that an earlier call started stands: `data` has its progress, drafts (`partial`), events after a number,"
    " what waits for a person, and the result once it is there. Waits up to `wait_s` seconds for something new;"
    " call it again with `after` = `next_after` while the status is `pending`. It changes nothing.",
    JobArguments,
    ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False),
    ["model", "app"],
)
_CANCEL = _tool(
    "cancel_job",
    "Cancel a job",
    "Cancel a job that is not over. What waits is withdrawn at once, what runs is told to stop;"
    " what has left the house already is not undone, and the answer says so.",
    CancelArguments,
    ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False),
    ["model", "app"],
)
_DECIDE = _tool(
    "decide_approval",
    "Decide an approval",
    "For the page that a person looks at, never for a model: approves or rejects exactly what the person was shown.",
    DecideArguments,
    ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=True),
    ["app"],
)
NAMES = frozenset({"get_job", "cancel_job", "decide_approval"})
"""No action has one of these names while the face serves it."""
