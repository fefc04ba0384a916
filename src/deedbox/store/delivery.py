"""The ordinary end of many sendings at once: their receipts, and then the jobs that have no effect left to wait for.

Each is one statement and one commit for whatever its caller has gathered. What does not fit (a sender that was replaced, an
effect that failed) it leaves untouched, for `outbox` and `ending` to look at under its lock.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from deedbox.store.loader import statement
from deedbox.store.pool import Connection
from deedbox.store.rows import numbers, texts, uuids
from deedbox.telemetry import EFFECTS

PATIENCE_MS = 500
"""How long the receipts of many wait for one whose job somebody holds; then each waits for itself."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """A receipt of the sender that was given `fence`; `evidence_json` must be JSON that PostgreSQL can keep."""

    job_id: UUID
    effect_id: UUID
    fence: int
    connector: str
    receipt_id: UUID
    event_id: UUID
    provider_id: str
    evidence_json: str
    phase: str


async def deliver(connection: Connection, delivered: Sequence[Delivered]) -> dict[UUID, bool]:
    """Keep the receipts of these acts and complete them, outside of any transaction.

    Returns the effects that were completed, each with whether another waits to follow it. One that is not in the answer was
    not touched. Raises psycopg.errors.LockNotAvailable where somebody holds one of the jobs for longer than `PATIENCE_MS`.
    """
    cursor = await connection.execute(
        statement("delivery", "deliver"),
        {
            "lock_timeout": str(PATIENCE_MS),
            "job_id": uuids([one.job_id for one in delivered]),
            "effect_id": uuids([one.effect_id for one in delivered]),
            "fence": numbers([one.fence for one in delivered]),
            "receipt_id": uuids([one.receipt_id for one in delivered]),
            "event_id": uuids([one.event_id for one in delivered]),
            "provider_id": texts([one.provider_id for one in delivered]),
            "evidence": texts([one.evidence_json for one in delivered]),
            "phase": texts([one.phase for one in delivered]),
        },
    )
    completed = {row[0]: bool(row[1]) for row in await cursor.fetchall()}
    for one in delivered:
        if one.effect_id in completed:
            EFFECTS.labels(one.connector, "deliver").inc()
    return completed


async def finish(connection: Connection, job_ids: Sequence[UUID], event_ids: Sequence[UUID]) -> list[UUID]:
    """End those of these distinct jobs whose acts are all completed, outside of any transaction.

    `event_ids` are for their last events. Returns the jobs whose acts have all ended, but not all as completed:
    `ending.finish_job` says how these end.
    """
    cursor = await connection.execute(statement("delivery", "finish"), {"job_id": uuids(job_ids), "event_id": uuids(event_ids)})
    return [row[0] for row in await cursor.fetchall()]
