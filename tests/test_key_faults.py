"""Faults of keys that users of such systems met: a rival that wins or gives up, a key that is freed, two paths that disagree.

Beside these: parallel deliveries (test_http_accept), a killed worker (test_kill), a lost answer (test_delivery), equal payloads
spelt differently (test_http_accept), and what many at once are answered (test_many).
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
from pydantic import BaseModel

from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.intake.documents import parse_canonically
from deedbox.intake.request import Accepted, Request
from deedbox.intake.submit import Intake
from deedbox.model.errors import DeedboxError
from deedbox.model.policy import allow
from deedbox.store.pool import Pool
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import Road, road

pytestmark = pytest.mark.anyio


class Ask(BaseModel):
    text: str = ""


def desk(runs: list[str]) -> App:
    app = App()

    @app.action(roles=["operator"], policy=allow())
    async def ask_once(_ctx: Context, given: Ask) -> Ask:
        runs.append(given.text)
        raise RuntimeError("after everything had been done")

    assert ask_once
    return app


@pytest.fixture
async def one(database: TestDatabase) -> AsyncIterator[Road]:
    async with road(database, desk([])) as made:
        yield made


async def until_somebody_waits(database: TestDatabase) -> None:
    """Return once PostgreSQL says that a session waits for a lock of another."""
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"
    )
    async with asyncio.timeout(20):
        while await database.value(query) == 0:  # noqa: ASYNC110 -- each round is a question to PostgreSQL
            await asyncio.sleep(0)


@proves("G-ACCEPT-ONCE", "G-REPLAY")
@pytest.mark.parametrize("rival_commits", [True, False])
async def test_who_meets_a_rival_in_the_middle_replays_or_becomes_the_owner(
    one: Road, database: TestDatabase, *, rival_commits: bool
):
    """Between a check and an insert there is nothing: the claim is the insert, and who waited for a rival sees what it did."""
    first = await one.submit("ask_once", {"text": "a"}, "k")
    [row] = await database.rows("SELECT * FROM deedbox.idempotency")
    await database.rows("DELETE FROM deedbox.idempotency")
    pool = Pool(database.url, "rival", size=3)
    await pool.open()
    async with pool.connection() as rival, rival.transaction(force_rollback=not rival_commits):
        await rival.execute(
            f"INSERT INTO deedbox.idempotency VALUES ({', '.join(['%s'] * len(row))})".encode(),  # noqa: S608 -- placeholders
            list(row),
        )
        waiting = asyncio.create_task(one.submit("ask_once", {"text": "a"}, "k"))
        await until_somebody_waits(database)
        assert not waiting.done()
    answer = await waiting
    await pool.close()
    assert (answer.job_id == first.job_id, answer.replayed) == (rival_commits, rival_commits)
    assert await database.value("SELECT count(*) FROM deedbox.idempotency") == 1


@proves("G-KEY-KEPT")
async def test_no_exception_and_no_time_frees_a_key(database: TestDatabase):
    runs: list[str] = []
    async with road(database, desk(runs)) as one:
        job_id = (await one.submit("ask_once", {"text": "a"}, "k")).job_id
        one.start(one.worker())
        await one.until(job_id, "failed_terminal")
        for seconds in (0, 3600, 300 * 86400):
            await database.shift_clock(seconds)
            again = await one.submit("ask_once", {"text": "a"}, "k")
            assert (again.job_id, again.state, again.replayed) == (job_id, "failed_terminal", True)
            with pytest.raises(DeedboxError, match="another payload"):
                await one.submit("ask_once", {"text": "b"}, "k")
        assert runs == ["a"]


@proves("G-ACCEPT-ONCE")
async def test_one_and_many_and_read_or_not_are_one_path(one: Road, database: TestDatabase):
    body = {"text": "1.0 and ü"}
    parsed = parse_canonically(b'{ "text" : "1.0 and \\u00fc" }')
    ways = {
        "one": Request(one.caller, "ask_once", body, "one", "http"),
        "read": Request(one.caller, "ask_once", parsed.value, "read", "http", parsed=parsed),
        "many": Request(one.caller, "ask_once", body, "many", "http"),
        "many read": Request(one.caller, "ask_once", parsed.value, "many read", "http", parsed=parsed),
    }
    for name in ("one", "read"):
        await one.intake.submit(ways[name])
    answers = await one.intake.submit_many([ways["many"], ways["many read"]])
    assert all(isinstance(answer, Accepted) and not answer.replayed for answer in answers)
    stored = await database.rows(
        "SELECT DISTINCT j.action_version, j.key_source, j.subject, j.role, j.source, i.payload_sha256, p.input, q.state,"
        " q.priority, q.attempts_allowed, e.type, e.seq FROM deedbox.job j JOIN deedbox.idempotency i USING (job_id)"
        " JOIN deedbox.job_payload p USING (job_id) JOIN deedbox.queue q USING (job_id) JOIN deedbox.event e USING (job_id)"
    )
    assert len(stored) == 1
    other = Intake(one.pool, one.ids, one.app.actions, public_url="http://127.0.0.1", max_waiting=1000)
    again = await other.submit_many(list(ways.values()))
    assert [isinstance(answer, Accepted) and answer.replayed for answer in again] == [True] * 4
