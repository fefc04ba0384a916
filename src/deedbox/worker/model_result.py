"""What a question to a model ends in, apart from how it is asked: whoever only runs actions need not load the model library."""

from dataclasses import dataclass

from pydantic import BaseModel

from deedbox.model.failure import ActionFailure, Failure


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
