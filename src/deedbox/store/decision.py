"""Deciding an approval: what is locked, read and written, in the order queue, approval, effect, audit."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from deedbox.store.loader import statement
from deedbox.store.notices import cancel_of_approval
from deedbox.store.pool import Connection


@dataclass(frozen=True, slots=True)
class LockedJob:
    """A job's queue row, locked for this transaction."""

    state: str
    round: int
    attempt: int
    attempts_allowed: int
    last_seq: int
    action_version: int


@dataclass(frozen=True, slots=True)
class LockedApproval:
    """An approval, locked for this transaction; `lapsed` is by the database's clock."""

    approval_id: UUID
    job_id: UUID
    state: str
    digest: bytes
    audience: list[str]
    allowed: list[str]
    quorum: int
    group: str
    proposal_id: UUID | None
    purpose: str
    lapsed: bool
    decided_at: datetime | None
    decided_by: str | None
    subject: UUID
    action: str
    effects: int


async def job_of(connection: Connection, approval_id: UUID, tenant: str) -> UUID | None:
    """The job of an approval of this tenant."""
    cursor = await connection.execute(statement("decision", "job_of"), {"approval_id": approval_id, "tenant": tenant})
    row = await cursor.fetchone()
    return row[0] if row else None


async def lock_job(connection: Connection, job_id: UUID) -> LockedJob | None:
    """Lock the job's queue row; None when the job has ended."""
    cursor = await connection.execute(statement("decision", "lock_job"), {"job_id": job_id})
    row = await cursor.fetchone()
    return LockedJob(*row) if row else None


async def lock_approval(connection: Connection, approval_id: UUID) -> LockedApproval | None:
    """Lock the approval."""
    cursor = await connection.execute(statement("decision", "lock_approval"), {"approval_id": approval_id})
    row = await cursor.fetchone()
    return LockedApproval(*row) if row else None


async def vote(
    connection: Connection, *, approval_id: UUID, principal_id: UUID, decision: str, digest: bytes, how: str
) -> bool:
    """Keep a vote; False when this person has voted."""
    cursor = await connection.execute(
        statement("decision", "vote"),
        {"approval_id": approval_id, "principal_id": principal_id, "decision": decision, "digest": digest, "how": how},
    )
    return await cursor.fetchone() is not None


async def count_votes(connection: Connection, approval_id: UUID) -> int:
    """How many distinct people approved."""
    cursor = await connection.execute(statement("decision", "count_votes"), {"approval_id": approval_id})
    row = await cursor.fetchone()
    return int(row[0]) if row else 0


async def end_approval(
    connection: Connection, *, approval_id: UUID, state: str, decided_by: UUID | None, how: str | None, reason: str | None
) -> datetime | None:
    """End a pending approval, void its links and withdraw what was still to be said of it; None when it was not pending."""
    cursor = await connection.execute(
        statement("decision", "end_approval"),
        {"approval_id": approval_id, "state": state, "decided_by": decided_by, "how": how, "reason": reason},
    )
    row = await cursor.fetchone()
    await connection.execute(statement("decision", "void_tokens"), {"approval_id": approval_id})
    await cancel_of_approval(connection, approval_id)
    return row[0] if row else None


async def approval_states(connection: Connection, job_id: UUID) -> list[str]:
    """The states of all approvals of a job."""
    cursor = await connection.execute(statement("decision", "other_approvals"), {"job_id": job_id})
    return [row[0] for row in await cursor.fetchall()]


async def move_job(connection: Connection, job_id: UUID, state: str) -> None:
    """Move a held job whose row is locked; the event is the caller's to add."""
    await connection.execute(statement("decision", "move_job"), {"job_id": job_id, "state": state})


async def add_event(connection: Connection, job_id: UUID, *, event_id: UUID, event_type: str, payload_json: str) -> None:
    """Append an event of a job whose row is locked."""
    await connection.execute(
        statement("decision", "add_event"),
        {"job_id": job_id, "event_id": event_id, "type": event_type, "payload": payload_json},
    )


async def lapsed(connection: Connection, limit: int) -> list[tuple[UUID, str]]:
    """Pending approvals whose time is over, with their tenant."""
    cursor = await connection.execute(statement("decision", "lapsed"), {"limit": limit})
    return [(row[0], row[1]) for row in await cursor.fetchall()]


async def mint_token(connection: Connection, approval_id: UUID, token_sha256: bytes) -> bool:
    """Keep a link's token digest; False when the approval is not pending."""
    cursor = await connection.execute(
        statement("decision", "mint_token"), {"approval_id": approval_id, "token_sha256": token_sha256}
    )
    return await cursor.fetchone() is not None


async def decline_job(
    connection: Connection, job_id: UUID, *, event_id: UUID, code: str, message: str, event_json: str
) -> None:
    """End a held job of which nothing was authorised; the row is locked by this transaction."""
    await connection.execute(
        statement("decision", "decline_job"),
        {"job_id": job_id, "event_id": event_id, "code": code, "message": message, "event": event_json},
    )


async def now(connection: Connection) -> datetime:
    """The database's clock."""
    cursor = await connection.execute(statement("decision", "now"))
    row = await cursor.fetchone()
    if row is None:
        raise RuntimeError("the database did not tell its time")
    return row[0]
