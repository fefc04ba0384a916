"""An outbox with a past: one effect is proposed, approved and sent in earnest, and all its rows are copied a million times."""

import asyncio

from psycopg import sql

from bench.cells import effects, provider
from bench.cells.stock import copy
from bench.child import Child
from bench.database import TEMPLATE, Database, Server

# Ids in the order of time, a thousand to a millisecond, all before those of what is measured.
_IDS = """
CREATE TEMP TABLE stock AS
SELECT n, 'sent-' || n AS key, id(n, 'a') AS job_id, id(n, 'b') AS proposal_id, id(n, 'c') AS proposal_effect_id,
       id(n, 'd') AS approval_id, id(n, 'e') AS effect_id
FROM generate_series(1, %(count)s) AS n
"""
_ID = """
CREATE FUNCTION pg_temp.id(n bigint, part text) RETURNS uuid LANGUAGE sql AS $$
    SELECT (lpad(to_hex(at - 60000 - n / 1000), 12, '0') || '7' || substr(md5(part || n), 1, 3) || '8'
            || substr(md5(n || part), 1, 15))::uuid
    FROM (SELECT ('x' || lpad(left(replace(job_id::text, '-', ''), 12), 16, '0'))::bit(64)::bigint AS at
          FROM deedbox.job ORDER BY created_at LIMIT 1) AS first $$
"""
_OF_ALL = {
    "job_id": "s.job_id",
    "proposal_id": "s.proposal_id",
    "proposal_effect_id": "s.proposal_effect_id",
    "approval_id": "s.approval_id",
    "effect_id": "s.effect_id",
}
_KEY = {"key_sha256": "sha256(s.key::bytea)"}
# The tables a completed effect leaves rows in, with the ids that each of them has.
_TABLES: dict[str, dict[str, str]] = {
    "job": {"idempotency_key": "s.key", **_KEY},
    "idempotency": _KEY,
    "job_payload": {},
    "attempt": {"attempt_id": "gen_random_uuid()"},
    "event": {"event_id": "gen_random_uuid()"},
    "result": {},
    "proposal": {"attempt_id": "gen_random_uuid()"},
    "proposal_effect": {},
    "approval": {},
    "vote": {},
    "effect": {},
    "receipt": {"receipt_id": "gen_random_uuid()"},
}


async def template(server: Server, count: int) -> str:
    """The name of a template whose outbox holds so many completed effects, each with all that led to it."""

    async def make(database: Database) -> None:
        await _send_one(server, database)
        # Guards of the lifecycle stand aside: these rows have their history by being copied.
        await database.owner.execute("SET session_replication_role = replica")
        await database.owner.execute(_ID)
        await database.owner.execute(_IDS.replace("id(n", "pg_temp.id(n").encode(), {"count": count})
        for table, own in _TABLES.items():
            cursor = await database.owner.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
                [f"deedbox.{table}"],
            )
            names = {str(name) for (name,) in await cursor.fetchall()}
            await copy(database, table, {name: value for name, value in _OF_ALL.items() if name in names} | own)
        # What was sent in earnest has the key of a measurement's first job.
        for table in ("job", "idempotency"):
            query = "UPDATE deedbox.{} SET key_sha256 = sha256('first'::bytea) WHERE key_sha256 = sha256('job-0'::bytea)"
            await database.owner.execute(sql.SQL(query).format(sql.Identifier(table)))
        await database.owner.execute("UPDATE deedbox.job SET idempotency_key = 'first' WHERE idempotency_key = 'job-0'")
        for table in _TABLES:
            await database.owner.execute(sql.SQL("VACUUM ANALYZE deedbox.{}").format(sql.Identifier(table)))

    return await server.template(f"sent_{count}", make, origin=TEMPLATE, large=True)


async def _send_one(server: Server, database: Database) -> None:
    async with Child(provider.MODULE, {}, database.url) as providing:
        port = int((await providing.hear())["port"])
        await effects.plan(server, database, port, 1)
        async with Child(effects.MODULE, {"part": "send", "port": port}, database.url) as sending, asyncio.timeout(60):
            await sending.hear()
            sending.tell("go")
            while (await database.row("SELECT EXISTS (SELECT FROM deedbox.queue)"))[0]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            sending.tell("stop")
            await sending.hear()
    # A connection that ends is not gone at once, and a template must have none.
    await asyncio.sleep(0.2)
