"""What a worker holds on to: memory, threads and descriptors after ten thousand jobs, and after twenty times as many."""

import asyncio
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import processor
from bench.cells import drain, stock, worker
from bench.child import Child
from bench.database import Server
from bench.samples import Sample
from bench.tally import Tally

# As a worker has them by default: five hundred would show how many jobs it holds at once, not what it keeps.
_SLOTS = 64


async def measure(server: Server, jobs: int, early: int) -> Sample:
    """Run `jobs` jobs in one worker process; its figures at the end beside those after `early` of them."""
    async with server.fresh(await stock.template(server, "due", jobs)) as database:
        with TemporaryDirectory(prefix="deedbox-bench-") as scratch:
            path = Path(scratch) / "tally"
            tally = Tally(path)
            async with Child(worker.MODULE, {"slots": _SLOTS, "tally": str(path), "keep": False}, database.url) as child:
                await child.hear()
                await database.settle()
                before = processor.read(server.postmaster, [child.pid])
                child.tell("go")
                # Another process does what is waited for; it cannot set an event of ours.
                async with asyncio.timeout(drain.LONGEST_S):
                    while tally.read()[0] < early:  # noqa: ASYNC110
                        await asyncio.sleep(0.005)
                first = _held(child.pid)
                await drain.drained(database, [tally], jobs, [child], within=600)
                last = _held(child.pid)
                used = processor.between(before, processor.read(server.postmaster, [child.pid]))
                ran = tally.read()[0]
                child.tell("stop")
                await child.hear()
        # What the handlers saw is counted and not listed: a list would be the memory that is measured.
        duplicates, losses = await drain.check(database, jobs, Counter(range(min(ran, jobs))))
    values = {"growth": last[0] / first[0], "rss_mib": last[0], "threads": last[1], "descriptors": last[2]}
    values |= {"rss_mib_early": first[0], "threads_early": first[1], "descriptors_early": first[2]}
    return Sample("memory", values, jobs, duplicates + ran - jobs, losses, used.others)


def _held(pid: int) -> tuple[float, float, float]:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    status = {name: value.split()[0] for name, _, value in (line.partition(":") for line in lines) if value.split()}
    return int(status["VmRSS"]) / 1024, float(status["Threads"]), float(len(list(Path(f"/proc/{pid}/fd").iterdir())))
