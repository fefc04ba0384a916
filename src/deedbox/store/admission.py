"""What the gate writes: proposals, verdicts, approvals and, through nothing else, effects. Only `gate` imports this."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from uuid import UUID

from deedbox.model.consequence import Consequence
from deedbox.store.loader import statement
from deedbox.store.pool import Connection
from deedbox.store.rows import rows


@dataclass(frozen=True, slots=True)
class ProposedEffect:
    """One proposed effect with the bytes its digest covers."""

    proposal_effect_id: UUID
    group: str
    position: int
    connector: str
    target: str
    slot: str
    summary: str
    body: bytes
    digest: bytes
    after: str | None = None


@dataclass(frozen=True, slots=True)
class HeldGroup:
    """A group of effects that waits for a person. `expires_s` is in seconds from now, by the database's clock."""

    approval_id: UUID
    tenant: str
    action: str
    group: str
    digest: bytes
    effect_digests: tuple[bytes, ...]
    policy_version: str
    rule: str
    audience: tuple[str, ...]
    quorum: int
    expires_s: float
    sampled_by: str | None = None
    """The rule whose sample it is."""
    consequence: Consequence = "consequential"
    required_role: str | None = None


@dataclass(frozen=True, slots=True)
class HeldInput:
    """The arguments of a job that wait for a person. `expires_s` is in seconds from now, by the database's clock."""

    approval_id: UUID
    job_id: UUID
    tenant: str
    action: str
    digest: bytes
    policy_version: str
    audience: tuple[str, ...]
    quorum: int
    expires_s: float


async def propose(
    connection: Connection,
    *,
    job_id: UUID,
    proposal_id: UUID,
    attempt_id: UUID,
    output_json: str | None,
    facts_json: str,
    policy_version: str,
    effects: Sequence[ProposedEffect],
) -> None:
    """Keep a proposal and its effects."""
    await connection.execute(
        statement("admission", "propose"),
        {
            "job_id": job_id,
            "proposal_id": proposal_id,
            "attempt_id": attempt_id,
            "output": output_json,
            "facts": facts_json,
            "policy_version": policy_version,
        },
    )
    if effects:
        await propose_effects(connection, job_id, proposal_id, effects)


async def propose_effects(connection: Connection, job_id: UUID, proposal_id: UUID, effects: Sequence[ProposedEffect]) -> None:
    """Keep the effects of a proposal that is kept."""
    await connection.execute(
        statement("admission", "propose_effects"),
        {
            "job_id": job_id,
            "proposal_id": proposal_id,
            "id": [effect.proposal_effect_id for effect in effects],
            "group_name": [effect.group for effect in effects],
            "position": [effect.position for effect in effects],
            "connector": [effect.connector for effect in effects],
            "target": [effect.target for effect in effects],
            "slot": [effect.slot for effect in effects],
            "summary": [effect.summary for effect in effects],
            "body": [effect.body for effect in effects],
            "digest": [effect.digest for effect in effects],
            "after_slot": [effect.after for effect in effects],
        },
    )


async def give_verdict(
    connection: Connection,
    *,
    verdict_id: UUID,
    job_id: UUID,
    proposal_id: UUID,
    group: str,
    decision: str,
    rule: str,
    policy_version: str,
    effect_digests: Sequence[bytes],
    wanted: str | None = None,
    drawn: bool | None = None,
    window_s: float | None = None,
) -> None:
    """Keep what the policy said of a group; what it lets out may not begin before `window_s` seconds have passed."""
    await connection.execute(
        statement("admission", "give_verdict"),
        {
            "verdict_id": verdict_id,
            "job_id": job_id,
            "proposal_id": proposal_id,
            "group_name": group,
            "decision": decision,
            "rule": rule,
            "policy_version": policy_version,
            "effect_digests": list(effect_digests),
            "wanted": wanted,
            "drawn": drawn,
            "window_s": window_s,
        },
    )


