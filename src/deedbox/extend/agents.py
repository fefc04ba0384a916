"""What a handler says of an agent, and what it is told when a tool's outcome has to be waited for."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any

from pydantic import BaseModel

from deedbox.model.backoff import seconds
from deedbox.model.failure import ActionFailure

Tool = str | Callable[..., Any]
"""An action that an agent may call: its name, or its handler."""

AGENT_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
TOOL_PENDING = "tool_pending"
"""The code of an attempt that waits for a tool: it did nothing wrong, and is not counted."""
WAITS_S = 30.0
"""When an attempt that waits for a tool is tried again, in seconds, where its action does not say something longer."""


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """How much a job may spend, over all of its agents, attempts and rounds; what `ctx.model` has asked counts as well.

    `tool_calls` counts every call that a model asked for, refused and repeated ones too. `cost` is in the currency of the
    settings, and needs an endpoint that has a price. An agent waits `tool_wait_s` seconds for a tool before its turn ends as
    pending. Raises ValueError for a limit that is not finite and positive.
    """

    requests: int = 12
    tool_calls: int = 20
    input_tokens: int = 200_000
    output_tokens: int = 50_000
    cost: Decimal | None = None
    tool_wait_s: float = 60.0

    def __post_init__(self) -> None:
        """Refuse what is no limit: an agent is finite."""
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name == "tool_wait_s":
                seconds(value, name=one.name)
            elif one.name == "cost":
                if value is not None and not (isinstance(value, Decimal) and value.is_finite() and value > 0):
                    raise ValueError("cost: is a Decimal above 0, or None")
            elif not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= 10**9:
                raise ValueError(f"{one.name}: is a whole number above 0")


@dataclass(frozen=True, slots=True)
class AgentAsk:
    """One run of an agent, as a handler asks for it."""

    output: type[BaseModel]
    prompt: str
    tools: tuple[str, ...]
    instructions: str | None
    name: str
    endpoint: str | None
    limits: AgentLimits
    draft: bool


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call of a tool whose outcome is not known yet: held for a person, held by the switch, unknown, or still under way."""

    action: str
    job_id: str | None
    message: str


class ToolPending(ActionFailure):
    """An agent's turn ended because tools have no outcome yet; `calls` are those tools.

    Where the handler lets it pass, the attempt backs off, is given back, and the next one goes on where this one stopped: what
    the model has said is not asked again and no tool runs again. A handler that cannot wait catches it and answers for itself.
    """

    def __init__(self, calls: Sequence[PendingCall]) -> None:
        """Say what is waited for."""
        said = " ".join(f"{call.action}: {call.message}" for call in calls)
        super().__init__("overloaded", TOOL_PENDING, f"The agent waits. {said}", retry_after=WAITS_S)
        self.calls = tuple(calls)


def tool_names(tools: Sequence[Tool]) -> tuple[str, ...]:
    """The names of these actions, sorted, each once. Raises ActionFailure (bug) for what is no action."""
    found = {tool if isinstance(tool, str) else getattr(tool, "__name__", "") for tool in tools}
    if "" in found:
        raise ActionFailure("bug", "unknown_tool", "A tool of an agent is an action: its name, or its handler.")
    return tuple(sorted(found))
