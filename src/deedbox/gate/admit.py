"""From a proposal to what holds it: the policy is asked once, by code, over what was proposed."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from deedbox.extend.action import Action
from deedbox.extend.context import EffectPlan
from deedbox.model.fingerprint import approval_digest
from deedbox.store import admission
from deedbox.store.ids import IdSource
from deedbox.store.pool import Connection

Gate = Literal["complete", "hold", "deny", "abstained"]


@dataclass(frozen=True, slots=True)
class Proposed:
    """What one attempt proposes: its output and the effects it planned, or the reason it abstained."""

    job_id: UUID
    attempt_id: UUID
    tenant: str
    action: Action
    version: int
    output_json: str | None
    plans: tuple[EffectPlan, ...] = ()
    abstained: str | None = None
    facts: dict[str, Any] = field(default_factory=dict[str, Any])


def judge(action: Action, plans: Sequence[EffectPlan], abstained: str | None) -> Gate:
    """What becomes of a proposal.

    `allow` is for actions without effects; effects beyond that hold, or are denied where the action names nobody who could
    decide.
    """
    if abstained is not None:
        return "hold" if action.approvers else "abstained"
    if not plans:
        return "complete"
    if action.policy.decision == "deny" or not action.approvers:
        return "deny"
    return "hold"


async def admit(connection: Connection, ids: IdSource, proposed: Proposed, *, outcome: Gate) -> list[UUID]:
    """Keep a proposal and its verdicts, and hold its groups; returns the approvals, in the order of the groups.

    The caller's transaction has locked the job's queue row and moves the job in the same transaction.
    """
    policy = proposed.action.policy
    proposal_id = ids.new()
    effects = [
        admission.ProposedEffect(
            ids.new(), plan.group, position, plan.connector, plan.target, plan.slot, plan.summary, plan.body, plan.digest
        )
        for position, plan in enumerate(proposed.plans)
    ]
    await admission.propose(
        connection,
        job_id=proposed.job_id,
        proposal_id=proposal_id,
        attempt_id=proposed.attempt_id,
        output_json=proposed.output_json,
        facts_json=json.dumps({**proposed.facts, "abstained": proposed.abstained}, ensure_ascii=False),
        policy_version=policy.version,
        effects=effects,
    )
    approvals: list[UUID] = []
    for group in dict.fromkeys([plan.group for plan in proposed.plans] or ["default"]):
        digests = tuple(plan.digest for plan in proposed.plans if plan.group == group)
        rule = "abstained" if proposed.abstained is not None else policy.rule
        await admission.give_verdict(
            connection,
            verdict_id=ids.new(),
            job_id=proposed.job_id,
            proposal_id=proposal_id,
            group=group,
            decision="hold" if outcome == "hold" else "deny",
            rule=rule,
            policy_version=policy.version,
            effect_digests=digests,
        )
        if outcome != "hold":
            continue
        held = admission.HeldGroup(
            approval_id=ids.new(),
            tenant=proposed.tenant,
            action=proposed.action.name,
            group=group,
            digest=approval_digest(proposed.action.name, proposed.version, policy.version, digests),
            effect_digests=digests,
            policy_version=policy.version,
            rule=rule,
            audience=tuple(sorted(proposed.action.approvers)),
            quorum=policy.quorum,
            expires_s=policy.expires_s,
            consequence=proposed.action.consequence,
            required_role=proposed.action.domain_role,
        )
        await admission.request_approval(connection, proposed.job_id, proposal_id, held)
        approvals.append(held.approval_id)
    return approvals
