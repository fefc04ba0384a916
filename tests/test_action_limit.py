"""Limits over several lanes: an action's over all queues and tenants, under every order of two workers."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import psycopg
import pytest
from psycopg import AsyncConnection

from deedbox.store import lanes, queue
from deedbox.store.lanes import Rooms
from deedbox.store.pool import Connection, connect
from deedbox.store.transaction import autocommit, transaction
from deedbox.worker.rota import TRIAL
from tests.database import TestDatabase, through_a_pooler
from tests.growth import until_blocked
from tests.guarantees import proves
from tests.road import Road, road, until
from tests.test_lanes import Work, claimed, lane_of, of_tenant, serving, set_lane, submit

pytestmark = pytest.mark.anyio

STALL = 77
"""An advisory lock: who holds it keeps the session called `stalled` between its snapshot and its locks."""


async def limit_action(one: Road, limit: int, action: str = "do_slow") -> None:
    async with transaction(one.pool) as connection:
        assert await lanes.limit_action(connection, action, limit)


async def three_tenants(one: Road, each: int) -> list[int]:
    """Jobs of three tenants; returns their lanes."""
    for tenant in ("default", "second", "third"):
        who = one.caller if tenant == "default" else await of_tenant(one, tenant)
        for number in range(each):
            await submit(one, who, number)
    return [await lane_of(one, tenant=tenant) for tenant in ("default", "second", "third")]


@proves("G-ACTION-LIMIT")
async def test_a_limit_of_an_action_holds_over_tenants_and_workers_and_nothing_is_left(database: TestDatabase) -> None:
    work = Work()
    async with road(database, work.app) as one:
        lane_ids = await three_tenants(one, 4)
        await limit_action(one, 3)
        one.start(one.worker("w1", slots=8))
        one.start(one.worker("w2", slots=8))
        await until(lambda: _count(len(work.began)), lambda count: count == 3)
        for _ in range(3):
            async with transaction(one.pool) as connection:
                assert [(await lanes.room(connection, lane_ids)).of(lane_id) for lane_id in lane_ids] == [0, 0, 0]
            await asyncio.sleep(0)
        most = 0
        work.gate.set()

        async def running() -> int:
            nonlocal most
            most = max(most, int(str(await database.value("SELECT count(*) FROM deedbox.queue WHERE state = 'running'"))))
            return len(work.began)

        await until(running, lambda count: count == 12, within=30)
        assert most <= 3
        assert {tenant for tenant, _ in work.began} == {"default", "second", "third"}


async def _count(value: int) -> int:
    return value


async def test_it_is_lifted_and_a_lanes_own_limit_holds_beside_it(database: TestDatabase) -> None:
    work = Work()
    async with road(database, work.app) as one:
        first, second, third = await three_tenants(one, 4)
        await set_lane(one, first, limit=1)
        await limit_action(one, 3)
        async with transaction(one.pool) as connection:
            rooms = await lanes.room(connection, [first, second, third])
            assert [rooms.of(lane_id) for lane_id in (first, second, third)] == [1, 3, 3]
            assert [rooms.take(lane_id, 2) for lane_id in (first, second, third)] == [1, 2, 0]
        await limit_action(one, -1)
        async with transaction(one.pool) as connection:
            rooms = await lanes.room(connection, [first, second, third])
            assert [rooms.of(lane_id) for lane_id in (first, second, third)] == [1, 0, 0]
        async with autocommit(one.pool) as connection:
            served = await lanes.served(connection, ["default"], ["do_slow"])
            assert sorted(served) == sorted([(first, "do_slow", 1), (second, "do_slow", None), (third, "do_slow", None)])
        work.gate.set()
        one.start(one.worker())
        await until(lambda: _count(len(work.began)), lambda count: count == 12)


async def test_a_tenant_with_nothing_due_takes_no_room_from_the_others(database: TestDatabase) -> None:
    """With one place for all, whichever lane is tried first must have something."""
    work = Work()
    async with road(database, work.app) as one:
        lane_ids = await three_tenants(one, 1)
        await database.rows(
            "UPDATE deedbox.queue SET due = false, run_at = deedbox.clock() + interval '1 day' WHERE lane_id <> %s", lane_ids[2]
        )
        await limit_action(one, 1)
        async with transaction(one.pool) as connection:
            rooms = await lanes.room(connection, lane_ids)
            assert [rooms.of(lane_id) for lane_id in lane_ids] == [0, 0, 1]
            assert not rooms.full


@proves("G-ACTION-LIMIT")
async def test_a_lease_that_ran_out_counts_no_more(database: TestDatabase) -> None:
    work = Work()
    async with road(database, work.app) as one:
        lane_ids = await three_tenants(one, 2)
        await limit_action(one, 1)
        one.start(one.worker(slots=1))
        await until(lambda: _count(len(work.began)), lambda count: count == 1)
        async with transaction(one.pool) as connection:
            assert (await lanes.room(connection, lane_ids)).full
        await database.rows("UPDATE deedbox.queue SET lease_until = deedbox.clock() - interval '1 s' WHERE state = 'running'")
        async with transaction(one.pool) as connection:
            assert not (await lanes.room(connection, lane_ids)).full
        work.gate.set()


async def claim_all(one: Road, connection: Connection, rooms: Rooms, lane_ids: list[int]) -> int:
    """Claim what there is room for, as a worker does; returns how many."""
    shares = [queue.Share(lane_id, 1, 60.0, taken) for lane_id in lane_ids if (taken := rooms.take(lane_id, 8))]
    if not shares:
        return 0
    ids = one.ids.many(16)
    return len(await queue.claim(connection, shares, worker="w", lease_s=30, attempt_ids=ids[:8], event_ids=ids[8:]))


@proves("G-ACTION-LIMIT")
async def test_who_comes_while_another_counts_gets_nothing_and_then_what_is_left(database: TestDatabase) -> None:
    work = Work()
    async with road(database, work.app) as one:
        lane_ids = await three_tenants(one, 4)
        await limit_action(one, 2)
        async with transaction(one.pool) as first:
            rooms = await lanes.room(first, lane_ids)
            async with transaction(one.pool) as second:
                late = await lanes.room(second, lane_ids)
                assert (late.full, await claim_all(one, second, late, lane_ids)) == (True, 0)
            assert await claim_all(one, first, rooms, lane_ids[:1]) == 2
        async with transaction(one.pool) as second:
            assert await claim_all(one, second, await lanes.room(second, lane_ids), lane_ids) == 0


@asynccontextmanager
async def stalled(database: TestDatabase, table: str) -> AsyncGenerator[tuple[Connection, AsyncConnection[tuple[object, ...]]]]:
    """A session of the application that stops in the middle of reading a table until the owner's second one lets it go on."""
    await database.rows(
        f"CREATE FUNCTION public.stall() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN"
        f" IF current_setting('application_name') = 'deedbox stalled' THEN PERFORM pg_advisory_xact_lock_shared({STALL});"
        f" END IF;"
        f" RETURN true; END $$"
    )
    await database.rows(f"ALTER TABLE deedbox.{table} ENABLE ROW LEVEL SECURITY")
    await database.rows(f"CREATE POLICY stall ON deedbox.{table} USING (public.stall())")
    connection = await connect(database.direct_url, "stalled")
    async with await psycopg.AsyncConnection.connect(database.owner_url, autocommit=True) as keeper:
        try:
            yield connection, keeper
        finally:
            await connection.close()


