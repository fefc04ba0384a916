"""Lanes: one for each queue, action and tenant. They are claimed from in turn, may stand still, and may have a limit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deedbox.store.loader import statement
from deedbox.store.pool import Connection


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane as operators see it; `waiting` is counted no further than a thousand.

    `action_max_running` is how many jobs of its action may run at once over all queues and tenants; None is no limit, as ever.
    """

    lane_id: int
    queue: str
    action: str
    paused: bool
    max_running: int | None
    waiting: int
    running: int
    action_max_running: int | None = None


class Rooms:
    """How many more may run in lanes that have a limit, and in those that share one; what is taken counts at once."""

    def __init__(
        self,
        lanes: Mapping[int, int | None],
        *,
        groups: Mapping[int, str] | None = None,
        shared: Mapping[str, int] | None = None,
    ) -> None:
        """The room of each lane (None: no limit of its own), the group a lane shares a limit with, and each group's room."""
        self._lanes = dict(lanes)
        self._groups = dict(groups or {})
        self._shared = dict(shared or {})

    def of(self, lane_id: int) -> int:
        """How many more may run in a lane; none in a lane that was not counted."""
        if lane_id not in self._lanes:
            return 0
        rooms = [room for room in (self._lanes[lane_id], self._shared.get(self._groups.get(lane_id, ""))) if room is not None]
        return min(rooms, default=0)

    def take(self, lane_id: int, wanted: int) -> int:
        """Take up to `wanted` places of a lane, and of the group it belongs to; returns how many."""
        taken = min(wanted, self.of(lane_id))
        if taken > 0:
            room = self._lanes[lane_id]
            if room is not None:
                self._lanes[lane_id] = room - taken
            if (group := self._groups.get(lane_id)) in self._shared:
                self._shared[group] -= taken
        return taken

    @property
    def full(self) -> bool:
        """Whether there is a limit that is reached, or that could not be counted: room comes when an attempt ends."""
        return not self._lanes or any(room == 0 for room in (*self._lanes.values(), *self._shared.values()))


async def served(connection: Connection, queues: Sequence[str], actions: Sequence[str]) -> list[tuple[int, str, int | None]]:
    """The lanes that do not stand still, for the actions a worker can run: id, action, the least limit that holds."""
    cursor = await connection.execute(statement("lanes", "served"), {"queues": list(queues), "actions": list(actions)})
    return [(int(row[0]), str(row[1]), row[2]) for row in await cursor.fetchall()]


async def ready(connection: Connection, lane_ids: Sequence[int]) -> frozenset[int]:
    """Which of these lanes have a job that is due."""
    cursor = await connection.execute(statement("lanes", "ready"), {"lane_id": list(lane_ids)})
    return frozenset(int(row[0]) for row in await cursor.fetchall())


async def room(connection: Connection, lane_ids: Sequence[int]) -> Rooms:
    """How many more may run in each lane that has a limit, its own or its action's, locked until the transaction ends.

    A lane that another worker counts at this moment has none, nor has one that shares its limit and has nothing due.
    """
    cursor = await connection.execute(statement("lanes", "hold"), {"lane_id": list(lane_ids)})
    held = [int(row[0]) for row in await cursor.fetchall()]
    if not held:
        return Rooms({})
    # Only now, with the locks: a statement does not see what was committed after it began.
    cursor = await connection.execute(statement("lanes", "room"), {"lane_id": held})
    rows = await cursor.fetchall()
    return Rooms(
        {row[0]: row[2] for row in rows if row[3] is None or row[4]},
        groups={row[0]: row[1] for row in rows if row[3] is not None},
        shared={row[1]: row[3] for row in rows if row[3] is not None},
    )


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


async def limit_action(connection: Connection, action: str, limit: int) -> bool:
    """Limit how many jobs of an action run at once over all lanes (below zero: no limit). False: it has no lane."""
    if limit < 0:
        cursor = await connection.execute(statement("lanes", "free_action"), {"action": action})
    else:
        cursor = await connection.execute(statement("lanes", "limit_action"), {"action": action, "limit": limit})
    return await cursor.fetchone() is not None
