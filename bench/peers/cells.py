"""The measurements of one peer, like those of Deedbox: a fresh database, processes of its own, and a look at what came of it.

Duplicates and losses of what runs are counted from what the handlers saw; of what is accepted, from the rows that are there.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from bench import processor
from bench.cells import http_accept, http_load
from bench.cells.drain import LONGEST_S
from bench.cells.start import PER_SECOND
from bench.child import Child, ChildError
from bench.database import Database, Server
from bench.peers.catalogue import Peer
from bench.peers.member import MODULE
from bench.samples import Sample, percentiles
from bench.tally import Tally

_WARM_UP_S = 0.5


def cell(name: str, peer: Peer) -> str:
    """What a peer's cell is called beside that of Deedbox."""
    return f"{name}@{peer.name}"


@asynccontextmanager
async def fresh(server: Server, peer: Peer) -> AsyncGenerator[Database]:
    """A database with the peer's tables and nothing of Deedbox's."""

    async def install(database: Database) -> None:
        async with _child(peer, "install", {}, database) as child:
            await child.hear()

    async with server.fresh(await server.template(peer.name, install)) as database:
        yield database


def _child(peer: Peer, part: str, options: dict[str, Any], database: Database) -> Child:
    return Child(MODULE, {"peer": peer.name, "part": part, **options}, database.url, python=str(peer.python))


async def accept(server: Server, peer: Peer, submitters: int, seconds: float) -> Sample:
    """Accept for so many seconds, as bench.cells.accept does."""
    async with fresh(server, peer) as database:
        options = {"submitters": submitters, "seconds": seconds}
        async with _child(peer, "accept", options, database) as child:
            await child.hear()
            await database.settle()
            before = processor.read(server.postmaster, [child.pid])
            child.tell("go")
            figures = await child.hear(within=seconds + 60)
            used = processor.between(before, processor.read(server.postmaster, [child.pid]))
        duplicates, losses = await _held(database, peer, figures["answered"])
    count = figures["measured"]
    values = {"rate": count / figures["seconds"], "cpu_us": used.micros([child.pid], count), **percentiles(figures["waits"])}
    return Sample(cell(f"accept_{submitters}", peer), values, count, duplicates, losses, used.others)


async def bulk(server: Server, peer: Peer, jobs: int) -> Sample:
    """Put `jobs` jobs in the way that the peer has for many."""
    async with fresh(server, peer) as database:
        async with _child(peer, "bulk", {"jobs": jobs}, database) as child:
            await child.hear()
            await database.settle()
            before = processor.read(server.postmaster, [child.pid])
            child.tell("go")
            figures = await child.hear(within=LONGEST_S)
            used = processor.between(before, processor.read(server.postmaster, [child.pid]))
        duplicates, losses = await _held(database, peer, jobs)
    values = {"rate": jobs / figures["seconds"], "cpu_us": used.micros([child.pid], jobs)}
    return Sample(cell("bulk", peer), values, jobs, duplicates, losses, used.others)


