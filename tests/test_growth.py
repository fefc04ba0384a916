"""Growth: contents go when their time is up, keys outlive them, and each job has one place."""

import asyncio
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql

from deedbox.intake.request import Accepted, Request, Upload
from deedbox.model.errors import DeedboxError
from deedbox.operate.approvals import Approvals
from deedbox.operate.doctor import read_figures
from deedbox.operate.verbs import Verbs
from deedbox.operate.views import Views
from deedbox.store import audit, prune
from deedbox.store.prune import DAY_S, Retention
from deedbox.store.transaction import transaction
from tests.database import TestDatabase
from tests.growth import MARK, finish_note, make_app, pruning, until_blocked, working
from tests.guarantees import proves
from tests.road import Road, road

pytestmark = pytest.mark.anyio


async def tables_with(database: TestDatabase, text: str) -> set[str]:
    """Every table of the schema that holds the text anywhere, in bytes as well."""
    found: set[str] = set()
    async with await psycopg.AsyncConnection[Any].connect(database.owner_url, autocommit=True) as connection:
        cursor = await connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'deedbox'::regnamespace AND relkind = 'r'"
        )
        for (name,) in await cursor.fetchall():
            query = sql.SQL("SELECT count(*) FROM deedbox.{} AS t WHERE t::text LIKE %s OR t::text LIKE %s")
            cursor = await connection.execute(query.format(sql.Identifier(name)), [f"%{text}%", f"%{text.encode().hex()}%"])
            row = await cursor.fetchone()
            if row and row[0]:
                found.add(str(name))
    return found


@proves("G-PRUNED-CONTENTS")
async def test_after_its_retention_content_is_in_no_table_and_what_is_provable_stays(database: TestDatabase) -> None:
    async with working(database) as one:
        job_id = await finish_note(one, "k1")
        await one.stop_all()
        before = await tables_with(database, MARK)
        assert {"job_payload", "document", "job_document", "step", "proposal_effect"} <= before
        assert len(before) >= 8
        digests = await database.rows("SELECT digest FROM deedbox.proposal_effect UNION ALL SELECT digest FROM deedbox.effect")
        pruner = pruning(one)
        fresh = await Views(one.pool, one.app.actions).job(one.approver, job_id)
        assert fresh is not None
        assert fresh.contents_pruned_at is None
        await database.shift_clock(89 * DAY_S)
        await pruner.turn()
        assert await tables_with(database, MARK) == before
        await database.shift_clock(91 * DAY_S)
        await pruning(one).turn()
        assert await tables_with(database, MARK) == set()
        assert await one.state(job_id) == "completed"
        assert digests == await database.rows(
            "SELECT digest FROM deedbox.proposal_effect UNION ALL SELECT digest FROM deedbox.effect"
        )
        assert await database.value("SELECT state FROM deedbox.approval") == "approved"
        assert await database.value("SELECT decided_by FROM deedbox.approval") is not None
        assert await database.value("SELECT provider_id FROM deedbox.receipt") == "provider-line"
        assert await audit.verify(one.pool) is None
        seqs = [seq for seq, _ in await one.events(job_id)]
        assert seqs == list(range(1, len(seqs) + 1))
        view = await Views(one.pool, one.app.actions).job(one.approver, job_id)
        assert view is not None
        assert view.effects[0].provider_id == "provider-line"
        assert view.contents_pruned_at is not None
        assert await database.value("SELECT final_state FROM deedbox.idempotency") == "completed"


@proves("G-PRUNED-CONTENTS")
async def test_each_action_keeps_its_own_time_counted_from_the_end(database: TestDatabase) -> None:
    async with working(database) as one:
        brief = await one.submit("brief_note", {"text": "a"}, "k")
        usual = await one.submit("echo_note", {"text": "b"}, "k")
        await one.until(brief.job_id, "completed")
        await one.until(usual.job_id, "completed")
        await one.stop_all()
        waiting = await one.submit("brief_note", {"text": "c"}, "live")
        await database.shift_clock(11 * DAY_S)
        await pruning(one).turn()
        left = {row[0] for row in await database.rows("SELECT job_id FROM deedbox.job_payload")}
        assert left == {usual.job_id, waiting.job_id}
        assert await database.value("SELECT output FROM deedbox.result WHERE job_id = %s", brief.job_id) is None
        assert await database.value("SELECT output FROM deedbox.result WHERE job_id = %s", usual.job_id) == {"text": "b"}


