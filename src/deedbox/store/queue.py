"""The queue as a worker sees it: claim, renew, report, settle."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from deedbox.store.loader import statement
from deedbox.store.pool import Connection


@dataclass(frozen=True, slots=True)
class Claimed:
    """A leased attempt and what it needs to run."""

    job_id: UUID
    attempt: int
    attempts_allowed: int
    round: int
    attempt_id: UUID
    fence: int
    cancel_requested: bool
    tenant: str
    action: str
    version: int
    subject: UUID
    role: str
    trace: str | None
    input_json: str | None


@dataclass(frozen=True, slots=True)
class Serve:
    """A lane a worker serves, the action version it can run there, and the cap on a lease's life in seconds."""

    lane_id: int
    version: int
    cap_s: float


@dataclass(frozen=True, slots=True)
class Locked:
    """A queue row whose attempt still holds its fence, locked for this transaction."""

    job_id: UUID
    attempt_id: UUID
    attempt: int
    attempts_allowed: int
    round: int
    last_seq: int
    cancel_requested: bool
    started_at: datetime


@dataclass(frozen=True, slots=True)
class Ending:
    """How a locked job ends."""

    job_id: UUID
    state: str
    event_type: str
    event_id: UUID
    event_json: str
    output_json: str | None = None
    failure_class: str | None = None
    code: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Moving:
    """How a locked job goes on; `wait_s` is the time in seconds before it is due."""

    job_id: UUID
    state: str
    event_type: str
    event_id: UUID
    event_json: str
    wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """What the journal keeps of one attempt."""

    job_id: UUID
    attempt_id: UUID
    report: str
    attempt: int
    round: int
    move: str
    started_at: datetime | None
    failure_class: str | None = None
    code: str | None = None
    message: str | None = None
    model_json: str | None = None
    validation: str | None = None
    usage_json: str | None = None
    repairs: int | None = None


async def lanes(connection: Connection, queues: Sequence[str], actions: Sequence[str]) -> list[tuple[int, str]]:
    """Lane ids with their action, for the actions a worker can run."""
    cursor = await connection.execute(statement("queue", "lanes"), {"queues": list(queues), "actions": list(actions)})
    return [(int(row[0]), str(row[1])) for row in await cursor.fetchall()]


async def claim(
    connection: Connection,
    serve: Sequence[Serve],
    *,
    worker: str,
    lease_s: float,
    attempt_ids: Sequence[UUID],
    event_ids: Sequence[UUID],
) -> list[Claimed]:
    """Lease at most as many due jobs as there are `attempt_ids`."""
    cursor = await connection.execute(
        statement("queue", "claim"),
        {
            "lane_id": [item.lane_id for item in serve],
            "version": [item.version for item in serve],
            "cap": [item.cap_s for item in serve],
            "limit": len(attempt_ids),
            "worker": worker,
            "lease": lease_s,
            "attempt_id": list(attempt_ids),
            "event_id": list(event_ids),
        },
    )
    return [Claimed(*row) for row in await cursor.fetchall()]


async def renew(connection: Connection, held: Sequence[tuple[UUID, UUID, int]], lease_s: float) -> dict[UUID, bool]:
    """Prolong the leases (job, attempt, fence); returns the attempts that are still held, with their cancel flag."""
    cursor = await connection.execute(
        statement("queue", "renew"),
        {
            "job_id": [item[0] for item in held],
            "attempt_id": [item[1] for item in held],
            "fence": [item[2] for item in held],
            "lease": lease_s,
        },
    )
    return {row[0]: bool(row[1]) for row in await cursor.fetchall()}


async def flags(connection: Connection, held: Sequence[tuple[UUID, UUID, int]]) -> set[UUID]:
    """The attempts among those held that are asked to stop."""
    cursor = await connection.execute(
        statement("queue", "flags"), {"job_id": [item[0] for item in held], "attempt_id": [item[1] for item in held]}
    )
    return {row[0] for row in await cursor.fetchall()}


