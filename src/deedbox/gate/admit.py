"""From a proposal to what holds it or lets it out: the policy is asked once, by code, over what was proposed."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from deedbox.extend.action import Action
from deedbox.extend.context import EffectPlan
from deedbox.gate.decide import NOT_AFTER_S
from deedbox.gate.judge import Gate, GroupVerdict
from deedbox.model.fingerprint import approval_digest
from deedbox.store import admission
from deedbox.store.ids import IdSource
from deedbox.store.pool import Connection


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


async def admit(
    connection: Connection,
    ids: IdSource,
    proposed: Proposed,
    *,
    outcome: Gate,
    verdicts: Sequence[GroupVerdict] | None = None,
) -> list[UUID]:
    """Keep a proposal and its verdicts, hold groups and let groups out; returns the approvals, in the order of the groups.

    Without `verdicts` every group is held, or denied, as `outcome` says. The caller's transaction has locked the job's queue
    row and moves the job in the same transaction.
    """
    policy = proposed.action.policy
    proposal_id = ids.new()
    effects = [
        admission.ProposedEffect(
            ids.new(),
            plan.group,
            position,
            plan.connector,
            plan.target,
            plan.slot,
            plan.summary,
            plan.body,
            plan.digest,
            plan.after,
        )
        for position, plan in enumerate(proposed.plans)
    ]
    await admission.propose(
        connection,
        job_id=proposed.job_id,
        proposal_id=proposal_id,
        attempt_id=proposed.attempt_id,
        output_json=proposed.output_json,
        facts_json=json.dumps(_facts(proposed), ensure_ascii=False),
        policy_version=policy.version,
        effects=effects,
    )
    approvals: list[UUID] = []
    for verdict in _plain(proposed, outcome) if verdicts is None else verdicts:
        digests = tuple(plan.digest for plan in proposed.plans if plan.group == verdict.group)
        verdict_id = ids.new()
        await admission.give_verdict(
            connection,
            verdict_id=verdict_id,
            job_id=proposed.job_id,
            proposal_id=proposal_id,
            group=verdict.group,
            decision=verdict.decision,
            rule=verdict.rule,
            policy_version=policy.version,
            effect_digests=digests,
            wanted=verdict.wanted,
            drawn=verdict.drawn,
            window_s=verdict.window_s or None,
        )
        if outcome == "deny":
            continue
        if verdict.lets_out:
            await _let_out(connection, ids, proposed, proposal_id, verdict_id, verdict)
        elif verdict.decision == "hold":
            approvals.append(await _hold(connection, ids, proposed, proposal_id, verdict, digests))
    return approvals


def _plain(proposed: Proposed, outcome: Gate) -> list[GroupVerdict]:
    rule = "abstained" if proposed.abstained is not None else proposed.action.policy.rule
    groups = dict.fromkeys([plan.group for plan in proposed.plans] or ["default"])
    return [GroupVerdict(group, "hold" if outcome == "hold" else "deny", rule) for group in groups]


def _facts(proposed: Proposed) -> dict[str, Any]:
    """What was known when it was judged: kept, so that other rules can be tried on it."""
    effects = {plan.slot: {"kind": plan.kind, "recipients": plan.recipients} for plan in proposed.plans}
    sensitive = proposed.facts.get("sensitive") or any(plan.sensitive for plan in proposed.plans)
    return {**proposed.facts, "abstained": proposed.abstained, "effects": effects, "sensitive": bool(sensitive)}


async def _hold(
    connection: Connection,
    ids: IdSource,
    proposed: Proposed,
    proposal_id: UUID,
    verdict: GroupVerdict,
    digests: tuple[bytes, ...],
) -> UUID:
    action = proposed.action
    held = admission.HeldGroup(
        approval_id=ids.new(),
        tenant=proposed.tenant,
        action=action.name,
        group=verdict.group,
        digest=approval_digest(action.name, proposed.version, action.policy.version, digests),
        effect_digests=digests,
        policy_version=action.policy.version,
        rule=verdict.rule,
        audience=tuple(sorted(action.approvers)),
        quorum=action.policy.quorum,
        expires_s=action.policy.expires_s,
        sampled_by=verdict.sampled_by,
        consequence=action.consequence,
        required_role=action.domain_role,
    )
    await admission.request_approval(connection, proposed.job_id, proposal_id, held)
    return held.approval_id


async def _let_out(
    connection: Connection, ids: IdSource, proposed: Proposed, proposal_id: UUID, verdict_id: UUID, verdict: GroupVerdict
) -> None:
    count = sum(plan.group == verdict.group for plan in proposed.plans)
    enqueued = await admission.enqueue_let_out(
        connection,
        job_id=proposed.job_id,
        proposal_id=proposal_id,
        verdict_id=verdict_id,
        group=verdict.group,
        effect_ids=ids.many(count),
        not_after_s=NOT_AFTER_S,
    )
    if len(enqueued) != count:
        raise RuntimeError(f"verdict {verdict_id} names {count} effects, {len(enqueued)} were found")
