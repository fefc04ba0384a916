"""Databases for tests: the embedded PostgreSQL of this test run, or the server that DEEDBOX_TEST_URL names.

DEEDBOX_TEST_URL is a superuser's. DEEDBOX_TEST_APP_URL names the same server for the application's role, by default the
superuser again; DEEDBOX_TEST_POOLER_URL names it through a pooler in transaction mode. `tools/servers.py` sets all three.

A migrated template is made once per run and copied per test. Nothing is faked: every test works on a database of its own.
"""

import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psycopg
from psycopg import conninfo, sql

from deedbox import embedded
from deedbox.store.migrate import migrate, migrations

POOLER = "DEEDBOX_TEST_POOLER_URL"
RUN = "DEEDBOX_TEST_RUN"
"""A name that all workers of one run share; the process that starts the run sets it."""


def through_a_pooler() -> bool:
    """Whether this run's application connects through a pooler."""
    return bool(os.environ.get(POOLER))


_MEMORY = Path("/dev/shm")  # noqa: S108 -- the directory below it is this run's own
_ROOM = 4 << 30
"""The least size of it, in bytes: it is shared, and what it holds by then may not change where a run's server is."""


@dataclass(frozen=True)
class TestServer:
    """A server on which databases may be made: for the owner, for the application, and for it through a pooler."""

    __test__ = False
    owner_url: str
    app_url: str
    pooler_url: str | None = None


def _with_database(url: str, name: str) -> str:
    return conninfo.make_conninfo(url, dbname=name)


@cache
def server() -> TestServer:
    """The server of this run; all workers of one run share it, and it stops with the last of them."""
    named = os.environ.get("DEEDBOX_TEST_URL")
    if named:
        return TestServer(named, os.environ.get("DEEDBOX_TEST_APP_URL") or named, os.environ.get(POOLER) or None)
    running = embedded.start(state_of_run())
    return TestServer(running.info.owner_url, running.info.app_url)


def state_of_run() -> Path:
    """The directory of this run's embedded server, which the run removes at its end.

    In memory where there is room: each test's database is nine hundred files, and making them is most of a short test's time.
    """
    base = memory() or Path(tempfile.gettempdir())
    return base / f"deedbox-tests-{os.getuid()}-{os.environ[RUN]}"


def memory() -> Path | None:
    """Where files are kept in memory, if that is large enough for a server with the databases of a run."""
    return _MEMORY if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).total >= _ROOM else None


@cache
def _template_name() -> str:
    return "deedbox_template_" + hashlib.sha256("".join(item.text for item in migrations()).encode()).hexdigest()[:12]


async def _template(where: TestServer) -> str:
    name = _template_name()
    admin = await psycopg.AsyncConnection.connect(_with_database(where.owner_url, "postgres"), autocommit=True)
    try:
        await admin.execute("SELECT pg_advisory_lock(4242)")
        cursor = await admin.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
        if await cursor.fetchone() is None:
            building = name + "_new"
            await admin.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(building)))
            await admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(building)))
            await migrate(_with_database(where.owner_url, building))
            await admin.execute(
                sql.SQL("ALTER DATABASE {} RENAME TO {}").format(sql.Identifier(building), sql.Identifier(name))
            )
    finally:
        await admin.close()
    return name


@dataclass(frozen=True)
class TestDatabase:
    """One migrated database: `url` is the application's, `owner_url` may replace functions and look everywhere.

    `direct_url` is the application's past a pooler, for what listens; without a pooler it is the same as `url`.
    """

    __test__ = False
    url: str
    owner_url: str
    direct_url: str

    async def rows(self, query: str, *parameters: object) -> list[tuple[object, ...]]:
        """Run one statement as the owner and return its rows."""
        async with await psycopg.AsyncConnection.connect(self.owner_url, autocommit=True) as connection:
            cursor = await connection.execute(query.encode(), list(parameters))
            return await cursor.fetchall() if cursor.description else []

    async def value(self, query: str, *parameters: object) -> object:
        """The first column of the first row."""
        return (await self.rows(query, *parameters))[0][0]

    async def shift_clock(self, seconds: float) -> None:
        """Move this database's clock by so many seconds from the real one."""
        await self.rows(
            "CREATE OR REPLACE FUNCTION deedbox.clock() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS "
            f"'SELECT statement_timestamp() + make_interval(secs => {float(seconds)!r})'"
        )


@asynccontextmanager
async def fresh_database(where: TestServer | None = None) -> AsyncGenerator[TestDatabase]:
    """A migrated database, on this run's server or another, that is dropped afterwards."""
    where = where or server()
    template = await _template(where)
    name = f"t_{secrets.token_hex(8)}"
    async with await psycopg.AsyncConnection.connect(_with_database(where.owner_url, "postgres"), autocommit=True) as admin:
        await admin.execute("SELECT pg_advisory_lock(4242)")
        await admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template)))
        await admin.execute("SELECT pg_advisory_unlock(4242)")
        try:
            urls = (where.pooler_url or where.app_url, where.owner_url, where.app_url)
            yield TestDatabase(*(_with_database(url, name) for url in urls))
        finally:
            await admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
