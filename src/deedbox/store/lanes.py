"""Lanes: one for each queue, action and tenant. They are claimed from in turn, may stand still, and may have a limit."""

from collections.abc import Sequence
from dataclasses import dataclass

from deedbox.store.loader import statement
from deedbox.store.pool import Connection


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane as operators see it; `waiting` is counted no further than a thousand."""

    lane_id: int
    queue: str
    action: str
    paused: bool
    max_running: int | None
    waiting: int
    running: int


async def served(connection: Connection, queues: Sequence[str], actions: Sequence[str]) -> list[tuple[int, str, int | None]]:
    """The lanes that do not stand still, for the actions a worker can run: id, action, limit."""
    cursor = await connection.execute(statement("lanes", "served"), {"queues": list(queues), "actions": list(actions)})
    return [(int(row[0]), str(row[1]), row[2]) for row in await cursor.fetchall()]


async def ready(connection: Connection, lane_ids: Sequence[int]) -> frozenset[int]:
    """Which of these lanes have a job that is due."""
    cursor = await connection.execute(statement("lanes", "ready"), {"lane_id": list(lane_ids)})
    return frozenset(int(row[0]) for row in await cursor.fetchall())


async def room(connection: Connection, lane_ids: Sequence[int]) -> dict[int, int]:
    """How many more may run in each lane that has a limit, locked until the transaction ends.

    A lane that another worker counts at this moment is not in the answer.
    """
    cursor = await connection.execute(statement("lanes", "room"), {"lane_id": list(lane_ids)})
    return {int(row[0]): int(row[1]) for row in await cursor.fetchall()}


async def listed(connection: Connection, tenant: str, action: str | None = None) -> list[Lane]:
    """The lanes of a tenant, of one action where it is named."""
    cursor = await connection.execute(statement("lanes", "listed"), {"tenant": tenant, "action": action})
    return [Lane(*row) for row in await cursor.fetchall()]


async def set_lane(
    connection: Connection, tenant: str, lane_id: int, *, paused: bool | None = None, limit: int | None = None
) -> bool:
    """Pause a lane or let it go on, or limit how many of it run at once (below zero: no limit). False: there is none such."""
    cursor = await connection.execute(
        statement("lanes", "set_lane"), {"lane_id": lane_id, "tenant": tenant, "paused": paused, "limit": limit}
    )
    return await cursor.fetchone() is not None
