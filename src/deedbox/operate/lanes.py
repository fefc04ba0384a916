"""Lanes for operators: what waits and runs in each, and the two verbs by which a lane is held back."""

from typing import Any

from deedbox.model.errors import DeedboxError, Problem
from deedbox.model.identity import Principal
from deedbox.operate.evidence import checked_reason
from deedbox.store import audit, lanes
from deedbox.store.lanes import Lane
from deedbox.store.pool import Pool
from deedbox.store.tell import tell
from deedbox.store.transaction import autocommit, transaction

MOST_RUNNING = 10_000

__all__ = ["Lane", "Lanes"]


class Lanes:
    """The lanes of a tenant. Changes leave an audit entry with their reason."""

    def __init__(self, pool: Pool) -> None:
        """Reads and changes through `pool`."""
        self._pool = pool

    async def listed(self, principal: Principal, action: str | None = None) -> list[Lane]:
        """The lanes of the principal's tenant, of one action where it is named. Raises DeedboxError permission_denied."""
        if not principal.may("read"):
            raise DeedboxError("permission_denied", "Reading lanes needs a role that may read.")
        async with autocommit(self._pool) as connection:
            return await lanes.listed(connection, principal.tenant, action)

    async def change(
        self,
        principal: Principal,
        lane_id: int,
        reason: str,
        *,
        paused: bool | None = None,
        limit: int | None = None,
        door: str = "api",
    ) -> Lane:
        """Pause a lane or let it go on, and limit how many of it run at once; a limit below zero lifts it.

        What runs already goes on. Raises DeedboxError: permission_denied, not_found, invalid_input.
        """
        if not principal.may("cancel"):
            raise DeedboxError("permission_denied", "Holding a lane back needs a role that may cancel.")
        reason = checked_reason(reason)
        if limit is not None and limit > MOST_RUNNING:
            problem = Problem("/limit", "range", f"is at most {MOST_RUNNING}")
            raise DeedboxError("invalid_input", "The limit is out of range.", problems=(problem,))
        async with transaction(self._pool) as connection:
            if not await lanes.set_lane(connection, principal.tenant, lane_id, paused=paused, limit=limit):
                raise DeedboxError("not_found", "There is no such lane, or it is not yours.")
            found = next(lane for lane in await lanes.listed(connection, principal.tenant) if lane.lane_id == lane_id)
            detail: dict[str, Any] = {"queue": found.queue, "action": found.action, "paused": paused, "limit": limit}
            entry = audit.entry_by(principal, door, "change_lane", ("lane", str(lane_id)), reason=reason, detail=detail)
            await audit.append(connection, entry)
        await tell(self._pool, queue=True)
        return found
