"""The bare thing beside draining: claim two hundred, do nothing with each, complete them under their fences, on asyncpg.

One connection, two statements a batch, three small tables. No history, no renewal, no retries, no payload validation, no
cancellation: what is left when everything that Deedbox promises is taken away.
"""

import asyncio
import importlib
import json
from time import monotonic
from typing import Any
from uuid import UUID, uuid4

from bench import processor
from bench.child import Bench, Child, run
from bench.database import Server
from bench.samples import Sample

MODULE = "bench.cells.raw_drain"
BATCH = 200
_FILL = """
WITH made AS (
    INSERT INTO raw.job (job_id, kind, payload)
    SELECT gen_random_uuid(), 'note', jsonb_build_object('number', n) FROM generate_series(0, %(jobs)s - 1) AS n
    RETURNING job_id
)
INSERT INTO raw.queue (job_id) SELECT job_id FROM made RETURNING job_id
"""
_CLAIM = """
WITH picked AS (
    SELECT job_id FROM raw.queue WHERE state = 'queued' ORDER BY priority, job_id LIMIT $1 FOR UPDATE SKIP LOCKED
), moved AS (
    UPDATE raw.queue q SET state = 'running', attempt_id = $2, fence = nextval('raw.fence'),
                           lease_until = statement_timestamp() + interval '30 s'
    FROM picked WHERE q.job_id = picked.job_id RETURNING q.job_id, q.fence
)
SELECT m.job_id, m.fence, j.payload::text FROM moved m JOIN raw.job j USING (job_id)
"""
_COMPLETE = """
WITH input AS (SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::text[]) AS i (job_id, fence, output)), gone AS (
    DELETE FROM raw.queue q USING input i WHERE q.job_id = i.job_id AND q.fence = i.fence AND q.state = 'running'
    RETURNING q.job_id, i.output
)
INSERT INTO raw.result (job_id, output) SELECT job_id, output::jsonb FROM gone
"""


async def measure(server: Server, jobs: int) -> Sample:
    """Drain `jobs` jobs; timed from the first handler until the last batch is committed."""
    async with server.fresh() as database:
        await database.row(_FILL, jobs=jobs)
        async with Child(MODULE, {}, database.url) as child:
            await child.hear()
            await database.settle()
            before = processor.read(server.postmaster, [child.pid])
            child.tell("go")
            figures = await child.hear(within=120)
            used = processor.between(before, processor.read(server.postmaster, [child.pid]))
        row = await database.row(
            "SELECT count(*), count(DISTINCT output ->> 'number') FROM raw.result JOIN raw.job USING (job_id)"
        )
    values = {"rate": jobs / figures["seconds"], "cpu_us": used.micros([child.pid], jobs)}
    return Sample("raw_drain", values, jobs, figures["ran"] - row[1], jobs - row[1], used.others)


async def main(_options: dict[str, Any], url: str, bench: Bench) -> None:
    """Claim and complete until nothing is there."""
    asyncpg: Any = importlib.import_module("asyncpg")
    connection: Any = await asyncpg.connect(url)
    claim: Any = await connection.prepare(_CLAIM)
    complete: Any = await connection.prepare(_COMPLETE)
    first = 0.0
    ran = 0

    async def handle(payload: str) -> str:
        nonlocal first, ran
        first = first or monotonic()
        ran += 1
        return json.dumps({"number": json.loads(payload)["number"]})

    bench.say(ready=True)
    await bench.told()
    while True:
        rows: list[tuple[UUID, int, str]] = await claim.fetch(BATCH, uuid4())
        if not rows:
            break
        outputs = await asyncio.gather(*(handle(payload) for _, _, payload in rows))
        await complete.fetch([row[0] for row in rows], [row[1] for row in rows], outputs)
    await bench.report(ran=ran, seconds=monotonic() - first)


if __name__ == "__main__":
    run(main)
