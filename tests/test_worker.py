"""The worker on a real database: claims, fences, retries, steps, cancellation and drain."""

import asyncio
import threading

import pytest
from pydantic import BaseModel

from deedbox.extend.context import Context
from deedbox.extend.outcome import Abstain
from deedbox.extend.registry import App
from deedbox.model.backoff import Retry
from deedbox.model.errors import DeedboxError
from deedbox.model.failure import ActionFailure
from deedbox.model.lease import Lease
from deedbox.model.policy import allow
from deedbox.store.transaction import autocommit
from deedbox.sweep.service import Sweep
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import road, until

pytestmark = pytest.mark.anyio


class Order(BaseModel):
    """What the test action takes."""

    number: int = 0
    text: str = ""


class Done(BaseModel):
    """What the test action answers."""

    text: str


class Script:
    """What the handler is to do, and what it did."""

    def __init__(self) -> None:
        self.runs: list[int] = []
        self.steps = 0
        self.go = asyncio.Event()
        self.started = asyncio.Event()
        self.fail_times = 0
        self.failure: Exception | None = None
        self.mode = "plain"


def make_app(script: Script) -> App:
    """One action that does what the script says."""
    app = App()

    @app.action(roles=["operator"], policy=allow(), retry=Retry(attempts=3, base=0.01, cap=0.05), max_runtime="60s")
    async def do_thing(ctx: Context, order: Order) -> Done | Abstain:
        script.runs.append(ctx.attempt)
        script.started.set()
        if script.mode == "wait":
            await script.go.wait()
        if script.mode == "step":

            async def work() -> str:
                script.steps += 1
                return "worked"

            text = await ctx.step("work", work)
            if len(script.runs) == 1:
                raise ActionFailure("overloaded", "busy", "The model is busy.")
            return Done(text=text)
        if script.mode == "block":
            threading.Event().wait(order.number)
        if script.mode == "progress":
            await ctx.progress(1, 2, "one\x00two")
            await ctx.partial({"draft": "a\ud800b"})
        if script.mode == "abstain":
            return Abstain("not sure")
        if script.failure is not None and len(script.runs) <= script.fail_times:
            raise script.failure
        return Done(text=order.text or "done")

    return app


@proves("G-ACCEPT-ONCE", "G-REPLAY")
async def test_a_thousand_deliveries_of_one_key_make_one_job_and_one_lease(database: TestDatabase) -> None:
    script = Script()
    async with road(database, make_app(script)) as one:
        answers = await asyncio.gather(*(one.submit("do_thing", {"number": 1}, "key-1") for _ in range(1000)))
        assert len({answer.job_id for answer in answers}) == 1
        assert sum(not answer.replayed for answer in answers) == 1
        one.start(one.worker("w1"))
        one.start(one.worker("w2"))
        await one.until(answers[0].job_id, "completed")
        assert script.runs == [1]
        assert await database.value("SELECT count(*) FROM deedbox.job") == 1
        assert await database.value("SELECT count(*) FROM deedbox.call WHERE status = 'replayed'") == 999
        again = await one.submit("do_thing", {"number": 1}, "key-1")
        assert (again.job_id, again.state, again.replayed) == (answers[0].job_id, "completed", True)


@proves("G-KEY-BOUND")
async def test_a_key_is_bound_to_its_payload(database: TestDatabase) -> None:
    async with road(database, make_app(Script())) as one:
        first = await one.submit("do_thing", {"number": 1, "text": "a"}, "key")
        same = await one.submit("do_thing", {"text": "a", "number": 1.0}, "key")
        assert same.job_id == first.job_id
        with pytest.raises(DeedboxError) as refused:
            await one.submit("do_thing", {"number": 2, "text": "a"}, "key")
        assert refused.value.code == "key_reused"
        assert await database.value("SELECT count(*) FROM deedbox.job") == 1
        assert await database.value("SELECT count(*) FROM deedbox.call WHERE error_code = 'key_reused'") == 1


@proves("G-BACKOFF")
async def test_transient_failures_back_off_and_then_park(database: TestDatabase) -> None:
    script = Script()
    script.failure, script.fail_times = ActionFailure("overloaded", "busy", "The model is busy."), 99
    async with road(database, make_app(script)) as one:
        job = await one.submit("do_thing", {}, "k")
        one.start(one.worker())
        one.start(Sweep(one.pool, one.ids, Lease(2.0)))
        await one.until(job.job_id, "failed_retryable")
        assert script.runs == [1, 2, 3]
        types = [kind for _, kind in await one.events(job.job_id)]
        assert types == [
            "job.queued",
            "job.started",
            "job.retrying",
            "job.started",
            "job.retrying",
            "job.started",
            "job.failed",
        ]
        assert [number for number, _ in await one.events(job.job_id)] == list(range(1, 8))