async def lock_attempts(connection: Connection, held: Sequence[tuple[UUID, UUID, int]]) -> dict[UUID, Locked]:
    """Lock the rows that are still the attempt's, by attempt id; what is missing is stale."""
    cursor = await connection.execute(
        statement("queue", "lock_attempts"),
        {"job_id": [item[0] for item in held], "attempt_id": [item[1] for item in held], "fence": [item[2] for item in held]},
    )
    return {row[1]: Locked(*row) for row in await cursor.fetchall()}


async def end_attempts(connection: Connection, endings: Sequence[Ending]) -> None:
    """End locked jobs."""
    await connection.execute(
        statement("queue", "end_attempts"),
        {
            "job_id": [item.job_id for item in endings],
            "state": [item.state for item in endings],
            "output": [item.output_json for item in endings],
            "class": [item.failure_class for item in endings],
            "code": [item.code for item in endings],
            "message": [item.message for item in endings],
            "event_type": [item.event_type for item in endings],
            "event_id": [item.event_id for item in endings],
            "event": [item.event_json for item in endings],
        },
    )


async def move_attempts(connection: Connection, movings: Sequence[Moving]) -> None:
    """Move locked jobs that stay in the queue."""
    await connection.execute(
        statement("queue", "move_attempts"),
        {
            "job_id": [item.job_id for item in movings],
            "state": [item.state for item in movings],
            "wait_s": [item.wait_s for item in movings],
            "event_type": [item.event_type for item in movings],
            "event_id": [item.event_id for item in movings],
            "event": [item.event_json for item in movings],
        },
    )


async def journal_attempts(connection: Connection, rows: Sequence[AttemptRow], *, worker: str, build: str) -> None:
    """Keep what became of attempts."""
    await connection.execute(
        statement("queue", "journal_attempts"),
        {
            "worker": worker,
            "build": build,
            "job_id": [row.job_id for row in rows],
            "attempt_id": [row.attempt_id for row in rows],
            "report": [row.report for row in rows],
            "attempt": [row.attempt for row in rows],
            "round": [row.round for row in rows],
            "move": [row.move for row in rows],
            "class": [row.failure_class for row in rows],
            "code": [row.code for row in rows],
            "message": [row.message for row in rows],
            "started_at": [row.started_at for row in rows],
            "model": [row.model_json for row in rows],
            "validation": [row.validation for row in rows],
            "usage": [row.usage_json for row in rows],
            "repairs": [row.repairs for row in rows],
        },
    )


async def add_event(
    connection: Connection, held: tuple[UUID, UUID, int], *, event_id: UUID, event_type: str, payload_json: str
) -> bool:
    """Append an event of a running attempt; False when the lease is lost."""
    cursor = await connection.execute(
        statement("queue", "add_event"),
        {
            "job_id": held[0],
            "attempt_id": held[1],
            "fence": held[2],
            "event_id": event_id,
            "type": event_type,
            "payload": payload_json,
        },
    )
    return await cursor.fetchone() is not None


async def read_step(connection: Connection, job_id: UUID, name: str) -> tuple[bytes, str] | None:
    """A checkpoint's input hash and value, or None."""
    cursor = await connection.execute(statement("queue", "read_step"), {"job_id": job_id, "name": name})
    row = await cursor.fetchone()
    return (bytes(row[0]), str(row[1])) if row else None


async def write_step(
    connection: Connection, held: tuple[UUID, UUID, int], *, name: str, input_sha256: bytes, value_json: str
) -> bool:
    """Store a checkpoint under the fence; False when the lease is lost."""
    cursor = await connection.execute(
        statement("queue", "write_step"),
        {
            "job_id": held[0],
            "attempt_id": held[1],
            "fence": held[2],
            "name": name,
            "input_sha256": input_sha256,
            "value": value_json,
        },
    )
    return await cursor.fetchone() is not None


async def read_document(connection: Connection, job_id: UUID, document_id: UUID) -> bytes | None:
    """A document's bytes, or None where the job does not carry it."""
    cursor = await connection.execute(statement("queue", "read_document"), {"job_id": job_id, "document_id": document_id})
    row = await cursor.fetchone()
    return bytes(row[0]) if row else None
