"""Whether there is anybody to decide: asked when something is held, so that nothing waits for a group without members."""

import time
from collections.abc import Collection
from uuid import UUID

from deedbox.model.identity import PERMISSIONS
from deedbox.store import alert
from deedbox.store.pool import Connection

TRUSTED_S = 60.0
"""For so long it is believed that those who were there still are, in seconds; where nobody was, it is asked again each time."""


class Deciders:
    """Knows, of one process, which groups had enough living members a moment ago."""

    def __init__(self) -> None:
        """Nothing is known at first."""
        self._seen: dict[tuple[str, frozenset[str], int], float] = {}

    async def missing(
        self, connection: Connection, tenant: str, action: str, *, audience: frozenset[str], quorum: int
    ) -> str | None:
        """What to tell where too few living people can decide what this action asks; None where there are enough."""
        key = (tenant, audience, quorum)
        now = time.monotonic()
        if self._seen.get(key, -TRUSTED_S) + TRUSTED_S > now:
            return None
        there = await alert.living(connection, tenant, audience=audience, deciding=_deciding())
        if there >= quorum:
            self._seen[key] = now
            return None
        return f"{action} waits for {quorum} with the role {' or '.join(sorted(audience))}, and {there} can decide."


def _deciding() -> Collection[str]:
    return [role for role, verbs in PERMISSIONS.items() if "decide" in verbs]


async def alarm(connection: Connection, *, alert_id: UUID, job_id: UUID, message: str) -> None:
    """Open an alert about a group without members, once while it is open."""
    await alert.open_once(connection, alert.Alert(alert_id, job_id, "no_approver", message))
