"""Agents whose tools have no outcome yet: held for a person or by the switch, unknown, or deeper than agents may go."""

from uuid import UUID

import pytest

from deedbox.dispatch.loop import Dispatcher
from deedbox.extend.connector import Ambiguous
from deedbox.store import switch
from deedbox.store.transaction import transaction
from tests.agency import ANSWER, COUNT, NOTE, VALID, agency, children, ran, result
from tests.apps.agent import app, note
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.modelled import endpoint
from tests.road import until
from tests.servers.openai_endpoint import OpenAiEndpoint, calls_of
from tests.test_gate import say

pytestmark = pytest.mark.anyio


@proves("G-AGENT-PENDING")
async def test_a_held_tool_ends_the_turn_and_its_outcome_is_what_goes_on(database: TestDatabase) -> None:
    with OpenAiEndpoint([calls_of(NOTE, COUNT), VALID], valid=ANSWER) as server:
        async with agency(database, endpoint(server.base_url)) as one:
            async with transaction(one.pool) as connection:
                await switch.turn_root(connection, "acts", is_on=True, changed_by="test", reason="a test")
            job = await one.submit("answer_customer", {})
            waits = (
                "SELECT payload->>'code', payload->>'message' FROM deedbox.event WHERE job_id = %s AND type = 'job.retrying'"
            )
            (said,) = await until(lambda: database.rows(waits + " ORDER BY seq LIMIT 1", job.job_id), bool, within=30)
            assert said[0] == "tool_pending"
            assert "person" in str(said[1])
            assert len(server.requests) == 1, "nobody tells the model that something was done"
            rows = await database.rows("SELECT approval_id, encode(digest, 'hex') FROM deedbox.approval")
            assert await say(one, (UUID(str(rows[0][0])), str(rows[0][1]))) == "approved"
            one.start(Dispatcher(one.pool, one.ids, app.connectors, environment_on=True))
            child = UUID(str(await database.value("SELECT job_id FROM deedbox.job WHERE action = 'send_note'")))
            await one.until(child, "completed", within=30)
            await database.rows("UPDATE deedbox.queue SET run_at = deedbox.clock(), due = true WHERE state = 'queued'")
            await one.until(job.job_id, "completed", within=60)
            assert sorted(await children(database, job.job_id)) == [("count_order", "completed"), ("send_note", "completed")]
    assert len(server.requests) == 2
    assert [item["status"] for item in server.requests[1].answers] == ["success", "success"]
    assert len(note.sent) == 1


@proves("G-AGENT-PENDING")
async def test_waiting_uses_up_no_attempt(database: TestDatabase) -> None:
    """Four attempts are allowed; the person takes six looks, and three failures after that are still tried again."""
    with OpenAiEndpoint([calls_of(NOTE), VALID], valid=ANSWER) as server:
        async with agency(database, endpoint(server.base_url)) as one:
            async with transaction(one.pool) as connection:
                await switch.turn_root(connection, "acts", is_on=True, changed_by="test", reason="a test")
            job = await one.submit("answer_customer", {"fails": 9, "wait_s": 0.2})
            due = "UPDATE deedbox.queue SET run_at = deedbox.clock(), due = true WHERE job_id = %s"
            stands = (
                "SELECT attempt, attempts_allowed FROM deedbox.queue WHERE job_id = %s AND state = 'queued' AND attempt = %s"
            )
            for number in range(1, 7):
                (row,) = await until(lambda n=number: database.rows(stands, job.job_id, n), bool, within=30)
                assert row == (number, number + 4)
                if number < 6:
                    await database.rows(due, job.job_id)
            rows = await database.rows("SELECT approval_id, encode(digest, 'hex') FROM deedbox.approval")
            assert await say(one, (UUID(str(rows[0][0])), str(rows[0][1]))) == "approved"
            one.start(Dispatcher(one.pool, one.ids, app.connectors, environment_on=True))
            child = UUID(str(await database.value("SELECT job_id FROM deedbox.job WHERE action = 'send_note'")))
            await one.until(child, "completed", within=30)
            await database.rows(due, job.job_id)
            assert await one.until(job.job_id, "completed", within=60) == "completed"
            assert await database.value("SELECT attempt FROM deedbox.result WHERE job_id = %s", job.job_id) == 10
    assert len(server.requests) == 2


@proves("G-AGENT-GATE")
async def test_agents_that_call_agents_go_five_deep_and_no_deeper(database: TestDatabase) -> None:
    script = [calls_of((f"ask_{number}", {"text": "Ask the next one."})) for number in range(1, 7)]
    with OpenAiEndpoint([*script, VALID], valid=ANSWER) as server:
        async with agency(database, endpoint(server.base_url), slots=8) as one:
            _, state = await ran(one, {"tools": ["ask_1"], "wait_s": 60})
            below = await database.value("SELECT max(action) FROM deedbox.job WHERE action LIKE 'ask%%'")
            assert (state, below) == ("completed", "ask_5")
    told = [answer for request in server.requests for answer in request.answers]
    refused = [answer for answer in told if answer["status"] == "error"]
    assert [answer["error_code"] for answer in refused] == ["BUDGET_EXHAUSTED"]
    assert "5 deep" in refused[0]["human_message"]


@proves("G-AGENT-PENDING")
async def test_what_the_switch_holds_and_what_nobody_knows_is_waited_for(database: TestDatabase) -> None:
    """An approved note that the switch holds, and then one whose end is unknown: the model is told nothing of either."""
    with OpenAiEndpoint([calls_of(NOTE), VALID], valid=ANSWER) as server:
        async with agency(database, endpoint(server.base_url)) as one:
            note.script.append(Ambiguous("connection_lost", "The answer was lost.", "body_sent"))
            job = await one.submit("answer_customer", {"wait_s": 0.2})
            last = "SELECT (SELECT payload->>'message' FROM deedbox.event WHERE job_id = %s AND type = 'job.retrying'"
            last += " ORDER BY seq DESC LIMIT 1)"

            async def looks(word: str) -> None:
                due = "UPDATE deedbox.queue SET run_at = deedbox.clock(), due = true WHERE job_id = %s AND state = 'queued'"

                async def said() -> bool:
                    await database.rows(due, job.job_id)
                    return word in str(await database.value(last, job.job_id))

                await until(said, bool, within=30)

            await looks("person")
            rows = await database.rows("SELECT approval_id, encode(digest, 'hex') FROM deedbox.approval")
            assert await say(one, (UUID(str(rows[0][0])), str(rows[0][1]))) == "approved"
            await looks("switched off")
            async with transaction(one.pool) as connection:
                await switch.turn_root(connection, "acts", is_on=True, changed_by="test", reason="a test")
            one.start(Dispatcher(one.pool, one.ids, app.connectors, environment_on=True))
            await looks("not known whether it arrived")
            assert len(server.requests) == 1
            assert await one.state(job.job_id) in {"queued", "running"}


@proves("G-AGENT-PENDING")
async def test_a_handler_that_cannot_wait_answers_for_itself(database: TestDatabase) -> None:
    with OpenAiEndpoint([calls_of(NOTE)], valid=ANSWER) as server:
        async with agency(database, endpoint(server.base_url)) as one:
            job_id, _ = await ran(one, {"catches": True})
            assert (await result(database, job_id))[3] == {"text": "Waits for send_note.", "done": False}
    assert note.sent == []
