"""Agents whose tools are actions: once per call whatever happens to the worker, bounded, honest, and through the same gate."""

import asyncio
import json
import os
import signal
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from deedbox.gate.cancel import cancel_locked
from deedbox.operate.views import Views
from deedbox.store.transaction import transaction
from tests.agency import ANSWER, COUNT, NOTE, VALID, agency, children, ran, result
from tests.apps.agent import app
from tests.apps.launch import fleet
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.modelled import endpoint
from tests.road import road, until
from tests.servers.openai_endpoint import OpenAiEndpoint, Reply, calls_of

pytestmark = pytest.mark.anyio
AGENT = "tests.apps.agent:app"


@proves("G-AGENT-CHILD")
async def test_a_tool_runs_as_a_job_of_its_own_for_whoever_asked(database: TestDatabase, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    call = ("count_order", {"order_id": "4711", "marks": str(marks)})
    with OpenAiEndpoint([calls_of(call), VALID], valid=ANSWER) as server:
        async with agency(database, endpoint(server.base_url)) as one:
            job_id, state = await ran(one, {})
            assert state == "completed"
            assert (await result(database, job_id))[3] == ANSWER
            child = await database.rows(
                "SELECT job_id, action, subject, source, role FROM deedbox.job WHERE parent_job_id = %s", job_id
            )
            assert [row[1:] for row in child] == [("count_order", UUID(one.caller.principal_id), "job", "operator")]
    first, second = server.requests
    assert first.tools == ["count_order", "send_note"]
    (told,) = second.answers
    assert (told["status"], told["action"], told["data"]) == ("success", "count_order", {"state": "on its way"})
    assert told["job_id"] == str(child[0][0])
    assert len(marks.read_text().splitlines()) == 1
    spent = await database.rows("SELECT part, turn, tool_calls, input_tokens FROM deedbox.model_call ORDER BY turn")
    assert spent == [("agent agent", 0, 1, 11), ("agent agent", 1, 0, 11)]


@proves("G-AGENT-ONCE")
async def test_equal_calls_in_one_turn_and_in_later_ones_are_one_job(database: TestDatabase, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    given = {"order_id": "4711", "marks": str(marks)}
    swapped = '{"marks": ' + json.dumps(str(marks)) + ', "order_id": "\\u0034711"}'
    calls = calls_of(("count_order", given), ("count_order", given), ("count_order", swapped))
    with OpenAiEndpoint([calls, calls_of(("count_order", given)), VALID], valid=ANSWER) as server:
        async with agency(database, endpoint(server.base_url)) as one:
            job_id, state = await ran(one, {})
            assert (state, await children(database, job_id)) == ("completed", [("count_order", "completed")])
    assert len(marks.read_text().splitlines()) == 1
    told = server.requests[-1].answers
    assert [item["status"] for item in told] == ["success"] * 4
    assert len({item["job_id"] for item in told}) == 1


@proves("G-AGENT-RESUME", "G-KILL9")
async def test_a_kill_after_a_tool_repeats_neither_the_tool_nor_the_question(database: TestDatabase, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    call = ("count_order", {"order_id": "4711", "marks": str(marks)})
    with OpenAiEndpoint([calls_of(call), Reply(hang=True), VALID], valid=ANSWER) as server:
        settings = {
            "DEEDBOX_MODEL_BASE_URL": server.base_url,
            "DEEDBOX_MODEL_NAME": "tiny",
            "DEEDBOX_EGRESS_ALLOW": "127.0.0.1",
        }
        async with road(database, app) as one, fleet(database, AGENT, tmp_path / "log") as workers:
            job = await one.submit("answer_customer", {})
            first = await workers.start(**settings)
            await until(lambda: asyncio.sleep(0, server.hanging.is_set()), bool, within=90)
            os.kill(first.pid, signal.SIGKILL)
            await workers.start(**settings)
            await one.until(job.job_id, "completed", within=90)
            assert await database.value("SELECT attempt FROM deedbox.result WHERE job_id = %s", job.job_id) == 2
            assert await children(database, job.job_id) == [("count_order", "completed")]
    # What the model had said is not asked again: the second worker goes on with the question that had no answer.
    assert [len(request.body["messages"]) for request in server.requests] == [2, 4, 4]
    assert server.requests[1].body["messages"] == server.requests[2].body["messages"]
    assert len(marks.read_text().splitlines()) == 1


@proves("G-AGENT-RESUME")
async def test_a_failing_model_ends_the_attempt_and_the_next_one_goes_on(database: TestDatabase) -> None:
    with OpenAiEndpoint([calls_of(COUNT), 500, 503, VALID], valid=ANSWER) as server:
        async with agency(database, endpoint(server.base_url)) as one:
            job_id, state = await ran(one, {})
            assert (state, await children(database, job_id)) == ("completed", [("count_order", "completed")])
            codes = await database.rows("SELECT code FROM deedbox.attempt WHERE job_id = %s ORDER BY attempt", job_id)
    assert [row[0] for row in codes] == ["model_overloaded", "model_overloaded", None]
    assert len(server.requests) == 4
    assert server.requests[0].body["messages"] == server.requests[3].body["messages"][:2]


@proves("G-AGENT-RESUME")
async def test_a_failure_after_the_agent_asks_nothing_again(database: TestDatabase) -> None:
    with OpenAiEndpoint([calls_of(COUNT), VALID], valid=ANSWER) as server:
        async with agency(database, endpoint(server.base_url)) as one:
            _, state = await ran(one, {"fails": 2})
    assert (state, len(server.requests)) == ("completed", 2)


@proves("G-AGENT-GATE")
async def test_no_role_comes_in_by_an_agent(database: TestDatabase) -> None:
    call = ("close_account", {"text": "4711"})
    with OpenAiEndpoint([calls_of(call, ("erase_all", {})), VALID], valid=ANSWER) as server:
        async with agency(database, endpoint(server.base_url)) as one:
            job_id, state = await ran(one, {"tools": ["close_account"]})
            assert (state, await children(database, job_id)) == ("completed", [])
    told = [message["content"] for message in server.requests[1].body["messages"] if message["role"] == "tool"]
    refused = json.loads(told[0])
    assert (refused["status"], refused["error_code"], refused["retryable"]) == ("error", "PERMISSION_DENIED", False)
    assert "erase_all" in told[1]


@pytest.mark.parametrize(
    "given", [{}, {"order_id": None}, {"order_id": ""}, {"order_id": "4711", "role": "manager"}, "not json"]
)
async def test_bad_arguments_are_an_answer_and_start_nothing(database: TestDatabase, given: Any) -> None:
    with OpenAiEndpoint([calls_of(("count_order", given)), VALID], valid=ANSWER) as server:
        async with agency(database, endpoint(server.base_url)) as one:
            job_id, state = await ran(one, {})
            assert (state, await children(database, job_id)) == ("completed", [])
    if given != "not json":
        (told,) = server.requests[1].answers
        assert (told["status"], told["error_code"]) == ("error", "INVALID_INPUT")
        assert told["errors"]


@proves("G-AGENT-FINITE")
async def test_a_model_that_never_stops_calling_is_stopped(database: TestDatabase) -> None:
    numbers = iter(range(1000))

    def another(_: Any) -> Reply:
        return calls_of(("count_order", {"order_id": f"no {next(numbers)}"}))

    with OpenAiEndpoint([another], valid=ANSWER) as server:
        async with agency(database, endpoint(server.base_url)) as one:
            job_id, _ = await ran(one, {"tool_calls": 3})
            assert (await result(database, job_id))[:3] == ("failed_terminal", "denied", "budget_exhausted")
            assert len(await children(database, job_id)) == 3
    told = server.requests[-1].answers
    assert [item["error_code"] for item in told[3:]] == ["BUDGET_EXHAUSTED"] * len(told[3:])
    assert len(server.requests) <= 3 + 5


@proves("G-AGENT-FINITE")
@pytest.mark.parametrize(
    ("given", "usage", "most"),
    [({"requests": 2}, (11, 5), 2), ({}, (150_000, 5), 2), ({}, (11, 30_000), 2), ({"cost": "0.5"}, (100_000, 10), 2)],
    ids=["requests", "input", "output", "money"],
)
async def test_requests_tokens_and_money_are_bounded_over_all_attempts(
    database: TestDatabase, given: dict[str, Any], usage: tuple[int, int], most: int
) -> None:
    numbers = iter(range(1000))

    def another(_: Any) -> Reply:
        return calls_of(("count_order", {"order_id": f"no {next(numbers)}"}), usage=usage)

    with OpenAiEndpoint([another], valid=ANSWER) as server:
        async with agency(database, endpoint(server.base_url, input_price=Decimal(3), output_price=Decimal(15))) as one:
            job_id, _ = await ran(one, given)
            assert (await result(database, job_id))[:3] == ("failed_terminal", "denied", "budget_exhausted")
    assert len(server.requests) == most


@proves("G-AGENT-FINITE")
async def test_parents_that_wait_leave_room_for_what_they_wait_for(database: TestDatabase) -> None:
    with OpenAiEndpoint([lambda request: VALID if request.answers else calls_of(COUNT)], valid=ANSWER) as server:
        async with agency(database, endpoint(server.base_url), slots=1) as one:
            jobs = [await one.submit("answer_customer", {"text": f"{number}"}) for number in range(3)]
            for job in jobs:
                await one.until(job.job_id, "completed", within=60)
            waited = await database.value("SELECT count(*) FROM deedbox.event WHERE type = 'job.retrying'")
    assert (len(server.requests), waited) == (6, 0)
    assert all(told["status"] == "success" for request in server.requests for told in request.answers)


@pytest.mark.parametrize("last", ["prose", "cut_off", "refusal"])
async def test_the_last_answer_is_repaired_within_bounds_and_classified(database: TestDatabase, last: str) -> None:
    ends = {"prose": "invalid_output", "cut_off": "truncated", "refusal": "model_refused"}
    with OpenAiEndpoint([calls_of(COUNT), last], valid=ANSWER) as server:
        async with agency(database, endpoint(server.base_url)) as one:
            job_id, _ = await ran(one, {})
            assert (await result(database, job_id))[2] == ends[last]
    assert len(server.requests) == (2 if last == "refusal" else 3)


async def test_the_last_answer_is_repaired_and_the_job_says_what_it_took(database: TestDatabase) -> None:
    with OpenAiEndpoint([calls_of(COUNT), "prose", VALID], valid=ANSWER) as server:
        async with agency(database, endpoint(server.base_url, input_price=Decimal(3), output_price=Decimal(15))) as one:
            job_id, state = await ran(one, {})
            assert state == "completed"
            reader = replace(one.approver, roles=frozenset({"manager", "operator"}))
            view = await Views(one.pool, app.actions).job(reader, job_id)
            lines = await Views(one.pool, app.actions).timeline(reader, job_id) or []
    assert view is not None
    assert view.models == {
        "calls": 3,
        "requests": 3,
        "input_tokens": 33,
        "output_tokens": 15,
        "tool_calls": 1,
        "cost": {"USD": "0.000324"},
        "unpriced": 0,
    }
    assert [line.detail["turn"] for line in lines if line.kind == "model"] == [0, 1, 2]


@proves("G-AGENT-CANCEL")
async def test_a_canceled_parent_takes_what_it_has_called_with_it(database: TestDatabase) -> None:
    with OpenAiEndpoint([calls_of(NOTE), VALID], valid=ANSWER) as server:
        async with agency(database, endpoint(server.base_url)) as one:
            job = await one.submit("answer_customer", {})
            held = "SELECT count(*) FROM deedbox.approval WHERE state = 'pending'"
            await until(lambda: database.value(held), lambda count: count == 1, within=30)
            async with transaction(one.pool) as connection:
                await cancel_locked(connection, one.ids, job.job_id, "a test")
            await one.until(job.job_id, "canceled", within=30)
            assert await children(database, job.job_id) == [("send_note", "canceled")]
            assert await database.value(held) == 0
