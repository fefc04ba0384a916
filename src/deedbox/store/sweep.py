"""Repairs: what a crash, a silence or the passing of time left to be done. Bounded, ordered, safe to run anywhere at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from deedbox.store.loader import statement
from deedbox.store.pool import Connection


async def rescue(connection: Connection, event_ids: Sequence[UUID]) -> list[tuple[UUID, str]]:
    """Take back at most as many lapsed leases as there are ids; returns the jobs and their moves."""
    cursor = await connection.execute(statement("sweep", "rescue"), {"limit": len(event_ids), "event_id": list(event_ids)})
    return [(row[0], row[1]) for row in await cursor.fetchall()]


async def promote(connection: Connection, limit: int) -> int:
    """Make due what was waiting for its time; returns how many."""
    cursor = await connection.execute(statement("sweep", "promote"), {"limit": limit})
    return len(await cursor.fetchall())


@dataclass(frozen=True, slots=True)
class Seen:
    """Which kinds of repair have something to do; `next_due_s` is the time until the next job becomes due, None for none."""

    lapsed_leases: bool
    ripe: bool
    lapsed_approvals: bool
    overdue: bool
    lapsed_sendings: bool
    unsendable: bool
    dispatching: bool
    next_due_s: float | None


async def look(connection: Connection) -> Seen:
    """What a round would find."""
    cursor = await connection.execute(statement("sweep", "look"))
    row = await cursor.fetchone()
    if row is None:
        raise RuntimeError("a statement without FROM gave no row")
    return Seen(*row)


async def dispatching_done(connection: Connection, limit: int) -> list[UUID]:
    """Jobs whose effects have all ended but which have not."""
    cursor = await connection.execute(statement("sweep", "dispatching_done"), {"limit": limit})
    return [row[0] for row in await cursor.fetchall()]


async def overdue(connection: Connection, limit: int) -> list[UUID]:
    """Jobs whose deadline has passed and which can still be stopped."""
    cursor = await connection.execute(statement("sweep", "overdue"), {"limit": limit})
    return [row[0] for row in await cursor.fetchall()]
