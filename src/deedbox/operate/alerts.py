"""Alerts for every door: what a person should look at, and closing it with a reason."""

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.operate.evidence import checked_reason
from deedbox.store import alert, audit, notices
from deedbox.store.alert import AlertLine
from deedbox.store.pool import Pool
from deedbox.store.transaction import autocommit, transaction

__all__ = ["AlertDesk", "AlertLine", "Alerts"]

MOST_LINES = 500


class AlertDesk(Protocol):
    """What a face needs of alerts."""

    async def listed(
        self, principal: Principal, *, is_open: bool | None = True, limit: int = 100, before: UUID | None = None
    ) -> Sequence[AlertLine]:
        """Alerts of the principal's tenant, newest first. Raises DeedboxError permission_denied, invalid_parameter."""
        ...

    async def close(self, principal: Principal, alert_id: UUID, reason: str | None, *, door: str) -> AlertLine:
        """Close an open alert. Raises DeedboxError, see `Alerts.close`."""
        ...


class Alerts:
    """The alerts of an installation, as a principal may see and close them. Closing leaves an audit entry."""

    def __init__(self, pool: Pool) -> None:
        """Reads and changes through `pool`."""
        self._pool = pool

    async def listed(
        self, principal: Principal, *, is_open: bool | None = True, limit: int = 100, before: UUID | None = None
    ) -> list[AlertLine]:
        """Alerts of the principal's tenant, newest first: open ones, closed ones, or both where `is_open` is None.

        Raises DeedboxError: permission_denied, invalid_parameter for a limit beyond 500.
        """
        if not principal.may("read"):
            raise DeedboxError("permission_denied", "Reading alerts needs a role that may read.")
        if not 1 <= limit <= MOST_LINES:
            raise DeedboxError("invalid_parameter", f"limit: from 1 to {MOST_LINES}.")
        async with autocommit(self._pool) as connection:
            return await alert.listed(connection, principal.tenant, is_open=is_open, limit=limit, before=before)

    async def close(self, principal: Principal, alert_id: UUID, reason: str | None, *, door: str) -> AlertLine:
        """Close an open alert, with a reason that is kept; what was still to be said of it is withdrawn.

        Raises DeedboxError: person_required, permission_denied, invalid_input without a reason, not_found, illegal_move where
        somebody has closed it. A refusal changes nothing.
        """
        if principal.kind != "person":
            raise DeedboxError("person_required", "Only a person closes an alert; this key belongs to a service.")
        if not principal.may("reconcile"):
            raise DeedboxError("permission_denied", "Closing an alert needs a role that may reconcile.")
        why = checked_reason(reason)
        async with transaction(self._pool) as connection:
            closed_by = UUID(principal.principal_id)
            cause = await alert.close(connection, principal.tenant, alert_id, closed_by=closed_by, reason=why)
            found = await alert.listed(connection, principal.tenant, is_open=None, limit=1, alert_id=alert_id)
            if not found:
                raise DeedboxError("not_found", "There is no such alert, or it is not yours.")
            line = found[0]
            if cause is None:
                who = line.closed_by or "somebody who is gone"
                raise DeedboxError("illegal_move", f"It was closed already, by {who}.")
            await notices.cancel_of_alert(connection, alert_id)
            detail = {"cause": cause, "job_id": str(line.job_id or ""), "effect_id": str(line.effect_id or "")}
            entry = audit.entry_by(principal, door, "close_alert", ("alert", str(alert_id)), reason=why, detail=detail)
            await audit.append(connection, entry)
        return line
