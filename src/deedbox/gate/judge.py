"""What becomes of a proposal, by code outside the model: a pure function of the action's policy and of facts.

Nothing here asks the database. What a rule would let out has bounds that only the database knows; those are in `gate.weigh`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from deedbox.extend.action import Action
from deedbox.extend.context import EffectPlan
from deedbox.extend.sensitive import sensitive_names
from deedbox.model.facts import VALIDATIONS, Case, Facts, gravest, holds_any
from deedbox.model.rules import STRICTNESS, Verdict, Wish, wish

Gate = Literal["complete", "hold", "deny", "abstained", "weigh", "authorize"]


@dataclass(frozen=True, slots=True)
class Basis:
    """What is known of an attempt besides its effects: the caller's role, what its output needed, and what that output says."""

    role: str
    validation: str | None = None
    repairs: int = 0
    sensitive: bool = False
    output: Mapping[str, Any] = field(default_factory=dict[str, Any])


def judge(action: Action, plans: Sequence[EffectPlan], abstained: str | None) -> Gate:
    """What becomes of a proposal as far as it can be said without looking at its effects.

    `allow` is for actions without effects; effects beyond that hold, or are denied where the action names nobody who could
    decide. `weigh` says that rules decide.
    """
    if abstained is not None:
        return "hold" if action.approvers else "abstained"
    if not plans:
        return "complete"
    if action.policy.decision == "deny" or not action.approvers:
        return "deny"
    return "weigh" if action.policy.rules else "hold"


def cases(action: Action, plans: Sequence[EffectPlan], basis: Basis) -> list[Case]:
    """Each effect as it is put to the rules. What is counted is counted over the whole proposal, however it is grouped."""
    recipients = sum(plan.recipients for plan in plans)
    sensitive = basis.sensitive or any(plan.sensitive for plan in plans)
    validation = basis.validation if basis.validation in VALIDATIONS else "none"
    return [
        Case(
            plan.slot,
            plan.group,
            Facts(
                action=action.name,
                connector=plan.connector,
                target=plan.target,
                payload=cast("Mapping[str, Any]", json.loads(plan.body)["payload"]),
                kind=gravest(plan.kind, action.kind),
                role=basis.role,
                validation=validation,
                repairs=basis.repairs,
                effects=len(plans),
                recipients=recipients,
                sensitive=sensitive,
            ),
            basis.output,
            action.judgements,
        )
        for plan in plans
    ]


def wishes(action: Action, plans: Sequence[EffectPlan], basis: Basis) -> list[Wish]:
    """What the action's rules say of each effect, in the order of the plans."""
    found = [wish(action.policy.rules, case) for case in cases(action, plans, basis)]
    return found if _by_rule(action) else [_by_person(item) for item in found]


def _by_rule(action: Action) -> bool:
    """Whether a rule may let its effects out: never what is grave, and never where a domain names who decides."""
    return action.consequence != "grave" and action.domain_role is None


def _by_person(item: Wish) -> Wish:
    if item.verdict in {"hold", "deny"}:
        return item
    return Wish(item.slot, item.group, "hold", f"{item.why}: only a person decides this", None, item.verdict)


def strictest(of_group: Sequence[Wish]) -> Wish:
    """The wish that decides about a group: the first of the strictest."""
    return max(of_group, key=lambda item: STRICTNESS.index(item.verdict))


def by_group(found: Sequence[Wish]) -> dict[str, list[Wish]]:
    """The wishes of each group, groups and wishes in order."""
    groups: dict[str, list[Wish]] = {}
    for item in found:
        groups.setdefault(item.group, []).append(item)
    return groups


def sensitive_input(action: Action, input_json: str | None) -> bool:
    """Whether the input has something in a field that is marked sensitive."""
    names = sensitive_names(action.input_model)
    return bool(names) and holds_any(json.loads(input_json or "null"), names)


@dataclass(frozen=True, slots=True)
class GroupVerdict:
    """What was decided about a group: by which rule, what the rule alone wanted, and what it was drawn for.

    `window_s` is how long it can be canceled before it may begin. `sampled_by` names the rule whose sample the held group is.
    """

    group: str
    decision: Verdict
    rule: str
    wanted: Verdict | None = None
    window_s: float = 0.0
    drawn: bool | None = None
    sampled_by: str | None = None

    @property
    def lets_out(self) -> bool:
        """Whether its effects go to the outbox without a person."""
        return self.decision in {"allow", "delay", "sample"}


@dataclass(frozen=True, slots=True)
class Ruling:
    """The verdict on an edited group, with the rule and the version of the policy that gave it.

    Whatever is not denied is held again: a person has looked at it and changed it, so no rule lets it through.
    """

    decision: Literal["hold", "deny"]
    rule: str
    policy_version: str
    quorum: int


def judge_edit(action: Action, plans: Sequence[EffectPlan], basis: Basis) -> Ruling:
    """Judge an edited group; `plans` are all its effects as they are now, `basis` is of the attempt that proposed it."""
    policy = action.policy
    if policy.decision == "deny" or not action.approvers:
        return Ruling("deny", policy.rule, policy.version, policy.quorum)
    if not policy.rules:
        return Ruling("hold", policy.rule, policy.version, policy.quorum)
    deciding = strictest(wishes(action, plans, basis))
    if deciding.verdict in {"hold", "deny"}:
        return Ruling("deny" if deciding.verdict == "deny" else "hold", deciding.why, policy.version, policy.quorum)
    return Ruling("hold", f"{deciding.why}: a person edited it", policy.version, policy.quorum)
