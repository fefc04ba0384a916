"""The only place that begins and commits."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from psycopg import Rollback

from deedbox.store.pool import Connection, Pool


@asynccontextmanager
async def transaction(pool: Pool) -> AsyncGenerator[Connection]:
    """A connection inside one transaction: committed when the block ends, rolled back when it raises."""
    async with pool.connection() as connection, connection.transaction():
        yield connection


@asynccontextmanager
async def autocommit(pool: Pool) -> AsyncGenerator[Connection]:
    """A connection on which each statement is a transaction of its own."""
    async with pool.connection() as connection:
        yield connection


@asynccontextmanager
async def rolled_back(pool: Pool) -> AsyncGenerator[Connection]:
    """A connection inside one transaction of which nothing stays, however the block ends."""
    async with pool.connection() as connection, connection.transaction():
        yield connection
        raise Rollback
