"""Migrations: from the first version with data in it to the newest, under load, with no stronger locks than they say."""

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import LiteralString, cast

import psycopg
import pytest
from psycopg import conninfo, sql

from deedbox.store import migrate as module
from deedbox.store.migrate import SchemaError, applied, migrate, migrations, require_current
from deedbox.store.pool import Connection, connect
from tests.database import TestDatabase, server
from tests.guarantees import proves
from tools.schema import TARGET, dump

pytestmark = pytest.mark.anyio

# The first version's partitions, as its build made them: last month, this one, and three ahead.
PARTITIONS = """
DO $$
DECLARE
    parent text;
    m timestamp;
BEGIN
    FOREACH parent IN ARRAY ARRAY['job', 'attempt', 'event', 'result', 'proposal', 'receipt'] LOOP
        FOR m IN SELECT generate_series(date_trunc('month', clock_timestamp() AT TIME ZONE 'UTC') - interval '1 month',
                 date_trunc('month', clock_timestamp() AT TIME ZONE 'UTC') + interval '3 months', interval '1 month') LOOP
            EXECUTE format('CREATE TABLE deedbox.%I PARTITION OF deedbox.%I FOR VALUES FROM (%L) TO (%L)',
                parent || to_char(m, '_YYYY_MM'), parent,
                (lpad(to_hex((extract(epoch FROM m) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid,
                (lpad(to_hex((extract(epoch FROM m + interval '1 month') * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid);
        END LOOP;
    END LOOP;
END $$
"""

# A job as every version could store it: the columns are those of the first.
SUBMIT = """
WITH new AS (
    INSERT INTO deedbox.idempotency (tenant, action, key_sha256, job_id, payload_sha256)
    VALUES ('default', 'do_it', sha256(%(key)s::bytea), %(job)s, sha256('x')) RETURNING job_id
), j AS (
    INSERT INTO deedbox.job (job_id, tenant, action, action_version, key_sha256, key_source, subject, role, source, created_at)
    SELECT job_id, 'default', 'do_it', 1, sha256(%(key)s::bytea), 'header', gen_random_uuid(), 'operator', 'http',
           deedbox.clock()
    FROM new
), p AS (
    INSERT INTO deedbox.job_payload (job_id, input) SELECT job_id, '{"text": "x"}' FROM new
), q AS (
    INSERT INTO deedbox.queue (job_id, lane_id, state, action_version, run_at, attempts_allowed, last_seq)
    SELECT job_id, (SELECT lane_id FROM deedbox.lane LIMIT 1), 'queued', 1, deedbox.clock(), 5, 1 FROM new
)
INSERT INTO deedbox.event (job_id, seq, event_id, type, round, at, payload)
SELECT job_id, 1, gen_random_uuid(), 'job.queued', 1, deedbox.clock(), '{}' FROM new
"""
NEW_ID = """
SELECT (lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || '7000'
        || '8' || substr(md5(random()::text), 1, 15))::uuid
"""


VERSIONS = [migration.version for migration in migrations()]
BEFORE = VERSIONS[-2]
BEFORE_QUEUE = 25
"""The migration after this one takes the strongest lock on the queue."""


@asynccontextmanager
async def at_version(version: int) -> AsyncGenerator[TestDatabase]:
    """A database as a build of that version left it: its migrations applied, its partitions made, one lane, and some jobs."""
    where = server()
    name = f"t_{secrets.token_hex(8)}"

    def url(of: str) -> str:
        return conninfo.make_conninfo(of, dbname=name)

    async with await psycopg.AsyncConnection.connect(conninfo.make_conninfo(where.owner_url, dbname="postgres")) as admin:
        await admin.set_autocommit(True)
        await admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            one = TestDatabase(url(where.app_url), url(where.owner_url), url(where.app_url))
            owner = await connect(one.owner_url, "old build", prepare=False)
            async with owner.transaction():
                await owner.execute("CREATE SCHEMA deedbox")
                await owner.execute(
                    "CREATE TABLE deedbox.schema_version (version integer PRIMARY KEY, name text NOT NULL,"
                    " checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT statement_timestamp())"
                )
                for migration in migrations():
                    if migration.version <= version:
                        await apply(owner, migration)
                await owner.execute(PARTITIONS)
                await owner.execute("INSERT INTO deedbox.lane (queue, action, tenant) VALUES ('default', 'do_it', 'default')")
            for number in range(5):
                await submit(owner, f"old {number}")
            await finish(owner)
            await owner.close()
            yield one
        finally:
            await admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


async def apply(connection: Connection, migration: module.Migration) -> None:
    """Apply one migration as `migrate` does, in the caller's transaction."""
    await connection.execute(cast("LiteralString", migration.text), prepare=False)
    await connection.execute(
        "INSERT INTO deedbox.schema_version (version, name, checksum) VALUES (%s, %s, %s)",
        [migration.version, migration.name, migration.checksum],
    )


