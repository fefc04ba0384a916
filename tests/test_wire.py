"""A wire: single statements back to back on a connection of its own, and what becomes of them when it breaks."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import psycopg
import pytest

from deedbox.store.loader import Numbered
from deedbox.store.pool import Pool
from deedbox.store.wire import Wire
from tests.database import TestDatabase, through_a_pooler
from tests.road import until

pytestmark = pytest.mark.anyio

ECHO = Numbered(b"echo", b"SELECT $1::text, $2::bigint, $3::uuid", ("text", "number", "id"))
PID = Numbered(b"pid", b"SELECT pg_backend_pid()", ())
FAIL = Numbered(b"fail", b"SELECT 1 / $1::integer", ("by",))
WRONG = Numbered(b"wrong", b"SELECT nothing FROM nowhere WHERE $1", ("by",))
LOCK = Numbered(b"lock", b"SELECT pg_advisory_xact_lock($1::bigint)", ("key",))


@contextlib.asynccontextmanager
async def wired(database: TestDatabase, *, prepare: bool = True) -> AsyncGenerator[tuple[Pool, Wire]]:
    pool = Pool(database.url, "test wire", size=2, prepare=prepare)
    await pool.open()
    try:
        yield pool, pool.wire("one")
    finally:
        await pool.close()


async def echo(wire: Wire, number: int) -> int:
    text = f"{number} " + "ó" * (number % 7)
    row = (await wire.run(ECHO, {"text": text, "number": str(number), "id": None}))[0]
    assert row == (text, number, None)
    return number


@pytest.mark.parametrize("prepare", [True, False])
async def test_many_at_once_have_each_its_own_answer(database: TestDatabase, prepare: bool) -> None:
    async with wired(database, prepare=prepare) as (_pool, wire):
        assert await asyncio.gather(*(echo(wire, number) for number in range(300))) == list(range(300))


async def test_what_does_not_fit_the_socket_goes_on_when_there_is_room(database: TestDatabase) -> None:
    async with wired(database) as (_pool, wire):
        long = "x" * 3_000_000
        rows = await asyncio.gather(
            *(wire.run(ECHO, {"text": long, "number": "1", "id": None}) for _ in range(5)), echo(wire, 7)
        )
        assert [row[0][0] == long for row in rows[:5] if isinstance(row, list)] == [True] * 5


async def test_an_error_is_its_own_statements_and_nobody_elses(database: TestDatabase) -> None:
    async with wired(database) as (_pool, wire):
        before = await wire.run(PID, {})
        answers = await asyncio.gather(
            echo(wire, 1),
            wire.run(FAIL, {"by": "0"}),
            wire.run(WRONG, {"by": "true"}),
            wire.run(FAIL, {"by": "1"}),
            echo(wire, 2),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [
            int,
            psycopg.errors.DivisionByZero,
            psycopg.errors.UndefinedTable,
            list,
            int,
        ]
        # What was prepared when its first execution failed is prepared; what could not be prepared is tried anew.
        assert await wire.run(FAIL, {"by": "1"}) == [(1,)]
        with pytest.raises(psycopg.errors.UndefinedTable):
            await wire.run(WRONG, {"by": "true"})
        assert await wire.run(PID, {}) == before


async def test_a_nul_is_refused_and_not_cut_off(database: TestDatabase) -> None:
    async with wired(database) as (_pool, wire):
        with pytest.raises(psycopg.DataError, match="NUL"):
            await wire.run(ECHO, {"text": "a\x00b", "number": "1", "id": None})
        await echo(wire, 1)


async def holding(pool: Pool, database: TestDatabase, wire: Wire, key: int) -> "asyncio.Task[object]":
    """A statement of the wire that waits in the server for a lock somebody else holds."""
    task: asyncio.Task[object] = asyncio.create_task(wire.run(LOCK, {"key": str(key)}))
    async with pool.connection() as connection:
        while True:
            cursor = await connection.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
            if await cursor.fetchone() == (1,):
                return task
            await asyncio.sleep(0)


async def test_a_connection_that_is_cut_fails_what_was_under_way_and_is_made_again(database: TestDatabase) -> None:
    async with wired(database) as (pool, wire), pool.connection() as rival, rival.transaction():
        await rival.execute("SELECT pg_advisory_xact_lock(1)")
        pid = (await wire.run(PID, {}))[0][0]
        task = await holding(pool, database, wire, 1)
        later = asyncio.create_task(echo(wire, 5))
        await database.rows("SELECT pg_terminate_backend(%s)", pid)
        with pytest.raises(psycopg.OperationalError):
            await task
        with pytest.raises(psycopg.OperationalError):
            await later
        assert await echo(wire, 6) == 6
        assert (await wire.run(PID, {}))[0][0] != pid


async def test_a_connection_that_is_cut_while_it_rests_costs_nobody_anything(database: TestDatabase) -> None:
    async with wired(database) as (_pool, wire):
        pid = (await wire.run(PID, {}))[0][0]
        await database.rows("SELECT pg_terminate_backend(%s)", pid)
        await until(
            lambda: database.value("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", pid), lambda count: count == 0
        )
        assert await echo(wire, 1) == 1


async def test_a_plan_that_the_schema_has_overtaken_is_prepared_anew_on_another_connection(database: TestDatabase) -> None:
    star = Numbered(b"star", b"SELECT * FROM public.thing", ())
    async with wired(database) as (_pool, wire):
        await database.rows("CREATE TABLE public.thing (a integer)")
        await database.rows("GRANT SELECT ON public.thing TO PUBLIC")
        await database.rows("INSERT INTO public.thing VALUES (1)")
        assert await wire.run(star, {}) == [(1,)]
        pid = (await wire.run(PID, {}))[0][0]
        await database.rows("ALTER TABLE public.thing ADD COLUMN b integer")
        if not through_a_pooler():
            with pytest.raises(psycopg.errors.FeatureNotSupported):
                await wire.run(star, {})
            assert (await wire.run(PID, {}))[0][0] != pid
        assert await wire.run(star, {}) == [(1, None)]


async def test_who_gives_up_waiting_takes_nothing_from_the_others(database: TestDatabase) -> None:
    async with wired(database) as (pool, wire):
        async with pool.connection() as rival, rival.transaction():
            await rival.execute("SELECT pg_advisory_xact_lock(2)")
            task = await holding(pool, database, wire, 2)
            later = asyncio.create_task(echo(wire, 5))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await later == 5


async def test_a_server_that_does_not_answer_is_given_up(database: TestDatabase) -> None:
    async with wired(database) as (pool, _wire), pool.connection() as rival, rival.transaction():
        await rival.execute("SELECT pg_advisory_xact_lock(3)")
        wire = Wire(database.url, {}, answer_s=0.3, prepare=False)
        task = await holding(pool, database, wire, 3)
        with pytest.raises(psycopg.OperationalError, match="does not answer"):
            await task
        await wire.close()


async def test_a_closed_wire_says_so(database: TestDatabase) -> None:
    async with wired(database) as (_pool, wire):
        await echo(wire, 1)
        await wire.close()
        with pytest.raises(psycopg.OperationalError, match="closed"):
            await echo(wire, 2)
