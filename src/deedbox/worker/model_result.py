"""What a question to a model ends in, apart from how it is asked: whoever only runs actions need not load the model library."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from decimal import Decimal

from pydantic import BaseModel

from deedbox.model.failure import ActionFailure, Failure


@dataclass(frozen=True, slots=True)
class Spent:
    """What one question took at one endpoint: all requests that were sent, and the tokens of those that were answered.

    `cost` is None where the settings name no price; `code` is the failure's, None where there is an answer.
    """

    endpoint: str
    model: str
    requests: int
    input_tokens: int
    output_tokens: int
    duration_ms: int
    tool_calls: int = 0
    repairs: int = 0
    cost: Decimal | None = None
    currency: str | None = None
    code: str | None = None


async def _unheard(_: Spent) -> None:
    """Nobody keeps it."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How one question is asked.

    `endpoint` is a name from the settings. `listener` is told the answer's text as far as it has come. `told` keeps what was
    spent, once for each endpoint that was asked. `key` is the same in every attempt, for endpoints that take one.
    """

    endpoint: str | None = None
    prompt_version: str | None = None
    listener: Callable[[str], Awaitable[None]] | None = None
    told: Callable[[Spent], Awaitable[None]] = _unheard
    key: str | None = None


PLAIN = Terms()


@dataclass(frozen=True)
class ModelCall:
    """A validated output and what the journal keeps of how it came about; `usage` counts all requests of the call."""

    output: BaseModel
    identity: dict[str, str]
    repairs: int
    usage: dict[str, int]
    validation: str
    duration_ms: int
    prompt_version: str | None = None


class ModelFailure(ActionFailure):
    """A call that ended without an output, with the same facts for the journal that a ModelCall has."""

    def __init__(self, failure: Failure, *, identity: dict[str, str], repairs: int, usage: dict[str, int]) -> None:
        """Bind the classified failure to the model's identity, the repairs spent and the usage so far."""
        super().__init__(failure.failure_class, failure.code, failure.message, retry_after=failure.retry_after)
        self.identity = identity
        self.repairs = repairs
        self.usage = usage
        self.validation = "invalid" if failure.failure_class in {"invalid_output", "truncated"} else "none"
