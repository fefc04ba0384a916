"""Calls of tools that are one, the budget of a job that makes them, and the journal that leads both ways."""

import asyncio
from uuid import uuid4

import pytest

from deedbox.model.failure import ActionFailure
from deedbox.operate.answers import ask
from deedbox.operate.tools import ToolCall
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.test_tools import shape
from tests.toolbox import toolbox

pytestmark = pytest.mark.anyio


@proves("G-TOOL-ONCE")
async def test_equal_calls_within_one_job_are_one(database: TestDatabase) -> None:
    """Under other call ids, later and at once: one job, one effect; after success the stored result."""
    async with toolbox(database) as box:
        box.work()
        parent = await box.parent(calls=4)
        calls = [box.call("create_lead", {"name": "Ada"}, parent_job_id=parent, key=f"call-{n}") for n in range(5)]
        got = await asyncio.gather(*calls)
        assert len({one.job_id for one in got}) == 1, got
        reads = [await box.call("get_status", {"order_id": "A-1"}, parent_job_id=parent) for _ in range(4)]
        assert len({one.job_id for one in reads}) == 1
        assert box.play.runs.count("get_status") == 1
        assert {one.status for one in reads} == {"success"}
        assert len({one.audit_id for one in reads}) == 4
        # Key order and blanks are no difference; a value is.
        assert (await box.call("create_lead", {"size": 1, "name": "Ada"}, parent_job_id=parent)).job_id != got[0].job_id
        other = await box.call("create_lead", {"name": "Ada", "size": 1}, parent_job_id=parent)
        assert await box.jobs("create_lead") == 2, other


@proves("G-TOOL-ONCE")
async def test_equal_calls_without_a_key_are_one_for_a_minute(database: TestDatabase) -> None:
    """Twice at once from one caller is one job; from another caller, or after the window, it is another."""
    async with toolbox(database) as box:
        first, second = await asyncio.gather(*(box.call("create_lead", {"name": "Ada"}, wait_s=0) for _ in range(2)))
        assert first.job_id == second.job_id
        await database.shift_clock(59)
        assert (await box.call("create_lead", {"name": "Ada"}, wait_s=0)).job_id == first.job_id
        await database.shift_clock(61)
        assert (await box.call("create_lead", {"name": "Ada"}, wait_s=0)).job_id != first.job_id
        keyed = [await box.call("create_lead", {"name": "Ada"}, key=key, wait_s=0) for key in ("k1", "k1", "k2")]
        assert len({one.job_id for one in keyed}) == 2
        reused = await box.call("create_lead", {"name": "Eve"}, key="k1", wait_s=0)
        assert (reused.error_code, reused.job_id) == ("KEY_REUSED", None)


@proves("G-TOOL-ONCE")
async def test_what_failed_before_anything_was_proposed_may_be_called_again(database: TestDatabase) -> None:
    """Within one job a failed look-up can be made again and is made again; the budget counts it."""
    async with toolbox(database) as box:
        box.work()
        parent = await box.parent(calls=4)
        box.play.fails.append(ActionFailure("caller_error", "order_not_found", "Not yet."))
        bad = await box.call("get_status", {"order_id": "A-1"}, parent_job_id=parent)
        assert bad.error_code == "ORDER_NOT_FOUND"
        good = await box.call("get_status", {"order_id": "A-1"}, parent_job_id=parent)
        assert good.status == "success"
        assert good.job_id != bad.job_id


@proves("G-TOOL-BUDGET")
async def test_the_budget_of_a_job_is_finite_and_survives_retries(database: TestDatabase) -> None:
    """So many calls and no more, whatever attempt makes them; repeats of what succeeded are free."""
    async with toolbox(database) as box:
        box.work()
        parent = await box.parent(calls=4)
        for number in range(3):
            got = await box.call("get_status", {"order_id": f"A-{number}"}, parent_job_id=parent)
            assert got.status == "success"
        # What does not fit is counted as well, and again when it is repeated: a loop that feeds an error back has an end.
        assert (await box.call("get_status", {"wrong": 1}, parent_job_id=parent)).error_code == "INVALID_INPUT"
        assert (await box.call("get_status", {"wrong": 1}, parent_job_id=parent)).error_code == "BUDGET_EXHAUSTED"
        over = shape(await box.call("get_status", {"order_id": "A-9"}, parent_job_id=parent))
        assert (over["error_code"], over["retryable"], over["job_id"]) == ("BUDGET_EXHAUSTED", False, None)
        assert (await box.call("get_status", {"order_id": "A-1"}, parent_job_id=parent)).status == "success"
        # Another attempt of the same job: the rows are by job, not by attempt.
        await box.another_attempt(parent)
        over = await box.call("get_status", {"order_id": "A-9"}, parent_job_id=parent)
        assert over.error_code == "BUDGET_EXHAUSTED"
        row = await box.row(over.audit_id)
        assert (row["status"], str(row["parent_job_id"])) == ("refused", parent)


