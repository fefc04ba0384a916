"""Notices on the outbox: under their own verdict, in nobody's history, with links that are minted when they are sent."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import psycopg
import pytest

from deedbox.extend.connector import Ambiguous, EffectOrder, Outcome, Receipt, Transient
from deedbox.gate.links import filled, links_of
from deedbox.gate.notices import LINK, Notice, enqueue
from deedbox.model.backoff import Retry
from deedbox.model.errors import InvalidValueError
from deedbox.store import decision
from deedbox.store.pool import Pool
from deedbox.store.prune import Retention
from deedbox.store.transaction import transaction
from deedbox.sweep.prune import Pruning
from tests.builders import Built, Outbox, Planned, outbox_on
from tests.database import TestDatabase
from tests.guarantees import proves

pytestmark = pytest.mark.anyio

URL = "https://desk.example"
LOST = Ambiguous("timed_out", "No answer came in time.", "body_sent")
BUSY = Transient("overloaded", "http_503", "Not now.", "answered")


@pytest.fixture
async def box(database: TestDatabase) -> AsyncIterator[Outbox]:
    async with outbox_on(database) as made:
        yield made


def notice(**given: Any) -> Notice:
    usual = Notice("callback", "default", "note", "desk", {"text": "Grüße"}, "Says hello.")
    return replace(usual, **given)


async def say(box: Outbox, *notices: Notice) -> list[UUID]:
    async with transaction(box.pool) as connection:
        return await enqueue(connection, box.ids, notices)


async def waiting(box: Outbox) -> tuple[Built, UUID]:
    """A job that waits for a person, and the approval."""
    built = await box.build(state="awaiting_human", open_groups=["default"])
    approval_id = await box.database.value("SELECT approval_id FROM deedbox.approval WHERE job_id = %s", built.job_id)
    return built, UUID(str(approval_id))


def asks(approval_id: UUID, **given: Any) -> Notice:
    payload = {"text": f"Look here: {LINK}", "more": [{"again": LINK}, 1]}
    return notice(template="approval.request", payload=payload, approval_id=approval_id, **given)


async def end(box: Outbox, built: Built, approval_id: UUID) -> None:
    """What every end of an approval does to it, in a transaction of its own."""
    async with transaction(box.pool) as connection:
        await decision.lock_job(connection, built.job_id)
        await decision.lock_standing(connection, approval_id, "default", None)
        await decision.end_approval(
            connection, approval_id=approval_id, state="expired", decided_by=None, how="sweep", reason=None
        )


@proves("G-NOTICE")
async def test_a_notice_goes_out_while_acts_are_held_and_acts_while_notices_are(box: Outbox):
    await box.turn(on=False)
    built = await box.build(Planned())
    (effect_id,) = await say(box, notice(job_id=built.job_id))
    assert await box.dispatcher(environment_on=False).once() == 1
    assert await box.state(effect_id) == "completed"
    assert [(order.effect_id, order.payload) for order in box.connector.sent] == [(str(effect_id), {"text": "Grüße"})]
    assert await box.state(built.effect_id) == "pending"
    await box.turn(on=True)
    await box.database.rows("UPDATE deedbox.switch SET is_on = false WHERE switch_id = 'notices'")
    (held,) = await say(box, notice(job_id=built.job_id))
    assert await box.dispatcher().once() == 1
    assert [await box.state(one) for one in (built.effect_id, held)] == ["completed", "pending"]
    assert await box.job_state(built.job_id) == "completed"
    # Neither is in the job's history or among what it did.
    assert await box.events(built.job_id) == ["job.queued", "effect.sending", "effect.completed", "job.completed"]
    assert await box.database.value("SELECT jsonb_array_length(done) FROM deedbox.result WHERE job_id = %s", built.job_id) == 1


@proves("G-NOTICE")
@pytest.mark.parametrize("kind", ["act", "notice"])
async def test_the_built_in_verdict_is_for_notices_alone_and_they_have_no_other(box: Outbox, kind: str):
    (effect_id,) = await say(box, notice())
    rule = "system.notice" if kind == "act" else "allow_everything"
    query = (
        "INSERT INTO deedbox.verdict (verdict_id, job_id, group_name, decision, rule, policy_version, effect_digests,"
        " decided_at) SELECT %s, job_id, group_name, 'allow', %s, policy_version, effect_digests, decided_at"
        " FROM deedbox.verdict WHERE job_id = %s RETURNING verdict_id"
    )
    verdict_id = await box.database.value(query, box.ids.new(), rule, effect_id)
    with pytest.raises(psycopg.Error) as refused:
        await box.database.rows(
            "INSERT INTO deedbox.effect (effect_id, job_id, tenant, action, kind, proposal_effect_id, connector, target, slot,"
            " digest, verdict_id, state, not_before, not_after) SELECT %s, job_id, tenant, action, %s, proposal_effect_id,"
            " connector, target, 'another', digest, %s, 'pending', not_before, not_after FROM deedbox.effect"
            " WHERE effect_id = %s",
            *(box.ids.new(), kind, verdict_id, effect_id),
        )
    assert refused.value.sqlstate == "DB002"


async def test_what_has_a_name_is_said_once_whoever_says_it_at_the_same_moment(box: Outbox):
    async with transaction(box.pool) as first:
        made = await enqueue(first, box.ids, [notice(once="hello"), notice()])
        second = asyncio.create_task(say(box, notice(once="hello"), notice(once="bye")))
        await box.until_blocked()
    assert (len(made), len(await second)) == (2, 1)
    assert await say(box, notice(once="hello"), notice(once="bye")) == []
    assert await box.dispatcher().once() == 3


async def test_only_what_is_in_the_table_can_be_said_and_only_what_has_bytes(box: Outbox):
    with pytest.raises(ValueError, match="template"):
        await say(box, notice(template="anything"))
    with pytest.raises(InvalidValueError):
        await say(box, notice(payload={"number": 2**60}))
    assert await box.database.value("SELECT count(*) FROM deedbox.notice") == 0


@pytest.mark.parametrize("lives", [False, True])
async def test_a_doubtful_end_closes_a_notice_unless_its_receiver_knows_the_key(box: Outbox, lives: bool):
    if lives:
        box.connector.can, box.connector.ttl_s = "native_key", 3600.0
    box.connector.script.append(LOST)
    (effect_id,) = await say(box, notice())
    await box.dispatcher(retry=Retry(attempts=3, base=0.001, cap=0.001)).once()
    assert await box.state(effect_id) == ("pending" if lives else "unknown_closed")
    await box.database.shift_clock(60)
    assert await box.dispatcher().once() == (1 if lives else 0)
    assert await box.database.value("SELECT count(*) FROM deedbox.alert") == 0


@pytest.mark.parametrize("lives", [False, True])
async def test_a_lost_sender_closes_a_notice_unless_its_receiver_knows_the_key(box: Outbox, lives: bool):
    if lives:
        box.connector.can, box.connector.ttl_s = "native_key", 3600.0
        await say(box, notice())
        await box.dispatcher().once()  # which declares the target
    (effect_id,) = await say(box, notice())
    assert len(await box.lease(lease_s=5)) == 1
    await box.database.shift_clock(6)
    await box.rescue()
    assert await box.state(effect_id) == ("pending" if lives else "unknown_closed")


# Links -----------------------------------------------------------------------------------------------------------------------


@proves("G-LINK-MINTED")
async def test_a_link_is_minted_for_each_sending_and_its_token_is_in_no_table(box: Outbox):
    _, approval_id = await waiting(box)
    (effect_id,) = await say(box, asks(approval_id))
    box.connector.script.append(BUSY)
    dispatcher = box.dispatcher(public_url=URL + "/", retry=Retry(attempts=3, base=0.001, cap=0.001))
    await dispatcher.once()
    await box.database.shift_clock(60)
    await dispatcher.once()
    assert await box.state(effect_id) == "completed"
    links = [str(order.payload["text"]).removeprefix("Look here: ") for order in box.connector.sent]
    assert [order.payload["more"] for order in box.connector.sent] == [[{"again": link}, 1] for link in links]
    assert all(link.startswith(f"{URL}/approvals/{approval_id}?t=") for link in links)
    tokens = [link.partition("?t=")[2] for link in links]
    assert len(set(tokens)) == 2
    assert all(len(token) >= 43 for token in tokens)
    stored = await box.database.rows("SELECT token_sha256 FROM deedbox.approval_token WHERE voided_at IS NULL")
    assert {row[0] for row in stored} == {hashlib.sha256(token.encode()).digest() for token in tokens}
    everything = await box.database.value(
        "SELECT string_agg(convert_from(body, 'utf8'), ' ') FROM deedbox.proposal_effect WHERE body IS NOT NULL"
    )
    assert LINK in str(everything)
    assert not [token for token in tokens if token in str(everything)]


@proves("G-LINK-MINTED")
async def test_the_hash_is_committed_before_the_connector_is_called(box: Outbox):
    _, approval_id = await waiting(box)
    await say(box, asks(approval_id))
    seen: list[object] = []

    async def look(order: EffectOrder) -> Outcome:
        token = str(order.payload["text"]).partition("?t=")[2]
        kept = await box.database.rows("SELECT token_sha256 FROM deedbox.approval_token")
        seen.extend(row[0] == hashlib.sha256(token.encode()).digest() for row in kept)
        return Receipt("seen")

    box.connector.script.append(look)
    await box.dispatcher(public_url=URL).once()
    assert seen == [True]


@proves("G-LINK-MINTED")
async def test_a_decision_voids_every_link_and_withdraws_what_was_still_to_be_said(box: Outbox):
    built, approval_id = await waiting(box)
    (sent,) = await say(box, asks(approval_id))
    await box.dispatcher(public_url=URL).once()
    later, other = await say(box, asks(approval_id), notice())
    await end(box, built, approval_id)
    assert [await box.state(one) for one in (sent, later, other)] == ["completed", "canceled", "pending"]
    assert await box.database.value("SELECT count(*) FROM deedbox.approval_token WHERE voided_at IS NULL") == 0


@proves("G-LINK-MINTED")
async def test_what_is_decided_after_the_lease_is_withdrawn_before_anything_is_dialled(
    box: Outbox, monkeypatch: pytest.MonkeyPatch
):
    built, approval_id = await waiting(box)
    (effect_id,) = await say(box, asks(approval_id))

    async def decided_meanwhile(pool: Pool, effect_id: UUID, public_url: str | None) -> Any:
        await end(box, built, approval_id)
        return await links_of(pool, effect_id, public_url)

    monkeypatch.setattr("deedbox.dispatch.loop.links_of", decided_meanwhile)
    await box.dispatcher(public_url=URL).once()
    assert (await box.state(effect_id), box.connector.sent) == ("canceled", [])
    row = "SELECT attempt, code FROM deedbox.effect WHERE effect_id = %s"
    assert await box.database.rows(row, effect_id) == [(0, "approval_decided")]


@proves("G-LINK-MINTED")
async def test_no_link_is_made_behind_a_decision_in_progress(box: Outbox):
    built, approval_id = await waiting(box)
    (effect_id,) = await say(box, asks(approval_id))
    async with transaction(box.pool) as connection:
        await decision.lock_job(connection, built.job_id)
        await decision.lock_standing(connection, approval_id, "default", None)
        sending = asyncio.create_task(box.dispatcher(public_url=URL).once())
        await box.until_blocked()
        await decision.end_approval(
            connection, approval_id=approval_id, state="expired", decided_by=None, how="sweep", reason=None
        )
    await sending
    assert (await box.state(effect_id), box.connector.sent) == ("canceled", [])
    assert await box.database.value("SELECT count(*) FROM deedbox.approval_token") == 0


async def test_without_a_public_url_a_notice_that_needs_a_link_is_not_sent(box: Outbox, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("deedbox.dispatch.loop.SETTLE_TRIES", 1)
    _, approval_id = await waiting(box)
    (effect_id,) = await say(box, asks(approval_id))
    await box.dispatcher().once()
    assert (await box.state(effect_id), box.connector.sent) == ("pending", [])


def test_placeholders_are_replaced_in_texts_alone():
    payload = {LINK: LINK, "list": [LINK, {"in": f"<{LINK}>"}], "number": 1, "none": None}
    assert filled(payload, {LINK: "L"}) == {LINK: "L", "list": ["L", {"in": "<L>"}], "number": 1, "none": None}


# Growth ----------------------------------------------------------------------------------------------------------------------


@proves("G-PRUNED-CONTENTS")
async def test_notices_go_with_their_job_or_when_their_own_time_has_passed(box: Outbox):
    built = await box.build(Planned())
    with_job, alone = await say(box, notice(job_id=built.job_id), notice())
    await box.dispatcher().once()
    (late,) = await say(box, notice(not_after_s=40 * 86400))
    await box.database.rows("INSERT INTO deedbox.job_payload (job_id, input) VALUES (%s, '{}')", built.job_id)
    await box.database.shift_clock(3 * 86400)
    await Pruning(box.pool, box.ids, Retention(contents_s=30 * 86400, by_action={"send_note": 86400})).turn()
    bodies = "SELECT proposal_effect_id FROM deedbox.proposal_effect WHERE body IS NOT NULL ORDER BY 1"
    assert await box.database.rows(bodies) == [(alone,), (late,)]
    await box.database.shift_clock(31 * 86400)
    await Pruning(box.pool, box.ids, Retention(contents_s=30 * 86400)).turn()
    left = {"notice": "effect_id", "effect": "effect_id", "verdict": "job_id", "proposal_effect": "proposal_effect_id"}
    for table, column in left.items():
        query = f"SELECT {column} FROM deedbox.{table} WHERE {column} = ANY (%s)"  # noqa: S608 -- the names stand above
        assert await box.database.rows(query, [with_job, alone, late]) == [(late,)], table
    assert await box.database.rows("SELECT FROM deedbox.receipt WHERE job_id = ANY (%s)", [with_job, alone]) == []
