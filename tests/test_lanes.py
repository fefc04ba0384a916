"""Lanes: shares between tenants and actions, limits, pauses, priorities, and the place in a lane that a worker remembers."""

import asyncio
import itertools
from collections import Counter
from uuid import UUID

import pytest
from pydantic import BaseModel

from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.intake.request import Request
from deedbox.model.identity import Principal
from deedbox.model.policy import allow
from deedbox.store import lanes
from deedbox.store.lanes import Rooms
from deedbox.store.queue import Claimed, Share
from deedbox.store.transaction import autocommit, transaction
from deedbox.worker.rota import MOST_LANES, TRIAL, Rota
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import Road, road, until

pytestmark = pytest.mark.anyio


class Item(BaseModel):
    number: int = 0


class Work:
    """An application whose handlers tell what began and wait to be let go."""

    def __init__(self) -> None:
        self.began: list[tuple[str, int]] = []
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.gate = asyncio.Event()
        self.app = App()

        @self.app.action(roles=["operator"], policy=allow(), key="new")
        async def do_slow(ctx: Context, given: Item) -> Item:
            self.began.append((ctx.tenant, given.number))
            self.running[ctx.tenant] += 1
            self.most[ctx.tenant] = max(self.most[ctx.tenant], self.running[ctx.tenant])
            await self.gate.wait()
            self.running[ctx.tenant] -= 1
            return given

        @self.app.action(roles=["operator"], policy=allow(), key="new", queue="side")
        async def do_side(_ctx: Context, given: Item) -> Item:
            self.began.append(("side", given.number))
            return given

        assert len(self.app.actions) == 2, (do_slow, do_side)


async def of_tenant(one: Road, tenant: str) -> Principal:
    principal_id = one.ids.new()
    await one.database.rows("INSERT INTO deedbox.tenant (tenant) VALUES (%s) ON CONFLICT DO NOTHING", tenant)
    await one.database.rows(
        "INSERT INTO deedbox.principal (principal_id, tenant, kind, name) VALUES (%s, %s, 'service', 'caller')",
        principal_id,
        tenant,
    )
    return Principal(str(principal_id), tenant, "caller", "service", frozenset({"operator"}), "api_key")


async def submit(one: Road, who: Principal, number: int, action: str = "do_slow") -> UUID:
    return (await one.intake.submit(Request(who, action, {"number": number}, None, "http"))).job_id


async def lane_of(one: Road, action: str = "do_slow", tenant: str = "default") -> int:
    async with autocommit(one.pool) as connection:
        return (await lanes.listed(connection, tenant, action))[0].lane_id


async def set_lane(one: Road, lane_id: int, *, paused: bool | None = None, limit: int | None = None) -> None:
    async with transaction(one.pool) as connection:
        assert await lanes.set_lane(connection, "default", lane_id, paused=paused, limit=limit)


@proves("G-FAIR-SHARE")
async def test_a_tenant_with_three_jobs_does_not_wait_behind_one_with_hundreds(database: TestDatabase) -> None:
    work = Work()
    async with road(database, work.app) as one:
        small = await of_tenant(one, "small")
        await asyncio.gather(*(submit(one, one.caller, number) for number in range(300)))
        for number in range(3):
            await submit(one, small, number)
        work.gate.set()
        one.start(one.worker(slots=8))
        await until(lambda: _value(len(work.began)), lambda count: count == 303, within=60)
        last = max(at for at, (tenant, _) in enumerate(work.began) if tenant == "small")
        assert last < 60, f"the last job of the small tenant was the {last}th to begin"


async def _value(value: int) -> int:
    return value


@proves("G-LANE-LIMIT")
async def test_a_limit_holds_over_two_workers_and_nothing_is_left(database: TestDatabase) -> None:
    work = Work()
    async with road(database, work.app) as one:
        await asyncio.gather(*(submit(one, one.caller, number) for number in range(12)))
        lane_id = await lane_of(one)
        await set_lane(one, lane_id, limit=3)
        one.start(one.worker("w1", slots=8))
        one.start(one.worker("w2", slots=8))
        await until(lambda: _value(len(work.began)), lambda count: count == 3)
        # Both workers have looked again and found no room: their claims are in the statistics of neither job nor lane.
        for _ in range(3):
            async with transaction(one.pool) as connection:
                assert (await lanes.room(connection, [lane_id])).of(lane_id) == 0
            await asyncio.sleep(0)
        work.gate.set()
        await until(lambda: _value(len(work.began)), lambda count: count == 12, within=30)
        assert work.most["default"] == 3


