"""The outbox and its loop: what is authorised leaves once, and what nobody knows about is called unknown."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from deedbox.connectors import ConnectorSettings, Http, HttpTargetConfig
from deedbox.dispatch import reconcile
from deedbox.dispatch.settle import Settler
from deedbox.egress import EgressPolicy
from deedbox.extend.connector import Ambiguous, EffectOrder, Outcome, Receipt, Refused, Transient
from deedbox.model.backoff import Retry
from deedbox.store import outbox, targets
from deedbox.store.outbox import Leased, Move
from deedbox.store.targets import Place
from deedbox.store.transaction import transaction
from tests.builders import Built, Outbox, Planned, outbox_on
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.http_provider import HttpProvider

pytestmark = pytest.mark.anyio

LOST = Ambiguous("timed_out", "No answer came in time.", "body_sent")
BUSY = Transient("rate_limited", "http_429", "The target is busy.", "answered", 0.0)
NO = Refused("caller_error", "http_422", "The target does not take this.", "answered")


@pytest.fixture
async def box(database: TestDatabase) -> AsyncIterator[Outbox]:
    async with outbox_on(database) as made:
        yield made


async def result(box: Outbox, built: Built) -> dict[str, Any]:
    query = "SELECT state, output, code, done, not_done, declined FROM deedbox.result WHERE job_id = %s"
    (row,) = await box.database.rows(query, built.job_id)
    return dict(zip(("state", "output", "code", "done", "not_done", "declined"), row, strict=True))


async def receipts(box: Outbox, built: Built) -> list[tuple[object, ...]]:
    return await box.database.rows(
        "SELECT source, provider_id FROM deedbox.receipt WHERE job_id = %s ORDER BY receipt_id", built.job_id
    )


async def settle(box: Outbox, leased: Leased, outcome: Outcome, receipt_id: UUID | None = None) -> Move | None:
    """What a sender says at last, whether it still holds its effect or not."""
    settler = Settler(box.pool, box.ids, outbox.RETRY, follows=lambda: None)
    try:
        return await settler.put(leased, outcome, receipt_id=receipt_id or box.ids.new(), alone=True)
    finally:
        await settler.drain()


# Sending and settling ----------------------------------------------------------------------------------------------------


async def test_an_approved_effect_is_sent_once_and_its_job_is_completed(box: Outbox):
    built = await box.build(Planned(payload={"text": "Grüße\u2028"}), declined=[("extra", "rejected")])
    assert await box.dispatcher().once() == 1
    assert await box.dispatcher().once() == 0
    (order,) = box.connector.sent
    assert (order.effect_id, order.payload, order.attempt) == (str(built.effect_id), {"text": "Grüße\u2028"}, 1)
    assert 0 < order.deadline_s < 60
    ended = await result(box, built)
    assert (ended["state"], ended["output"], ended["code"]) == ("completed", {"draft": "Grüße"}, None)
    assert [item["provider_id"] for item in ended["done"]] == ["provider-first"]
    assert ended["declined"] == [{"group": "extra", "state": "rejected", "reason": "not wanted"}]
    assert await box.events(built.job_id) == ["job.queued", "effect.sending", "effect.completed", "job.completed"]
    assert await receipts(box, built) == [("sender", "provider-first")]


@proves("G-DIGEST")
async def test_a_body_that_is_not_the_approved_one_is_not_leased(box: Outbox):
    built = await box.build(Planned(), Planned("second", group="other", authority="verdict"))
    forged = (
        "UPDATE deedbox.proposal_effect SET body = convert_to(replace(convert_from(body, 'utf8'), 'desk', 'evil'), 'utf8'),"
        " digest = sha256(convert_to(replace(convert_from(body, 'utf8'), 'desk', 'evil'), 'utf8')) WHERE job_id = %s"
    )
    await box.database.rows(forged, built.job_id)
    assert await box.lease() == []
    # Nor where the effect's own digest was forged with it: the approval does not name it.
    await box.database.rows("ALTER TABLE deedbox.effect DISABLE TRIGGER USER")
    await box.database.rows(
        "UPDATE deedbox.effect e SET digest = p.digest FROM deedbox.proposal_effect p"
        " WHERE p.proposal_effect_id = e.proposal_effect_id"
    )
    assert await box.lease() == []


@proves("G-OUTBOX-ONLY-GATE")
@pytest.mark.parametrize("state", ["rejected", "expired", "withdrawn"])
async def test_an_effect_whose_approval_does_not_stand_is_not_leased(box: Outbox, state: str):
    await box.build(Planned())
    await box.database.rows("ALTER TABLE deedbox.approval DISABLE TRIGGER USER")
    await box.database.rows("UPDATE deedbox.approval SET state = %s, reason = 'x'", state)
    assert await box.lease() == []


async def test_what_is_not_due_paused_over_or_unknown_to_this_process_waits_visibly(box: Outbox):
    built = await box.build(
        Planned("early", not_before_s=60),
        Planned("late", not_after_s=-1),
        Planned("foreign", connector="fax"),
        Planned("paused", target="paused"),
        Planned("open", target="open"),
        Planned("follows", after="early"),
    )
    await box.database.rows(
        "INSERT INTO deedbox.target (tenant, connector, target, paused, open_until)"
        " VALUES ('default', 'note', 'paused', true, NULL),"
        " ('default', 'note', 'open', false, deedbox.clock() + interval '1 minute')"
    )
    assert await box.lease() == []
    await box.database.shift_clock(61)
    assert {one.slot for one in await box.lease()} == {"early", "open"}
    assert await box.state(built.effects["follows"]) == "pending"


@pytest.mark.parametrize(
    ("script", "state", "code", "final"),
    [
        ([NO, NO], "failed_terminal", "undelivered", ["failed", "failed"]),
        ([NO], "failed_terminal", "partially_done", ["failed", "completed"]),
        ([], "completed", None, ["completed", "completed"]),
    ],
)
async def test_the_last_effect_to_end_ends_the_job(
    box: Outbox, script: list[Outcome], state: str, code: str | None, final: list[str]
):
    box.connector.script.extend(script)
    built = await box.build(Planned("first"), Planned("second"))
    for _ in range(2):
        await box.dispatcher(slots=1).once()
    ended = await result(box, built)
    assert (ended["state"], ended["code"]) == (state, code)
    assert [await box.state(effect_id) for effect_id in built.effects.values()] == final
    assert len(ended["done"]) == final.count("completed")
    assert [item["code"] for item in ended["not_done"]] == ["http_422"] * final.count("failed")
    assert (await box.events(built.job_id))[-1] == ("job.completed" if code is None else "job.failed")


async def test_a_job_that_still_waits_for_a_person_is_not_ended_by_its_effects(box: Outbox):
    built = await box.build(Planned(), state="awaiting_human", open_groups=["other"])
    await box.dispatcher().once()
    assert (await box.state(built.effect_id), await box.job_state(built.job_id)) == ("completed", "awaiting_human")


@proves("G-UNKNOWN-NOT-RESENT")
@pytest.mark.parametrize("end", [LOST, RuntimeError("boom"), "nonsense"])
async def test_an_ambiguous_end_is_unknown_and_never_sent_again_by_itself(box: Outbox, end: Any):
    async def nonsense(_order: EffectOrder) -> Any:
        return end

    box.connector.script.append(nonsense if isinstance(end, str) else end)
    built = await box.build(Planned())
    await box.dispatcher().once()
    assert (await box.state(built.effect_id), await box.job_state(built.job_id)) == ("unknown", "dispatching")
    await box.database.shift_clock(3 * 86400)
    assert await box.dispatcher().once() == 0
    assert await box.expire() == []
    assert (len(box.connector.sent), await box.state(built.effect_id)) == (1, "unknown")
    assert (await box.events(built.job_id))[-1] == "effect.unknown"
    assert await box.database.value("SELECT cause FROM deedbox.alert WHERE effect_id = %s", built.effect_id) == "effect_unknown"


@proves("G-SAME-KEY")
async def test_while_a_native_key_lives_the_same_key_is_sent_again_and_then_it_is_unknown(box: Outbox):
    box.connector.can, box.connector.ttl_s = "native_key", 600.0
    box.connector.script.extend([LOST, LOST])
    built = await box.build(Planned())
    await box.dispatcher().once()
    assert await box.state(built.effect_id) == "pending"
    # The key has to live for the whole of a sending, not only at its beginning.
    await box.database.shift_clock(500)
    await box.dispatcher().once()
    assert [(order.effect_id, order.attempt) for order in box.connector.sent] == [(str(built.effect_id), n) for n in (1, 2)]
    await box.database.shift_clock(599)
    await box.dispatcher().once()
    await box.expire()
    assert await box.state(built.effect_id) == "pending"
    await box.database.shift_clock(601)
    await box.dispatcher().once()
    await box.expire()
    assert await box.state(built.effect_id) == "unknown"
    assert len(box.connector.sent) == 2
    assert await box.database.value("SELECT cause FROM deedbox.alert") == "effect_unknown"


async def test_an_ambiguous_notice_is_closed_and_writes_no_event(box: Outbox):
    box.connector.script.append(LOST)
    built = await box.build(Planned(kind="notice", authority="verdict"), state="awaiting_human")
    await box.dispatcher().once()
    assert await box.state(built.effect_id) == "unknown_closed"
    assert await box.events(built.job_id) == ["job.queued"]


async def test_what_was_surely_not_accepted_is_tried_again_and_at_last_refused(box: Outbox):
    box.connector.script.extend([BUSY] * 3)
    built = await box.build(Planned())
    dispatcher = box.dispatcher(retry=Retry(attempts=3, base=0.001, cap=0.001))
    for shift in range(1, 4):
        assert await dispatcher.once() == 1
        await box.database.shift_clock(shift)
    assert (await box.state(built.effect_id), len(box.connector.sent)) == ("failed", 3)
    assert (await result(box, built))["not_done"][0]["code"] == "attempts_exhausted"


async def test_evidence_that_no_store_can_keep_is_kept_escaped(box: Outbox):
    box.connector.script.append(Receipt("id\x00\udc80", {"nan": float("nan"), "raw": b"\x00", "\x00": "\ud800"}))
    built = await box.build(Planned())
    await box.dispatcher().once()
    assert await receipts(box, built) == [("sender", "id\\u0000\\udc80")]


async def test_a_receipt_that_is_kept_again_after_a_doubtful_commit_is_one(box: Outbox):
    built = await box.build(Planned())
    (leased,) = await box.lease()
    receipt_id = box.ids.new()
    for _ in range(2):
        await settle(box, leased, Receipt("once"), receipt_id=receipt_id)
    assert await receipts(box, built) == [("sender", "once")]


# Lost senders ------------------------------------------------------------------------------------------------------------


async def test_a_sender_that_is_lost_leaves_unknown_and_its_late_receipt_completes(box: Outbox):
    built = await box.build(Planned())
    (leased,) = await box.lease(lease_s=5)
    assert await box.rescue() == []
    await box.database.shift_clock(6)
    assert await box.rescue() == [built.job_id]
    assert await box.state(built.effect_id) == "unknown"
    assert await settle(box, leased, NO) is None
    assert await box.state(built.effect_id) == "unknown"
    assert await settle(box, leased, Receipt("late-1")) == "late_receipt"
    assert await receipts(box, built) == [("late", "late-1")]
    assert await box.job_state(built.job_id) == "completed"


async def test_a_lost_sender_at_a_living_native_key_is_pending_and_a_late_receipt_stops_the_resend(box: Outbox):
    built = await box.build(Planned())
    async with transaction(box.pool) as connection:
        await targets.declare(connection, Place("default", "note", "desk"), capability="native_key", ttl_s=3600)
    (leased,) = await box.lease(lease_s=5)
    await box.database.shift_clock(6)
    await box.rescue()
    assert await box.state(built.effect_id) == "pending"
    assert await settle(box, leased, Receipt("late-1")) == "late_receipt"
    await box.database.shift_clock(600)
    assert await box.dispatcher().once() == 0


async def test_a_replaced_sender_does_not_decide_and_its_receipt_is_kept_beside_the_new_one(box: Outbox):
    box.connector.can, box.connector.ttl_s = "native_key", 3600.0
    built = await box.build(Planned())
    (first,) = await box.lease(lease_s=5)
    await box.database.rows("UPDATE deedbox.effect SET lease_until = deedbox.clock()")
    await box.database.rows(
        "INSERT INTO deedbox.target (tenant, connector, target, capability, native_key_ttl)"
        " VALUES ('default', 'note', 'desk', 'native_key', '1 hour')"
    )
    await box.rescue()
    await box.database.shift_clock(400)
    (second,) = await box.lease()
    assert second.fence > first.fence
    assert await settle(box, first, LOST) is None
    assert await box.state(built.effect_id) == "sending"
    assert await settle(box, first, Receipt("same")) == "late_receipt"
    assert await settle(box, second, Receipt("same")) is None
    assert await receipts(box, built) == [("late", "same"), ("late", "same")]
    assert await box.events(built.job_id) == ["job.queued", *["effect.sending"] * 2, "effect.completed", "job.completed"]


async def test_what_cannot_be_sent_any_more_ends_and_ends_its_job(box: Outbox):
    old = await box.build(Planned(not_after_s=-1))
    box.connector.script.append(NO)
    chain = await box.build(Planned("first"), Planned("second", after="first"))
    await box.dispatcher().once()
    assert set(await box.expire()) == {old.job_id, chain.job_id}
    assert (await result(box, old))["not_done"][0]["code"] == "expired_unsent"
    assert [item["code"] for item in (await result(box, chain))["not_done"]] == ["http_422", "predecessor_failed"]


# The loop ----------------------------------------------------------------------------------------------------------------


@proves("G-OUTBOX-SURVIVES")
async def test_a_dispatcher_that_starts_later_sends_what_waits_and_drains_when_stopped(box: Outbox):
    started, release, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(order: EffectOrder) -> Outcome:
        started.set()
        await release.wait()
        return Receipt(f"slow-{order.slot}")

    box.connector.script.append(slow)
    built = await box.build(Planned("first"), Planned("second", after="first"))
    dispatcher = box.dispatcher()
    running = asyncio.create_task(dispatcher.run(stop))
    await started.wait()
    assert dispatcher.in_flight == 1
    stop.set()
    release.set()
    await asyncio.wait_for(running, 20)
    assert await box.state(built.effects["first"]) == "completed"
    again = asyncio.Event()
    running = asyncio.create_task(box.dispatcher().run(again))
    async with asyncio.timeout(20):
        while await box.job_state(built.job_id) != "completed":  # noqa: ASYNC110 -- each round is a question to PostgreSQL
            await asyncio.sleep(0)
    again.set()
    await asyncio.wait_for(running, 20)
    assert len(box.connector.sent) == 2


async def test_any_number_of_dispatchers_send_each_effect_once(box: Outbox):
    built = [await box.build(Planned("first"), Planned("second")) for _ in range(15)]
    dispatchers = [box.dispatcher(slots=4) for _ in range(4)]

    async def work(number: int) -> None:
        async with asyncio.timeout(60):
            while await box.database.value("SELECT count(*) FROM deedbox.effect WHERE state = 'pending'"):
                await dispatchers[number].once()

    await asyncio.gather(*(work(number) for number in range(4)))
    assert len({order.effect_id for order in box.connector.sent}) == len(box.connector.sent) == 30
    for one in built:
        assert await box.job_state(one.job_id) == "completed"
        assert len(await box.events(one.job_id)) == 6


async def test_a_lease_numbers_its_events_after_those_that_were_written_while_it_looked(box: Outbox):
    built = await box.build(Planned())
    async with transaction(box.pool) as holder:
        await holder.execute("SELECT FROM deedbox.switch FOR UPDATE")
        waiting = asyncio.create_task(box.lease())
        await box.until_blocked()
        await box.database.rows("UPDATE deedbox.queue SET last_seq = 2")
        await box.database.rows(
            "INSERT INTO deedbox.event SELECT job_id, 2, %s, 'job.decided', 1, NULL, deedbox.clock(), '{}' FROM deedbox.queue",
            box.ids.new(),
        )
    assert len(await waiting) == 1
    assert await box.events(built.job_id) == ["job.queued", "job.decided", "effect.sending"]


async def test_a_lease_waits_for_no_job_that_somebody_holds(box: Outbox):
    held, free = await box.build(Planned()), await box.build(Planned())
    async with transaction(box.pool) as holder:
        await holder.execute("SELECT FROM deedbox.queue WHERE job_id = %s FOR UPDATE", [held.job_id])
        assert [one.job_id for one in await box.lease()] == [free.job_id]
    assert [one.job_id for one in await box.lease()] == [held.job_id]


@proves("G-LOOKUP")
async def test_a_real_provider_that_accepts_and_hangs_is_found_by_look_up(box: Outbox):
    async with HttpProvider().running() as provider:
        provider.faults.append("accept_then_hang")
        http = Http()
        target = HttpTargetConfig.model_validate({"name": "crm", "base_url": provider.url, "look_up": "/notes/{key}"})
        http.bind(ConnectorSettings(http=(target,)), EgressPolicy(frozenset({"127.0.0.1"})))
        payload = {"method": "POST", "path": "/notes", "body": {"text": "Grüße"}}
        built = await box.build(Planned(connector="http", target="crm", payload=payload))
        await box.dispatcher(connectors={"http": http}, lease_s=1.5).once()
        assert await box.state(built.effect_id) == "unknown"
        found = await reconcile.look_up(box.pool, box.ids, {"http": http}, tenant="default", effect_id=built.effect_id)
        assert (found.verdict, found.state, found.provider_id) == ("accepted", "completed", "note-1")
        await http.aclose()
    assert len(provider.performed) == 1
    assert await box.job_state(built.job_id) == "completed"
