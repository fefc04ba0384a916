"""Receipts that share a transaction: what goes wrong for one is that one's alone, and nothing is lost or ended twice."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

import psycopg
import pytest
from structlog.testing import capture_logs

from deedbox.dispatch.settle import Settler
from deedbox.extend.connector import Ambiguous, EffectOrder, Outcome, Receipt, Refused
from deedbox.store import delivery, outbox
from deedbox.store.outbox import Leased
from deedbox.store.transaction import transaction
from tests.builders import Built, Outbox, Planned, outbox_on
from tests.database import TestDatabase

pytestmark = pytest.mark.anyio
Fault = Callable[[], None]


@pytest.fixture
async def box(database: TestDatabase) -> AsyncIterator[Outbox]:
    async with outbox_on(database) as made:
        yield made


def settler(box: Outbox) -> Settler:
    return Settler(box.pool, box.ids, outbox.RETRY, follows=lambda: None)


async def put(settling: Settler, box: Outbox, leased: Sequence[Leased], outcome: Outcome | None = None) -> list[str | None]:
    """Settle all of them at the same moment."""
    return list(
        await asyncio.gather(
            *(
                settling.put(one, outcome or Receipt(f"provider-{one.slot}"), receipt_id=box.ids.new(), alone=False)
                for one in leased
            )
        )
    )


async def receipts(box: Outbox, built: Built) -> list[tuple[object, ...]]:
    return await box.database.rows(
        "SELECT source, provider_id FROM deedbox.receipt WHERE job_id = %s ORDER BY receipt_id", built.job_id
    )


async def ended(box: Outbox, built: Built, *, acts: int = 1) -> None:
    """The job has ended once, with one receipt and one pair of events for each act."""
    assert await box.job_state(built.job_id) == "completed"
    events = await box.events(built.job_id)
    assert sorted(events[1:-1]) == ["effect.completed"] * acts + ["effect.sending"] * acts
    assert (events[0], events[-1]) == ("job.queued", "job.completed")
    assert len(await receipts(box, built)) == acts


async def test_a_sender_that_was_replaced_does_not_spoil_the_receipts_of_the_others(box: Outbox):
    built = [await box.build(Planned()) for _ in range(3)]
    leased = sorted(await box.lease(), key=lambda one: one.job_id)
    await box.database.rows("UPDATE deedbox.effect SET lease_until = deedbox.clock() WHERE job_id = %s", built[1].job_id)
    assert await box.rescue() == [built[1].job_id]
    settling = settler(box)
    assert await put(settling, box, leased) == ["deliver", "late_receipt", "deliver"]
    assert [(await receipts(box, one))[0][0] for one in built] == ["sender", "late", "sender"]
    assert [await box.job_state(one.job_id) for one in built] == ["completed"] * 3
    await settling.drain()


async def test_one_statement_touches_no_fence_but_its_own_and_no_notice(box: Outbox):
    acts = await box.build(Planned(), Planned("second"))
    await box.build(Planned(kind="notice", authority="verdict"), state="awaiting_human")
    rows = [
        delivery.Delivered(
            one.job_id,
            one.effect_id,
            one.fence + (one.slot == "second"),
            one.connector,
            box.ids.new(),
            box.ids.new(),
            "p",
            "{}",
            "answered",
        )
        for one in await box.lease()
    ]
    assert len(rows) == 3
    async with box.pool.connection() as connection:
        assert await delivery.deliver(connection, rows) == {acts.effects["first"]: False}
        assert await delivery.deliver(connection, rows) == {}
    assert await box.state(acts.effects["second"]) == "sending"
    assert await box.database.value("SELECT count(*) FROM deedbox.receipt") == 1
    assert (await box.events(acts.job_id))[-1] == "effect.completed"


async def test_whoever_waits_to_follow_is_told_of(box: Outbox):
    told: list[bool] = []
    chain = await box.build(Planned(), Planned("second", after="first"))
    settling = Settler(box.pool, box.ids, outbox.RETRY, follows=lambda: told.append(True))
    assert await put(settling, box, await box.lease()) == ["deliver"]
    assert told == [True]
    assert await put(settling, box, await box.lease()) == ["deliver"]
    assert told == [True]
    await ended(box, chain, acts=2)
    await settling.drain()


def faulty(monkeypatch: pytest.MonkeyPatch, name: str, *, committed: bool, times: int = 1) -> None:
    """The next so many calls of a statement fail, before anything was done or when only the answer was still to come."""
    real: Callable[..., Awaitable[Any]] = getattr(delivery, name)
    left = [times]

    async def fail(*given: Any) -> Any:
        answer = None if left[0] and not committed else await real(*given)
        if left[0]:
            left[0] -= 1
            raise psycopg.OperationalError("the connection was lost")
        return answer

    monkeypatch.setattr(delivery, name, fail)


@pytest.mark.parametrize("committed", [True, False])
async def test_receipts_whose_commit_gave_no_answer_are_kept_once(
    box: Outbox, monkeypatch: pytest.MonkeyPatch, committed: bool
):
    faulty(monkeypatch, "deliver", committed=committed)
    built = [await box.build(Planned()) for _ in range(4)]
    leased = await box.lease()
    settling = settler(box)
    with capture_logs() as logged:
        assert await put(settling, box, leased) == [None if committed else "deliver"] * 4
    (alone,) = [one for one in logged if one["event"] == "settled_alone"]
    assert (alone["count"], alone["error"]) == (4, "OperationalError")
    for one in built:
        await ended(box, one)
        assert await receipts(box, one) == [("sender", "provider-first")]
    await settling.drain()


@pytest.mark.parametrize("committed", [True, False])
async def test_jobs_whose_end_gave_no_answer_end_once(box: Outbox, monkeypatch: pytest.MonkeyPatch, committed: bool):
    faulty(monkeypatch, "finish", committed=committed)
    built = [await box.build(Planned()) for _ in range(4)]
    settling = settler(box)
    assert await put(settling, box, await box.lease()) == ["deliver"] * 4
    for one in built:
        await ended(box, one)
    await settling.drain()


async def test_two_dispatchers_that_settle_the_same_jobs_wait_for_one_another_and_never_in_a_circle(
    box: Outbox, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(delivery, "PATIENCE_MS", 20_000)
    built = [await box.build(Planned("first"), Planned("second")) for _ in range(8)]
    leased = await box.lease(100)
    halves = [[one for one in leased if one.slot == slot] for slot in ("first", "second")]
    halves[1].reverse()
    settlers = [settler(box), settler(box)]
    with capture_logs() as logged:
        async with transaction(box.pool) as holder:
            # In the middle: both have locked some before it, or wait for the one that has.
            await holder.execute("SELECT FROM deedbox.queue WHERE job_id = %s FOR UPDATE", [built[4].job_id])
            both = asyncio.gather(*(put(one, box, half) for one, half in zip(settlers, halves, strict=True)))
            await box.until_blocked(2)
        assert await both == [["deliver"] * 8] * 2
    assert not [one for one in logged if one["log_level"] != "info"]
    for one in built:
        await ended(box, one, acts=2)
    for one in settlers:
        await one.drain()


async def test_a_job_that_somebody_holds_keeps_the_receipts_of_others_waiting_no_longer_than_it_may(
    box: Outbox, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(delivery, "PATIENCE_MS", 1)
    held, free = await box.build(Planned()), await box.build(Planned())
    by_job: dict[UUID, Leased] = {one.job_id: one for one in await box.lease()}
    settling = settler(box)
    async with transaction(box.pool) as holder:
        await holder.execute("SELECT FROM deedbox.queue WHERE job_id = %s FOR UPDATE", [held.job_id])
        both = [asyncio.create_task(put(settling, box, [by_job[one.job_id]])) for one in (held, free)]
        assert await both[1] == ["deliver"]
        await ended(box, free)
        assert not both[0].done()
    assert await both[0] == ["deliver"]
    await ended(box, held)
    await settling.drain()


@pytest.mark.parametrize(
    ("outcome", "move", "state"),
    [
        (Refused("caller_error", "http_422", "It does not take this.", "answered"), "refuse", "failed_terminal"),
        (Ambiguous("timed_out", "No answer came.", "body_sent"), "lose_track", "dispatching"),
    ],
)
async def test_every_other_end_is_settled_under_its_lock_beside_them(box: Outbox, outcome: Outcome, move: str, state: str):
    other, good = await box.build(Planned()), await box.build(Planned())
    by_job = {one.job_id: one for one in await box.lease()}
    settling = settler(box)
    answers = await asyncio.gather(
        put(settling, box, [by_job[other.job_id]], outcome), put(settling, box, [by_job[good.job_id]])
    )
    assert answers == [[move], ["deliver"]]
    assert await box.job_state(other.job_id) == state
    await ended(box, good)
    await settling.drain()


async def test_a_job_of_which_one_act_failed_ends_as_partly_done(box: Outbox):
    built = await box.build(Planned("first"), Planned("second"), declined=[("extra", "rejected")])
    first, second = sorted(await box.lease(), key=lambda one: one.slot)
    settling = settler(box)
    assert await put(settling, box, [first], Refused("caller_error", "no", "No.", "answered")) == ["refuse"]
    assert await put(settling, box, [second]) == ["deliver"]
    row = (
        "SELECT code, jsonb_array_length(done), jsonb_array_length(not_done), jsonb_array_length(declined) FROM deedbox.result"
    )
    assert await box.database.rows(row) == [("partially_done", 1, 1, 1)]
    assert await box.job_state(built.job_id) == "failed_terminal"
    await settling.drain()


async def test_what_has_answered_gives_its_slot_to_the_next_while_it_is_being_kept(box: Outbox):
    first, second = await box.build(Planned()), await box.build(Planned())
    locked, called = asyncio.Event(), asyncio.Event()
    async with transaction(box.pool) as holder:

        async def hold(order: EffectOrder) -> Outcome:
            await holder.execute("SELECT FROM deedbox.queue WHERE job_id = %s FOR UPDATE", [UUID(order.job_id)])
            locked.set()
            return Receipt("held")

        async def say(_order: EffectOrder) -> Outcome:
            called.set()
            return Receipt("free")

        box.connector.script.extend([hold, say])
        stop = asyncio.Event()
        dispatcher = box.dispatcher(slots=1)
        running = asyncio.create_task(dispatcher.run(stop))
        async with asyncio.timeout(20):
            await locked.wait()
            await called.wait()
        assert dispatcher.in_flight == 2
    stop.set()
    await asyncio.wait_for(running, 20)
    await ended(box, first)
    await ended(box, second)