async def submit(connection: Connection, key: str) -> None:
    """Store a job as an old build does."""
    cursor = await connection.execute(cast("LiteralString", NEW_ID))
    row = await cursor.fetchone()
    await connection.execute(cast("LiteralString", SUBMIT), {"key": key, "job": row[0] if row else None})


async def finish(connection: Connection) -> None:
    """End one job, with a proposal whose one effect was delivered."""
    await connection.execute(
        "WITH gone AS (DELETE FROM deedbox.queue WHERE job_id IN (SELECT job_id FROM deedbox.queue ORDER BY job_id LIMIT 1)"
        " RETURNING job_id)"
        " INSERT INTO deedbox.result (job_id, state, output, attempt, attempts_allowed, round, last_seq, ended_at)"
        " SELECT job_id, 'completed', '{}', 1, 5, 1, 1, deedbox.clock() FROM gone"
    )
    await connection.execute(
        "INSERT INTO deedbox.proposal_effect (proposal_effect_id, job_id, group_name, position, connector, target, slot,"
        " summary, body, digest)"
        " SELECT gen_random_uuid(), job_id, 'default', 1, 'note', 'wall', 'line', 'Writes.', 'x', sha256('x')"
        " FROM deedbox.result"
    )


async def contents(database: TestDatabase) -> list[tuple[object, ...]]:
    """What every version holds of jobs."""
    return await database.rows(
        "SELECT j.job_id, encode(i.key_sha256, 'hex'), p.input::text, q.state, r.state, e.body, e.digest"
        " FROM deedbox.job j JOIN deedbox.idempotency i USING (job_id) JOIN deedbox.job_payload p USING (job_id)"
        " LEFT JOIN deedbox.queue q USING (job_id) LEFT JOIN deedbox.result r USING (job_id)"
        " LEFT JOIN deedbox.proposal_effect e USING (job_id) ORDER BY j.job_id"
    )


def embedded_only() -> None:
    """The dump is compared on the embedded PostgreSQL, whose version wrote the file."""
    if "host=/" not in server().owner_url.replace("'", "").replace("%2F", "/"):
        pytest.skip("the dump is compared on the embedded PostgreSQL, whose version writes it")


@proves("G-SCHEMA-MIGRATED")
@pytest.mark.parametrize("version", VERSIONS[:-1])
async def test_a_database_of_an_older_version_with_data_becomes_the_newest(version: int) -> None:
    async with at_version(version) as old:
        before = await contents(old)
        assert len(before) == 5
        done = await migrate(old.owner_url)
        assert [int(name[:4]) for name in done] == [one for one in VERSIONS if one > version]
        assert await contents(old) == before
        assert await migrate(old.owner_url) == []
        embedded_only()
        assert dump(old.owner_url) == TARGET.read_text()


def stated(text: str) -> dict[str, set[str]]:
    """Lock modes and the tables named with each, from the sentence after `Locks:` at a migration's head."""
    head = " ".join(line.removeprefix("--").strip() for line in text.split("\n\n", maxsplit=1)[0].splitlines())
    found: dict[str, set[str]] = {}
    for part in head.split("Locks:")[1].split(";"):
        mode = re.match(r"\s*([A-Z][A-Z ]+[A-Z])\b", part)
        if mode:
            found.setdefault(mode[1], set()).update(re.findall(r"[a-z_]+", part))
    return found


@pytest.mark.parametrize("place", range(1, len(VERSIONS)), ids=VERSIONS[1:])
async def test_a_migration_takes_the_locks_that_it_states_and_no_stronger_ones(place: int) -> None:
    migration = migrations()[place]
    async with at_version(VERSIONS[place - 1]) as old:
        owner = await connect(old.owner_url, "locks", prepare=False)
        async with owner.transaction():
            cursor = await owner.execute("SELECT oid FROM pg_class WHERE relnamespace = 'deedbox'::regnamespace")
            before = [row[0] for row in await cursor.fetchall()]
            await apply(owner, migration)
            cursor = await owner.execute(
                "SELECT DISTINCT mode, regexp_replace(relname, '_[0-9]{4}_[0-9]{2}$', '')"
                " FROM pg_locks JOIN pg_class c ON c.oid = relation"
                " WHERE pid = pg_backend_pid() AND relkind IN ('r', 'p') AND relation = ANY (%s)"
                " AND mode NOT IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')",
                [before],
            )
            taken = {
                (re.sub(r"(?<!^)(?=[A-Z])", " ", row[0].removesuffix("Lock")).upper(), row[1])
                for row in await cursor.fetchall()
            }
        await owner.close()
    said = stated(migration.text)
    assert said or "Locks: none on what" in migration.text, f"{migration.name} states no locks"
    for mode, table in taken:
        assert any(table in tables for strong, tables in said.items() if strong in {mode, "ACCESS EXCLUSIVE"}), (
            f"{migration.name} takes {mode} on {table} and does not say so"
        )


