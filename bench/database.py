"""The server that is measured on: the embedded PostgreSQL in a directory of its own, a fresh database for each measurement."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString, Self
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from deedbox import embedded
from deedbox.access.keys import add_key
from deedbox.embedded import Running
from deedbox.store.ids import IdSource
from deedbox.store.migrate import migrate
from deedbox.store.pool import Pool

TEMPLATE = "bench_template"
EMPTY = "template0"
_ALONE_WITHIN_S = 30.0
DURABLE = ("fsync", "synchronous_commit", "full_page_writes")
_SHOWN = (*DURABLE, "shared_buffers", "max_wal_size", "checkpoint_timeout", "wal_level", "wal_sync_method", "autovacuum", "jit")

_RAW_TABLES = """
CREATE SCHEMA raw;
CREATE SEQUENCE raw.fence;
CREATE TABLE raw.job (job_id uuid PRIMARY KEY, kind text NOT NULL, payload jsonb NOT NULL,
                      created_at timestamptz NOT NULL DEFAULT statement_timestamp());
CREATE TABLE raw.queue (job_id uuid PRIMARY KEY, state text NOT NULL DEFAULT 'queued', priority smallint NOT NULL DEFAULT 100,
                        attempt_id uuid, fence bigint, lease_until timestamptz) WITH (fillfactor = 60);
CREATE INDEX queue_ready ON raw.queue (priority, job_id) WHERE state = 'queued';
CREATE TABLE raw.result (job_id uuid PRIMARY KEY, output jsonb NOT NULL,
                         ended_at timestamptz NOT NULL DEFAULT statement_timestamp());
