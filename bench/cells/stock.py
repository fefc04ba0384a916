"""Tables that are full already: one real job is accepted (and run, where they are to be finished), and its rows are copied.

The copies have ids and keys of their own, made as the product makes them: in the order of time, a thousand to a millisecond.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from psycopg import sql

from bench.cells import accept, drain, worker
from bench.child import Child
from bench.database import TEMPLATE, Database, Server
from bench.tally import Tally

Kind = Literal["finished", "waiting", "due"]

_IDS = """
CREATE TEMP TABLE stock AS
SELECT n, 'job-' || (%(first)s + n) AS key, %(first)s + n AS number,
       (lpad(to_hex(at - (%(count)s - n) / 1000), 12, '0') || '7'
        || substr(replace(gen_random_uuid()::text, '-', ''), 14))::uuid AS job_id
FROM generate_series(1, %(count)s) AS n,
     (SELECT ('x' || lpad(left(replace(job_id::text, '-', ''), 12), 16, '0'))::bit(64)::bigint AS at FROM deedbox.job) AS made
"""
# What differs in a copy, by table and column.
_OWN: dict[str, dict[str, str]] = {
    "job": {"job_id": "s.job_id", "idempotency_key": "s.key", "key_sha256": "sha256(s.key::bytea)"},
    "idempotency": {"job_id": "s.job_id", "key_sha256": "sha256(s.key::bytea)"},
    "job_payload": {"job_id": "s.job_id", "input": "jsonb_build_object('number', s.number)"},
    "event": {"job_id": "s.job_id", "event_id": "gen_random_uuid()"},
    "result": {"job_id": "s.job_id"},
    "attempt": {"job_id": "s.job_id", "attempt_id": "gen_random_uuid()"},
    "queue": {"job_id": "s.job_id"},
}
_LATER = {"due": "false", "run_at": "statement_timestamp() + interval '1 day'"}
# Numbers of a stock that stays, beyond those of any measurement.
_FAR = 100_000_000


async def template(server: Server, kind: Kind, count: int) -> str:
    """The name of a template that holds so many jobs: finished ones, such as wait for tomorrow, or such as are due now.

    Those that are due have the keys `job-0` and on, as `accept.fill` would have given them, and the first was accepted.
    """
    return await server.template(f"{kind}_{count}", _maker(server, kind, count), origin=TEMPLATE, large=True)


def _maker(server: Server, kind: Kind, count: int) -> Callable[[Database], Awaitable[None]]:
    async def make(database: Database) -> None:
        await accept.fill(server, database, 1)
        if kind == "finished":
            await _run_it(database)
        # Copies of a due job go on where the accepted one ended; others must not meet what is accepted later.
        first = 0 if kind == "due" else _FAR
        # Guards of the lifecycle stand aside: these rows have their history by being copied.
        await database.owner.execute("SET session_replication_role = replica")
        await database.owner.execute(_IDS, {"first": first, "count": count - 1 if kind == "due" else count})
        own = _OWN | {"queue": _OWN["queue"] | (_LATER if kind == "waiting" else {})}
        for table, differs in own.items():
            await copy(database, table, differs)
        if kind != "due":
            # The one that was copied has the key of a measurement's first job.
            await _rename(database)
        for table in own:
            await database.owner.execute(sql.SQL("VACUUM ANALYZE deedbox.{}").format(sql.Identifier(table)))

    return make


async def _run_it(database: Database) -> None:
    with TemporaryDirectory(prefix="deedbox-bench-") as scratch:
        path = Path(scratch) / "tally"
        tally = Tally(path)
        async with Child(worker.MODULE, {"slots": 1, "tally": str(path)}, database.url) as child:
            await child.hear()
            child.tell("go")
            await drain.drained(database, [tally], 1, [child])
            child.tell("stop")
            await child.hear()
    # A connection that ends is not gone at once, and a template must have none.
    await asyncio.sleep(0.2)


async def copy(database: Database, table: str, differs: dict[str, str]) -> None:
    """Copy every row of a table once for each of the temporary table `stock`; `differs` says by column what is another's."""
    cursor = await database.owner.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        [f"deedbox.{table}"],
    )
    names = [str(name) for (name,) in await cursor.fetchall()]
    # Column by column and not through JSON: a million rows are made in seconds.
    values = [sql.SQL(differs[name]) if name in differs else sql.Identifier("t", name) for name in names]  # pyright: ignore[reportArgumentType]
    query = sql.SQL(
        "INSERT INTO deedbox.{table} ({names}) SELECT {values} FROM deedbox.{table} AS t CROSS JOIN stock AS s"
    ).format(
        table=sql.Identifier(table),
        names=sql.SQL(", ").join(map(sql.Identifier, names)),
        values=sql.SQL(", ").join(values),
    )
    await database.owner.execute(query)


async def _rename(database: Database) -> None:
    for table in ("job", "idempotency"):
        await database.owner.execute(
            sql.SQL(
                "UPDATE deedbox.{} SET key_sha256 = sha256('stock'::bytea) WHERE key_sha256 = sha256('job-0'::bytea)"
            ).format(sql.Identifier(table))
        )
    await database.owner.execute("UPDATE deedbox.job SET idempotency_key = 'stock' WHERE idempotency_key = 'job-0'")
    await database.owner.execute(
        "UPDATE deedbox.queue SET due = false, run_at = statement_timestamp() + interval '1 day' WHERE state = 'queued' AND due"
    )
