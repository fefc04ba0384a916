"""Whether this process can do its work: a job goes through the queue and back, and a write is committed.

The job is accepted, claimed and settled by the statements that every job goes through, in one transaction that is rolled back:
a missing partition, a missing right or a read-only server shows, and nothing is left behind.
"""

import asyncio
import time
from collections.abc import Mapping

from deedbox.store import accept, queue
from deedbox.store.ids import IdSource
from deedbox.store.pool import Connection, Pool
from deedbox.store.process import touch_process
from deedbox.store.transaction import autocommit, rolled_back

WITHIN_S = 2.0
"""A round trip that takes longer is a failed one."""
BELIEVED_S = 0.2
"""How long one answer serves: a prober that asks often does not become the load."""
QUIET_S = 15.0
"""A worker that has not been able to claim for so long takes no work any more."""
_ACTION = "deedbox_probe"


class Pulse:
    """When the worker loop of this process last came through a claim; `beat` is called by it."""

    def __init__(self) -> None:
        """No worker runs here until the first beat."""
        self._at: float | None = None

    def beat(self) -> None:
        """A claim came through, or every slot is taken."""
        self._at = time.monotonic()

    @property
    def quiet_s(self) -> float:
        """Seconds since the last beat; 0 where no worker runs."""
        return 0.0 if self._at is None else time.monotonic() - self._at


class Readiness:
    """Answers what is not ready and why; an empty answer means ready."""

    def __init__(self, pool: Pool, ids: IdSource, process_id: str, pulse: Pulse) -> None:
        """`process_id` is this process's row, which the committed write touches."""
        self._pool = pool
        self._ids = ids
        self._process_id = process_id
        self._pulse = pulse
        self._lock = asyncio.Lock()
        self._answer: dict[str, str] = {}
        self._asked = -1e9
        self._asking: asyncio.Task[dict[str, str]] | None = None

    async def __call__(self) -> Mapping[str, str]:
        """What is missing. Raises what the driver raises where the store cannot be reached."""
        async with self._lock:
            if time.monotonic() - self._asked > BELIEVED_S:
                self._answer = await self._within()
                self._asked = time.monotonic()
            return self._answer

    async def _within(self) -> dict[str, str]:
        """Ask, and do not wait for the end of what takes too long: a driver that loses its server takes seconds to let go."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        done, _ = await asyncio.wait({self._asking}, timeout=WITHIN_S)
        return self._asking.result() if done else {"database": f"no write went through within {WITHIN_S:g} s"}

    async def _ask(self) -> dict[str, str]:
        missing: dict[str, str] = {}
        async with rolled_back(self._pool) as connection:
            missing |= await self._round_trip(connection)
        async with autocommit(self._pool) as connection:
            await touch_process(connection, self._process_id)
        if self._pulse.quiet_s > QUIET_S:
            missing["worker"] = f"has not been able to claim for {self._pulse.quiet_s:.0f} s"
        return missing

    async def _round_trip(self, connection: Connection) -> dict[str, str]:
        job_id, attempt_id, *events = self._ids.many(5)
        lane_id = await accept.lane(connection, _ACTION, _ACTION, "default")
        job = accept.own_job(job_id, _ACTION, "default", lane_id)
        if not all(await accept.accept(connection, [job], events[:1])):
            return {"queue": "a job was not accepted"}
        claimed = await queue.claim(
            connection,
            [queue.Share(lane_id, 1, WITHIN_S, 1)],
            worker=self._process_id,
            lease_s=WITHIN_S,
            attempt_ids=[attempt_id],
            event_ids=[events[1]],
        )
        if [item.job_id for item in claimed] != [job_id]:
            return {"queue": "a job was accepted and not claimed"}
        held = (job_id, attempt_id, claimed[0].fence)
        done = queue.Completed(held, {}, events[2], '{"summary":"probe"}', {})
        if not all(await queue.complete_attempts(connection, [done], worker=self._process_id, build="")):
            return {"queue": "a job was claimed and not settled"}
        return {}