async def request_approval(connection: Connection, job_id: UUID, proposal_id: UUID, held: HeldGroup) -> None:
    """Hold a group for a person."""
    await connection.execute(
        statement("admission", "request_approval"),
        {
            "approval_id": held.approval_id,
            "job_id": job_id,
            "tenant": held.tenant,
            "action": held.action,
            "proposal_id": proposal_id,
            "group_name": held.group,
            "digest": held.digest,
            "effect_digests": list(held.effect_digests),
            "policy_version": held.policy_version,
            "rule": held.rule,
            "audience": list(held.audience),
            "quorum": held.quorum,
            "expires_s": held.expires_s,
            "sampled_by": held.sampled_by,
            "consequence": held.consequence,
            "required_role": held.required_role,
        },
    )


async def hold_input(connection: Connection, held: HeldInput) -> None:
    """Hold the arguments of a job for a person, in the transaction that accepts the job."""
    await connection.execute(
        statement("admission", "hold_input"),
        {
            "approval_id": held.approval_id,
            "job_id": held.job_id,
            "tenant": held.tenant,
            "action": held.action,
            "digest": held.digest,
            "policy_version": held.policy_version,
            "audience": list(held.audience),
            "quorum": held.quorum,
            "expires_s": held.expires_s,
        },
    )


async def enqueue_approved(
    connection: Connection,
    *,
    job_id: UUID,
    proposal_id: UUID,
    approval_id: UUID,
    group: str,
    effect_ids: Sequence[UUID],
    not_after_s: float,
) -> list[UUID]:
    """Put the effects of an approved group on the outbox; returns the ids used."""
    cursor = await connection.execute(
        statement("admission", "enqueue_approved"),
        {
            "job_id": job_id,
            "proposal_id": proposal_id,
            "approval_id": approval_id,
            "group_name": group,
            "effect_id": list(effect_ids),
            "not_after_s": not_after_s,
        },
    )
    return [row[0] for row in await cursor.fetchall()]


async def enqueue_let_out(
    connection: Connection,
    *,
    job_id: UUID,
    proposal_id: UUID,
    verdict_id: UUID,
    group: str,
    effect_ids: Sequence[UUID],
    not_after_s: float,
) -> list[UUID]:
    """Put the effects of a group that a verdict lets out on the outbox; returns the ids used."""
    cursor = await connection.execute(
        statement("admission", "enqueue_let_out"),
        {
            "job_id": job_id,
            "proposal_id": proposal_id,
            "verdict_id": verdict_id,
            "group_name": group,
            "effect_id": list(effect_ids),
            "not_after_s": not_after_s,
        },
    )
    return [row[0] for row in await cursor.fetchall()]


@dataclass(frozen=True, slots=True)
class NoticeRow:
    """A notice with the bytes its digest covers. Times are in seconds from now, by the database's clock."""

    effect_id: UUID
    verdict_id: UUID
    template: str
    tenant: str
    action: str
    connector: str
    target: str
    summary: str
    body: bytes
    digest: bytes
    once: str | None
    job_id: UUID | None
    approval_id: UUID | None
    alert_id: UUID | None
    principal_id: UUID | None
    not_before_s: float
    not_after_s: float


async def enqueue_notices(connection: Connection, notices: Sequence[NoticeRow], policy_version: str) -> list[UUID]:
    """Put notices on the outbox, each under the built-in verdict; returns the effects of those that were not made before."""
    parameters = {"notices": rows([asdict(one) for one in notices]), "policy_version": policy_version}
    cursor = await connection.execute(statement("admission", "claim_notices"), parameters)
    claimed = {row[0] for row in await cursor.fetchall()}
    if claimed:
        parameters["notices"] = rows([asdict(one) for one in notices if one.effect_id in claimed])
        await connection.execute(statement("admission", "authorise_notices"), parameters)
        await connection.execute(statement("admission", "enqueue_notices"), parameters)
    return [one.effect_id for one in notices if one.effect_id in claimed]


async def plant(connection: Connection, *, effect_id: UUID, proposal_effect_id: UUID, tenant: str, action: str) -> None:
    """Put one allowed effect on the outbox. Only for a transaction that is rolled back."""
    await connection.execute(
        statement("admission", "plant"),
        {"effect_id": effect_id, "proposal_effect_id": proposal_effect_id, "tenant": tenant, "action": action},
    )
