"""Running again: new rounds of parked jobs, and jobs that replace others."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg.types.json import Jsonb

from deedbox.store.loader import statement
from deedbox.store.pool import Connection

MOST_REDELIVERIES = 3
"""How often repeated deliveries may take one job up."""
SHORTEST_WAIT_S = 60.0
"""Before a repeated delivery may take a parked job up, in seconds; the action's cap on back-off where that is longer."""


@dataclass(frozen=True, slots=True)
class Original:
    """The job that is to be replaced; its key is None where it was erased."""

    action: str
    key: str | None
    key_sha256: bytes
    state: str | None


@dataclass(frozen=True, slots=True)
class Repeat:
    """An effect that the replaced job has done, or may have done."""

    slot: str
    state: str
    effect_id: UUID
    provider_id: str | None = None


@dataclass(frozen=True, slots=True)
class Before:
    """An effect of the replaced job as it stands, or the job alone where it has none (then `slot` is None)."""

    job_id: UUID
    job_state: str
    slot: str | None
    connector: str | None
    target: str | None
    state: str | None
    provider_id: str | None
    at: datetime | None


async def take_up(
    connection: Connection,
    job_id: UUID,
    *,
    event_id: UUID,
    attempts: int | None,
    by: str,
    redelivery_wait_s: float | None = None,
) -> int | None:
    """Begin a new round with so many more attempts (None: as many as before); its number, or None where the job is not parked.

    With `redelivery_wait_s` it is the caller's repeated delivery that asks: None also where less than these seconds have
    passed, or where it has been done MOST_REDELIVERIES times.
    """
    cursor = await connection.execute(
        statement("rounds", "take_up"),
        {
            "job_id": job_id,
            "event_id": event_id,
            "attempts": attempts,
            "redelivery": redelivery_wait_s is not None,
            "wait_s": redelivery_wait_s or 0.0,
            "most": MOST_REDELIVERIES,
            "event": Jsonb({"taken_up_by": by}),
        },
    )
    row = await cursor.fetchone()
    return int(row[0]) if row else None


async def original(connection: Connection, job_id: UUID) -> Original | None:
    """What a replacement is checked against."""
    cursor = await connection.execute(statement("rounds", "original"), {"job_id": job_id})
    row = await cursor.fetchone()
    return Original(row[0], row[1], bytes(row[2]), row[3]) if row else None


async def repeats(connection: Connection, approval_id: UUID) -> list[Repeat]:
    """The effects of an approval that would be done a second time."""
    cursor = await connection.execute(statement("rounds", "repeats"), {"approval_id": approval_id})
    return [Repeat(*row) for row in await cursor.fetchall()]


async def before(connection: Connection, job_id: UUID) -> list[Before]:
    """What the job that this one replaces has done; empty where it replaces none."""
    cursor = await connection.execute(statement("rounds", "before"), {"job_id": job_id})
    return [Before(*row) for row in await cursor.fetchall()]
