"""Submitting many at once: ten thousand jobs through one Intake, each an accept of its own with all that belongs to it."""

from bench import processor
from bench.cells import accept
from bench.child import Child
from bench.database import Server
from bench.samples import Sample

# So many calls wait at once: enough to fill what is gathered, few enough that tasks cost nothing to speak of.
SUBMITTERS = 256


async def measure(server: Server, jobs: int) -> Sample:
    """Submit `jobs` jobs as fast as they are answered; then each must be there as after a single accept."""
    async with server.fresh() as database:
        options = {"submitters": SUBMITTERS, "count": jobs, "seconds": 120.0, "key": server.key}
        async with Child(accept.MODULE, options, database.url) as child:
            await child.hear()
            await database.settle()
            before = processor.read(server.postmaster, [child.pid])
            child.tell("go")
            figures = await child.hear(within=150)
            used = processor.between(before, processor.read(server.postmaster, [child.pid]))
        duplicates, losses = await accept.check(database, jobs)
    values = {"rate": jobs / figures["seconds"], "cpu_us": used.micros([child.pid], jobs)}
    return Sample("bulk", values, jobs, duplicates, losses, used.others)
