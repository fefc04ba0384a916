"""What people do about effects and jobs: with the right, with evidence, all or nothing, and on record."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from deedbox.extend.connector import Ambiguous, LookUp
from deedbox.model.errors import DeedboxError
from deedbox.store.audit import verify
from deedbox.store.transaction import transaction
from tests.builders import Built, Outbox, Planned, outbox_on, principal
from tests.database import TestDatabase
from tests.guarantees import proves

pytestmark = pytest.mark.anyio


@pytest.fixture
async def box(database: TestDatabase) -> AsyncIterator[Outbox]:
    async with outbox_on(database) as made:
        yield made


async def unknown(box: Outbox, *, closed: bool = True, **planned: Any) -> Built:
    box.connector.script.append(Ambiguous("timed_out", "No answer came in time.", "body_sent", closed))
    built = await box.build(Planned(**planned))
    await box.dispatcher().once()
    assert await box.state(built.effect_id) == "unknown"
    return built


async def audited(box: Outbox) -> list[tuple[object, ...]]:
    assert await verify(box.pool) is None
    return await box.database.rows("SELECT verb, actor, subject_kind FROM deedbox.audit ORDER BY seq")


@proves("G-LOOKUP")
async def test_a_look_up_confirms_with_the_providers_receipt(box: Outbox):
    built = await unknown(box)
    box.connector.answers.extend([RuntimeError("down"), LookUp("still_unknown"), LookUp("accepted", "p-7", {"status": 200})])
    verbs, person = box.verbs(), principal(box.ids, "operator", name="Zoë")
    for verdict, state in (("still_unknown", "unknown"), ("still_unknown", "unknown"), ("accepted", "completed")):
        answer = await verbs.effect_verb(person, built.effect_id, "look_up")
        assert (answer["verdict"], answer["state"]) == (verdict, state)
    assert [receipt["source"] for receipt in answer["receipts"]] == ["look_up"]
    assert len(answer["probes"]) == 3
    assert await box.job_state(built.job_id) == "completed"
    assert await audited(box) == [("look_up", "Zoë", "effect")] * 3
    with pytest.raises(DeedboxError, match="is completed"):
        await verbs.effect_verb(person, built.effect_id, "look_up")


@proves("G-LOOKUP")
@pytest.mark.parametrize(
    ("capability", "closed", "lag", "state"),
    [
        ("searchable", True, 0, "pending"),
        ("searchable", True, 60, "unknown"),
        ("searchable", False, 0, "unknown"),
        ("blind", True, 0, "unknown"),
    ],
)
async def test_a_look_up_disproves_only_where_nothing_can_still_arrive(
    box: Outbox, capability: Any, closed: bool, lag: int, state: str
):
    box.connector.can = capability
    built = await unknown(box, closed=closed)
    await box.database.rows(
        "INSERT INTO deedbox.target (tenant, connector, target, capability, visibility_lag)"
        " VALUES ('default', 'note', 'desk', %s, make_interval(secs => %s)) ON CONFLICT (tenant, connector, target)"
        " DO UPDATE SET capability = EXCLUDED.capability, visibility_lag = EXCLUDED.visibility_lag",
        capability,
        lag,
    )
    box.connector.answers.append(LookUp("not_accepted"))
    answer = await box.verbs().effect_verb(principal(box.ids, "operator"), built.effect_id, "look_up")
    assert answer["state"] == state
    assert await box.dispatcher().once() == (1 if state == "pending" else 0)


async def test_confirming_needs_evidence_and_a_person_with_the_right(box: Outbox):
    built = await unknown(box)
    verbs, person = box.verbs(), principal(box.ids, "operator", name="Zoë")
    evidence = {"provider_id": "seen-1", "note": "in their mailbox"}
    refused = [
        (person, None, "invalid_input"),
        (person, {"provider_id": " "}, "invalid_input"),
        (principal(box.ids, "operator", kind="service", method="api_key"), evidence, "person_required"),
        (principal(box.ids, "viewer"), evidence, "permission_denied"),
        (principal(box.ids, "operator", tenant="another"), evidence, "not_found"),
    ]
    for who, given, code in refused:
        with pytest.raises(DeedboxError) as refusal:
            await verbs.effect_verb(who, built.effect_id, "confirm", evidence=given)
        assert refusal.value.code == code
    assert await audited(box) == []
    answer = await verbs.effect_verb(person, built.effect_id, "confirm", evidence=evidence)
    assert (answer["state"], answer["receipts"][0]["source"]) == ("completed", "human")
    assert str(answer["receipts"][0]["by_principal"]) == person.principal_id
    assert await audited(box) == [("confirm", "Zoë", "effect")]
    with pytest.raises(DeedboxError) as refusal:
        await verbs.effect_verb(person, built.effect_id, "confirm", evidence=evidence)
    assert refusal.value.code == "illegal_move"
    assert len((await verbs.effect(person, built.effect_id))["receipts"]) == 1


async def test_disproving_at_a_blind_target_needs_a_second_person(box: Outbox):
    built = await unknown(box)
    verbs = box.verbs()
    first, second = principal(box.ids, "operator", name="Ada"), principal(box.ids, "operator", name="Bo")
    for who in (first, first):
        with pytest.raises(DeedboxError, match="second person"):
            await verbs.effect_verb(who, built.effect_id, "disprove", reason="their log has nothing")
    assert await box.state(built.effect_id) == "unknown"
    answer = await verbs.effect_verb(second, built.effect_id, "disprove", reason="nor has their support")
    assert answer["state"] == "pending"
    assert [row[:2] for row in await audited(box)] == [("disprove_asked", "Ada")] * 2 + [("disprove", "Bo")]
    # It was said of that sending: of the next one it has to be said again.
    box.connector.script.append(Ambiguous("timed_out", "No answer.", "body_sent"))
    await box.dispatcher().once()
    with pytest.raises(DeedboxError, match="second person"):
        await verbs.effect_verb(second, built.effect_id, "disprove", reason="again")


async def test_after_a_lost_sender_a_person_waits_until_nothing_can_arrive(box: Outbox):
    box.connector.can = "searchable"
    built = await unknown(box, closed=False)
    verbs, person = box.verbs(), principal(box.ids, "operator")
    with pytest.raises(DeedboxError, match="may still arrive"):
        await verbs.effect_verb(person, built.effect_id, "disprove", reason="nothing there")
    await box.database.shift_clock(3601)
    assert (await verbs.effect_verb(person, built.effect_id, "disprove", reason="nothing there"))["state"] == "pending"


async def test_abandoning_and_canceling_end_the_job_with_the_reason(box: Outbox):
    verbs, person = box.verbs(), principal(box.ids, "operator")
    lost = await unknown(box)
    with pytest.raises(DeedboxError, match="reason"):
        await verbs.effect_verb(person, lost.effect_id, "abandon")
    with pytest.raises(DeedboxError, match="only one that is pending"):
        await verbs.effect_verb(person, lost.effect_id, "cancel", reason="no")
    assert (await verbs.effect_verb(person, lost.effect_id, "abandon", reason="too old"))["code"] == "abandoned"
    assert await box.job_state(lost.job_id) == "failed_terminal"
    waiting = await box.build(Planned())
    await verbs.effect_verb(person, waiting.effect_id, "cancel", reason="changed my mind")
    assert await box.job_state(waiting.job_id) == "canceled"
    assert await box.events(waiting.job_id) == ["job.queued", "effect.canceled", "job.canceled"]
    assert await box.lease() == []


async def test_the_ledger_shows_a_tenant_its_own_by_state(box: Outbox):
    mine, theirs = await box.build(Planned()), await box.build(Planned(), tenant="another")
    verbs, person = box.verbs(), principal(box.ids, "viewer")
    assert [row["effect_id"] for row in await verbs.effects(person)] == [mine.effect_id]
    assert await verbs.effects(person, "unknown") == []
    assert (await verbs.effect(person, mine.effect_id))["body"].startswith('{"attachments":[]')
    with pytest.raises(DeedboxError) as refusal:
        await verbs.effects(person, "lost")
    assert refusal.value.code == "invalid_parameter"
    with pytest.raises(DeedboxError) as refusal:
        await verbs.effect(person, theirs.effect_id)
    assert refusal.value.code == "not_found"


# Jobs --------------------------------------------------------------------------------------------------------------------


@proves("G-CANCEL")
@pytest.mark.parametrize("state", ["queued", "awaiting_human", "failed_retryable"])
async def test_a_job_from_which_nothing_has_left_is_canceled_at_once(box: Outbox, state: str):
    built = await box.build(state=state, open_groups=["default"] if state == "awaiting_human" else [])
    assert await box.verbs().cancel_job(principal(box.ids, "operator"), built.job_id, "not needed") == "canceled"
    assert await box.job_state(built.job_id) == "canceled"
    states = await box.database.rows("SELECT state FROM deedbox.approval WHERE job_id = %s", built.job_id)
    assert states == ([("withdrawn",)] if state == "awaiting_human" else [])
    assert await audited(box) == [("cancel", "someone", "job")]
    with pytest.raises(DeedboxError, match="has ended"):
        await box.verbs().cancel_job(principal(box.ids, "operator"), built.job_id, "again")


async def test_a_running_job_is_asked_to_stop(box: Outbox):
    built = await box.build(state="running")
    assert await box.verbs().cancel_job(principal(box.ids, "operator"), built.job_id, "stop") == "cancel_requested"
    assert await box.database.value("SELECT cancel_requested FROM deedbox.queue WHERE job_id = %s", built.job_id) is True


async def test_canceling_is_for_those_who_may_and_for_their_own_tenant(box: Outbox):
    built = await box.build(Planned())
    for who, code in (
        (principal(box.ids, "viewer"), "permission_denied"),
        (principal(box.ids, "admin", tenant="another"), "not_found"),
    ):
        with pytest.raises(DeedboxError) as refusal:
            await box.verbs().cancel_job(who, built.job_id, "mine")
        assert refusal.value.code == code
    assert await box.state(built.effect_id) == "pending"


@proves("G-CANCEL")
async def test_a_cancel_that_comes_after_a_lease_waits_for_it_and_is_refused_whole(box: Outbox):
    built = await box.build(Planned("first"), Planned("second"))
    async with transaction(box.pool) as connection:
        assert len(await box.lease_in(connection, 1)) == 1
        canceling = asyncio.create_task(box.verbs().cancel_job(principal(box.ids, "operator"), built.job_id, "stop"))
        await box.until_blocked()
    with pytest.raises(DeedboxError, match="first is sending"):
        await canceling
    assert await box.state(built.effects["second"]) == "pending"
    assert await box.job_state(built.job_id) == "dispatching"
    assert await audited(box) == []


@proves("G-CANCEL")
async def test_a_lease_beside_a_cancel_passes_the_job_by(box: Outbox):
    built, other = await box.build(Planned("first"), Planned("second")), await box.build(Planned())
    async with transaction(box.pool) as holder:
        await holder.execute("SELECT FROM deedbox.audit_head FOR UPDATE")
        canceling = asyncio.create_task(box.verbs().cancel_job(principal(box.ids, "operator"), built.job_id, "stop"))
        await box.until_blocked()
        assert [one.job_id for one in await box.lease()] == [other.job_id]
    assert await canceling == "canceled"
    assert [await box.state(effect_id) for effect_id in built.effects.values()] == ["canceled", "canceled"]
    assert await box.events(built.job_id) == ["job.queued", "effect.canceled", "effect.canceled", "job.canceled"]
