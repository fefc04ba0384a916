"""What the gate decides about a group of effects, and the policies an action may be given."""

import hashlib
from dataclasses import dataclass
from typing import Literal

from deedbox.model.backoff import seconds
from deedbox.model.facts import SCHEMA
from deedbox.model.rules import Rule

Decision = Literal["allow", "hold", "deny"]

ENGINE = "deedbox-typed-1"
RULES_ENGINE = "deedbox-rules-1"


@dataclass(frozen=True, slots=True)
class Policy:
    """A verdict for every external effect of an action, with a version that is stored beside each decision.

    Where there are `rules`, the first that applies decides about an effect, and `decision` (hold) is for what none applies to.
    `expires_s` is how long a held approval stays open; silence never approves. `quorum` distinct approvers are needed.
    """

    decision: Decision
    rule: str
    expires_s: float = 86400.0
    quorum: int = 1
    rules: tuple[Rule, ...] = ()
    by_rules: bool = False
    """Whether it was declared as rules; then having none is a mistake."""

    def __post_init__(self) -> None:
        """Raises ValueError for a quorum that cannot be met."""
        if self.quorum < 1:
            raise ValueError(f"quorum: {self.quorum} must be at least 1")

    @property
    def version(self) -> str:
        """A hash of the engine and of the rule with its figures, or of all rules and the facts they read.

        The same rules have the same version everywhere.
        """
        engine = RULES_ENGINE if self.rules else ENGINE
        text = f"{engine}|{self.decision}|{self.rule}|{self.expires_s:g}|{self.quorum}"
        if self.rules:
            text = "|".join([text, SCHEMA, *(rule.text for rule in self.rules)])
        return f"{engine}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def hold(*, expires: str | float = "24h", quorum: int = 1) -> Policy:
    """Every external effect waits for a person; after `expires` the proposal lapses and nothing happens."""
    return Policy("hold", "hold_every_effect", seconds(expires, name="expires"), quorum)


def allow() -> Policy:
    """For actions that propose no external effect; one that does is held all the same until a rule allows it."""
    return Policy("allow", "no_effects_expected")


def deny() -> Policy:
    """The action may draft but never act: a proposal with effects fails the job."""
    return Policy("deny", "deny_every_effect")


def rules(*ordered: Rule, expires: str | float = "24h", quorum: int = 1) -> Policy:
    """The first rule that applies decides about each effect; what none applies to, and what goes wrong, waits for a person.

    `expires` and `quorum` are for what is held, as in `hold`.
    """
    return Policy("hold", "no rule applies", seconds(expires, name="expires"), quorum, ordered, by_rules=True)
