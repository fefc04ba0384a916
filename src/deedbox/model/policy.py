"""What the gate decides about a group of effects, and the rules an action may be given."""

import hashlib
from dataclasses import dataclass
from typing import Literal

from deedbox.model.backoff import seconds

Decision = Literal["allow", "hold", "deny"]

ENGINE = "deedbox-typed-1"


@dataclass(frozen=True, slots=True)
class Policy:
    """A verdict for every external effect of an action, with a version that is stored beside each decision.

    `expires_s` is how long a held approval stays open; silence never approves. `quorum` distinct approvers are needed.
    """

    decision: Decision
    rule: str
    expires_s: float = 86400.0
    quorum: int = 1

    def __post_init__(self) -> None:
        """Raises ValueError for a quorum that cannot be met."""
        if self.quorum < 1:
            raise ValueError(f"quorum: {self.quorum} must be at least 1")

    @property
    def version(self) -> str:
        """A hash of the engine and of the rule with its figures; the same rule has the same version everywhere."""
        text = f"{ENGINE}|{self.decision}|{self.rule}|{self.expires_s:g}|{self.quorum}"
        return f"{ENGINE}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def hold(*, expires: str | float = "24h", quorum: int = 1) -> Policy:
    """Every external effect waits for a person; after `expires` the proposal lapses and nothing happens."""
    return Policy("hold", "hold_every_effect", seconds(expires, name="expires"), quorum)


def allow() -> Policy:
    """For actions that propose no external effect; one that does is held all the same until a rule allows it."""
    return Policy("allow", "no_effects_expected")


def deny() -> Policy:
    """The action may draft but never act: a proposal with effects fails the job."""
    return Policy("deny", "deny_every_effect")