GRANT USAGE ON SCHEMA raw TO deedbox_app;
GRANT ALL ON ALL TABLES IN SCHEMA raw TO deedbox_app;
GRANT ALL ON ALL SEQUENCES IN SCHEMA raw TO deedbox_app;
"""


@dataclass(frozen=True, slots=True)
class Database:
    """A database of one measurement: `url` is the application's, `owner` looks at it from outside."""

    name: str
    url: str
    owner_url: str
    owner: psycopg.AsyncConnection[tuple[Any, ...]]

    async def row(self, query: LiteralString, **values: object) -> tuple[Any, ...]:
        """The first row of a query."""
        row = await (await self.owner.execute(query, values)).fetchone()
        assert row is not None, query
        return row

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[None]:
        """Somebody who looks at the tables as they are now, for as long as the block lasts: no dead row goes meanwhile."""
        async with (
            await psycopg.AsyncConnection.connect(self.owner_url, autocommit=True) as looking,
            looking.transaction(),
        ):
            await looking.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            await looking.execute("SELECT count(*) FROM deedbox.queue")
            yield

    async def written(self) -> int:
        """Bytes of log that the server has written so far, in all its databases."""
        return int((await self.row("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))[0])

    async def dead(self, tables: str = "") -> int:
        """Rows that died so far, by update or deletion, in tables whose name matches. Waits until we are alone.

        A connection tells what it did when it ends, so all others have to.
        """
        query = """
        SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
        """
        # The server does what is waited for; it cannot set an event of ours.
        async with asyncio.timeout(_ALONE_WITHIN_S):
            while (await self.row(query))[0]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        died = "SELECT coalesce(sum(n_tup_upd + n_tup_del), 0) FROM pg_stat_user_tables WHERE relname ~ %(tables)s"
        return int((await self.row(died, tables=tables))[0])

    async def settle(self) -> None:
        """Bring to the disk what has been written so far, so that each measurement begins alike."""
        await self.owner.execute("CHECKPOINT")


class Server:
    """The embedded server, with a template that has the schema, one API key, and the tables of the bare loops."""

    def __init__(self, running: Running, postmaster: int, key: str) -> None:
        """Made by `start` alone. `postmaster` is the server's process, `key` an API key that every database has."""
        self._running = running
        self.postmaster = postmaster
        self.key = key
        self._templates: dict[str, bool] = {}

    @classmethod
    async def start(cls, state: Path) -> Self:
        """Make the cluster below `state` and start it. Raises AssertionError where it is less durable than it has to be."""
        running = embedded.start(state, database=TEMPLATE)
        postmaster = embedded.status(state).pid
        assert postmaster is not None
        await migrate(running.info.owner_url)
        async with await psycopg.AsyncConnection.connect(running.info.owner_url, autocommit=True) as owner:
            await owner.execute(_RAW_TABLES)
        pool = Pool(running.info.app_url, "bench", size=3)
        await pool.open(wait=True)
        try:
            key = await add_key(pool, await IdSource.read(pool), "default", "bench", ["operator"], "bench")
        finally:
            await pool.close()
        server = cls(running, postmaster, key)
        settings = await server.settings()
        assert all(settings[name] == "on" for name in DURABLE), settings
        return server

    def stop(self) -> None:
        """Stop the server."""
        self._running.stop()

    @property
    def version(self) -> str:
        """Of PostgreSQL."""
        return self._running.info.server_version

    async def settings(self) -> dict[str, str]:
        """The settings that decide what a commit costs."""
        async with self._administrator() as administrator:
            cursor = await administrator.execute(
                "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY (%s)", [list(_SHOWN)]
            )
            return {str(name): str(value) for name, value in await cursor.fetchall()}

    @asynccontextmanager
    async def fresh(self, template: str = TEMPLATE) -> AsyncGenerator[Database]:
        """A database copied from a template (that of Deedbox after installation, if none is named), dropped afterwards."""
        name = f"bench_{secrets.token_hex(6)}"
        await self._create(name, template, large=self._templates.get(template, False))
        try:
            owner_url = _named(self._running.info.owner_url, name)
            # Peers make tables as they start, so they get the owner; they have no roles of their own.
            url = _named(self._running.info.app_url, name) if template.startswith(TEMPLATE) else owner_url
            async with await psycopg.AsyncConnection.connect(owner_url, autocommit=True) as owner:
                yield Database(name, url, owner_url, owner)
        finally:
            await self._drop(name)

    async def template(
        self, name: str, make: Callable[[Database], Awaitable[None]], *, origin: str = EMPTY, large: bool = False
    ) -> str:
        """The name of a template for `fresh`: made of `origin` by `make` when it is first asked for in a run.

        One that came of Deedbox's own is used by the application's role, any other by the owner. A `large` one is copied as
        files: written row by row into the log it would take minutes.
        """
        whole = f"{TEMPLATE if origin == TEMPLATE else 'peer'}_{name}"
        if whole not in self._templates:
            await self._create(whole, origin)
            owner_url = _named(self._running.info.owner_url, whole)
            url = _named(self._running.info.app_url, whole) if origin == TEMPLATE else owner_url
            try:
                async with await psycopg.AsyncConnection.connect(owner_url, autocommit=True) as owner:
                    await make(Database(whole, url, owner_url, owner))
            except BaseException:
                await self._drop(whole)
                raise
            self._templates[whole] = large
        return whole

    def log(self) -> Path:
        """Where the server logs to."""
        return embedded.status(self._running.info.state_dir).log

    async def _create(self, name: str, template: str, *, large: bool = False) -> None:
        how = sql.SQL("FILE_COPY" if large else "WAL_LOG")
        query = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY {}")
        async with self._administrator() as administrator:
            await administrator.execute(query.format(sql.Identifier(name), sql.Identifier(template), how))

    async def _drop(self, name: str) -> None:
        async with self._administrator() as administrator:
            await administrator.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    @asynccontextmanager
    async def _administrator(self) -> AsyncGenerator[psycopg.AsyncConnection[tuple[Any, ...]]]:
        url = _named(self._running.info.owner_url, "postgres")
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            yield connection


def _named(url: str, database: str) -> str:
    return urlsplit(url)._replace(path=f"/{database}").geturl()