async def test_a_lease_that_ran_out_takes_no_room(database: TestDatabase) -> None:
    work = Work()
    async with road(database, work.app) as one:
        await submit(one, one.caller, 1)
        lane_id = await lane_of(one)
        await set_lane(one, lane_id, limit=1)
        one.start(one.worker(slots=1))
        await until(lambda: _value(len(work.began)), lambda count: count == 1)
        async with transaction(one.pool) as connection:
            assert (await lanes.room(connection, [lane_id])).of(lane_id) == 0
        await database.rows("UPDATE deedbox.queue SET lease_until = deedbox.clock() - interval '1 s'")
        async with transaction(one.pool) as connection:
            assert (await lanes.room(connection, [lane_id])).of(lane_id) == 1
        work.gate.set()


@proves("G-LANE-PAUSE")
async def test_a_paused_lane_starts_nothing_until_it_goes_on(database: TestDatabase) -> None:
    work = Work()
    async with road(database, work.app) as one:
        work.gate.set()
        first = await submit(one, one.caller, 1)
        lane_id = await lane_of(one)
        await set_lane(one, lane_id, paused=True)
        side = await submit(one, one.caller, 2, "do_side")
        one.start(one.worker())
        await one.until(side, "completed")
        assert await one.state(first) == "queued"
        await set_lane(one, lane_id, paused=False)
        await one.until(first, "completed")


async def test_what_is_urgent_begins_first(database: TestDatabase) -> None:
    work = Work()
    async with road(database, work.app) as one:
        work.gate.set()
        for number, priority in enumerate([100, 100, 7, 100, 3]):
            await one.intake.submit(Request(one.caller, "do_slow", {"number": number}, None, "http", priority=priority))
        one.start(one.worker(slots=1))
        await until(lambda: _value(len(work.began)), lambda count: count == 5)
        assert [number for _, number in work.began] == [4, 2, 0, 1, 3]


async def test_a_worker_of_one_queue_leaves_the_others_alone(database: TestDatabase) -> None:
    work = Work()
    async with road(database, work.app) as one:
        work.gate.set()
        other = await submit(one, one.caller, 1)
        side = await submit(one, one.caller, 2, "do_side")
        one.start(one.worker(queues=("side",)))
        await one.until(side, "completed")
        assert await one.state(other) == "queued"


def claimed(lane_id: int, number: int, priority: int = 100) -> Claimed:
    one = UUID(int=number)
    return Claimed(one, lane_id, priority, 1, 5, 1, one, 1, False, "t", "a_b", 1, None)


def serving(count: int, *, limited: bool = False) -> Rota:
    rota = Rota()
    rota.refresh([(lane_id, [1], 60.0, limited) for lane_id in range(1, count + 1)])
    return rota


def test_a_full_lane_goes_on_where_it_ended_and_the_next_look_begins_again() -> None:
    rota = serving(2)
    shares = rota.plan(8)
    assert [(share.lane_id, share.room) for share in shares] == [(1, 4), (2, 4)]
    assert rota.learn(shares, [claimed(1, number) for number in (3, 1, 2, 4)], 8)
    [trial, hot] = rota.plan(8)
    assert (trial.lane_id, trial.room) == (2, TRIAL)
    assert (hot.lane_id, hot.room, hot.from_priority, hot.from_job_id) == (1, 8, 100, UUID(int=4))
    rota.refresh([(1, [1], 60.0, False), (2, [1], 60.0, False)])
    assert all(share.from_job_id == UUID(int=0) for share in rota.plan(8))


def test_two_lanes_that_always_have_more_take_turns_with_a_single_slot() -> None:
    rota = serving(2)
    served: list[int] = []
    for number in range(20):
        shares: list[Share] = rota.plan(1)
        took = [claimed(shares[0].lane_id, number)]
        assert rota.learn(shares, took, 1)
        served.append(took[0].lane_id)
    assert Counter(served) == {1: 10, 2: 10}
    assert all(one != two for one, two in itertools.pairwise(served))


def test_with_many_lanes_each_has_its_turn() -> None:
    rota = serving(MOST_LANES * 3)
    seen: set[int] = set()
    for _ in range(3):
        shares = rota.plan(16)
        assert len(shares) <= MOST_LANES
        seen |= {share.lane_id for share in shares}
        assert not rota.learn(shares, [], 16)
    assert len(seen) == MOST_LANES * 3


def test_a_lane_at_its_limit_or_unknown_is_left_out() -> None:
    rota = serving(3, limited=True)
    shares = rota.plan(10, limits=Rooms({1: 0, 2: 2}))
    assert [(share.lane_id, share.room) for share in shares] == [(2, 2)]