@proves("G-ACTION-LIMIT", "G-LANE-LIMIT")
@pytest.mark.parametrize("table", ["lane", "action_limit"])
async def test_what_was_claimed_between_a_workers_snapshot_and_its_lock_counts(database: TestDatabase, table: str) -> None:
    """The order that a count in the locking statement gets wrong: snapshot, the other's claim and commit, lock, count."""
    if through_a_pooler():
        pytest.skip("the session is known by its name, which the pooler's servers do not have")
    work = Work()
    async with road(database, work.app) as one:
        lane_ids = await three_tenants(one, 4)
        if table == "lane":
            lane_ids = lane_ids[:1]
            await set_lane(one, lane_ids[0], limit=2)
        else:
            await limit_action(one, 2)
        async with stalled(database, table) as (late, keeper), late.transaction():
            await keeper.execute("SELECT pg_advisory_lock(%s)", [STALL])
            counting = asyncio.create_task(lanes.room(late, lane_ids))
            await until_blocked(database)
            async with transaction(one.pool) as first:
                assert await claim_all(one, first, await lanes.room(first, lane_ids), lane_ids) == 2
            await keeper.execute("SELECT pg_advisory_unlock(%s)", [STALL])
            assert await claim_all(one, late, await counting, lane_ids) == 0
        assert await database.value("SELECT count(*) FROM deedbox.queue WHERE state = 'running'") == 2


async def test_without_any_limit_nothing_is_asked_that_was_not_asked_before(database: TestDatabase) -> None:
    work = Work()
    work.gate.set()
    async with road(database, work.app) as one:
        await three_tenants(one, 1)
        await limit_action(one, 5, "do_slow")
        await limit_action(one, -1, "do_slow")
        worker = one.worker()
        async with autocommit(one.pool) as connection:
            await worker._look_for_lanes(connection)  # pyright: ignore[reportPrivateUsage]
        assert worker._rota.lane_ids  # pyright: ignore[reportPrivateUsage]
        assert worker._rota.limited == []  # pyright: ignore[reportPrivateUsage]


def test_lanes_that_share_a_limit_share_what_a_claim_takes() -> None:
    rota = serving(3, limited=True)
    rooms = Rooms({1: None, 2: None, 3: 1}, groups={1: "a", 2: "a"}, shared={"a": 5})
    shares = rota.plan(12, limits=rooms)
    assert [(share.lane_id, share.room) for share in shares] == [(1, TRIAL), (2, 1), (3, 1)]


def test_who_was_served_comes_last_the_next_time() -> None:
    rota = serving(2, limited=True)
    served: list[int] = []
    for number in range(6):
        shares = rota.plan(8, limits=Rooms({1: None, 2: None}, groups={1: "a", 2: "a"}, shared={"a": 1}))
        rota.learn(shares, [claimed(shares[0].lane_id, number)], 8)
        served.append(shares[0].lane_id)
    assert served in ([1, 2] * 3, [2, 1] * 3)


def test_rooms_know_only_what_was_counted() -> None:
    assert (Rooms({}).full, Rooms({}).of(1), Rooms({1: 3}).full) == (True, 0, False)
    assert Rooms({1: None}, groups={1: "a"}, shared={"a": 0}).full
