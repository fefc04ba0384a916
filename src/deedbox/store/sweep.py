"""Repairs: what a crash, a silence or the passing of time left to be done. Bounded, ordered, safe to run anywhere at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from deedbox.store.loader import statement
from deedbox.store.pool import Connection

FIRST = UUID(int=0)
"""Before every job."""


async def lapsed(connection: Connection, limit: int, *, after: UUID = FIRST) -> list[UUID]:
    """The jobs behind `after`, in order, whose lease ran out; whether they can be taken back shows when it is tried."""
    cursor = await connection.execute(statement("sweep", "lapsed"), {"limit": limit, "after": after})
    return [row[0] for row in await cursor.fetchall()]


async def rescue(connection: Connection, event_ids: Sequence[UUID], *, after: UUID = FIRST) -> list[tuple[UUID, str, int]]:
    """Take back at most as many lapsed leases behind `after` as there are ids; returns the jobs, in order.

    With each comes the move, and how often it has been taken over in this round.
    """
    cursor = await connection.execute(
        statement("sweep", "rescue"), {"limit": len(event_ids), "event_id": list(event_ids), "after": after}
    )
    return [(row[0], row[1], row[2]) for row in await cursor.fetchall()]


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
    long_unknown: bool
    next_due_s: float | None


async def look(connection: Connection, remind_after_s: float = 3600.0) -> Seen:
    """What a round would find; people are reminded of what has been unknown for `remind_after_s` seconds."""
    cursor = await connection.execute(statement("sweep", "look"), {"remind_after_s": remind_after_s})
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
