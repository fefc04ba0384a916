"""From accept to start at light load: one process submits at an even pace, another one runs the worker."""

import asyncio
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from bench import processor
from bench.app import ACTION, make_app
from bench.cells import drain, worker
from bench.child import Bench, Child, run
from bench.database import Server
from bench.samples import Sample, percentiles
from bench.tally import Tally
from deedbox.access.resolve import resolve_key
from deedbox.intake.request import Request
from deedbox.settings import Settings
from deedbox.wiring import Database as Store
from deedbox.wiring import opened

MODULE = "bench.cells.start"
PER_SECOND = 50
# As a worker has them by default.
_SLOTS = 64


async def measure(server: Server, jobs: int) -> Sample:
    """Submit `jobs` jobs, fifty a second. All moments are read from CLOCK_MONOTONIC, which the processes share."""
    with TemporaryDirectory(prefix="deedbox-bench-") as scratch:
        path = Path(scratch) / "tally"
        tally = Tally(path)
        async with (
            server.fresh() as database,
            Child(MODULE, {"jobs": jobs, "key": server.key}, database.url) as submitter,
            Child(worker.MODULE, {"slots": _SLOTS, "tally": str(path)}, database.url) as running,
        ):
            await submitter.hear()
            await running.hear()
            running.tell("go")
            await database.settle()
            before = processor.read(server.postmaster, [submitter.pid, running.pid])
            submitter.tell("go")
            calls: list[tuple[int, float, float]] = (await submitter.hear(within=jobs / PER_SECOND + 60))["calls"]
            await drain.drained(database, [tally], jobs, [running])
            used = processor.between(before, processor.read(server.postmaster, [submitter.pid, running.pid]))
            running.tell("stop")
            starts: list[tuple[int, float]] = (await running.hear())["starts"]
            duplicates, losses = await drain.check(database, jobs, Counter(number for number, _ in starts))
    at = dict(starts)
    values = {
        **percentiles([at[number] - called for number, called, _ in calls if number in at]),
        **percentiles([at[number] - answered for number, _, answered in calls if number in at], prefix="answer_"),
        **percentiles([answered - called for _, called, answered in calls], prefix="accept_"),
        "cpu_us": used.micros([submitter.pid, running.pid], jobs),
    }
    return Sample("start", values, jobs, duplicates, losses, used.others)


async def main(options: dict[str, Any], url: str, bench: Bench) -> None:
    """Submit at an even pace; a call that takes long does not put off the next."""
    async with opened(Settings(), make_app(), Store(url, url)) as installation:
        principal = await resolve_key(installation.pool, options["key"])
        assert principal is not None
        calls: list[tuple[int, float, float]] = []

        async def submit(number: int) -> None:
            called = monotonic()
            await installation.intake.submit(Request(principal, ACTION, {"number": number}, f"job-{number}", "http"))
            calls.append((number, called, monotonic()))

        bench.say(ready=True)
        await bench.told()
        began = monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(options["jobs"]):
                await asyncio.sleep(max(0.0, began + number / PER_SECOND - monotonic()))
                group.create_task(submit(number))
        await bench.report(calls=calls)


if __name__ == "__main__":
    run(main)
