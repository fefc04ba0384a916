"""The schema of the database: looking at it, and bringing it up to date."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from deedbox.store import doctor
from deedbox.store.address import first_line
from deedbox.store.migrate import applied, migrate, newest
from deedbox.store.pg_errors import StoreError
from deedbox.store.pool import Connection, connect
from deedbox.wiring.places import Database, UnreachableError


@asynccontextmanager
async def connected(database: Database, url: str) -> AsyncGenerator[Connection]:
    """A connection of its own; raises UnreachableError where the database does not answer."""
    try:
        connection = await connect(url, "check", prepare=False)
    except StoreError as error:
        raise UnreachableError(f"the database at {database.place} cannot be reached: {first_line(error)}") from error
    try:
        yield connection
    finally:
        await connection.close()


async def migrate_database(database: Database) -> list[str]:
    """Bring the schema up to date; returns the migrations applied. Raises SchemaError, UnreachableError."""
    async with connected(database, database.owner_url):
        pass
    return await migrate(database.owner_url)


@dataclass(frozen=True, slots=True)
class Probe:
    """What is at the other end of the database URL, schema or not: versions, and which of the two roles are there."""

    server: doctor.Server
    schema: int
    needed: int
    roles: frozenset[str]


async def probe(database: Database) -> Probe:
    """Look at the database without needing a schema and without changing anything. Raises UnreachableError."""
    async with connected(database, database.url) as connection:
        return Probe(await doctor.server(connection), await applied(connection), newest(), await doctor.roles(connection))
