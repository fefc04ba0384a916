"""What the rules of actions say of attempts that are about to be settled: asked before the transaction, which weighs it."""

from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import UUID

from deedbox.gate.judge import Basis, sensitive_input, wishes
from deedbox.gate.weigh import Asked
from deedbox.store import places
from deedbox.store.pool import Pool
from deedbox.store.transaction import autocommit
from deedbox.worker.execute import Outcome


async def asked(pool: Pool, outcomes: Sequence[Outcome]) -> dict[UUID, Asked]:
    """By attempt what the rules said; nothing, at no cost, where no action among these goes by rules."""
    ruled = [outcome for outcome in outcomes if outcome.ruled]
    if not ruled:
        return {}
    async with autocommit(pool) as connection:
        roles = await places.roles(connection, [outcome.held.claimed.job_id for outcome in ruled])
    return {outcome.held.claimed.attempt_id: _asked(outcome, roles.get(outcome.held.claimed.job_id, "")) for outcome in ruled}


def _asked(outcome: Outcome, role: str) -> Asked:
    claimed, action = outcome.held.claimed, outcome.action
    basis = Basis(
        role=role,
        validation=outcome.journal.validation,
        repairs=outcome.journal.repairs,
        sensitive=sensitive_input(action, claimed.input_json),
        output=cast("Mapping[str, Any]", outcome.output) if isinstance(outcome.output, dict) else {},
    )
    found = tuple(wishes(action, outcome.plans, basis))
    return Asked(claimed.attempt_id, claimed.job_id, claimed.tenant, action.name, action.policy.version, found)
