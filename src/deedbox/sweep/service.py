"""The sweep: a jittered, bounded round of repairs, in every process; any number of them may run at once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from uuid import UUID

from deedbox import telemetry
from deedbox.gate.cancel import cancel_locked
from deedbox.gate.decide import expire_lapsed
from deedbox.model.errors import DeedboxError
from deedbox.model.lease import Lease
from deedbox.model.pause import pause
from deedbox.store import outbox, reconcile, sweep
from deedbox.store.alert import Alert, open_alerts
from deedbox.store.ending import finish_job
from deedbox.store.ids import IdSource
from deedbox.store.pg_errors import UNREACHABLE, StoreError
from deedbox.store.pool import Pool
from deedbox.store.tell import tell
from deedbox.store.transaction import autocommit, transaction
from deedbox.sweep.notify import Notifier
from deedbox.sweep.prune import Pruning

PAGE = 500
OFTEN = 3
"""So many times a job is taken over in one round until a person is told."""
REMIND_AGAIN_S = 86400.0
"""How long after a reminder the next one comes, in seconds."""


class Sweep:
    """Repairs in rounds; each kind of repair has its own transaction, so that one that fails does not stop the others."""

    def __init__(
        self,
        pool: Pool,
        ids: IdSource,
        lease: Lease,
        pruning: Pruning | None = None,
        notifier: Notifier | None = None,
        *,
        unknown_s: float = 3600.0,
    ) -> None:
        """The pace follows from the lease. `pruning` and `notifier` run beside the repairs, so that no lease waits for them.

        An effect that has been unknown for `unknown_s` seconds is an alert.
        """
        self._pool = pool
        self._ids = ids
        self._lease = lease
        self._pruning = pruning
        self._notifier = notifier
        self._unknown_s = unknown_s

    async def run(self, stop: asyncio.Event) -> None:
        """Sweep, and prune, until told to stop. Database outages are waited out."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._rounds(stop, self.round))
            if self._pruning is not None:
                group.create_task(self._pruning.run(stop))
            if self._notifier is not None:
                group.create_task(self._rounds(stop, self._notify))

    async def _notify(self) -> float:
        if self._notifier is not None:
            await self._notifier.round()
        return self._lease.sweep

    async def _rounds(self, stop: asyncio.Event, one: Callable[[], Awaitable[float]]) -> None:
        while not stop.is_set():
            rest_s = self._lease.sweep
            try:
                rest_s = await one()
            except (StoreError, *UNREACHABLE) as error:
                telemetry.log("sweep").warning("round_failed", error=type(error).__name__)
            await pause(stop, rest_s)

    async def round(self) -> float:
        """One round; returns the seconds after which the next is worth while."""
        async with autocommit(self._pool) as connection:
            seen = await sweep.look(connection, self._unknown_s)
        if seen.lapsed_leases:
            await self.rescue()
        if seen.ripe:
            await self._promote()
        if seen.lapsed_approvals:
            await expire_lapsed(self._pool, self._ids)
        if seen.overdue:
            await self._deadlines()
        await self._effects(seen)
        until = seen.next_due_s
        return min(self._lease.sweep, max(0.02, until)) if until is not None else self._lease.sweep

    async def rescue(self) -> int:
        """Take back every lease that ran out, page by page in the order of keys; returns how many.

        Neither many rows that cannot be had nor one that cannot be moved keeps the others waiting.
        """
        total, after = 0, sweep.FIRST
        while True:
            try:
                moved = await self._rescue_page(PAGE, after)
                last = max(moved) if len(moved) == PAGE else None
            except UNREACHABLE:
                raise
            except StoreError:
                moved, last = await self._rescue_singly(after)
            total += len(moved)
            if moved:
                telemetry.RESCUED.inc(len(moved))
                telemetry.log("sweep").warning("leases_rescued", count=len(moved))
                await tell(self._pool, jobs=moved, queue=True)
            if last is None:
                return total
            after = last

    async def _rescue_page(self, limit: int, after: UUID) -> list[UUID]:
        async with transaction(self._pool) as connection:
            taken = await sweep.rescue(connection, self._ids.many(limit), after=after)
            alerts = [Alert(self._ids.new(), one, *why) for one, move, times in taken for why in _alarms(move, times)]
            if alerts:
                await open_alerts(connection, alerts)
            return [job_id for job_id, _, _ in taken]

    async def _rescue_singly(self, after: UUID) -> tuple[list[UUID], UUID | None]:
        """One page row by row: what fails is said and passed. Returns what was moved, and where the next page begins."""
        async with autocommit(self._pool) as connection:
            page = await sweep.lapsed(connection, PAGE, after=after)
        moved: list[UUID] = []
        for job_id, before in zip(page, [after, *page], strict=False):
            try:
                moved += await self._rescue_page(1, before)
            except UNREACHABLE:
                raise
            except StoreError as error:
                telemetry.log("sweep").error("rescue_failed", job_id=str(job_id), error=type(error).__name__)
        return moved, page[-1] if len(page) == PAGE else None

    async def _promote(self) -> None:
        while True:
            async with transaction(self._pool) as connection:
                count = await sweep.promote(connection, PAGE)
            await tell(self._pool, queue=bool(count))
            if count < PAGE:
                return

    async def _deadlines(self) -> None:
        """Cancel what its deadline has overtaken; a job whose effects have left goes on."""
        async with autocommit(self._pool) as connection:
            late = await sweep.overdue(connection, PAGE)
        for job_id in late:
            try:
                async with transaction(self._pool) as connection:
                    await cancel_locked(connection, self._ids, job_id, "Its deadline has passed.")
            except DeedboxError as refused:
                # It ended, or its effects left, since it was listed.
                telemetry.log("sweep").info("deadline_came_late", job_id=str(job_id), code=refused.code)
        await tell(self._pool, jobs=late)

    async def _effects(self, seen: sweep.Seen) -> None:
        touched = list[UUID]()
        done = list[UUID]()
        if seen.lapsed_sendings:
            async with transaction(self._pool) as connection:
                touched += await outbox.rescue_sendings(connection, self._ids)
        if seen.unsendable:
            async with transaction(self._pool) as connection:
                touched += await outbox.expire_unsent(connection, self._ids)
        if seen.dispatching:
            async with autocommit(self._pool) as connection:
                done = await sweep.dispatching_done(connection, PAGE)
        if seen.long_unknown:
            async with transaction(self._pool) as connection:
                await reconcile.remind(connection, after_s=self._unknown_s, again_s=REMIND_AGAIN_S)
        for job_id in done:
            async with transaction(self._pool) as connection:
                await finish_job(connection, self._ids, job_id)
        await tell(self._pool, jobs=[*touched, *done])


def _alarms(move: str, takeovers: int) -> Iterator[tuple[str, str]]:
    """Cause and sentence of what a person is told when a lease was taken back."""
    if move == "give_up":
        yield "given_up", "Its worker was lost, and no attempt is left."
    if takeovers >= OFTEN:
        # It may be what kills its workers.
        yield "taken_over_repeatedly", "It was taken over from lost workers again and again."