async def drain(server: Server, peer: Peer, jobs: int, processes: int) -> Sample:
    """Drain `jobs` jobs; timed from the first handler's first line until the peer holds none that has not ended."""
    async with fresh(server, peer) as database:
        written = await database.written()
        async with _child(peer, "bulk", {"jobs": jobs}, database) as filling:
            await filling.hear()
            filling.tell("go")
            await filling.hear(within=LONGEST_S)
        async with AsyncExitStack() as workers:
            scratch = Path(workers.enter_context(TemporaryDirectory(prefix="deedbox-bench-")))
            tallies = [Tally(scratch / str(number)) for number in range(processes)]
            children = [
                await workers.enter_async_context(
                    _child(peer, "work", {"pace": "drain", "tally": str(scratch / str(number))}, database)
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
            end = await _ended(database, peer, tallies, jobs, children)
            used = processor.between(before, processor.read(server.postmaster, pids))
            written = await database.written() - written
            first = min(at for count, at in (tally.read() for tally in tallies) if count)
            runs: Counter[int] = Counter()
            for child in children:
                child.tell("stop")
                runs.update(number for number, _ in (await child.hear())["starts"])
        values = {"rate": jobs / (end - first), "cpu_us": used.micros(pids, jobs), "wal_bytes": written / jobs}
        values["dead_rows"] = await database.dead() / jobs
    return Sample(cell(f"drain_{processes}", peer), values, jobs, runs.total() - len(runs), jobs - len(runs), used.others)


async def start(server: Server, peer: Peer, jobs: int) -> Sample:
    """Put `jobs` jobs at an even pace, as bench.cells.start does."""
    with TemporaryDirectory(prefix="deedbox-bench-") as scratch:
        path = Path(scratch) / "tally"
        tally = Tally(path)
        async with (
            fresh(server, peer) as database,
            _child(peer, "pace", {"jobs": jobs, "per_second": PER_SECOND}, database) as putting,
            _child(peer, "work", {"pace": "light", "tally": str(path)}, database) as running,
        ):
            await putting.hear()
            await running.hear()
            running.tell("go")
            await database.settle()
            # A worker that is still starting is not measured: launching takes some of them a second or two.
            await asyncio.sleep(3)
            pids = [putting.pid, running.pid]
            before = processor.read(server.postmaster, pids)
            putting.tell("go")
            calls: list[tuple[int, float, float]] = (await putting.hear(within=jobs / PER_SECOND + 60))["calls"]
            await _ended(database, peer, [tally], jobs, [running])
            used = processor.between(before, processor.read(server.postmaster, pids))
            running.tell("stop")
            starts: list[tuple[int, float]] = (await running.hear())["starts"]
    at = dict(starts)
    values = {
        **percentiles([at[number] - called for number, called, _ in calls if number in at]),
        **percentiles([answered - called for _, called, answered in calls], prefix="accept_"),
        "cpu_us": used.micros(pids, jobs),
    }
    return Sample(cell("start", peer), values, jobs, len(starts) - len(at), jobs - len(at), used.others)


async def http(server: Server, peer: Peer, seconds: float) -> Sample:
    """Load a minimal FastAPI route that validates the body and puts the job, from the same load generator."""
    async with (
        fresh(server, peer) as database,
        _child(peer, "serve", {"connections": http_accept.CONNECTIONS}, database) as serving,
    ):
        port = int((await serving.hear())["port"])
        first = http_load.FIRST
        options = {"path": "/jobs", "key": "none", "port": port, "connections": http_accept.CONNECTIONS}
        warmed, _ = await http_accept.load(server, database, serving, options | {"seconds": _WARM_UP_S, "first": first})
        figures, used = await http_accept.load(
            server, database, serving, options | {"seconds": seconds, "first": first + warmed["sent"]}
        )
        duplicates, losses = await _held(database, peer, warmed["sent"] + figures["sent"])
    count = len(figures["waits"])
    values = {
        "rate": count / figures["seconds"],
        **percentiles(figures["waits"]),
        "cpu_us": used.micros([serving.pid], count),
    }
    return Sample(cell("http_accept", peer), values, count, duplicates, losses, used.others)


async def _held(database: Database, peer: Peer, answered: int) -> tuple[int, int]:
    """Jobs beyond those that were answered, and answered ones that are not there."""
    held = int((await database.row(peer.accepted))[0])
    return max(0, held - answered), max(0, answered - held)


async def _ended(database: Database, peer: Peer, tallies: list[Tally], jobs: int, workers: list[Child]) -> float:
    """The moment when the peer had no job left. Raises ChildError, with the workers' last words, where that does not come."""
    try:
        # Another process does what is waited for; it cannot set an event of ours.
        async with asyncio.timeout(LONGEST_S):
            while sum(tally.read()[0] for tally in tallies) < jobs:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            while (await database.row(peer.unfinished))[0]:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
    except TimeoutError:
        ran = sum(tally.read()[0] for tally in tallies)
        logs = "\n".join(child.said() for child in workers)
        raise ChildError(f"{peer.name}: not drained: {ran} handlers ran for {jobs} jobs; logs {logs}") from None
    return monotonic()