@proves("G-TOOL-BUDGET")
async def test_a_job_that_has_ended_calls_nothing_more(database: TestDatabase) -> None:
    """A canceled parent's agent that goes on is refused; so is one that names somebody else's job."""
    async with toolbox(database) as box:
        box.work()
        parent = await box.parent(calls=4)
        await box.cancel(parent)
        late = await box.call("create_lead", {"name": "Ada"}, parent_job_id=parent)
        assert (late.error_code, late.job_id) == ("PERMISSION_DENIED", None)
        for other in (str(uuid4()), "nonsense"):
            assert (await box.call("create_lead", {"name": "Ada"}, parent_job_id=other)).error_code == "NOT_FOUND"
        assert await box.jobs("create_lead") == 0


@proves("G-TOOL-AUDIT")
async def test_every_call_is_in_the_journal(database: TestDatabase) -> None:
    """A line for each, with who, role, source, build, validation, hashes, job, attempt, approval, ids and duration."""
    async with toolbox(database) as box:
        box.work()
        await box.turn(on=True)
        trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
        got = await box.call("create_lead", {"name": "Ada"}, source="mcp", caller_run="run-7", traceparent=trace)
        row = await box.row(got.audit_id)
        assert (row["status"], row["source"], row["role"], row["caller_run"]) == ("answered", "mcp", "operator", "run-7")
        assert str(row["subject"]) == box.operator.principal_id
        assert str(row["job_id"]) == got.job_id
        assert row["trace"] == trace
        assert all(row[name] is not None for name in ("attempt_id", "approval_id", "key_sha256", "input_sha256", "duration_ms"))
        detail = row["detail"]
        assert (detail["answer"], detail["validation"], detail["state"], detail["build"]) == (
            "pending",
            "valid",
            "awaiting_human",
            "test",
        )
        await box.decide(got.job_id, "approve")
        box.send()
        await box.tools.outcome(box.operator, str(got.job_id), wait_s=20)
        again = await box.call("create_lead", {"name": "Ada"})
        row = await box.row(again.audit_id)
        assert row["status"] == "replayed"
        assert row["detail"]["external_ids"] == ["provider-lead"]
        nowhere = await box.call("no_such_tool", {})
        row = await box.row(nowhere.audit_id)
        assert (row["status"], row["error_code"], row["action"]) == ("refused", "NOT_FOUND", "no_such_tool")


@proves("G-TOOL-AUDIT")
async def test_from_the_thing_at_the_provider_to_the_request_and_back(database: TestDatabase) -> None:
    """The provider's id leads to the child, its parent and who asked; the parent leads to the child and its ids."""
    async with toolbox(database) as box:
        box.work()
        await box.turn(on=True)
        parent = await box.parent(calls=4)
        got = await box.call("create_lead", {"name": "Ada"}, parent_job_id=parent, caller_run="turn-1")
        await box.decide(got.job_id, "approve")
        box.send()
        await box.tools.outcome(box.operator, str(got.job_id), wait_s=20)
        (up,) = await ask(box.road.pool, box.operator, "request", "provider-lead")
        assert str(up.job_id) == got.job_id
        assert f"It was called within job {parent} of run_agent, which caller asked for" in up.sentence
        (down,) = await ask(box.road.pool, box.operator, "request", parent)
        assert f"It called create_lead (job {got.job_id}, completed)" in down.sentence
        assert down.facts["children"][0]["external_ids"] == ["provider-lead"]
        (call,) = await ask(box.road.pool, box.operator, "called", got.audit_id)
        assert f"Call {got.audit_id}: caller called create_lead with the role operator" in call.sentence
        assert f"It was made within job {parent}." in call.sentence
        lines = await ask(box.road.pool, box.operator, "called", "provider-lead")
        assert {str(line.facts["call"]["call_id"]) for line in lines} == {got.audit_id, got.job_id}


async def test_a_caller_that_hangs_up_leaves_the_job(database: TestDatabase) -> None:
    """The call is canceled in the middle of its wait; the job and a line of the journal are there all the same."""
    async with toolbox(database) as box:
        call = asyncio.create_task(box.tools.call(box.operator, ToolCall("create_lead", {"name": "Ada"}, wait_s=25)))
        await box.until_job("create_lead")
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await box.tools.drain()
        rows = await database.rows("SELECT detail ->> 'answer' FROM deedbox.call WHERE action = 'create_lead'")
        assert rows == [("hung_up",)]