async def test_the_card_and_the_ledger_of_a_pruned_job_can_be_read(database: TestDatabase) -> None:
    async with working(database) as one:
        await finish_note(one, "k1")
        await one.stop_all()
        await database.shift_clock(91 * DAY_S)
        await pruning(one).turn()
        url = "http://127.0.0.1:8484"
        approvals = Approvals(one.pool, one.ids, public_url=url, connectors=one.app.connectors, actions=one.app.actions)
        approval_id = UUID(str(await database.value("SELECT approval_id FROM deedbox.approval")))
        card = await approvals.card("default", approval_id, one.approver)
        assert card is not None
        assert (card.state, card.pruned_at is not None) == ("approved", True)
        verbs = Verbs(one.pool, one.ids, one.app.connectors, environment_on=True)
        (line,) = await verbs.effects(one.approver)
        assert (await verbs.effect(one.approver, line["effect_id"]))["receipts"][0]["provider_id"] == "provider-line"


async def test_a_document_stays_as_long_as_one_job_shows_it(database: TestDatabase) -> None:
    async with working(database) as one:
        upload = {"file": [Upload("a.txt", "text/plain", b"one and the same")]}
        first = await one.intake.submit(Request(one.caller, "brief_note", {"text": "a"}, "k", "http", upload))
        second = await one.intake.submit(Request(one.caller, "echo_note", {"text": "b"}, "k", "http", upload))
        await one.until(first.job_id, "completed")
        await one.until(second.job_id, "completed")
        assert await database.value("SELECT count(*) FROM deedbox.document") == 1
        await database.shift_clock(11 * DAY_S)
        await pruning(one).turn()
        assert await database.value("SELECT count(*) FROM deedbox.document") == 1
        await database.shift_clock(91 * DAY_S)
        await pruning(one).turn()
        assert await database.value("SELECT count(*) FROM deedbox.document") == 0


async def test_an_upload_that_meets_the_pruning_of_its_document_is_stored(database: TestDatabase) -> None:
    async with working(database) as one:
        upload = {"file": [Upload("a.txt", "text/plain", b"one and the same")]}
        first = await one.intake.submit(Request(one.caller, "brief_note", {"text": "a"}, "k", "http", upload))
        await one.until(first.job_id, "completed")
        async with transaction(one.pool) as connection:
            await prune.remove_contents(connection, [first.job_id], key_s=DAY_S)
            again = asyncio.create_task(
                one.intake.submit(Request(one.caller, "brief_note", {"text": "b"}, "k2", "http", upload))
            )
            await until_blocked(database)
        job = await again
        await one.until(job.job_id, "completed")
        assert await database.value("SELECT count(*) FROM deedbox.document") == 1


async def replay(one: Road, action: str, key: str) -> Accepted | str:
    """What the same delivery gets again: the job, or the code of the refusal."""
    try:
        return await one.submit(action, {"text": MARK if action == "write_note" else "a"}, key)
    except DeedboxError as refused:
        return refused.code


@proves("G-PRUNED-410")
async def test_a_replay_after_the_records_are_gone_is_told_so_and_starts_nothing(database: TestDatabase) -> None:
    async with working(database) as one:
        await finish_note(one, "k1")
        await one.stop_all()
        await database.shift_clock(91 * DAY_S)
        await pruning(one).turn()
        await database.shift_clock(500 * DAY_S)
        await pruning(one).turn()
        assert await database.value("SELECT count(*) FROM deedbox.job") == 0
        assert await replay(one, "write_note", "k1") == "pruned"
        assert await database.value("SELECT count(*) FROM deedbox.queue") == 0
        assert await database.value("SELECT final_state FROM deedbox.idempotency") == "completed"


@proves("G-PRUNED-410")
async def test_a_replay_after_the_contents_are_gone_is_told_so(database: TestDatabase) -> None:
    async with working(database) as one:
        job = await one.submit("echo_note", {"text": "a"}, "k")
        await one.until(job.job_id, "completed")
        assert isinstance(await replay(one, "echo_note", "k"), Accepted)
        await database.shift_clock(91 * DAY_S)
        await pruning(one).turn()
        assert await replay(one, "echo_note", "k") == "pruned"


