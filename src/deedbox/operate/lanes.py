"""Lanes for operators: what waits and runs in each, and the verbs by which a lane, or all lanes of an action, are held back."""

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
        _check_limit(limit)
        async with transaction(self._pool) as connection:
            if not await lanes.set_lane(connection, principal.tenant, lane_id, paused=paused, limit=limit):
                raise DeedboxError("not_found", "There is no such lane, or it is not yours.")
            found = next(lane for lane in await lanes.listed(connection, principal.tenant) if lane.lane_id == lane_id)
            detail: dict[str, Any] = {"queue": found.queue, "action": found.action, "paused": paused, "limit": limit}
            entry = audit.entry_by(principal, door, "change_lane", ("lane", str(lane_id)), reason=reason, detail=detail)
            await audit.append(connection, entry)
        await tell(self._pool, queue=True)
        return found

    async def limit_action(
        self, principal: Principal, action: str, limit: int, reason: str, *, door: str = "api"
    ) -> list[Lane]:
        """Limit how many jobs of an action run at once over all queues and tenants; a limit below zero lifts it.

        Every worker obeys it within a second; what runs already goes on. Returns the action's lanes of the principal's tenant.
        It is for those who may switch, because it holds back other tenants as well. Raises DeedboxError: permission_denied,
        not_found, invalid_input.
        """
        if not principal.may("switch"):
            raise DeedboxError("permission_denied", "Limiting an action over all tenants needs a role that may switch.")
        reason = checked_reason(reason)
        _check_limit(limit)
        async with transaction(self._pool) as connection:
            if not await lanes.limit_action(connection, action, limit):
                raise DeedboxError("not_found", "No lane of such an action is known: it gets one with its first job.")
            found = await lanes.listed(connection, principal.tenant, action)
            detail = {"limit": limit if limit >= 0 else None}
            entry = audit.entry_by(principal, door, "limit_action", ("action", action), reason=reason, detail=detail)
            await audit.append(connection, entry)
        await tell(self._pool, queue=True)
        return found


def _check_limit(limit: int | None) -> None:
    if limit is not None and limit > MOST_RUNNING:
        problem = Problem("/limit", "range", f"is at most {MOST_RUNNING}")
        raise DeedboxError("invalid_input", "The limit is out of range.", problems=(problem,))
