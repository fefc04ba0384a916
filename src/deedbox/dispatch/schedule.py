"""The schedule of look-ups: asking providers about what is unknown, less and less often, until it is known or left to people.

Any number of these run at once. Each takes what it asks about by a claim that sets the next time, so nobody is asked twice at
once and one that dies on the way delays a look-up and no more. Nothing is sent here.
"""

import asyncio
from collections.abc import Mapping, Sequence

from deedbox.dispatch import reconcile
from deedbox.dispatch.declared import declared
from deedbox.extend.connector import Connector
from deedbox.model.pause import pause
from deedbox.store import reconcile as store
from deedbox.store.alert import Alert, open_alerts
from deedbox.store.ids import IdSource
from deedbox.store.pool import Pool
from deedbox.store.reconcile import Due, LookUps
from deedbox.store.transaction import autocommit, transaction
from deedbox.telemetry import log

POLL_S = 5.0
LEAST_PAUSE_S = 0.02

_log = log("reconcile")


class Schedule:
    """Looks up what is unknown when its time has come."""

    def __init__(
        self,
        pool: Pool,
        ids: IdSource,
        connectors: Mapping[str, Connector],
        plan: LookUps | None = None,
        *,
        at_once: int = 4,
    ) -> None:
        """Asks `at_once` providers at a time by the `plan`."""
        self._pool = pool
        self._ids = ids
        self._connectors = dict(connectors)
        self._plan = plan or LookUps()
        self._at_once = at_once

    async def run(self, stop: asyncio.Event) -> None:
        """Look up what is due until told to stop. A database that is away is waited out."""
        while not stop.is_set():
            pause_s = POLL_S
            try:
                # Asked before anything is taken: a schedule at rest costs one statement, and no transaction.
                async with autocommit(self._pool) as connection:
                    due_s = await store.next_look_up(connection, self._plan, list(self._connectors))
                if due_s == 0 and await self.once():
                    continue
                # What is due and was not had, another process has taken.
                pause_s = min(POLL_S, max(LEAST_PAUSE_S, due_s)) if due_s else POLL_S
            except Exception as error:  # noqa: BLE001 -- the loop outlives whatever the database does
                _log.warning("schedule_failed", error=type(error).__name__)
            await pause(stop, pause_s)

    async def once(self) -> int:
        """Look up what is due now, at most as many as are asked at a time; returns how many were taken."""
        async with transaction(self._pool) as connection:
            due = await store.claim(connection, self._plan, list(self._connectors), limit=self._at_once)
        await self._all(due)
        return len(due)

    async def _all(self, due: Sequence[Due]) -> None:
        for error in await asyncio.gather(*(self._one(one) for one in due), return_exceptions=True):
            if isinstance(error, Exception):
                # It stays unknown, and has its next time.
                _log.warning("look_up_failed", error=type(error).__name__)
            elif error is not None:
                raise error

    async def _one(self, due: Due) -> None:
        if not declared(self._connectors.get(due.connector), due.target).can_be_asked:
            async with autocommit(self._pool) as connection:
                await store.leave_to_people(connection, due.effect_id)
            return
        answer = await reconcile.look_up(self._pool, self._ids, self._connectors, tenant=due.tenant, effect_id=due.effect_id)
        if answer.state != "unknown":
            return
        async with transaction(self._pool) as connection:
            if answer.again_in_s is not None:
                await store.look_up_in(connection, due.effect_id, answer.again_in_s)
            if due.last:
                message = (
                    f"{due.connector}:{due.target} was asked {due.number} times whether {due.slot} was accepted, and could not"
                    f" tell. It is not asked again by itself: {answer.message}"
                )
                alert = Alert(self._ids.new(), due.job_id, "unknown_unresolved", message, due.effect_id)
                await open_alerts(connection, [alert])
