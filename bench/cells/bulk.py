"""Submitting many at once: ten thousand jobs by one call, each an accept of its own with all that belongs to it."""

from time import monotonic
from typing import Any

from bench import processor
from bench.app import ACTION, make_app
from bench.cells import accept
from bench.child import Bench, Child, run
from bench.database import Server
from bench.samples import Sample
from deedbox.access.resolve import resolve_key
from deedbox.intake.request import Accepted, Request
from deedbox.settings import Settings
from deedbox.wiring import Database as Store
from deedbox.wiring import opened

MODULE = "bench.cells.bulk"
WARM_UP = 10
"""The first few, for which the connection is opened."""


async def measure(server: Server, jobs: int) -> Sample:
    """Submit `jobs` jobs by one call; then each must be there as after a single accept."""
    async with server.fresh() as database:
        async with Child(MODULE, {"jobs": jobs, "key": server.key}, database.url) as child:
            await child.hear()
            await database.settle()
            before = processor.read(server.postmaster, [child.pid])
            child.tell("go")
            figures = await child.hear(within=150)
            used = processor.between(before, processor.read(server.postmaster, [child.pid]))
        duplicates, losses = await accept.check(database, jobs)
    count = figures["measured"]
    values = {"rate": count / figures["seconds"], "cpu_us": used.micros([child.pid], count)}
    return Sample("bulk", values, jobs, duplicates, losses, used.others)


async def main(options: dict[str, Any], url: str, bench: Bench) -> None:
    """Submit a few, then all that are left."""
    async with opened(Settings(), make_app(), Store(url, url)) as installation:
        principal = await resolve_key(installation.pool, options["key"])
        assert principal is not None

        async def submit(first: int, last: int) -> float:
            began = monotonic()
            calls = [Request(principal, ACTION, {"number": n}, f"job-{n}", "http") for n in range(first, last)]
            answers = await installation.intake.submit_many(calls)
            assert all(isinstance(answer, Accepted) and not answer.replayed for answer in answers)
            return monotonic() - began

        await submit(0, WARM_UP)
        bench.say(ready=True)
        await bench.told()
        seconds = await submit(WARM_UP, options["jobs"])
        await bench.report(measured=options["jobs"] - WARM_UP, seconds=seconds)


if __name__ == "__main__":
    run(main)
