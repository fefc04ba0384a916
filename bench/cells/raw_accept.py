"""The bare thing beside accepting: two rows for each call, gathered over two asyncpg connections, and nothing else.

No validation, no key, no history, no replay: what is left when everything that Deedbox promises is taken away. How it
gathers is the same idea, written down once more without the product's code.
"""

import asyncio
import importlib
import itertools
import json
from time import monotonic
from typing import Any
from uuid import UUID, uuid4

from bench import processor
from bench.cells.accept import WARM_UP_S
from bench.child import Bench, Child, run
from bench.database import Server
from bench.samples import Sample, percentiles

MODULE = "bench.cells.raw_accept"
_MOST = 64
_SIDE_BY_SIDE = 2
_INSERT = """
WITH input AS (SELECT * FROM unnest($1::uuid[], $2::text[]) AS i (job_id, payload)),
queued AS (INSERT INTO raw.queue (job_id) SELECT job_id FROM input)
INSERT INTO raw.job (job_id, kind, payload) SELECT job_id, 'note', payload::jsonb FROM input
"""


async def measure(server: Server, submitters: int, seconds: float) -> Sample:
    """Insert for so many seconds; then every answered call must have its two rows."""
    async with server.fresh() as database:
        async with Child(MODULE, {"submitters": submitters, "seconds": seconds}, database.url) as child:
            await child.hear()
            await database.settle()
            before = processor.read(server.postmaster, [child.pid])
            child.tell("go")
            figures = await child.hear(within=seconds + 60)
            used = processor.between(before, processor.read(server.postmaster, [child.pid]))
        row = await database.row(
            "SELECT count(*), count(DISTINCT payload ->> 'number') FROM raw.job JOIN raw.queue USING (job_id)"
        )
    count = figures["measured"]
    values = {"rate": count / figures["seconds"], "cpu_us": used.micros([child.pid], count), **percentiles(figures["waits"])}
    return Sample(f"raw_accept_{submitters}", values, count, row[0] - row[1], figures["answered"] - row[1], used.others)


class Lanes:
    """A few connections; each takes what waits, writes it in one statement, answers, and takes what has come meanwhile."""

    def __init__(self) -> None:
        """Nothing is open yet."""
        self._waiting: list[tuple[UUID, str, asyncio.Future[None]]] = []
        self._idle: list[Any] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, url: str) -> None:
        """Open the connections."""
        asyncpg: Any = importlib.import_module("asyncpg")
        self._idle = [await asyncpg.connect(url) for _ in range(_SIDE_BY_SIDE)]

    async def insert(self, number: int) -> None:
        """Return when the two rows are committed."""
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((uuid4(), json.dumps({"number": number}), answer))
        if self._idle:
            task = asyncio.create_task(self._work(self._idle.pop()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await answer

    async def _work(self, connection: Any) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
            await connection.execute(_INSERT, [row[0] for row in batch], [row[1] for row in batch])
            for _, _, answer in batch:
                answer.set_result(None)
        self._idle.append(connection)


async def main(options: dict[str, Any], url: str, bench: Bench) -> None:
    """Insert until the seconds are over."""
    lanes = Lanes()
    await lanes.open(url)
    numbers = itertools.count()
    waits: list[float] = []

    async def submitter(until: float) -> None:
        while (began := monotonic()) < until:
            await lanes.insert(next(numbers))
            waits.append(monotonic() - began)

    async def all_submit(seconds: float) -> float:
        began = monotonic()
        await asyncio.gather(*(submitter(began + seconds) for _ in range(options["submitters"])))
        return monotonic() - began

    await all_submit(WARM_UP_S)
    waits.clear()
    bench.say(ready=True)
    await bench.told()
    seconds = await all_submit(options["seconds"])
    await bench.report(answered=next(numbers), measured=len(waits), seconds=seconds, waits=waits)


if __name__ == "__main__":
    run(main)