@proves("G-KEYS-OUTLIVE")
async def test_the_key_of_a_job_with_effects_never_expires_and_any_other_does(database: TestDatabase) -> None:
    async with working(database) as one:
        await finish_note(one, "k1")
        job = await one.submit("echo_note", {"text": "a"}, "k2")
        await one.until(job.job_id, "completed")
        await one.stop_all()
        live = await one.submit("echo_note", {"text": "live"}, "k3")
        await database.rows("UPDATE deedbox.idempotency SET expires_at = deedbox.clock() WHERE job_id = %s", live.job_id)
        await database.shift_clock(91 * DAY_S)
        await pruning(one).turn()
        await database.shift_clock(401 * DAY_S)
        await pruning(one).turn()
        keys = await database.rows("SELECT action, expires_at IS NULL FROM deedbox.idempotency ORDER BY action DESC")
        assert keys == [("write_note", True), ("echo_note", False)]
        again = await replay(one, "echo_note", "k2")
        assert isinstance(again, Accepted)
        assert not again.replayed
        assert await database.value("SELECT count(*) FROM deedbox.idempotency WHERE job_id = %s", live.job_id) == 1


async def test_a_parked_job_that_nobody_takes_up_is_closed(database: TestDatabase) -> None:
    async with working(database) as one:
        job = await one.submit("brief_note", {"text": "park"}, "k")
        await one.until(job.job_id, "failed_retryable")
        await database.shift_clock(9 * DAY_S)
        await pruning(one).turn()
        assert await one.state(job.job_id) == "failed_retryable"
        await database.shift_clock(11 * DAY_S)
        await pruning(one).turn()
        assert await one.state(job.job_id) == "failed_terminal"
        assert await database.value("SELECT code FROM deedbox.result") == "closed"
        assert (await one.events(job.job_id))[-1][1] == "job.failed"


@proves("G-QUEUE-OR-RESULT")
@pytest.mark.parametrize("broken", ["both", "neither"])
async def test_a_job_with_two_places_or_none_is_found(database: TestDatabase, broken: str) -> None:
    async with road(database, make_app()) as one:
        fine = await one.submit("echo_note", {"text": "a"}, "fine")
        job = await one.submit("echo_note", {"text": "a"}, "k")
        one.start(one.worker())
        await one.until(fine.job_id, "completed")
        await one.until(job.job_id, "completed")
        await pruning(one).turn()
        assert (await read_figures(one.pool, "default"))[1] is None
        if broken == "both":
            await database.rows(
                "INSERT INTO deedbox.queue (job_id, lane_id, state, action_version, run_at, attempts_allowed, due)"
                " SELECT %s, lane_id, 'awaiting_human', 1, deedbox.clock(), 1, false FROM deedbox.lane LIMIT 1",
                job.job_id,
            )
        else:
            await database.rows("DELETE FROM deedbox.result WHERE job_id = %s", job.job_id)
        assert (await read_figures(one.pool, "default"))[1] == job.job_id
        await pruning(one).turn()
        await pruning(one).turn()
        assert await database.rows("SELECT cause, job_id FROM deedbox.alert") == [("job_misplaced", job.job_id)]


async def test_old_calls_go_with_the_records(database: TestDatabase) -> None:
    async with working(database) as one:
        job = await one.submit("echo_note", {"text": "a"}, "k")
        await one.until(job.job_id, "completed")
        await replay(one, "echo_note", "k")
        await database.shift_clock(399 * DAY_S)
        await pruning(one).turn()
        assert await database.value("SELECT count(*) FROM deedbox.call") == 1
        await database.shift_clock(401 * DAY_S)
        await pruning(one).turn()
        assert await database.value("SELECT count(*) FROM deedbox.call") == 0


def test_an_action_says_how_long_its_contents_are_kept() -> None:
    assert make_app().actions["brief_note"].keep_s == 10 * DAY_S
    retention = Retention.in_days(90, 400, {"a": 10 * DAY_S, "b": None})
    assert retention.least_s == 10 * DAY_S
    assert retention.longest_s == 400 * DAY_S
