"""Telling others that there is something to see: after the commit, or with it.

NOTIFY takes a lock of the whole database at commit, so it does not travel with the work, but for one flush of accepted jobs
every few milliseconds (ADR 12). What was committed stands whether or not the telling succeeds: a notification makes a look
earlier, the poll is the truth.
"""

import asyncio
import time
from collections.abc import Sequence
from uuid import UUID

from deedbox import telemetry
from deedbox.store.loader import numbered
from deedbox.store.pg_errors import UNREACHABLE, StoreError
from deedbox.store.pool import Pool
from deedbox.store.rows import texts

# Of one notification, which holds less than 8,000 bytes.
MOST_IDS = 200
# Between two tellings of one process under load: who is woken then has work for longer than this.
PAUSE_S = 0.005


async def tell(pool: Pool, *, jobs: Sequence[UUID] = (), queue: bool = False, outbox: bool = False) -> None:
    """Wake whoever follows these jobs, the workers and the dispatchers, as asked.

    To be called after the commit. Never raises for the database: a caller must not take what is committed for undone.
    """
    if not (jobs or queue or outbox):
        return
    ids = [job_id.hex for job_id in dict.fromkeys(jobs)]
    chunks = [",".join(ids[start : start + MOST_IDS]) for start in range(0, len(ids), MOST_IDS)]
    wire = pool.wire("tell")
    try:
        if queue:
            await wire.run(numbered("tell", "queue"), {})
        if outbox:
            await wire.run(numbered("tell", "outbox"), {})
        if chunks:
            await wire.run(numbered("tell", "jobs"), {"ids": texts(chunks)})
    except (StoreError, *UNREACHABLE) as error:
        telemetry.log("tell").warning("not_told", error=type(error).__name__)


class Teller:
    """Tells without anybody waiting for it: what is asked for while one telling is under way goes out with the next.

    One for each process part that commits often. A NOTIFY takes a commit of its own, and a caller that waited for it would
    wait for two.
    """

    def __init__(self, pool: Pool) -> None:
        """The connections of `pool` carry the notifications."""
        self._pool = pool
        self._jobs: list[UUID] = []
        self._queue = False
        self._outbox = False
        self._told_at = -1e9
        self._task: asyncio.Task[None] | None = None

    def rides(self) -> tuple[bool, bool]:
        """Whether a statement that is about to commit shall tell the workers itself, and whether others then count on it.

        It costs the statement next to nothing, but not so often that one process would hold the lock of NOTIFY most of the
        time. Where others count on a statement that failed, or had nothing new to tell of, `soon` is to be called for them.
        """
        now = time.monotonic()
        if now - self._told_at < PAUSE_S:
            return False, False
        others, self._queue = self._queue, False
        self._told_at = now
        return True, others

    def soon(self, *, jobs: Sequence[UUID] = (), queue: bool = False, outbox: bool = False) -> None:
        """Wake whoever follows these jobs, and the workers and the dispatchers as asked. To be called after the commit."""
        self._jobs += jobs
        self._queue = self._queue or queue
        self._outbox = self._outbox or outbox
        if self._task is None and (self._jobs or self._queue or self._outbox):
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def drain(self) -> None:
        """Wait until nothing is left to tell."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._jobs or self._queue or self._outbox:
                rest_s = self._told_at + PAUSE_S - time.monotonic()
                if rest_s > 0:
                    await asyncio.sleep(rest_s)
                    continue
                self._told_at = time.monotonic()
                jobs, self._jobs = self._jobs, []
                queue, self._queue = self._queue, False
                outbox, self._outbox = self._outbox, False
                await tell(self._pool, jobs=jobs, queue=queue, outbox=outbox)
        finally:
            self._task = None
