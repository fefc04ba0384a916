"""What holds a target back: rate, burst, order, pause, and the breaker that all dispatchers share."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from deedbox.dispatch.watch import said_of_target
from deedbox.extend.connector import Ambiguous, EffectOrder, Outcome, Receipt, Refused, Transient
from deedbox.model.backoff import Retry
from deedbox.store import targets
from deedbox.store.outbox import next_due
from deedbox.store.targets import EVERY, Breaker, Place, TargetLine
from deedbox.store.transaction import autocommit, transaction
from tests.builders import Outbox, Planned, ScriptedConnector, outbox_on
from tests.database import TestDatabase
from tests.guarantees import proves

pytestmark = pytest.mark.anyio

LOST = Ambiguous("timed_out", "No answer came in time.", "body_sent")
UNSENT = Transient("not_sent", "refused", "Nobody listens there.", "connect")
BUSY = Transient("rate_limited", "http_429", "The target is busy.", "answered", 7.0)
NO = Refused("caller_error", "http_422", "The target does not take this.", "answered")
DESK, ALL = Place("default", "note", "desk"), Place("default", "note", EVERY)
QUICK = Breaker(failures=2, window_s=60, open_s=30, longest_s=100)


@pytest.fixture
async def box(database: TestDatabase) -> AsyncIterator[Outbox]:
    async with outbox_on(database) as made:
        yield made


async def limit(box: Outbox, place: Place = DESK, **limits: Any) -> None:
    """Set a target's limits as a person does."""
    given: dict[str, Any] = {"rate_per_s": None, "burst": None, "order_by": None, "by": "Ada"} | limits
    async with transaction(box.pool) as connection:
        assert await targets.limit(connection, place, **given)


async def line(box: Outbox, target: str = "desk") -> TargetLine:
    """A target as it stands."""
    async with autocommit(box.pool) as connection:
        (only,) = await targets.listed(connection, "default", connector="note", target=target)
    return only


async def many(box: Outbox, count: int, **planned: Any) -> list[Any]:
    """So many jobs of one effect each, in order."""
    return [(await box.build(Planned(**planned))).effect_id for _ in range(count)]


# Rate ----------------------------------------------------------------------------------------------------------------------


@proves("G-TARGET-RATE")
@pytest.mark.parametrize("place", [DESK, ALL])
async def test_all_dispatchers_together_take_no_more_than_the_burst_and_the_rate(box: Outbox, place: Place):
    await limit(box, place, rate_per_s=0.1, burst=3)
    await many(box, 20)
    sizes = [len(found) for found in await asyncio.gather(*(box.lease(2) for _ in range(6)))]
    assert sum(sizes) <= 3
    while found := await box.lease():
        sizes.append(len(found))
    assert sum(sizes) == 3
    await box.database.shift_clock(25)
    sizes = [len(found) for found in await asyncio.gather(*(box.lease(10) for _ in range(6)))]
    assert sum(sizes) + len(await box.lease()) == 2  # 25 s at one in ten
    await box.database.shift_clock(3600)
    assert len(await box.lease(20)) == 3  # an hour without sendings is no more than a burst


@proves("G-TARGET-RATE")
async def test_two_leases_at_one_moment_do_not_share_a_token(box: Outbox):
    await limit(box, rate_per_s=0.01, burst=1)
    await many(box, 3)
    async with transaction(box.pool) as first:
        assert len(await box.lease_in(first)) == 1
        assert await box.lease() == []
    assert await box.lease() == []


@proves("G-TARGET-RATE")
async def test_a_lease_takes_a_gated_target_for_itself_until_it_has_spent(box: Outbox):
    """Both would see three tokens, take different effects, and write down two different rests."""
    await limit(box, rate_per_s=0.001, burst=3)
    await many(box, 6)
    async with transaction(box.pool) as first:
        assert len(await box.lease_in(first, 1)) == 1
        async with asyncio.timeout(20):
            assert await box.lease(10) == []
    assert [len(await box.lease(10)) for _ in range(2)] == [2, 0]


async def test_one_targets_backlog_does_not_hide_the_others(box: Outbox):
    await limit(box, rate_per_s=0.01, burst=1)
    await many(box, 60)
    free = await many(box, 2, target="other")
    assert len(await box.lease(1)) == 1
    assert [one.effect_id for one in await box.lease(2)] == free


