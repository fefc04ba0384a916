"""A server that has fallen silent holds nobody for ever: whoever asked is let go, and asks another connection."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import psycopg
import pytest

from deedbox.model.errors import DeedboxError
from deedbox.operate.views import Views
from deedbox.store.pg_errors import AWAY
from deedbox.store.pool import Pool
from deedbox.store.transaction import autocommit, rolled_back, transaction
from tests.builders import principal
from tests.database import TestDatabase, through_a_pooler
from tests.guarantees import proves
from tests.road import road
from tests.servers.proxy import Proxy
from tests.test_lanes import Work

pytestmark = pytest.mark.anyio

WITHIN_S = 8.0
"""More than any of these may take, in seconds; the driver's own waits behind a cancellation take up to ten."""


@asynccontextmanager
async def through(database: TestDatabase) -> AsyncGenerator[tuple[Proxy, Pool]]:
    """A pool of one connection through the proxy, whose statements may take a tenth of a second."""
    proxy = Proxy(database.url)
    async with proxy as url:
        pool = Pool(url, "silent", size=1, statement_timeout_ms=100, grace_s=0.4)
        await pool.open(wait=True)
        try:
            yield proxy, pool
        finally:
            await pool.close()


async def one_statement(pool: Pool) -> None:
    async with autocommit(pool) as connection:
        await connection.execute("SELECT 1")


async def in_a_transaction(pool: Pool) -> None:
    async with transaction(pool) as connection:
        await connection.execute("SELECT 1")


async def to_be_rolled_back(pool: Pool) -> None:
    async with rolled_back(pool) as connection:
        await connection.execute("SELECT 1")


@proves("G-SILENT-SERVER")
@pytest.mark.parametrize("ask", [one_statement, in_a_transaction, to_be_rolled_back])
async def test_who_asks_a_silent_server_is_let_go_and_asks_another_connection(
    database: TestDatabase, ask: Callable[[Pool], Awaitable[None]]
) -> None:
    async with through(database) as (proxy, pool):
        await ask(pool)
        proxy.freeze()
        async with asyncio.timeout(WITHIN_S):
            with pytest.raises(AWAY, match=r"did not answer within 0\.5 s"):
                await ask(pool)
        proxy.thaw()
        async with asyncio.timeout(WITHIN_S):
            await ask(pool)


async def frozen_before_the_end(proxy: Proxy, pool: Pool) -> None:
    async with transaction(pool) as connection:
        await connection.execute("SELECT 1")
        proxy.freeze()


@proves("G-SILENT-SERVER")
async def test_a_transaction_whose_server_falls_silent_before_its_end_is_let_go(database: TestDatabase) -> None:
    async with through(database) as (proxy, pool), asyncio.timeout(WITHIN_S):
        with pytest.raises(AWAY, match="did not answer"):
            await frozen_before_the_end(proxy, pool)
        proxy.thaw()
        await one_statement(pool)


async def test_the_servers_own_time_out_comes_first(database: TestDatabase) -> None:
    if through_a_pooler():
        pytest.skip("the pooler sets the time-outs of its sessions, whatever a client asks for")
    async with through(database) as (_, pool), autocommit(pool) as connection:
        with pytest.raises(psycopg.errors.QueryCanceled):
            await connection.execute("SELECT pg_sleep(5)")
        await connection.execute("SELECT 1")


async def test_a_face_says_that_the_store_is_away(database: TestDatabase) -> None:
    async with road(database, Work().app) as one, through(database) as (proxy, pool):
        proxy.freeze()
        async with asyncio.timeout(WITHIN_S):
            with pytest.raises(DeedboxError) as refusal:
                await Views(pool).jobs(principal(one.ids, "manager"))
        assert refusal.value.code == "unavailable"
