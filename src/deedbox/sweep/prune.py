"""Pruning: partitions made before they are needed and dropped when nothing needs them, contents removed when their time is up.

One process at a time does it, elected anew for each page by a lock that lasts as long as the page's transaction, so a process
that dies passes it on. A page is small, and between two pages whoever waited for its locks has had its turn. Where a pass
stands is kept in memory only: a new process begins anew, and finds done what was done.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import date
from typing import TypeVar
from uuid import UUID

from deedbox import telemetry
from deedbox.model.lifecycle import JOB
from deedbox.model.pause import pause
from deedbox.store import notices, prune
from deedbox.store.alert import Alert, open_alerts
from deedbox.store.audit import AuditEntry, append
from deedbox.store.decision import lock_job
from deedbox.store.ending import JobEnding, end_job
from deedbox.store.ids import IdSource
from deedbox.store.pg_errors import AWAY, UNREACHABLE, StoreError
from deedbox.store.pool import Connection, Pool
from deedbox.store.prune import Retention
from deedbox.store.tell import tell
from deedbox.store.transaction import transaction

PAGE = 200
LOOKS = 1000
IDLE_S = 60.0
PASS_S = 600.0
HOUR_S = 3600.0
PAGES_PER_TURN = 50
_FIRST = UUID(int=0)
_MISPLACED = "The job is in the queue and has ended, or neither."
_T = TypeVar("_T")


@dataclass(slots=True)
class _Pass:
    """Where a pass over the jobs stands, and not before which moment of the monotonic clock the next one begins."""

    after: UUID = _FIRST
    not_before: float = 0.0

    def move(self, last: UUID | None, *, whole: bool, rest_s: float) -> None:
        """Go on behind `last`, or begin again after a rest where the page was not full."""
        if whole and last is not None:
            self.after = last
        else:
            self.after, self.not_before = _FIRST, time.monotonic() + rest_s

    @property
    def rests(self) -> bool:
        """Whether it is too early for the next pass."""
        return time.monotonic() < self.not_before


class Pruning:
    """Keeps the database from growing without end, by the retention it is given."""

    def __init__(self, pool: Pool, ids: IdSource, retention: Retention) -> None:
        """Nothing is done before `run` or `turn`."""
        self._pool = pool
        self._ids = ids
        self._retention = retention
        self._contents = _Pass()
        self._parked = _Pass()
        self._places = _Pass()
        self._notices = _Pass()
        self._records: dict[date, UUID] = {}
        self._partitions_at = 0.0
        self._months_at = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Prune until told to stop. Database outages are waited out."""
        while not stop.is_set():
            more = False
            try:
                more = await self.turn()
            except (StoreError, *UNREACHABLE) as error:
                telemetry.log("prune").warning("turn_failed", error=type(error).__name__)
            if not more:
                await pause(stop, IDLE_S)

    async def turn(self) -> bool:
        """A bounded piece of all there is to do; returns whether there is more. Does nothing where another is elected."""
        await self.make_partitions()
        more = False
        chores = (
            self._close_parked,
            self._remove_contents,
            self._expired_keys,
            self._old_calls,
            self._old_tools,
            self._old_notices,
            self._old_alerts,
        )
        for chore in (*chores, self._find_misplaced):
            more |= await self._pages(chore)
        await self.drop_partitions()
        return more

    async def make_partitions(self) -> list[str]:
        """Make what is missing of the months ahead, looked for once an hour; returns the names."""
        made: list[str] = []
        if time.monotonic() < self._partitions_at:
            return made
        try:
            while (name := await self._elected(prune.make_next_partition)) is not None:
                made.append(name)
        except AWAY as error:
            # Another's DDL holds the table: there are months of time, so the next turn will do.
            telemetry.log("prune").info("partitions_later", error=type(error).__name__)
            return made
        self._partitions_at = time.monotonic() + HOUR_S
        if made:
            telemetry.log("prune").info("partitions_made", names=made)
        return made

    async def drop_partitions(self) -> list[str]:
        """Drop the months that nothing needs any more, looked for once an hour; returns the names of what was dropped."""
        dropped: list[str] = []
        if time.monotonic() < self._months_at:
            return dropped
        keep_s = self._retention.longest_s
        self._months_at = time.monotonic() + HOUR_S
        for month, parents in await self._elected(lambda connection: prune.old_months(connection, keep_s)) or ():
            why = await self._drop(month, parents, keep_s, dropped)
            if why is not None:
                telemetry.log("prune").info("month_kept", month=f"{month:%Y-%m}", because=why)
            if why in {"busy", "more"}:
                self._months_at = 0.0
        return dropped

    async def _drop(self, month: date, parents: list[str], keep_s: float, dropped: list[str]) -> str | None:
        why = await self._elected(lambda connection: prune.in_the_way(connection, month, keep_s))
        if why is not None:
            return why
        if await self._pages(lambda: self._forget(month)):
            return "more"
        for parent in parents:

            async def drop(connection: Connection, parent: str = parent) -> str | None:
                return await prune.drop_partition(connection, parent, month, keep_s)

            why = await self._elected(drop)
            if why is not None:
                return why
            dropped.append(f"{parent}_{month:%Y_%m}")
            telemetry.log("prune").info("partition_dropped", name=dropped[-1])
        self._records.pop(month, None)
        return None

    async def _forget(self, month: date) -> bool:
        after = self._records.get(month, _FIRST)
        last = await self._elected(lambda connection: prune.forget_records(connection, month, after, PAGE))
        if last is None:
            return False
        self._records[month] = last
        return True

    async def _remove_contents(self) -> bool:
        if self._contents.rests:
            return False

        async def page(connection: Connection) -> prune.Page:
            found = await prune.contents(connection, self._retention, self._contents.after, PAGE)
            if found.jobs:
                await prune.remove_contents(connection, found.jobs, key_s=self._retention.key_s)
            return found

        found = await self._elected(page)
        if found is None:
            return False
        if found.jobs:
            telemetry.log("prune").info("contents_removed", jobs=len(found.jobs))
        self._contents.move(found.last, whole=found.looked == PAGE, rest_s=PASS_S)
        return found.looked == PAGE

    async def _close_parked(self) -> bool:
        """End parked jobs that nobody took up: what is parked would keep its month for ever."""
        if self._parked.rests:
            return False
        closed: list[UUID] = []

        async def page(connection: Connection) -> list[tuple[UUID, str]]:
            found = await prune.parked(connection, self._retention, self._parked.after, PAGE)
            entries: list[AuditEntry] = []
            for job_id, tenant in found:
                job = await lock_job(connection, job_id)
                if job is not None and job.state in JOB.sources("close"):
                    await end_job(connection, job_id, _CLOSED, event_id=self._ids.new())
                    closed.append(job_id)
                    by = ("system:sweep", "sweep", "system")
                    entries.append(AuditEntry(tenant, *by, "close", "job", str(job_id), _CLOSED.message))
            # The lock on the end of the chain is the last that is taken.
            for entry in entries:
                await append(connection, entry)
            return found

        found = await self._elected(page)
        if found is None:
            return False
        await tell(self._pool, jobs=closed)
        self._parked.move(found[-1][0] if found else None, whole=len(found) == PAGE, rest_s=PASS_S)
        return len(found) == PAGE

    async def _find_misplaced(self) -> bool:
        """Look whether each job is in `queue` or in `result`; what is in both or neither becomes an alert."""
        if self._places.rests:
            return False

        async def page(connection: Connection) -> prune.Page:
            found = await prune.misplaced(connection, self._places.after, LOOKS)
            if found.jobs:
                await open_alerts(connection, [Alert(self._ids.new(), one, "job_misplaced", _MISPLACED) for one in found.jobs])
            return found

        found = await self._elected(page)
        if found is None:
            return False
        if found.jobs:
            telemetry.log("prune").error("jobs_misplaced", jobs=[str(job_id) for job_id in found.jobs[:10]])
        # One page a turn is enough: nothing waits for this look.
        self._places.move(found.last, whole=found.looked == LOOKS, rest_s=HOUR_S)
        return False

    async def _expired_keys(self) -> bool:
        return await self._elected(lambda connection: prune.remove_expired_keys(connection, PAGE)) == PAGE

    async def _old_calls(self) -> bool:
        keep_s = self._retention.longest_s
        return await self._elected(lambda connection: prune.remove_old_calls(connection, keep_s, PAGE)) == PAGE

    async def _old_tools(self) -> bool:
        keep_s = self._retention.longest_s
        return await self._elected(lambda connection: prune.remove_old_tools(connection, keep_s, PAGE)) == PAGE

    async def _old_alerts(self) -> bool:
        keep_s = self._retention.longest_s
        return await self._elected(lambda connection: prune.remove_closed_alerts(connection, keep_s, PAGE)) == PAGE

    async def _old_notices(self) -> bool:
        """Remove notices that ended, as long after they were made as contents are kept."""
        if self._notices.rests:
            return False
        after, keep_s = self._notices.after, self._retention.contents_s
        last = await self._elected(lambda connection: notices.forget_old(connection, keep_s, after, PAGE))
        self._notices.move(last, whole=last is not None, rest_s=PASS_S)
        return last is not None

    async def _pages(self, chore: Callable[[], Awaitable[bool]]) -> bool:
        for _ in range(PAGES_PER_TURN):
            if not await chore():
                return False
        return True

    async def _elected(self, work: Callable[[Connection], Awaitable[_T]]) -> _T | None:
        """Do one page in a transaction of its own; None where another process is the one that prunes."""
        async with transaction(self._pool) as connection:
            return await work(connection) if await prune.elect(connection) else None


_CLOSED = JobEnding(
    "failed_terminal",
    "job.failed",
    {"code": "closed", "message": "Nobody took it up within its retention.", "retryable": False},
    "canceled",
    "closed",
    "Nobody took it up within its retention.",
)
