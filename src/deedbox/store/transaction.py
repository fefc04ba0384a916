"""The only place that begins and commits."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

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
