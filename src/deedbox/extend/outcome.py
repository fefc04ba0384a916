"""What a handler may answer besides its output."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Abstain:
    """The action declines to propose anything; a person gets the case where the action names approvers."""

    reason: str
