"""Arguments that a person approves before anything runs, and groups without anybody to decide."""

from typing import Any
from uuid import UUID

import pytest

from deedbox.gate.decide import expire_lapsed
from deedbox.intake.request import Request
from deedbox.intake.submit import Intake
from deedbox.model.errors import DeedboxError
from deedbox.model.policy import hold, rules
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import road
from tests.ruled import app_with, approvals, ask, say, small

pytestmark = pytest.mark.anyio


@proves("G-INPUT-HELD")
async def test_arguments_are_approved_before_anything_runs(database: TestDatabase) -> None:
    made = app_with(hold_input=True)
    async with road(database, made) as one:
        job = await one.submit("refund_customer", {"wants": [{"amount": 7}]}, "k")
        assert job.state == "awaiting_human"
        again = await one.submit("refund_customer", {"wants": [{"amount": 7}]}, "k")
        assert (again.job_id, again.replayed, again.state) == (job.job_id, True, "awaiting_human")
        worker = one.worker()
        one.start(worker)
        assert await one.events(job.job_id) == [(1, "job.awaiting_human")]
        approval = (await approvals(one, job.job_id, "input"))["input"]
        with pytest.raises(Exception, match="not what waits here now"):
            await say(one, (approval[0], "00" * 32))
        assert await say(one, approval) == "approved"
        await one.until(job.job_id, "dispatching")
        kinds = [kind for _, kind in await one.events(job.job_id)]
        assert kinds == ["job.awaiting_human", "job.decided", "job.queued", "job.started", "job.dispatching"]


@proves("G-INPUT-HELD")
@pytest.mark.parametrize("how", ["reject", "silence"])
async def test_without_a_yes_to_the_arguments_the_job_ends_and_nothing_ran(database: TestDatabase, how: str) -> None:
    async with road(database, app_with(rules(small(), expires="1h"), hold_input=True)) as one:
        job = await one.submit("refund_customer", {}, "k")
        one.start(one.worker())
        if how == "reject":
            assert await say(one, (await approvals(one, job.job_id, "input"))["input"], "reject") == "rejected"
        else:
            await database.shift_clock(3601)
            assert await expire_lapsed(one.pool, one.ids) == 1
        assert await one.state(job.job_id) == "failed_terminal"
        code = await database.value("SELECT code FROM deedbox.result WHERE job_id = %s", job.job_id)
        assert code == ("rejected" if how == "reject" else "approval_expired")
        assert await database.value("SELECT count(*) FROM deedbox.attempt") == 0


@proves("G-INPUT-HELD")
async def test_the_yes_to_the_arguments_is_none_to_what_is_proposed(database: TestDatabase) -> None:
    async with road(database, app_with(hold(), hold_input=True)) as one:
        job = await one.submit("refund_customer", {}, "k")
        await say(one, (await approvals(one, job.job_id, "input"))["input"])
        one.start(one.worker())
        await one.until(job.job_id, "awaiting_human")
        assert await database.value("SELECT count(*) FROM deedbox.effect") == 0
        await say(one, (await approvals(one, job.job_id))["default"], "reject")
        assert await one.state(job.job_id) == "failed_terminal"


async def test_what_is_submitted_with_many_is_held_all_the_same(database: TestDatabase) -> None:
    async with road(database, app_with(hold_input=True)) as one:
        requests = [Request(one.caller, "refund_customer", {}, f"k{n}", "http") for n in range(3)]
        answers: list[Any] = list(await one.intake.submit_many(requests))
        assert [answer.state for answer in answers] == ["awaiting_human"] * 3
        assert await database.value("SELECT count(*) FROM deedbox.approval WHERE purpose = 'input'") == 3


@pytest.mark.parametrize("hold_input", [False, True])
async def test_a_group_without_living_members_alarms_at_the_first_hold(database: TestDatabase, *, hold_input: bool) -> None:
    made = app_with(hold() if not hold_input else rules(small()), approvers=["auditor"], hold_input=hold_input)
    async with road(database, made) as one:
        for key in ("1", "2"):
            await ask(one, key=key)
        rows = await database.rows("SELECT cause, message, tenant FROM deedbox.alert")
        assert rows == [("no_approver", "refund_customer waits for 1 with the role auditor, and 0 can decide.", "default")]
        await database.rows(
            'INSERT INTO deedbox."grant" (principal_id, role) VALUES (%s, %s)', one.approver.principal_id, "auditor"
        )
        await database.rows("UPDATE deedbox.alert SET closed_at = deedbox.clock()")
        await ask(one, key="3")
        assert await database.value("SELECT count(*) FROM deedbox.alert") == 1


async def test_what_waits_for_a_yes_counts_for_the_limit_of_what_waits(database: TestDatabase) -> None:
    async with road(database, app_with(hold_input=True)) as one:
        intake = Intake(one.pool, one.ids, one.app.actions, public_url="http://127.0.0.1:8484", max_waiting=2)
        for number in range(3):
            await intake.submit(Request(one.caller, "refund_customer", {}, f"k{number}", "http"))
        crowded = Intake(one.pool, one.ids, one.app.actions, public_url="http://127.0.0.1:8484", max_waiting=2)
        with pytest.raises(DeedboxError) as refusal:
            await crowded.submit(Request(one.caller, "refund_customer", {}, "k9", "http"))
        assert refusal.value.code == "too_many_waiting"
        await say(one, (await approvals(one, await _job(database, "k0"), "input"))["input"], "reject")
        again = Intake(one.pool, one.ids, one.app.actions, public_url="http://127.0.0.1:8484", max_waiting=2)
        assert (await again.submit(Request(one.caller, "refund_customer", {}, "k9", "http"))).state == "awaiting_human"


async def _job(database: TestDatabase, key: str) -> UUID:
    return UUID(str(await database.value("SELECT job_id FROM deedbox.job WHERE idempotency_key = %s", key)))
