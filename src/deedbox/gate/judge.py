"""What the policy says of a group that a person has edited: judged again, as if an attempt had proposed it so."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from deedbox.extend.action import Action
from deedbox.extend.context import EffectPlan


@dataclass(frozen=True, slots=True)
class Ruling:
    """The verdict on an edited group, with the rule and the version of the policy that gave it.

    Whatever is not denied is held again: a person has looked at it and changed it, so no rule lets it through.
    """

    decision: Literal["hold", "deny"]
    rule: str
    policy_version: str
    quorum: int


def judge_edit(action: Action, plans: Sequence[EffectPlan], facts: dict[str, Any] | None = None) -> Ruling:  # noqa: ARG001 -- for rules over facts
    """Judge an edited group; `plans` are all its effects as they are now, `facts` those of the attempt that proposed it."""
    policy = action.policy
    denied = policy.decision == "deny" or not action.approvers
    return Ruling("deny" if denied else "hold", policy.rule, policy.version, policy.quorum)