async def test_a_bug_ends_at_once_and_says_nothing_of_the_payload(database: TestDatabase) -> None:
    script = Script()
    script.failure, script.fail_times = KeyError("secret value"), 99
    async with road(database, make_app(script)) as one:
        job = await one.submit("do_thing", {}, "k")
        one.start(one.worker())
        await one.until(job.job_id, "failed_terminal")
        row = (await database.rows("SELECT class, code, message FROM deedbox.result"))[0]
        assert row[:2] == ("bug", "handler_error")
        assert "secret value" not in str(row[2])


@proves("G-STEP-ONCE")
async def test_a_step_that_succeeded_is_not_run_again(database: TestDatabase) -> None:
    script = Script()
    script.mode = "step"
    async with road(database, make_app(script)) as one:
        job = await one.submit("do_thing", {}, "k")
        one.start(one.worker())
        one.start(Sweep(one.pool, one.ids, Lease(2.0)))
        await one.until(job.job_id, "completed")
        assert (script.runs, script.steps) == ([1, 2], 1)


@proves("G-CANCEL")
async def test_cancel_reaches_a_running_handler(database: TestDatabase) -> None:
    script = Script()
    script.mode = "wait"
    async with road(database, make_app(script)) as one:
        job = await one.submit("do_thing", {}, "k")
        one.start(one.worker(lease=Lease(1.0)))
        await script.started.wait()
        await database.rows("UPDATE deedbox.queue SET cancel_requested = true")
        await one.until(job.job_id, "canceled")
        assert (await one.events(job.job_id))[-1][1] == "job.canceled"


@proves("G-FENCE")
async def test_a_replaced_attempt_is_refused_and_kept_as_stale(database: TestDatabase) -> None:
    script = Script()
    script.mode = "wait"
    async with road(database, make_app(script)) as one:
        job = await one.submit("do_thing", {}, "k")
        one.start(one.worker("late"))
        await script.started.wait()
        # The lease of the first attempt ends without its holder noticing, and another takes the job.
        await database.rows("UPDATE deedbox.queue SET lease_until = deedbox.clock() - interval '1 second'")
        assert await Sweep(one.pool, one.ids, Lease(2.0)).rescue() == 1
        script.go.set()
        one.start(one.worker("second"))
        await one.until(job.job_id, "completed")
        await one.stop_all()
        rows = await database.rows("SELECT attempt, report, move FROM deedbox.attempt ORDER BY attempt, report")
        assert ("stale", "lease_lost") in [row[1:] for row in rows]
        assert await database.value("SELECT count(*) FROM deedbox.result") == 1
        assert sum(kind in ("job.completed", "job.failed", "job.canceled") for _, kind in await one.events(job.job_id)) == 1


@proves("G-HEARTBEAT")
async def test_beats_come_from_a_thread_while_the_loop_is_blocked(database: TestDatabase) -> None:
    script = Script()
    script.mode = "block"
    async with road(database, make_app(script)) as one:
        job = await one.submit("do_thing", {"number": 2}, "k")
        one.start(one.worker(lease=Lease(0.8)))
        await one.until(job.job_id, "completed")
        assert script.runs == [1]
        assert await database.value("SELECT attempt FROM deedbox.result") == 1


@proves("G-DRAIN")
async def test_drain_finishes_what_runs_and_claims_nothing_more(database: TestDatabase) -> None:
    script = Script()
    script.mode = "wait"
    async with road(database, make_app(script)) as one:
        first = await one.submit("do_thing", {}, "k1")
        stop = one.start(one.worker(slots=1))
        await script.started.wait()
        second = await one.submit("do_thing", {}, "k2")
        stop.set()
        script.go.set()
        await one.stop_all()
        assert await one.state(first.job_id) == "completed"
        assert await one.state(second.job_id) == "queued"
        assert script.runs == [1]


async def test_a_drain_that_takes_too_long_gives_the_job_back(database: TestDatabase) -> None:
    script = Script()
    script.mode = "wait"
    async with road(database, make_app(script)) as one:
        job = await one.submit("do_thing", {}, "k1")
        stop = one.start(one.worker(drain_s=0.1))
        await script.started.wait()
        stop.set()
        await one.stop_all()
        assert await one.state(job.job_id) == "queued"
        assert await database.value("SELECT due FROM deedbox.queue") is True


