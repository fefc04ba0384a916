"""The queue as a worker sees it: claim, renew, report, settle."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from deedbox.store import packed
from deedbox.store.loader import statement
from deedbox.store.pool import Connection
from deedbox.store.rows import encode, rows, uuids
from deedbox.store.run import run
from deedbox.store.wire import Wire

FIRST = UUID(int=0)
_ENDED_HEAD = packed.head(7) + packed.UUID_HEAD


class Claimed(NamedTuple):
    """A leased attempt and what it needs to run."""

    job_id: UUID
    lane_id: int
    priority: int
    attempt: int
    attempts_allowed: int
    round: int
    attempt_id: UUID
    fence: int
    cancel_requested: bool
    tenant: str
    action: str
    version: int
    input_json: str | None


@dataclass(frozen=True, slots=True)
class Share:
    """What one claim may take of a lane: `room` jobs of an action version from a place in the lane's order.

    `cap_s` is the cap on a lease's life in seconds.
    """

    lane_id: int
    version: int
    cap_s: float
    room: int
    from_priority: int = 0
    from_job_id: UUID = FIRST


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


class Completed(NamedTuple):
    """An attempt (job, attempt, fence) that ended well and proposed nothing."""

    held: tuple[UUID, UUID, int]
    output: Any
    event_id: UUID | bytes
    event_json: str
    journal: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a locked job ends."""

    job_id: UUID
    state: str
    event_type: str
    event_id: UUID
    event: Mapping[str, Any]
    output: Any = None
    failure_class: str | None = None
    code: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Moving:
    """How a locked job goes on; `wait_s` is the time in seconds before it is due. `waited`: the attempt is given back."""

    job_id: UUID
    state: str
    event_type: str
    event_id: UUID
    event: Mapping[str, Any]
    wait_s: float | None = None
    waited: bool = False


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
    journal: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """`model`, `prompt_version`, `validation`, `usage` and `repairs`, as far as there were any."""


async def claim(
    on: Connection | Wire,
    shares: Sequence[Share],
    *,
    worker: str,
    lease_s: float,
    attempt_ids: Sequence[UUID | str],
    event_ids: Sequence[UUID | str],
) -> list[Claimed]:
    """Lease at most as many due jobs as there are ids: of each lane no more than its share, in the order of the shares."""
    serve = [
        {
            "lane_id": item.lane_id,
            "version": item.version,
            "cap": item.cap_s,
            "room": item.room,
            "from_priority": item.from_priority,
            "from_job_id": item.from_job_id,
        }
        for item in shares
    ]
    values = {
        "serve": rows(serve),
        "limit": str(len(attempt_ids)),
        "worker": worker,
        "lease": str(lease_s),
        "attempt_id": uuids(attempt_ids),
        "event_id": uuids(event_ids),
    }
    return [Claimed(*row) for row in await run(on, "queue", "claim", values)]


def _held(held: Sequence[tuple[UUID, UUID, int]]) -> str:
    return rows([{"job_id": item[0], "attempt_id": item[1], "fence": item[2]} for item in held])


async def renew(connection: Connection, held: Sequence[tuple[UUID, UUID, int]], lease_s: float) -> dict[UUID, bool]:
    """Prolong the leases (job, attempt, fence); returns the attempts that are still held, with their cancel flag."""
    cursor = await connection.execute(
        statement("queue", "renew"),
        {"held": _held(held), "lease": lease_s},
    )
    return {row[0]: bool(row[1]) for row in await cursor.fetchall()}


async def flags(connection: Connection, held: Sequence[tuple[UUID, UUID, int]]) -> set[UUID]:
    """The attempts among those held that are asked to stop."""
    cursor = await connection.execute(statement("queue", "flags"), {"held": _held(held)})
    return {row[0] for row in await cursor.fetchall()}