async def test_a_dispatcher_wakes_for_the_next_token(box: Outbox):
    await limit(box, rate_per_s=5.0, burst=1)
    built = await many(box, 4)
    stop = asyncio.Event()
    running = asyncio.create_task(box.dispatcher().run(stop))
    async with asyncio.timeout(20):
        while len(box.connector.sent) < len(built):  # noqa: ASYNC110 -- each round is a turn of the loop under test
            await asyncio.sleep(0)
    stop.set()
    await running
    async with autocommit(box.pool) as connection:
        assert await next_due(connection) is None


async def test_what_settings_say_does_not_undo_what_a_person_said(box: Outbox):
    async with transaction(box.pool) as connection:
        for rate, by, changes in ((1.0, "settings", True), (9.0, "Ada", True), (1.0, "settings", False)):
            assert await targets.limit(connection, DESK, rate_per_s=rate, burst=1, order_by=None, by=by) is changes
    assert (await line(box)).rate_per_s == 9.0


# Slowed and paused -----------------------------------------------------------------------------------------------------------


async def test_a_target_that_asked_for_a_wait_is_slowed_although_nothing_was_known_of_it(box: Outbox):
    box.connector.script.append(BUSY)
    await many(box, 1)
    await box.dispatcher(retry=Retry(attempts=5, base=0.001, cap=60)).once()
    later = (await many(box, 1))[0]
    assert await box.lease() == []
    assert (await line(box)).slowed_until is not None
    await box.database.shift_clock(6)
    assert await box.lease() == []
    await box.database.shift_clock(8)
    assert later in {one.effect_id for one in await box.lease()}


async def test_the_wait_that_a_target_asks_for_is_capped(box: Outbox):
    box.connector.script.append(Transient("rate_limited", "http_429", "Busy.", "answered", 1e9))
    await many(box, 1)
    await box.dispatcher(retry=Retry(attempts=5, base=1, cap=60)).once()
    await box.database.shift_clock(61)
    assert len(await box.lease()) == 1


@pytest.mark.parametrize("place", [DESK, ALL])
async def test_what_is_paused_waits_until_it_is_resumed(box: Outbox, place: Place):
    built = await many(box, 1)
    async with transaction(box.pool) as connection:
        await targets.pause(connection, place, by="Ada", reason="they move house")
    assert await box.lease() == []
    async with transaction(box.pool) as connection:
        assert await targets.resume(connection, place)
    assert [one.effect_id for one in await box.lease()] == built


# Order -----------------------------------------------------------------------------------------------------------------------


@proves("G-TARGET-ORDER")
@pytest.mark.parametrize(("place", "order_by"), [(DESK, "target"), (ALL, "target"), (DESK, "/to")])
async def test_an_ordered_target_gets_one_at_a_time_in_the_order_of_the_outbox(box: Outbox, place: Place, order_by: str):
    await limit(box, place, order_by=order_by)
    first, second, third = await many(box, 3, payload={"to": "ada"})
    box.connector.script.append(UNSENT)  # the first is tried again later, and nothing passes it
    dispatchers = [box.dispatcher(retry=Retry(attempts=5, base=100, cap=100)) for _ in range(3)]
    assert sum(await asyncio.gather(*(one.once() for one in dispatchers))) == 1
    assert await box.state(first) == "pending"
    await box.database.shift_clock(101)
    order: list[str] = []
    for _ in range(3):
        assert sum(await asyncio.gather(*(one.once() for one in dispatchers))) == 1
        order.append(box.connector.sent[-1].effect_id)
    assert order == [str(first), str(second), str(third)]


@proves("G-TARGET-ORDER")
async def test_an_order_by_a_field_is_of_each_value_for_itself(box: Outbox):
    await limit(box, order_by="/to")
    ada = await many(box, 2, payload={"to": "ada"})
    bo = await many(box, 2, payload={"to": "bo"})
    nobody = await many(box, 2, payload={})
    assert {one.effect_id for one in await box.lease()} == {ada[0], bo[0], nobody[0]}
    assert await box.lease() == []


