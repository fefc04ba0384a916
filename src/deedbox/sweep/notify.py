"""The notifier: rounds that ask people to decide, let approvals go further, and tell the owners of alerts.

Any number may run at once: what one holds, the others pass by, and what has been said is kept in the same transaction.
"""

import time
from collections.abc import Awaitable, Callable

from deedbox import telemetry
from deedbox.gate.asking import Asking, ask, escalate
from deedbox.gate.telling import Telling, raise_alarms, tell_alerts
from deedbox.store import notify
from deedbox.store.ids import IdSource
from deedbox.store.pool import Connection, Pool
from deedbox.store.tell import tell
from deedbox.store.transaction import autocommit, transaction

PAGE = 20
"""Approvals, or alerts, in one transaction: what it holds, a decision waits for."""
PAGES_PER_ROUND = 10
ALARMS_EVERY_S = 60.0


class Notifier:
    """Asks and tells what is due, in rounds that the sweep sets the pace of."""

    def __init__(self, pool: Pool, ids: IdSource, asking: Asking, telling: Telling) -> None:
        """Nothing is done before `round`."""
        self._pool = pool
        self._ids = ids
        self._asking = asking
        self._telling = telling
        self._woken = asking.mail is None
        self._alarms_at = 0.0

    async def round(self) -> int:
        """Everything that is due, in bounded pages; returns how many approvals and alerts that were.

        Raises what the database raises.
        """
        await self._wake()
        await self._alarms()
        async with autocommit(self._pool) as connection:
            seen = await notify.look(
                connection,
                self._asking.escalations,
                mail=self._asking.mail is not None,
                alerts=bool(self._telling.owners),
            )
        if seen.escalations:
            await self._pages(lambda connection: escalate(connection, self._asking, PAGE))
        done = 0
        if seen.approvals or seen.escalations:
            done += await self._pages(lambda connection: ask(connection, self._ids, self._asking, PAGE))
        if seen.alerts:
            done += await self._pages(lambda connection: tell_alerts(connection, self._ids, self._telling, PAGE))
        await tell(self._pool, outbox=done > 0)
        return done

    async def _pages(self, work: Callable[[Connection], Awaitable[int]]) -> int:
        done = 0
        for _ in range(PAGES_PER_ROUND):
            async with transaction(self._pool) as connection:
                count = await work(connection)
            done += count
            if count < PAGE:
                break
        return done

    async def _wake(self) -> None:
        """Once, where people are written to: approvals from the time before that are asked for as well."""
        if self._woken:
            return
        async with autocommit(self._pool) as connection:
            await notify.wake_unasked(connection)
        self._woken = True

    async def _alarms(self) -> None:
        if time.monotonic() < self._alarms_at:
            return
        async with transaction(self._pool) as connection:
            found = await raise_alarms(connection, self._ids, self._telling)
        self._alarms_at = time.monotonic() + ALARMS_EVERY_S
        if found:
            telemetry.log("notify").warning("alarms_raised", count=found)