async def test_what_a_handler_produced_is_escaped_and_the_job_still_ends(database: TestDatabase) -> None:
    script = Script()
    script.mode = "progress"
    async with road(database, make_app(script)) as one:
        job = await one.submit("do_thing", {}, "k1")
        one.start(one.worker())
        await one.until(job.job_id, "completed")
        rows = await database.rows(
            "SELECT payload::text FROM deedbox.event WHERE type IN ('job.progress', 'job.partial') ORDER BY seq"
        )
        assert len(rows) == 2


async def test_abstaining_without_approvers_ends_terminal(database: TestDatabase) -> None:
    script = Script()
    script.mode = "abstain"
    async with road(database, make_app(script)) as one:
        job = await one.submit("do_thing", {}, "k1")
        one.start(one.worker())
        await one.until(job.job_id, "failed_terminal")
        assert await database.value("SELECT code FROM deedbox.result") == "abstained"


@proves("G-ILLEGAL-MOVE")
async def test_the_database_refuses_moves_the_model_does_not_have(database: TestDatabase) -> None:
    async with road(database, make_app(Script())) as one:
        await one.submit("do_thing", {}, "k1")
        async with autocommit(one.pool) as connection:
            with pytest.raises(Exception, match="illegal_move"):
                await connection.execute("UPDATE deedbox.queue SET state = 'dispatching'")
            with pytest.raises(Exception, match="queue_lease"):
                await connection.execute("UPDATE deedbox.queue SET state = 'running'")


async def test_two_flushes_in_opposite_order_do_not_deadlock(database: TestDatabase) -> None:
    async with road(database, make_app(Script())) as one:
        keys = [f"k{number}" for number in range(50)]
        both = [one.submit("do_thing", {}, key) for key in (*keys, *reversed(keys))]
        answers = await asyncio.gather(*both)
        assert len({answer.job_id for answer in answers}) == 50


async def test_a_blocked_key_holds_up_only_itself(database: TestDatabase) -> None:
    async with road(database, make_app(Script())) as one:
        first = await one.submit("do_thing", {}, "warm")
        async with one.pool.connection() as connection, connection.transaction(force_rollback=True):
            await connection.execute(
                "INSERT INTO deedbox.idempotency SELECT tenant, action, sha256('held'), %s, payload_sha256"
                " FROM deedbox.idempotency",
                [first.job_id],
            )
            held = asyncio.create_task(one.submit("do_thing", {}, "held"))
            others = await asyncio.gather(*(one.submit("do_thing", {}, f"free-{number}") for number in range(5)))
            assert all(not answer.replayed for answer in others)
            assert not held.done()
        # The rival rolled back: whoever waited becomes the owner.
        assert not (await held).replayed
        await until(lambda: database.value("SELECT count(*) FROM deedbox.job"), lambda count: count == 7)


async def test_a_drain_does_not_use_up_the_last_attempt(database: TestDatabase) -> None:
    app, began = App(), asyncio.Event()

    @app.action(roles=["operator"], policy=allow(), retry=Retry(attempts=1), key="new")
    async def wait_long(_ctx: Context, given: Order) -> Order:
        began.set()
        await asyncio.Event().wait()
        return given

    assert wait_long
    async with road(database, app) as one:
        job = await one.submit("wait_long", {})
        stop = one.start(one.worker(drain_s=0.05))
        await began.wait()
        stop.set()
        await one.until(job.job_id, "queued")
        assert await database.value("SELECT count(*) FROM deedbox.alert") == 0
        assert await database.rows("SELECT attempt, attempts_allowed FROM deedbox.queue") == [(1, 2)]


@proves("G-PROGRESS-ONCE")
async def test_a_later_attempt_repeats_no_step_that_was_reported(database: TestDatabase) -> None:
    app, attempts = App(), 0

    @app.action(roles=["operator"], policy=allow(), retry=Retry(attempts=3, base=0.01, cap=0.02), key="new")
    async def count_up(ctx: Context, given: Order) -> Order:
        nonlocal attempts
        attempts += 1
        for step in range(1, 2 + attempts):
            await ctx.progress(step, 1 + attempts, f"step {step}")
        if attempts < 3:
            raise ActionFailure("overloaded", "busy", "Busy.")
        return given

    assert count_up
    async with road(database, app) as one:
        job = await one.submit("count_up", {})
        one.start(one.worker())
        one.start(Sweep(one.pool, one.ids, Lease(2.0)))
        await one.until(job.job_id, "completed")
        rows = await database.rows("SELECT payload ->> 'step' FROM deedbox.event WHERE type = 'job.progress' ORDER BY seq")
        steps = [int(str(row[0])) for row in rows]
        assert steps == sorted(set(steps))
        assert steps[-1] == 4
