"""One tool under test: how it is called and decided, and what it did outside. The kinds are in `deedbox.testing.tool_kinds`."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast
from uuid import uuid4

from deedbox.model.tool_codes import TOOL_CODES
from deedbox.operate.tools import ENVELOPE_SCHEMA, Envelope
from deedbox.testing.tool_bench import ToolBench

Arguments = Mapping[str, Any] | Callable[[int], Mapping[str, Any]]
_MEMBERS = frozenset(cast("Sequence[str]", ENVELOPE_SCHEMA["required"]))
_WITHIN_S = 40.0


class BrokenKindError(Exception):
    """What a tool did that it must not, in a sentence."""


@dataclass(frozen=True, slots=True)
class ToolCase:
    """A tool, arguments that fit it, a role that may call it, and one that may not.

    Where one use changes what the next one meets, `arguments` is a function of the number of the use. `missing` and `enum` name
    a required field and one of fixed values, `secret` one that takes text; each is found in the schema where it is not given.
    """

    tool: str
    arguments: Arguments
    role: str
    wrong_role: str
    missing: str | None = None
    enum: str | None = None
    secret: str | None = None


@dataclass
class ToolRun:
    """One tool under test: how often it was used, and what it does outside when all is well."""

    bench: ToolBench
    case: ToolCase
    uses: int = 0
    many: int = 0
    held: bool = False

    def arguments(self) -> dict[str, Any]:
        """Arguments that fit, of a use of their own."""
        self.uses += 1
        given = self.case.arguments
        return dict(given(self.uses) if callable(given) else given)

    def properties(self) -> Mapping[str, Any]:
        """The members of the arguments by the tool's own schema."""
        return cast("Mapping[str, Any]", self._schema()["properties"])

    def _schema(self) -> Mapping[str, Any]:
        tools = self.bench.tools
        action = self.bench.app.actions.get(self.case.tool)
        if action is None or action.offer.withheld is not None:
            why = "there is no such action" if action is None else action.offer.withheld
            raise BrokenKindError(f"it is not offered as a tool: {why}")
        return tools.described(action.name).input_schema

    def required(self) -> str:
        """A required field."""
        found = self.case.missing or next(iter(cast("Sequence[str]", self._schema().get("required", ()))), None)
        if found is None:
            raise BrokenKindError("no field is required, so none can be missing: name one as `missing`")
        return found

    def fixed(self) -> str:
        """A field of fixed values."""
        with_values = (name for name, part in self.properties().items() if "enum" in self.resolved(part))
        named = self.case.enum or next(with_values, None)
        if named is None:
            raise BrokenKindError("no field has fixed values: name one as `enum`")
        return named

    def resolved(self, part: Mapping[str, Any]) -> Mapping[str, Any]:
        """A part of the schema, or the one that it refers to."""
        if "$ref" not in part:
            return part
        defined = cast("Mapping[str, Any]", self._schema()["$defs"])
        return cast("Mapping[str, Any]", defined[str(part["$ref"]).rsplit("/", 1)[1]])

    def text_field(self) -> str:
        """A field that takes text."""
        texts = (name for name, part in self.properties().items() if part.get("type") == "string" and "enum" not in part)
        named = self.case.secret or next(texts, None)
        if named is None:
            raise BrokenKindError("no field takes text: name one as `secret`")
        return named

    async def call(
        self, arguments: object, *, key: str | None = None, role: str | None = None, wait_s: float = 5.0
    ) -> Envelope:
        """Call it, and check the answer's shape."""
        chosen = role or self.case.role
        answer = await self.bench.call(chosen, self.case.tool, arguments, key=key or f"kinds-{uuid4()}", wait_s=wait_s)
        return shaped(answer)

    async def settled(self, answer: Envelope) -> Envelope:
        """The answer once it is over or waits for a person, a look-up or the switch; as it is when the time is up."""
        until = time.monotonic() + _WITHIN_S
        while _goes_on(answer) and time.monotonic() < until:
            answer = shaped(await self.bench.outcome(self.case.role, str(answer.job_id), wait_s=1.0))
            await asyncio.sleep(0)
        return answer

    async def over(self, answer: Envelope) -> Envelope:
        """The answer once it is over, also where a look-up has to come first; as it is when the time is up."""
        until = time.monotonic() + _WITHIN_S
        while answer.status == "pending" and time.monotonic() < until:
            answer = shaped(await self.bench.outcome(self.case.role, str(answer.job_id), wait_s=1.0))
        return answer

    async def decide(self, answer: Envelope, *choices: Literal["approve", "reject"]) -> None:
        """Decide what waits, the last choice for all that follow."""
        for number, approval in enumerate(approvals(answer)):
            await self.bench.decide(str(approval["approval_id"]), choices[min(number, len(choices) - 1)])

    async def count(self) -> int:
        """How much was done outside, ever."""
        return len(await self.bench.outside.writes())

    async def nothing(self, before: int, what: str) -> None:
        """Raise BrokenKindError where something was done since."""
        done = await self.count() - before
        if done:
            raise BrokenKindError(f"{what}, and {done} were done outside all the same")

    async def exactly(self, before: int, wanted: int, what: str) -> None:
        """Raise BrokenKindError unless so much was done since."""
        done = await self.count() - before
        if done != wanted:
            raise BrokenKindError(f"{what}, and {done} were done outside, not {wanted}")


def shaped(answer: Envelope) -> Envelope:
    """The answer, if it has the one shape. Raises BrokenKindError."""
    shown = answer.shown()
    if shown.keys() != _MEMBERS or not answer.human_message or not answer.audit_id:
        raise BrokenKindError("the answer has not the one shape")
    if answer.status == "error" and answer.error_code not in TOOL_CODES and not str(answer.error_code).isupper():
        raise BrokenKindError(f"{answer.error_code} is no code")
    return answer


def _goes_on(answer: Envelope) -> bool:
    reason = (answer.data or {}).get("reason")
    return answer.status == "pending" and reason in {"queued", "scheduled", "running", "retrying", "sending"}


def approvals(answer: Envelope) -> Sequence[Mapping[str, Any]]:
    """What waits for a person."""
    return cast("Sequence[Mapping[str, Any]]", (answer.data or {}).get("approvals", ()))


def told(answer: Envelope) -> str:
    """What was answered, in a word."""
    if answer.status == "error":
        return str(answer.error_code)
    return "success" if answer.status == "success" else f"pending ({(answer.data or {}).get('reason')})"


def want(answer: Envelope, code: str, what: str, *, retryable: bool = False) -> None:
    """Raise BrokenKindError for an answer other than this failure."""
    if answer.status != "error" or answer.error_code != code:
        raise BrokenKindError(f"{what} was answered with {told(answer)}, not with {code}")
    if answer.retryable != retryable:
        raise BrokenKindError(f"{code} says retryable={answer.retryable}")
