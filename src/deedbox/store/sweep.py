"""Repairs: what a crash, a silence or the passing of time left to be done. Bounded, ordered, safe to run anywhere at once."""

from collections.abc import Sequence
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


async def next_due(connection: Connection) -> float | None:
    """Seconds until the next waiting job becomes due, or None."""
    cursor = await connection.execute(statement("sweep", "next_due"))
    row = await cursor.fetchone()
    return float(row[0]) if row else None


async def dispatching_done(connection: Connection, limit: int) -> list[UUID]:
    """Jobs whose effects have all ended but which have not."""
    cursor = await connection.execute(statement("sweep", "dispatching_done"), {"limit": limit})
    return [row[0] for row in await cursor.fetchall()]


async def overdue(connection: Connection, limit: int) -> list[UUID]:
    """Jobs whose deadline has passed and which can still be stopped."""
    cursor = await connection.execute(statement("sweep", "overdue"), {"limit": limit})
    return [row[0] for row in await cursor.fetchall()]
