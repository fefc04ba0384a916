"""Draining: worker processes on a queue full of jobs whose handler does nothing, with everything that settling keeps."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from bench import processor
from bench.cells import accept, worker
from bench.child import Child, ChildError
from bench.database import TEMPLATE, Database, Server
from bench.samples import Sample
from bench.tally import Tally

SLOTS = 1000
LONGEST_S = 300
# Tables with what people wrote and models answered, partitions included: rows there are written once.
CONTENTS = "^(job_payload|result|event|step|proposal|document)"
# In two questions, so that each has its index however many jobs wait for a later day.
_UNFINISHED = """
SELECT EXISTS (SELECT FROM deedbox.queue WHERE state = 'queued' AND due)
       OR EXISTS (SELECT FROM deedbox.queue WHERE state = 'running')
"""


async def measure(
    server: Server, jobs: int, processes: int, *, cell: str = "", template: str = TEMPLATE, held: bool = False
) -> Sample:
    """Drain `jobs` jobs; timed from the first handler's first line until the last job is settled and out of the queue.

    `template` may hold other jobs already; where `held`, somebody keeps a snapshot open from before the first job was accepted.
    """
    async with server.fresh(template) as database, AsyncExitStack() as stack:
        if held:
            await stack.enter_async_context(database.snapshot())
        written = await database.written()
        await accept.fill(server, database, jobs)
        async with AsyncExitStack() as workers:
            scratch = Path(workers.enter_context(TemporaryDirectory(prefix="deedbox-bench-")))
            tallies = [Tally(scratch / str(number)) for number in range(processes)]
            children = [
                await workers.enter_async_context(
                    Child(worker.MODULE, {"slots": SLOTS, "tally": str(scratch / str(number))}, database.url)
                )
                for number in range(processes)
            ]
            for child in children:
                await child.hear()
            await database.settle()
            pids = [child.pid for child in children]
            before = processor.read(server.postmaster, pids)
            for child in children:
                child.tell("go")
            end = await drained(database, tallies, jobs, children)
            used = processor.between(before, processor.read(server.postmaster, pids))
            written = await database.written() - written
            first = min(at for count, at in (tally.read() for tally in tallies) if count)
            runs: Counter[int] = Counter()
            for child in children:
                child.tell("stop")
                runs.update(number for number, _ in (await child.hear())["starts"])
        duplicates, losses = await check(database, jobs, runs)
        values = {"rate": jobs / (end - first), "cpu_us": used.micros(pids, jobs), "wal_bytes": written / jobs}
        if not held:
            values["dead_rows"] = await database.dead() / jobs
            values["dead_payloads"] = await database.dead(CONTENTS) / jobs
    return Sample(cell or f"drain_{processes}", values, jobs, duplicates, losses, used.others)


async def drained(
    database: Database, tallies: list[Tally], jobs: int, workers: list[Child], within: float = LONGEST_S
) -> float:
    """The moment when nothing that is due was left in the queue; asked only once all handlers have run, for asking costs.

    Raises ChildError, with what is left and the ends of the workers' logs, where that does not come.
    """
    try:
        # Another process does what is waited for; it cannot set an event of ours.
        async with asyncio.timeout(within):
            while sum(tally.read()[0] for tally in tallies) < jobs:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            while (await database.row(_UNFINISHED))[0]:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
    except TimeoutError:
        left = await database.row("SELECT json_agg(q) FROM (SELECT * FROM deedbox.queue WHERE due LIMIT 3) AS q")
        ran = sum(tally.read()[0] for tally in tallies)
        logs = "\n".join(child.said() for child in workers)
        raise ChildError(f"not drained: {ran} handlers ran for {jobs} jobs; left {left[0]}; logs {logs}") from None
    return monotonic()


async def check(database: Database, jobs: int, runs: Counter[int]) -> tuple[int, int]:
    """Handlers and attempts beyond one for each job; jobs without their completed result, attempt and history."""
    again = sum(runs.values()) - len(runs)
    row = await database.row(
        """
        SELECT (SELECT count(*) FROM deedbox.attempt) - (SELECT count(DISTINCT job_id) FROM deedbox.attempt),
               (SELECT count(*) FROM generate_series(0, %(jobs)s - 1) AS n WHERE NOT EXISTS (
                    SELECT FROM deedbox.job j JOIN deedbox.result r USING (job_id) JOIN deedbox.attempt a USING (job_id)
                    WHERE j.idempotency_key = 'job-' || n AND r.state = 'completed' AND r.output ->> 'number' = n::text
                        AND a.move = 'complete'))
               + (SELECT count(*) FROM (SELECT FROM deedbox.event GROUP BY job_id HAVING
                    array_agg(type ORDER BY seq) NOT IN ('{job.queued,job.started,job.completed}', '{job.queued}')) AS odd)
               + (SELECT count(*) FROM deedbox.queue WHERE due)
        """,
        jobs=jobs,
    )
    return again + int(row[0]), int(row[1]) + (jobs - len(runs))
