"""The store as the intake uses it: concurrent calls of one process share a statement for each thing they need."""

from collections import Counter
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any

from deedbox import telemetry
from deedbox.gate.deciders import Deciders, alarm
from deedbox.gate.held_input import hold_input, start
from deedbox.store import accept
from deedbox.store.audit import AuditEntry, append
from deedbox.store.batch import Gatherer
from deedbox.store.ids import IdSource
from deedbox.store.pg_errors import UNREACHABLE, StoreError
from deedbox.store.pool import Pool
from deedbox.store.tell import Teller
from deedbox.store.transaction import autocommit, transaction
from deedbox.store.wire import Wire

IMPATIENT_MS = 200
"""How long a shared statement waits for another's open transaction on one of its keys; then each job goes by itself."""
MOST = 64
MANY = 500
"""Of those that one caller brings at once; on a wire of their own, so that the others do not wait for it."""
BREATH = 25
"""So many of one caller are prepared before everything else in the process has its turn."""
CHUNKS = 2
"""So many times `MANY` of one caller are in memory as statements at once."""


class Gathered:
    """Stores jobs, looks up keys and journals calls; whoever waits has the answer of its own row, or its own error."""

    def __init__(self, pool: Pool, ids: IdSource, teller: Teller, actions: Iterable[str]) -> None:
        """`teller` tells the workers of what was stored; `actions` are those whose jobs come."""
        self._pool = pool
        self._deciders = Deciders()
        self._wire = pool.wire("accept")
        self._bulk = pool.wire("bulk")
        self._ids = ids
        self._teller = teller
        self._accepted = {name: telemetry.ACCEPTED.labels(name) for name in actions}
        self._stores = Gatherer(self._flush, self._single, most=MOST, side_by_side=2)
        # A storm of replays must not cost a look-up and a commit each.
        self._looks = Gatherer(self._bound, self._bound_one, most=MOST, side_by_side=2)
        self._calls = Gatherer(self._journal, self._journal_one, most=MOST)

    def store(self, job: accept.NewJob, entry: AuditEntry | None = None) -> Coroutine[Any, Any, bool]:
        """Whether the job's key was new; then the job is committed, with the entry. Raises what the database raises."""
        # A job with documents goes alone: megabytes of one caller do not hold up the others' commit, nor does the audit's lock.
        return self._single(job, entry) if job.alone or entry is not None else self._stores.put(job)

    async def store_many(self, jobs: Sequence[accept.NewJob]) -> list[bool]:
        """Whether the key of each was new, in their order; then it is committed. No to all where the store refuses or is away.

        For at most `MANY`; those that are stored alone are left out.
        """
        plain = [job for job in jobs if not job.alone]
        try:
            new = await self._at_once(self._bulk, plain)
        except (StoreError, *UNREACHABLE) as error:
            telemetry.log("intake").info("goes_one_by_one", jobs=len(plain), error=type(error).__name__)
            return [False] * len(jobs)
        stored = iter(new)
        return [not job.alone and next(stored) for job in jobs]

    def count(self, jobs: Iterable[accept.NewJob]) -> None:
        """Count jobs as accepted."""
        for name, number in Counter(job.terms.action for job in jobs).items():
            self._accepted[name].inc(number)

    async def bound(self, job: accept.NewJob) -> accept.Bound | None:
        """What the job's key is bound to now. Raises what the database raises."""
        return await self._looks.put(job)

    async def journal(self, call: accept.Call) -> None:
        """Keep a call that stored no job. Raises what the database raises."""
        await self._calls.put(call)

    async def drain(self) -> None:
        """Wait until nothing is under way."""
        for gatherer in (self._stores, self._looks, self._calls):
            await gatherer.drain()

    async def _flush(self, jobs: Sequence[accept.NewJob]) -> list[bool]:
        return await self._at_once(self._wire, jobs)

    async def _at_once(self, wire: Wire, jobs: Sequence[accept.NewJob]) -> list[bool]:
        """One statement, which is a transaction of its own; of several with one key the first is stored."""
        if not jobs:
            return []
        keys = [job.identity for job in jobs]
        # Of equal keys the last one written here is the first one given.
        first = {keys[place]: place for place in reversed(range(len(jobs)))}
        order = sorted(first.values(), key=keys.__getitem__)
        tells, others = self._teller.rides()
        try:
            ids = self._ids.many_bytes(len(order))
            stored = await accept.accept(wire, [jobs[place] for place in order], ids, lock_timeout_ms=IMPATIENT_MS, tells=tells)
        except BaseException:
            self._teller.soon(queue=others)
            raise
        new = [False] * len(jobs)
        for place, is_new in zip(order, stored, strict=True):
            new[place] = is_new
        self.count(job for job, is_new in zip(jobs, new, strict=True) if is_new)
        # What was told with the commit is told; a statement that found nothing new has told nothing.
        self._teller.soon(queue=others and not any(stored) if tells else any(stored))
        return new

    async def _single(self, job: accept.NewJob, entry: AuditEntry | None = None) -> bool:
        """On a connection of the pool: whoever has to wait for another's open transaction holds up nobody else."""
        if job.terms.held_for is not None:
            return await self._held(job, job.terms.held_for, entry)
        async with transaction(self._pool) as connection:
            [new] = await accept.accept(connection, [job], self._ids.many_bytes(1))
            if new and entry is not None:
                await append(connection, _of(entry, job))
        if new:
            self.count([job])
            self._teller.soon(queue=True)
        return new

    async def _held(self, job: accept.NewJob, held_for: accept.HeldFor, entry: AuditEntry | None) -> bool:
        """Stored with the approval that its arguments wait for, or not at all."""
        approval_id = self._ids.new()
        async with transaction(self._pool) as connection:
            [new] = await accept.accept(connection, [job], self._ids.many_bytes(1), start=start(approval_id))
            if new:
                await hold_input(connection, job, held_for, approval_id)
                missing = await self._deciders.missing(
                    connection,
                    job.terms.tenant,
                    job.terms.action,
                    audience=frozenset(held_for.audience),
                    quorum=held_for.quorum,
                )
                if missing is not None:
                    await alarm(connection, alert_id=self._ids.new(), job_id=job.job_id, message=missing)
                if entry is not None:
                    await append(connection, _of(entry, job))
        if new:
            self.count([job])
            self._teller.soon(jobs=[job.job_id])
        return new

    async def _bound(self, jobs: Sequence[accept.NewJob]) -> list[accept.Bound | None]:
        async with autocommit(self._pool) as connection:
            found = await accept.existing(connection, list({job.identity: job for job in jobs}.values()))
        return [found.get(job.identity) for job in jobs]

    async def _bound_one(self, job: accept.NewJob) -> accept.Bound | None:
        return (await self._bound([job]))[0]

    async def _journal(self, calls: Sequence[accept.Call]) -> list[None]:
        async with autocommit(self._pool) as connection:
            await accept.journal_calls(connection, calls)
        return [None] * len(calls)

    async def _journal_one(self, call: accept.Call) -> None:
        await self._journal([call])


def _of(entry: AuditEntry, job: accept.NewJob) -> AuditEntry:
    return replace(entry, detail={**entry.detail, "job": str(job.job_id)})