@proves("G-TARGET-ORDER")
async def test_an_unknown_effect_at_the_head_blocks_until_a_person_settles_it(box: Outbox):
    await limit(box, order_by="target")
    box.connector.script.append(LOST)
    first, second = await many(box, 2)
    await box.dispatcher().once()
    assert await box.state(first) == "unknown"
    await box.database.shift_clock(3700)
    assert await box.lease() == []
    await box.database.rows("UPDATE deedbox.effect SET state = 'failed', code = 'abandoned' WHERE effect_id = %s", first)
    assert [one.effect_id for one in await box.lease()] == [second]


@proves("G-TARGET-ORDER")
async def test_two_leases_at_one_moment_do_not_take_two_of_an_ordered_target(box: Outbox):
    """The second one's snapshot is older than the first one's commit, so only the target's row tells."""
    await limit(box, order_by="target")
    first, _ = await many(box, 2)
    async with transaction(box.pool) as holder:
        await holder.execute("SELECT FROM deedbox.switch WHERE switch_id = 'acts' FOR UPDATE")
        leases = [asyncio.create_task(box.lease()) for _ in range(4)]
        await box.until_blocked(4)
    found = [one.effect_id for leased in await asyncio.gather(*leases) for one in leased]
    assert found == [first]


async def test_what_came_to_its_place_while_its_row_was_held_is_not_passed(box: Outbox):
    await limit(box, order_by="/to")
    first, _ = await many(box, 2, payload={"to": "ada"})
    async with transaction(box.pool) as holder:
        await holder.execute("SELECT FROM deedbox.effect WHERE effect_id = %s FOR UPDATE", [first])
        assert await box.lease() == []
    assert [one.effect_id for one in await box.lease()] == [first]


# The breaker -----------------------------------------------------------------------------------------------------------------


async def fail(box: Outbox, count: int, outcome: Outcome = UNSENT, **options: Any) -> None:
    """So many sendings that end like this."""
    box.connector.script.extend([outcome] * count)
    await many(box, count)
    dispatcher = box.dispatcher(slots=1, breaker=QUICK, retry=Retry(attempts=9, base=1e7, cap=1e7), **options)
    for _ in range(count):
        assert await dispatcher.once() == 1


@proves("G-BREAKER")
@pytest.mark.parametrize("outcome", [UNSENT, LOST, Transient("overloaded", "http_503", "Not now.", "answered")])
async def test_failures_in_a_row_open_it_for_every_dispatcher_and_a_person_is_told(box: Outbox, outcome: Transient | Ambiguous):
    await fail(box, 2, outcome)
    waiting = (await many(box, 1))[0]
    assert await box.lease() == []
    stands = await line(box)
    assert (stands.breaker, stands.breaker_why) == ("open", f"{outcome.code}: {outcome.message}")
    told = await box.database.rows("SELECT message FROM deedbox.alert WHERE cause = 'breaker_open'")
    assert len(told) == 1
    assert "note:desk failed 2 times in a row and is left alone for 30 s" in str(told[0][0])
    other = await many(box, 1, target="other")
    assert [one.effect_id for one in await box.lease()] == other
    assert await box.state(waiting) == "pending"


@proves("G-BREAKER")
async def test_half_open_lets_one_through_at_a_time_and_closes_with_its_answer(box: Outbox):
    await fail(box, 2)
    await many(box, 5)
    await box.database.shift_clock(31)
    async with transaction(box.pool) as first:
        assert len(await box.lease_in(first, 5)) == 1
        # Another dispatcher meets the same open breaker while the first has not committed.
        assert await box.lease() == []
    assert await box.lease() == []
    assert (await line(box)).breaker == "half_open"
    # The sender is lost: after its lease another one is let through.
    await box.database.shift_clock(31 + 61)
    await box.rescue()
    assert await box.dispatcher(slots=5, breaker=QUICK).once() == 1
    assert (await line(box)).breaker == "closed"
    assert len(await box.lease()) == 3


@proves("G-BREAKER")
async def test_half_open_leases_that_waited_together_let_one_through(box: Outbox):
    await fail(box, 2)
    await many(box, 5)
    await box.database.shift_clock(31)
    async with transaction(box.pool) as holder:
        await holder.execute("SELECT FROM deedbox.switch WHERE switch_id = 'acts' FOR UPDATE")
        leases = [asyncio.create_task(box.lease()) for _ in range(4)]
        await box.until_blocked(4)
    assert sum(len(leased) for leased in await asyncio.gather(*leases)) == 1