@proves("G-MIGRATE-UNDER-LOAD")
async def test_migrating_under_load_loses_nothing() -> None:
    """Two sessions store jobs as an old build does while `migrate` takes the database to the newest version.

    It proves that no stored job is lost or changed, that nobody is refused but for a lock, and that old statements go on
    working on the new schema, as they must while processes are replaced one by one.
    """
    async with at_version(BEFORE) as old:
        stored: list[str] = []
        at: list[int] = []
        stop, under_way, enough = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def load(who: int) -> None:
            connection = await connect(old.owner_url, f"load {who}")
            number = 0
            while not stop.is_set():
                key = f"{who}:{number}"
                await submit(connection, key)
                stored.append(key)
                number += 1
                if number == 20:
                    under_way.set()
                if at and len(stored) >= at[0] + 40:
                    enough.set()
            await connection.close()

        async with asyncio.TaskGroup() as group:
            group.create_task(load(1))
            group.create_task(load(2))
            await under_way.wait()
            done = await migrate(old.owner_url)
            at.append(len(stored))
            await enough.wait()
            stop.set()
        assert len(done) == 1
        assert len(set(stored)) == len(stored)
        assert await old.value("SELECT count(*) FROM deedbox.job") == len(stored) + 5
        assert await old.value("SELECT count(*) FROM deedbox.queue") == len(stored) + 4
        missing = await old.value(
            "SELECT count(*) FROM unnest(%s::text[]) AS k WHERE NOT EXISTS"
            " (SELECT FROM deedbox.idempotency JOIN deedbox.queue USING (job_id) WHERE key_sha256 = sha256(k::bytea))",
            stored,
        )
        assert missing == 0


@proves("G-MIGRATE-UNDER-LOAD")
async def test_a_migration_that_waits_for_a_table_gives_up_before_others_do_and_begins_again() -> None:
    async with at_version(BEFORE_QUEUE) as old:
        holder = await connect(old.owner_url, "holder")
        other = await connect(old.owner_url, "other")
        async with holder.transaction():
            await holder.execute("LOCK TABLE deedbox.queue IN ROW EXCLUSIVE MODE")
            migrating = asyncio.create_task(migrate(old.owner_url))
            waits = (
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'deedbox migrate'"
                " AND wait_event_type = 'Lock' AND datname = current_database()"
            )
            while not await old.value(waits):
                assert not migrating.done()
            # Behind it, which waits for what the holder will not let go.
            await submit(other, "meanwhile")
            while not await old.value(waits):
                assert not migrating.done()
        assert [int(name[:4]) for name in await migrating] == [one for one in VERSIONS if one > BEFORE_QUEUE]
        assert await old.value("SELECT count(*) FROM deedbox.job") == 6
        await holder.close()
        await other.close()


@proves("G-MIGRATE-UNDER-LOAD")
async def test_a_migration_that_fails_leaves_everything_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    async with at_version(BEFORE) as old:
        before = await contents(old)
        broken = [*migrations()[:-1], replace(migrations()[-1], text=migrations()[-1].text + "\nSELECT 1 / 0;")]
        monkeypatch.setattr(module, "migrations", lambda: broken)
        with pytest.raises(psycopg.errors.DivisionByZero):
            await migrate(old.owner_url)
        monkeypatch.undo()
        assert await contents(old) == before
        assert await old.value("SELECT max(version) FROM deedbox.schema_version") == BEFORE
        assert len(await migrate(old.owner_url)) == 1


@proves("G-SCHEMA-VERSION")
async def test_a_build_meets_only_the_schema_it_was_made_for(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    async with at_version(BEFORE) as old:
        connection = await connect(old.owner_url, "newer build")
        with pytest.raises(SchemaError, match="run `deedbox migrate`"):
            await require_current(connection)
        await connection.close()
    older = migrations()[:-1]
    monkeypatch.setattr(module, "migrations", lambda: older)
    connection = await connect(database.url, "older build")
    try:
        with pytest.raises(SchemaError, match="newer than this build"):
            await require_current(connection)
        with pytest.raises(SchemaError, match="newer than this build"):
            await migrate(database.owner_url)
        assert await applied(connection) == VERSIONS[-1]
    finally:
        await connection.close()


async def test_several_processes_may_migrate_at_once() -> None:
    async with at_version(1) as old:
        done = await asyncio.gather(*(migrate(old.owner_url) for _ in range(3)))
        # Each by one of them.
        assert sorted(int(name[:4]) for names in done for name in names) == VERSIONS[1:]
