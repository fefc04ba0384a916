"""Deciding an approval: what is locked, read and written, in the order queue, approval, effect, audit."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from deedbox.model.consequence import Consequence
from deedbox.store.loader import statement
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
class Handed:
    """A say that somebody handed to the one who asks; `over` where it was withdrawn or its time has passed, at `ends`."""

    holder: UUID
    name: str
    roles: frozenset[str]
    over: bool
    ends: str | None


@dataclass(frozen=True, slots=True)
class Standing:
    """An approval as it stands for one person; `lapsed` and `handed` are by the database's clock.

    `voters` and `said` belong together: who voted, and whose say it was. `others` are the states of the job's other approvals,
    and `acts` says whether something of it is on the outbox already, approved or let through by a rule. `replaces` is the job
    that its job replaces.
    """

    approval_id: UUID
    job_id: UUID
    tenant: str
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
    consequence: Consequence
    required_role: str | None
    editors: list[UUID]
    policy_version: str
    superseded_by: UUID | None
    reason: str | None
    expires_at: datetime
    version: int
    replaces: UUID | None
    voters: list[UUID]
    said: list[UUID]
    others: list[str]
    acts: bool
    handed: tuple[Handed, ...]


@dataclass(frozen=True, slots=True)
class Settlement:
    """How a pending approval ends, and what its job does then.

    `vote` is the decision of the person who ends it, None where it is no vote; `for_principal` is whose say that was, where it
    was not the voter's own. `job_state` is where the job goes, None where it stays.
    """

    approval_id: UUID
    state: str
    how: str
    event_id: UUID
    event_json: str
    decided_by: UUID | None = None
    reason: str | None = None
    vote: str | None = None
    digest: bytes | None = None
    for_principal: UUID | None = None
    superseded_by: UUID | None = None
    job_state: str | None = None
    next_event_id: UUID | None = None


async def lock_job(connection: Connection, job_id: UUID) -> LockedJob | None:
    """Lock the job's queue row; None when the job has ended."""
    cursor = await connection.execute(statement("decision", "lock_job"), {"job_id": job_id})
    row = await cursor.fetchone()
    return LockedJob(*row) if row else None


async def lock_job_of(connection: Connection, approval_id: UUID, tenant: str) -> UUID | None:
    """Lock the queue row of an approval's job; None when the approval is not this tenant's or the job has ended."""
    cursor = await connection.execute(statement("decision", "lock_job_of"), {"approval_id": approval_id, "tenant": tenant})
    row = await cursor.fetchone()
    return row[0] if row else None


async def standing(connection: Connection, approval_id: UUID, tenant: str, principal_id: UUID | None) -> Standing | None:
    """An approval of this tenant as it stands for one person, without a lock."""
    return await _standing(connection, approval_id, tenant, principal_id, lock=False)


async def lock_standing(connection: Connection, approval_id: UUID, tenant: str, principal_id: UUID | None) -> Standing | None:
    """The same, locked for this transaction, which has locked the queue row before."""
    return await _standing(connection, approval_id, tenant, principal_id, lock=True)


async def _standing(
    connection: Connection, approval_id: UUID, tenant: str, principal_id: UUID | None, *, lock: bool
) -> Standing | None:
    text = statement("decision", "standing") + (" FOR UPDATE OF a" if lock else "")
    given = {"approval_id": approval_id, "tenant": tenant, "principal_id": principal_id}
    cursor = await connection.execute(text, given)
    row = await cursor.fetchone()
    if row is None:
        return None
    columns: list[Any] = [*row[:-1], handed_of(row[-1])]
    return Standing(*columns)


def handed_of(found: list[dict[str, Any]]) -> tuple[Handed, ...]:
    """The says in a column of them, those that count first."""
    return tuple(
        Handed(UUID(item["holder"]), item["name"], frozenset(item["roles"]), item["over"], item["ends"]) for item in found
    )


async def vote(
    connection: Connection,
    *,
    approval_id: UUID,
    principal_id: UUID,
    decision: str,
    digest: bytes,
    how: str,
    for_principal: UUID | None = None,
) -> datetime:
    """Keep a vote that decides nothing yet, and return when it was given."""
    cursor = await connection.execute(
        statement("decision", "vote"),
        {
            "approval_id": approval_id,
            "principal_id": principal_id,
            "decision": decision,
            "digest": digest,
            "how": how,
            "for_principal": for_principal,
        },
    )
    row = await cursor.fetchone()
    if row is None:
        raise RuntimeError("a vote was not kept")
    return row[0]


async def settle(connection: Connection, how: Settlement) -> datetime | None:
    """End a pending approval of a job that waits for people; when, or None where it was not pending.

    Raises RuntimeError for a job that does not wait: a pending approval belongs to none.
    """
    cursor = await connection.execute(
        statement("decision", "settle"),
        {
            "approval_id": how.approval_id,
            "state": how.state,
            "how": how.how,
            "event_id": how.event_id,
            "event": how.event_json,
            "decided_by": how.decided_by,
            "reason": how.reason,
            "vote": how.vote,
            "digest": how.digest,
            "for_principal": how.for_principal,
            "superseded_by": how.superseded_by,
            "job_state": how.job_state,
            "next_event_id": how.next_event_id,
        },
    )
    row = await cursor.fetchone()
    if row is not None and row[1] is None:
        raise RuntimeError(f"approval {how.approval_id} was pending, and its job does not wait for anybody")
    return row[0] if row else None


async def end_approval(
    connection: Connection, *, approval_id: UUID, state: str, decided_by: UUID | None, how: str | None, reason: str | None
) -> datetime | None:
    """End a pending approval, void its links and withdraw what was still to be said of it; None when it was not pending."""
    cursor = await connection.execute(
        statement("decision", "end_approval"),
        {"approval_id": approval_id, "state": state, "decided_by": decided_by, "how": how, "reason": reason},
    )
    row = await cursor.fetchone()
    return row[0] if row else None


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