@proves("G-BREAKER")
async def test_each_failed_probe_keeps_it_open_for_twice_as_long_up_to_a_bound(box: Outbox):
    await fail(box, 2)
    await many(box, 6)
    now = 0.0
    for open_s in (30, 60, 100, 100):
        await box.database.shift_clock(now + open_s - 2)
        assert await box.lease() == []
        now += open_s + 1
        await box.database.shift_clock(now)
        box.connector.script.append(UNSENT)
        assert await box.dispatcher(breaker=QUICK, retry=Retry(attempts=9, base=1e7, cap=1e7)).once() == 1
        assert (await line(box)).breaker == "open"
    assert await box.database.value("SELECT count(*) FROM deedbox.alert WHERE cause = 'breaker_open'") == 1


async def test_a_failure_that_stands_alone_and_a_refusal_do_not_open_it(box: Outbox):
    for outcome in (UNSENT, NO, UNSENT, Receipt("r"), UNSENT, BUSY):
        await fail(box, 1, outcome)
        await box.database.rows("UPDATE deedbox.target SET open_until = NULL")
        assert (await line(box)).breaker == "closed"
    await fail(box, 1)
    await box.database.shift_clock(61)
    await fail(box, 1)
    assert ((await line(box)).breaker, (await line(box)).failures) == ("closed", 1)


async def test_what_was_on_its_way_when_it_opened_does_not_move_it(box: Outbox):
    answered, failed = asyncio.Event(), asyncio.Event()

    async def late(_order: EffectOrder) -> Outcome:
        await answered.wait()
        return Receipt("late")

    box.connector.script.append(late)
    await many(box, 1)
    sending = asyncio.create_task(box.dispatcher(breaker=QUICK).once())
    async with asyncio.timeout(20):
        while not box.connector.sent:  # noqa: ASYNC110 -- each round is a turn of the loop under test
            await asyncio.sleep(0)
    await fail(box, 2)
    until = (await line(box)).breaker_until
    answered.set()
    await sending
    assert ((await line(box)).breaker, (await line(box)).breaker_until) == ("open", until)
    assert not failed.is_set()


async def test_a_probe_that_was_not_sent_lets_another_through_at_once(box: Outbox):
    await fail(box, 2)
    await many(box, 3)
    await box.database.shift_clock(31)
    refused = Refused("denied", "egress_refused", "It is not to be dialled.", "connect")
    box.connector.script.append(refused)
    assert await box.dispatcher(breaker=QUICK).once() == 1
    assert (await line(box)).breaker == "half_open"
    assert await box.dispatcher(breaker=QUICK).once() == 1
    assert (await line(box)).breaker == "closed"


async def test_targets_that_share_a_server_share_its_breaker(box: Outbox):
    class Mail(ScriptedConnector):
        def kept_under(self, target: str) -> str:  # noqa: ARG002 -- all go through one server
            return EVERY

    box.connector = Mail()
    box.connector.script.extend([UNSENT, UNSENT])
    for name in ("ada", "bo", "cy"):
        await many(box, 1, target=name)
    dispatcher = box.dispatcher(slots=1, breaker=QUICK, retry=Retry(attempts=9, base=1e7, cap=1e7))
    assert [await dispatcher.once() for _ in range(3)] == [1, 1, 0]
    await box.database.shift_clock(31)
    assert await dispatcher.once() == 1
    assert (await line(box, EVERY)).breaker == "closed"


async def test_a_person_closes_it_and_zero_failures_never_open_it(box: Outbox):
    await fail(box, 2)
    async with transaction(box.pool) as connection:
        assert await targets.resume(connection, DESK)
    await many(box, 1)
    assert len(await box.lease()) == 1
    box.connector.script.extend([UNSENT] * 5)
    await many(box, 5)
    await box.dispatcher(breaker=Breaker(failures=0), retry=Retry(attempts=9, base=1e7, cap=1e7)).once()
    assert (await line(box)).breaker == "closed"


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Receipt("r"), "answered"),
        (NO, "answered"),
        (BUSY, "answered"),
        (Refused("caller_error", "bad", "Bad.", "plan"), "nothing"),
        (UNSENT, "failed"),
        (LOST, "failed"),
    ],
)
def test_what_an_end_says_of_its_target(outcome: Outcome, said: str):
    assert said_of_target(outcome) == said