async def lock_attempts(connection: Connection, held: Sequence[tuple[UUID, UUID, int]]) -> dict[UUID, Locked]:
    """Lock the rows that are still the attempt's, by attempt id; what is missing is stale."""
    cursor = await connection.execute(
        statement("queue", "lock_attempts"),
        {"held": _held(held)},
    )
    return {row[1]: Locked(*row) for row in await cursor.fetchall()}


async def complete_attempts(on: Connection | Wire, done: Sequence[Completed], *, worker: str, build: str) -> list[bool]:
    """End attempts that proposed nothing and journal them, outside of any transaction; says of each whether it did.

    Another one is stale, or was just changed by somebody else.
    """
    ordered = sorted(done, key=lambda item: item.held[0].int)
    ended = [
        b"".join(
            (
                _ENDED_HEAD,
                item.held[0].bytes,
                packed.UUID_HEAD,
                item.held[1].bytes,
                packed.bigint(item.held[2]),
                packed.json(encode(item.output)),
                packed.UUID_HEAD,
                item.event_id if isinstance(item.event_id, bytes) else item.event_id.bytes,
                packed.json(item.event_json),
                packed.json(encode(item.journal)) if item.journal else packed.NULL_JSON,
            )
        )
        for item in ordered
    ]
    values = {"worker": worker, "build": build, "ended": packed.array(await packed.row_type(on, "ended_attempt"), ended)}
    count, ids = (await run(on, "queue", "complete_attempts", values))[0]
    return packed.answered(count, ids, [item.held[1] for item in done])


async def settled(connection: Connection, held: Sequence[tuple[UUID, UUID, int]]) -> dict[UUID, str]:
    """How the worker that held these attempts settled them, by attempt id; those nobody settled are not in the answer."""
    cursor = await connection.execute(statement("queue", "settled"), {"held": _held(held)})
    return {row[0]: str(row[1]) for row in await cursor.fetchall()}


async def end_attempts(connection: Connection, endings: Sequence[Ending]) -> None:
    """End locked jobs."""
    await connection.execute(
        statement("queue", "end_attempts"),
        {
            "endings": rows(
                [
                    {
                        "job_id": item.job_id,
                        "state": item.state,
                        "output": item.output,
                        "class": item.failure_class,
                        "code": item.code,
                        "message": item.message,
                        "event_type": item.event_type,
                        "event_id": item.event_id,
                        "event": item.event,
                    }
                    for item in endings
                ]
            )
        },
    )


async def move_attempts(connection: Connection, movings: Sequence[Moving]) -> None:
    """Move locked jobs that stay in the queue."""
    await connection.execute(
        statement("queue", "move_attempts"),
        {
            "movings": rows(
                [
                    {
                        "job_id": item.job_id,
                        "state": item.state,
                        "wait_s": item.wait_s,
                        "waited": item.waited,
                        "event_type": item.event_type,
                        "event_id": item.event_id,
                        "event": item.event,
                    }
                    for item in movings
                ]
            )
        },
    )


async def journal_attempts(connection: Connection, attempts: Sequence[AttemptRow], *, worker: str, build: str) -> None:
    """Keep what became of attempts."""
    await connection.execute(
        statement("queue", "journal_attempts"),
        {
            "worker": worker,
            "build": build,
            "attempts": rows(
                [
                    {
                        "job_id": row.job_id,
                        "attempt_id": row.attempt_id,
                        "report": row.report,
                        "attempt": row.attempt,
                        "round": row.round,
                        "move": row.move,
                        "class": row.failure_class,
                        "code": row.code,
                        "message": row.message,
                        "started_at": row.started_at,
                        **row.journal,
                    }
                    for row in attempts
                ]
            ),
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


async def last_step(connection: Connection, job_id: UUID) -> int:
    """The last step of its progress that a job has reported, -1 where it has reported none."""
    cursor = await connection.execute(statement("queue", "last_step"), {"job_id": job_id})
    row = await cursor.fetchone()
    return int(row[0]) if row and row[0] is not None else -1


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
