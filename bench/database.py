"""The server that is measured on: the embedded PostgreSQL in a directory of its own, a fresh database for each measurement."""

import secrets
from collections.abc import AsyncGenerator
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
from deedbox.store.pool import make_pool

TEMPLATE = "bench_template"
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

    url: str
    owner: psycopg.AsyncConnection[tuple[Any, ...]]

    async def row(self, query: LiteralString, **values: object) -> tuple[Any, ...]:
        """The first row of a query."""
        row = await (await self.owner.execute(query, values)).fetchone()
        assert row is not None, query
        return row

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

    @classmethod
    async def start(cls, state: Path) -> Self:
        """Make the cluster below `state` and start it. Raises AssertionError where it is less durable than it has to be."""
        running = embedded.start(state, database=TEMPLATE)
        postmaster = embedded.status(state).pid
        assert postmaster is not None
        await migrate(running.info.owner_url)
        async with await psycopg.AsyncConnection.connect(running.info.owner_url, autocommit=True) as owner:
            await owner.execute(_RAW_TABLES)
        pool = make_pool(running.info.app_url, "bench", size=3)
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
    async def fresh(self) -> AsyncGenerator[Database]:
        """A database as after installation, dropped afterwards."""
        name = f"bench_{secrets.token_hex(6)}"
        identifier = sql.Identifier(name)
        async with self._administrator() as administrator:
            await administrator.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(identifier, sql.Identifier(TEMPLATE)))
            try:
                owner_url = _named(self._running.info.owner_url, name)
                async with await psycopg.AsyncConnection.connect(owner_url, autocommit=True) as owner:
                    yield Database(_named(self._running.info.app_url, name), owner)
            finally:
                await administrator.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(identifier))

    @asynccontextmanager
    async def _administrator(self) -> AsyncGenerator[psycopg.AsyncConnection[tuple[Any, ...]]]:
        url = _named(self._running.info.owner_url, "postgres")
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            yield connection


def _named(url: str, database: str) -> str:
    return urlsplit(url)._replace(path=f"/{database}").geturl()
