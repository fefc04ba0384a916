"""Forward-only migrations, the roles they need, and the partitions of the months to come."""

import asyncio
import hashlib
import random
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import date
from importlib import resources
from typing import LiteralString, TypeVar, cast

from psycopg import sql
from psycopg.errors import DeadlockDetected, InsufficientPrivilege, LockNotAvailable

from deedbox.store.loader import statement
from deedbox.store.pool import Connection, connect

T = TypeVar("T")

PARTITIONED = ("job", "attempt", "event", "result", "proposal", "receipt")
MONTHS_AHEAD = 3
LOCK = 0x0DEED_B0C
"""The advisory lock of whoever changes the schema or prunes."""
LOCK_WAIT_MS = 500
"""How long a change waits for a table, with everybody behind it; less than `deadlock_timeout`, so that it goes and not they."""
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Migration:
    """One file under migrations/: `NNNN_name.sql`."""

    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the file, kept beside the version so that an edited migration is noticed."""
        return hashlib.sha256(self.text.encode()).hexdigest()


class SchemaError(RuntimeError):
    """The schema is not one this build can work with."""


def migrations() -> list[Migration]:
    """All migrations of this build, in order."""
    found: list[Migration] = []
    for item in resources.files("deedbox.store").joinpath("migrations").iterdir():
        match = re.fullmatch(r"(\d{4})_([a-z_]+)\.sql", item.name)
        if match:
            found.append(Migration(int(match[1]), match[2], item.read_text(encoding="utf-8")))
    return sorted(found, key=lambda migration: migration.version)


def newest() -> int:
    """The schema version this build was made for."""
    return migrations()[-1].version


async def _roles(connection: Connection) -> bool:
    """Make the two roles where the user may; say whether `deedbox_app` exists afterwards."""
    cursor = await connection.execute("SELECT rolname FROM pg_roles WHERE rolname IN ('deedbox_owner', 'deedbox_app')")
    have = {row[0] for row in await cursor.fetchall()}
    try:
        for role, login in (("deedbox_owner", "NOLOGIN"), ("deedbox_app", "LOGIN")):
            if role not in have:
                # Two databases of one cluster may be migrated at once; the loser of that race finds the role made.
                await connection.execute(
                    sql.SQL(
                        "DO $$ BEGIN CREATE ROLE {role} {login}; "
                        "EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
                    ).format(role=sql.Identifier(role), login=sql.SQL(cast("LiteralString", login)))
                )
    except InsufficientPrivilege:
        return "deedbox_app" in have
    return True


async def _grants(connection: Connection) -> None:
    for text in (
        "GRANT USAGE ON SCHEMA deedbox TO deedbox_app",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA deedbox TO deedbox_app",
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA deedbox TO deedbox_app",
        "GRANT EXECUTE ON FUNCTION deedbox.add_partition(text, date) TO deedbox_app",
        "GRANT EXECUTE ON FUNCTION deedbox.drop_partition(text, date, interval) TO deedbox_app",
        "REVOKE UPDATE, DELETE, TRUNCATE ON deedbox.audit FROM deedbox_app",
        "REVOKE UPDATE, TRUNCATE ON deedbox.audit_detail FROM deedbox_app",
        "REVOKE INSERT, DELETE, TRUNCATE ON deedbox.audit_head FROM deedbox_app",
        "REVOKE INSERT, UPDATE, DELETE ON deedbox.schema_version FROM deedbox_app",
    ):
        await connection.execute(text)


async def applied(connection: Connection) -> int:
    """The version the schema is at; 0 where there is none."""
    cursor = await connection.execute("SELECT to_regclass('deedbox.schema_version') IS NOT NULL")
    row = await cursor.fetchone()
    if row is None or not row[0]:
        return 0
    cursor = await connection.execute("SELECT coalesce(max(version), 0) FROM deedbox.schema_version")
    row = await cursor.fetchone()
    return int(row[0]) if row else 0


async def require_current(connection: Connection) -> None:
    """Raise SchemaError unless the schema is exactly the one this build was made for (awa#392: refuse, never rewrite)."""
    version = await applied(connection)
    if version < newest():
        raise SchemaError(f"the schema is at version {version}, this build needs {newest()}: run `deedbox migrate`")
    if version > newest():
        raise SchemaError(f"the schema is at version {version}, newer than this build ({newest()}): use a newer build")


async def missing_partitions(connection: Connection) -> list[tuple[str, date]]:
    """Table and month of every partition that is not there, from last month to `MONTHS_AHEAD` ahead, the nearest first."""
    cursor = await connection.execute(statement("prune", "missing"), {"parents": list(PARTITIONED), "ahead": MONTHS_AHEAD})
    return [(str(row[0]), row[1]) for row in await cursor.fetchall()]


async def make_partitions(connection: Connection) -> list[str]:
    """Make the monthly partitions from last month to `MONTHS_AHEAD` months ahead where absent; returns their names.

    Bounds are UUIDv7 of the first moment of a month, by the database's clock. Takes SHARE UPDATE EXCLUSIVE on the tables:
    nobody who reads or writes waits.
    """
    made: list[str] = []
    for parent, month in await missing_partitions(connection):
        await connection.execute(statement("prune", "add_partition"), {"parent": parent, "month": month})
        made.append(f"{parent}_{month:%Y_%m}")
    return made


async def migrate(url: str) -> list[str]:
    """Bring the schema to this build's version; returns the names of the migrations applied, none when it was current.

    Each is applied in a transaction of its own: where one fails, those before it stay, and the next run goes on with it. Safe
    to run from several processes at once: an advisory lock lets one through at a time. Under load it waits for a table so
    briefly that it gives up before anybody else does, and begins that migration again, for at most `PATIENCE_S`. Raises
    SchemaError where the schema is newer than this build or an applied migration was changed, and
    psycopg.errors.LockNotAvailable where somebody held a table all the time.
    """
    connection = await connect(url, "migrate", prepare=False)
    try:
        with_roles = await _patiently(connection, _prepare)
        done: list[str] = []
        while (name := await _patiently(connection, _next)) is not None:
            done.append(name)
        await _patiently(connection, make_partitions)
        if with_roles:
            await _patiently(connection, _grants)
    finally:
        await connection.close()
    return done


async def _patiently(connection: Connection, change: Callable[[Connection], Awaitable[T]]) -> T:
    """Make a change in a transaction of its own, one process at a time."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            async with connection.transaction():
                await connection.execute("SET LOCAL lock_timeout = '60s'")
                await connection.execute("SET LOCAL statement_timeout = '10min'")
                await connection.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
                await connection.execute(cast("LiteralString", f"SET LOCAL lock_timeout = {LOCK_WAIT_MS}"))
                return await change(connection)
        except (LockNotAvailable, DeadlockDetected):
            if time.monotonic() > until:
                raise
        # Those who were waiting behind it have their turn.
        await asyncio.sleep(random.uniform(0.1, 0.5))  # noqa: S311 -- jitter


async def _prepare(connection: Connection) -> bool:
    """What is there before the first migration; says whether the roles are there, too. Raises SchemaError."""
    with_roles = await _roles(connection)
    await connection.execute("CREATE SCHEMA IF NOT EXISTS deedbox")
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS deedbox.schema_version (version integer PRIMARY KEY, name text NOT NULL,"
        " checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT statement_timestamp())"
    )
    version = await applied(connection)
    if version > newest():
        raise SchemaError(f"the schema is at version {version}, newer than this build ({newest()})")
    await _unchanged(connection, migrations())
    return with_roles


async def _next(connection: Connection) -> str | None:
    """Apply the next migration, and say which; None where there is none."""
    version = await applied(connection)
    migration = next((one for one in migrations() if one.version > version), None)
    if migration is None:
        return None
    await connection.execute(cast("LiteralString", migration.text), prepare=False)
    await connection.execute(
        "INSERT INTO deedbox.schema_version (version, name, checksum) VALUES (%s, %s, %s)",
        [migration.version, migration.name, migration.checksum],
    )
    return f"{migration.version:04}_{migration.name}"


async def _unchanged(connection: Connection, known: Iterable[Migration]) -> None:
    checksums = {migration.version: migration.checksum for migration in known}
    cursor = await connection.execute("SELECT version, checksum FROM deedbox.schema_version ORDER BY version")
    for version, checksum in await cursor.fetchall():
        if checksums.get(version) != checksum:
            raise SchemaError(f"migration {version} was changed after it had been applied; restore it and add a new one")
