"""Accepting in process: concurrent submitters on one Intake, each waiting for its answer before its next call."""

import asyncio
import itertools
from time import monotonic
from typing import Any

from bench import processor
from bench.app import ACTION, make_app
from bench.child import Bench, Child, run
from bench.database import Database, Server
from bench.samples import Sample, percentiles
from deedbox.access.resolve import resolve_key
from deedbox.intake.request import Request
from deedbox.settings import Settings
from deedbox.wiring import Database as Store
from deedbox.wiring import opened

MODULE = "bench.cells.accept"
WARM_UP_S = 1.0


async def measure(server: Server, submitters: int, seconds: float) -> Sample:
    """Accept for so many seconds; then every answered key must have one job, and no job may be without a place in the queue."""
    async with server.fresh() as database:
        options = {"submitters": submitters, "seconds": seconds, "key": server.key}
        async with Child(MODULE, options, database.url) as child:
            await child.hear()
            await database.settle()
            before = processor.read(server.postmaster, [child.pid])
            child.tell("go")
            figures = await child.hear(within=seconds + 60)
            used = processor.between(before, processor.read(server.postmaster, [child.pid]))
        duplicates, losses = await check(database, figures["answered"])
    count = figures["measured"]
    values = {"rate": count / figures["seconds"], "cpu_us": used.micros([child.pid], count), **percentiles(figures["waits"])}
    return Sample(f"accept_{submitters}", values, count, duplicates, losses, used.others)


async def fill(server: Server, database: Database, count: int) -> None:
    """Accept `count` jobs, numbered from 0, as fast as it goes."""
    options = {"submitters": 256, "count": count, "seconds": 120.0, "key": server.key}
    async with Child(MODULE, options, database.url) as child:
        await child.hear()
        child.tell("go")
        figures = await child.hear(within=150)
    assert figures["answered"] == count, figures["answered"]


async def check(database: Database, answered: int) -> tuple[int, int]:
    """Duplicates and losses, where the keys `job-0` to `job-{answered - 1}` were answered as new."""
    row = await database.row(
        """
        SELECT count(*) - count(DISTINCT idempotency_key),
               (SELECT count(*) FROM generate_series(0, %(answered)s - 1) AS n WHERE NOT EXISTS (
                    SELECT FROM deedbox.job JOIN deedbox.job_payload USING (job_id)
                    WHERE idempotency_key = 'job-' || n AND input ->> 'number' = n::text))
               + (SELECT count(*) FROM deedbox.job j WHERE NOT EXISTS (SELECT FROM deedbox.queue q WHERE q.job_id = j.job_id)
                    AND NOT EXISTS (SELECT FROM deedbox.result r WHERE r.job_id = j.job_id))
        FROM deedbox.job
        """,
        answered=answered,
    )
    return int(row[0]), int(row[1])


async def main(options: dict[str, Any], url: str, bench: Bench) -> None:
    """Submit until the seconds are over or the count is reached."""
    app = make_app()
    async with opened(Settings(), app, Store(url, url)) as installation:
        principal = await resolve_key(installation.pool, options["key"])
        assert principal is not None
        numbers = itertools.count()
        most: int = options.get("count", 1 << 62)
        waits: list[float] = []

        async def submit(number: int) -> None:
            request = Request(principal, ACTION, {"number": number}, f"job-{number}", "http")
            answer = await installation.intake.submit(request)
            assert not answer.replayed

        async def submitter(until: float) -> None:
            while True:
                began = monotonic()
                if began >= until or (number := next(numbers)) >= most:
                    return
                await submit(number)
                waits.append(monotonic() - began)

        async def all_submit(seconds: float) -> float:
            began = monotonic()
            await asyncio.gather(*(submitter(began + seconds) for _ in range(options["submitters"])))
            return monotonic() - began

        if "count" not in options:
            # Connections open, statements are prepared and planned for good, caches fill.
            await all_submit(WARM_UP_S)
            waits.clear()
        bench.say(ready=True)
        await bench.told()
        seconds = await all_submit(options["seconds"])
        answered = min(next(numbers), most)
        await bench.report(answered=answered, measured=len(waits), seconds=seconds, waits=waits)


if __name__ == "__main__":
    run(main)
