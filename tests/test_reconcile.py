"""The schedule of look-ups: one at a time, less and less often, until it is known or left to people. Nothing is sent again."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deedbox.dispatch.schedule import Schedule
from deedbox.extend.connector import Ambiguous, EffectOrder, LookUp
from deedbox.store import reconcile
from deedbox.store.reconcile import LookUps
from deedbox.store.transaction import autocommit, transaction
from tests.builders import Built, Outbox, Planned, ScriptedConnector, outbox_on, principal
from tests.database import TestDatabase, fresh_database
from tests.guarantees import proves

pytestmark = pytest.mark.anyio

LOST = Ambiguous("timed_out", "No answer came in time.", "body_sent")
PLAN = LookUps(first_s=30, longest_s=100, tries=4)
SILENT = LookUp("still_unknown")


@pytest.fixture
async def box(database: TestDatabase) -> AsyncIterator[Outbox]:
    async with outbox_on(database) as made:
        yield made


def schedule(box: Outbox, **options: Any) -> Schedule:
    """The schedule over the scripted connector."""
    return Schedule(box.pool, box.ids, {box.connector.name: box.connector}, PLAN, **options)


async def unknown(box: Outbox, end: Ambiguous = LOST, **planned: Any) -> Built:
    """An effect that nobody knows about."""
    box.connector.script.append(end)
    built = await box.build(Planned(**planned))
    await box.dispatcher().once()
    assert await box.state(built.effect_id) == "unknown"
    await box.database.rows("UPDATE deedbox.target SET failures = 0")
    return built


@proves("G-LOOKUP-SCHEDULE")
async def test_it_asks_after_waits_that_double_and_leaves_it_to_people_after_the_last(box: Outbox):
    built = await unknown(box)
    one, now = schedule(box), 0.0
    for number, wait_s in enumerate((30, 60, 100, 100), 1):
        await box.database.shift_clock(now + wait_s - 2)
        assert await one.once() == 0
        now += wait_s + 1
        await box.database.shift_clock(now)
        assert await one.once() == 1
        assert len(box.connector.asked) == number
    await box.database.shift_clock(now + 10 * 86400)
    assert await one.once() == 0
    assert await box.state(built.effect_id) == "unknown"
    told = await box.database.rows("SELECT message FROM deedbox.alert WHERE cause = 'unknown_unresolved'")
    assert [str(row[0]).split(",")[0] for row in told] == ["note:desk was asked 4 times whether first was accepted"]
    assert len(box.connector.sent) == 1


@proves("G-LOOKUP-SCHEDULE")
@pytest.mark.parametrize(("answer", "state"), [(LookUp("accepted", "p-1"), "completed"), (LookUp("not_accepted"), "pending")])
async def test_a_conclusive_answer_ends_it(box: Outbox, answer: LookUp, state: str):
    box.connector.can = "searchable"
    built = await unknown(box)
    await box.database.shift_clock(31)
    box.connector.answers.append(answer)
    assert await schedule(box).once() == 1
    assert await box.state(built.effect_id) == state
    assert await schedule(box).once() == 0
    actors = await box.database.rows("SELECT actor, door FROM deedbox.audit WHERE verb = 'look_up'")
    assert actors == [("system:reconciler", "dispatch")]


@proves("G-LOOKUP-SCHEDULE")
async def test_many_dispatchers_ask_about_each_once(box: Outbox):
    for _ in range(12):
        await unknown(box)
    await box.database.shift_clock(31)
    asked = await asyncio.gather(*(schedule(box, at_once=5).once() for _ in range(5)))
    assert sum(asked) == 12
    ids = [order.effect_id for order in box.connector.asked]
    assert len(ids) == len(set(ids)) == 12


async def test_one_that_dies_while_it_asks_delays_the_next_look_up_and_no_more(box: Outbox):
    built = await unknown(box)
    await box.database.shift_clock(31)
    started = asyncio.Event()

    async def hang(_order: EffectOrder) -> LookUp:
        started.set()
        await asyncio.Event().wait()
        return SILENT

    box.connector.look_up = hang  # type: ignore[method-assign]
    task = asyncio.create_task(schedule(box).once())
    await started.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    del box.connector.look_up
    assert await schedule(box).once() == 0
    await box.database.shift_clock(31 + 61)
    box.connector.answers.append(LookUp("accepted", "p-1"))
    assert await schedule(box).once() == 1
    assert await box.state(built.effect_id) == "completed"


async def test_an_answer_that_came_too_soon_is_asked_for_again_when_it_can_tell(box: Outbox):
    class Late(ScriptedConnector):
        def visibility_lag_s(self, target: str) -> float:  # noqa: ARG002 -- every target is the same
            return 40.0

    box.connector = Late(can="searchable")
    built = await unknown(box)
    box.connector.answers.extend([LookUp("not_accepted")] * 2)
    await box.database.shift_clock(31)
    assert await schedule(box).once() == 1
    assert await box.state(built.effect_id) == "unknown"
    await box.database.shift_clock(43)
    assert await schedule(box).once() == 1
    assert await box.state(built.effect_id) == "pending"


async def test_one_that_has_just_become_unknown_hides_none_that_is_due(box: Outbox):
    await unknown(box)
    await box.database.shift_clock(31)
    assert await schedule(box).once() == 1
    await box.database.shift_clock(80)
    await unknown(box)
    await box.database.shift_clock(95)
    async with autocommit(box.pool) as connection:
        assert await reconcile.next_look_up(connection, PLAN, ["note"]) == 0
        assert await reconcile.next_look_up(connection, PLAN, ["fax"]) is None
    assert await schedule(box).once() == 1
    async with autocommit(box.pool) as connection:
        rest_s = await reconcile.next_look_up(connection, PLAN, ["note"])
    assert rest_s is not None
    assert 10 < rest_s < 16


async def test_who_cannot_be_asked_is_not_asked(box: Outbox):
    class Deaf(ScriptedConnector):
        def can_be_asked(self, target: str) -> bool:  # noqa: ARG002 -- every target is the same
            return False

    box.connector = Deaf()
    await unknown(box)
    await box.database.shift_clock(31)
    assert await schedule(box).once() == 1
    assert box.connector.asked == []
    await box.database.shift_clock(86400)
    assert await schedule(box).once() == 0


async def test_a_foreign_connectors_effects_do_not_hide_others(box: Outbox):
    foreign = [await unknown(box) for _ in range(6)]
    await box.database.rows("ALTER TABLE deedbox.effect DISABLE TRIGGER USER")
    await box.database.rows("UPDATE deedbox.effect SET connector = 'fax'")
    await box.database.rows("ALTER TABLE deedbox.effect ENABLE TRIGGER USER")
    mine = await unknown(box)
    await box.database.shift_clock(31)
    assert await schedule(box, at_once=2).once() == 1
    assert [order.effect_id for order in box.connector.asked] == [str(mine.effect_id)]
    assert len(foreign) == 6


async def test_the_loop_looks_up_and_stops(box: Outbox):
    built = await unknown(box)
    box.connector.answers.append(LookUp("accepted", "p-1"))
    stop = asyncio.Event()
    quick = Schedule(box.pool, box.ids, {"note": box.connector}, LookUps(first_s=0.01))
    running = asyncio.create_task(quick.run(stop))
    async with asyncio.timeout(20):
        while await box.job_state(built.job_id) != "completed":  # noqa: ASYNC110 -- each round is a question to PostgreSQL
            await asyncio.sleep(0)
    stop.set()
    await asyncio.wait_for(running, 20)


async def test_people_are_reminded_of_what_is_unknown_for_long_once_a_day(box: Outbox):
    first = await unknown(box)
    await box.database.rows(
        "UPDATE deedbox.target SET failures = 0, order_by = 'target' WHERE (connector, target) = ('note', 'desk')"
    )
    await box.build(Planned())

    async def remind() -> int:
        async with transaction(box.pool) as connection:
            return len(await reconcile.remind(connection, after_s=3600, again_s=86400))

    assert await remind() == 0
    await box.database.shift_clock(3601)
    assert [await remind(), await remind()] == [1, 0]
    told = await box.database.rows("SELECT effect_id, message FROM deedbox.alert WHERE cause = 'effect_unknown_long'")
    assert told == [
        (first.effect_id, "Nobody knows for 60 min whether first was accepted by note:desk; 1 wait behind it."),
    ]
    await box.database.rows("UPDATE deedbox.alert SET closed_at = deedbox.clock()")
    await box.database.shift_clock(3601 + 80000)
    assert await remind() == 0
    await box.database.shift_clock(3601 + 86401)
    assert await remind() == 1


async def test_two_people_at_a_blind_target_are_two_and_the_first_is_seen(box: Outbox):
    built = await unknown(box)
    verbs = box.verbs()
    answer: dict[str, Any] = {}
    for name in ("Ada", "Bo"):
        who = principal(box.ids, "operator", name=name)
        await box.database.rows(
            "INSERT INTO deedbox.principal (principal_id, tenant, kind, name) VALUES (%s, 'default', 'person', %s)",
            who.principal_id,
            name,
        )
        shown = await verbs.effect(who, built.effect_id)
        assert [probe["by_name"] for probe in shown["probes"]] == ([] if name == "Ada" else ["Ada"])
        if name == "Ada":
            for _ in range(2):
                with pytest.raises(Exception, match="second person"):
                    await verbs.effect_verb(who, built.effect_id, "disprove", reason="their log has nothing")
            await box.database.rows("DELETE FROM deedbox.probe WHERE ctid NOT IN (SELECT min(ctid) FROM deedbox.probe)")
        else:
            answer = await verbs.effect_verb(who, built.effect_id, "disprove", reason="nor has their support")
    assert (answer["state"], [probe["by_name"] for probe in answer["probes"]]) == ("pending", ["Ada", "Bo"])


EVENTS = st.lists(
    st.tuples(st.sampled_from(["dispatch", "sweep", "schedule", "clock", "resume", "switch", "remind"]), st.integers(0, 3)),
    min_size=3,
    max_size=14,
)


@proves("G-UNKNOWN-NOT-RESENT")
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(capability=st.sampled_from(["blind", "searchable", "upsert_key"]), closed=st.booleans(), events=EVENTS)
def test_in_whatever_order_things_happen_nothing_unknown_is_sent_again_by_itself(
    capability: Any, closed: bool, events: list[tuple[str, int]]
):
    """A look-up that says nothing conclusive, sweeps, the clock, the switch and dispatchers never make it leave again."""

    async def run() -> None:
        async with fresh_database() as database, outbox_on(database) as box:
            box.connector.can = capability
            built = await unknown(box, Ambiguous("timed_out", "No answer.", "body_sent", closed))
            now = 0.0
            for name, number in events:
                if name == "dispatch":
                    await box.dispatcher().once()
                elif name == "sweep":
                    await box.rescue()
                    await box.expire()
                elif name == "schedule":
                    # What disproves is conclusive, at a target that can tell, of a sender that closed: none of that is here.
                    conclusive = closed and capability != "blind"
                    box.connector.answers.append(SILENT if conclusive else LookUp("not_accepted"))
                    await schedule(box).once()
                    box.connector.answers.clear()
                elif name == "clock":
                    now += (20.0, 61.0, 3700.0, 90000.0)[number]
                    await box.database.shift_clock(now)
                elif name == "switch":
                    await box.turn(on=number % 2 == 0)
                elif name == "resume":
                    await box.database.rows(
                        "UPDATE deedbox.target SET failures = 0, breaker = 'closed', breaker_until = NULL, probe_effect = NULL,"
                        " probe_until = NULL"
                    )
                else:
                    async with transaction(box.pool) as connection:
                        await reconcile.remind(connection, after_s=3600, again_s=86400)
                assert await box.state(built.effect_id) == "unknown"
                assert len(box.connector.sent) == 1

    asyncio.run(run())
