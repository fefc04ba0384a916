"""Leases under handlers that block, hold on, overrun, ignore and kill: with real processes where a process is the point."""

import asyncio
import gc
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.model.backoff import Retry
from deedbox.model.lease import Lease
from deedbox.model.policy import allow
from deedbox.settings import Settings
from deedbox.sweep.service import Sweep
from deedbox.worker.loop import Worker, WorkerSettings
from tests.apps.launch import fleet
from tests.apps.rough import app as rough
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import Poll, Road, road, until
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.anyio
ROUGH = "tests.apps.rough:app"
LAPSE = "UPDATE deedbox.queue SET lease_until = deedbox.clock() - interval '1 second' WHERE state = 'running'"


class Given(BaseModel):
    """Nothing of importance."""

    number: int = 0


class Done(BaseModel):
    """Which attempt came to the end."""

    attempt: int


class Waiting:
    """An action whose attempts wait until they are let go, each by its number; 0 is for all of them."""

    def __init__(
        self, *, attempts: int = 10, max_runtime: str = "1h", stubborn: Callable[[int], bool] = lambda _: False
    ) -> None:
        self.app = App()
        self.gates = {number: asyncio.Event() for number in range(attempts + 1)}
        self.runs: list[int] = []
        self.stopped_at: list[float] = []

        @self.app.action(
            roles=["operator"], policy=allow(), key="new", retry=Retry(attempts, base=0.01, cap=0.05), max_runtime=max_runtime
        )
        async def wait_here(ctx: Context, _: Given) -> Done:
            self.runs.append(ctx.attempt)
            waits = [asyncio.ensure_future(self.gates[number].wait()) for number in (0, ctx.attempt)]
            while not any(wait.done() for wait in waits):
                try:
                    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                except asyncio.CancelledError:
                    self.stopped_at.append(time.monotonic())
                    if not stubborn(ctx.attempt):
                        raise
            return Done(attempt=ctx.attempt)

    async def running(self, attempt: int) -> None:
        """Wait until this attempt has begun."""
        await until(self._last, lambda last: last >= attempt)

    async def _last(self) -> int:
        return max(self.runs, default=0)


async def attempts(one: Road) -> list[tuple[object, ...]]:
    """What is kept of the attempts, in order."""
    return await one.database.rows("SELECT attempt, report, move, code FROM deedbox.attempt ORDER BY attempt, report")


async def causes(one: Road) -> list[object]:
    """The causes of the open alerts."""
    return [row[0] for row in await one.database.rows("SELECT cause FROM deedbox.alert WHERE closed_at IS NULL ORDER BY cause")]


@given(st.floats(0.5, 1e6))
def test_every_lease_has_room_for_three_beats_and_stops_its_holder_in_time(length: float) -> None:
    lease = Lease(length, cap=length)
    assert 3 * lease.beat < lease.trust < lease.length
    assert lease.flags <= lease.beat
    assert lease.sweep <= lease.length / 3


@pytest.mark.parametrize("length", [0.1, 0.0, -1.0, float("inf"), float("nan")])
def test_a_lease_that_cannot_work_is_refused_at_start(length: float) -> None:
    with pytest.raises(ValidationError, match="lease"):
        Settings(lease_s=length)


async def test_a_live_heartbeat_means_no_rescue(database: TestDatabase) -> None:
    waiting = Waiting()
    async with road(database, waiting.app) as one:
        job = await one.submit("wait_here", {})
        for name in ("w1", "w2"):
            one.start(one.worker(name, lease=Lease(2.0)))
            one.start(Sweep(one.pool, one.ids, Lease(2.0)))
        await waiting.running(1)
        old = "SELECT count(*) FROM deedbox.queue WHERE started_at < deedbox.clock() - interval '7 seconds'"
        await until(lambda: database.value(old), lambda count: count == 1)
        gc.collect()  # dbos-transact-py#710: what waits must be held by more than its own waiting
        waiting.gates[0].set()
        await one.until(job.job_id, "completed")
        assert waiting.runs == [1]


@proves("G-HEARTBEAT")
async def test_a_worker_whose_event_loop_is_blocked_keeps_its_lease(database: TestDatabase, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with road(database, rough) as one, fleet(database, ROUGH, tmp_path / "log") as workers:
        job = await one.submit("block_loop", {"gate": str(gate)})
        await workers.start()
        pid = await workers.holder()
        one.start(Sweep(one.pool, one.ids, Lease(1.5)))
        old = "SELECT count(*) FROM deedbox.queue WHERE attempt = 1 AND started_at < deedbox.clock() - interval '6 seconds'"
        await until(lambda: database.value(old), lambda count: count == 1)
        await asyncio.to_thread(gate.write_bytes, b"go")
        await one.until(job.job_id, "completed", within=30)
        assert await database.value("SELECT output FROM deedbox.result") == {"pid": pid, "attempt": 1}
        assert await attempts(one) == [(1, "ended", "complete", None)]


@proves("G-FENCE", "G-RESCUE")
async def test_a_worker_whose_interpreter_is_held_loses_its_lease_and_its_late_outcome(
    database: TestDatabase, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with road(database, rough) as one, fleet(database, ROUGH, tmp_path / "log") as workers:
        job = await one.submit("hold_gil", {"gate": str(gate)})
        await workers.start()
        first = await workers.holder()
        await workers.start()
        await one.until(job.job_id, "completed", within=60)
        second = await workers.holder(beside=first)
        # Only now may the first go on: its handler returns as if nothing had happened.
        await asyncio.to_thread(gate.write_bytes, b"go")
        late = "SELECT count(*) FROM deedbox.attempt WHERE report = 'stale'"
        await until(lambda: database.value(late), lambda count: count == 1, within=30)
        assert await database.value("SELECT output FROM deedbox.result") == {"pid": second, "attempt": 2}
        assert await attempts(one) == [
            (1, "ended", "rescue", "worker_lost"),
            (1, "stale", "lease_lost", "lease_lost"),
            (2, "ended", "complete", None),
        ]
        assert [kind for _, kind in await one.events(job.job_id)].count("job.completed") == 1
        # No two processes share a name, nor did any of their leases.
        assert await database.value("SELECT count(DISTINCT worker) FROM deedbox.attempt") == 2


@proves("G-RESCUE", "G-ALERT")
async def test_a_job_that_ends_its_worker_each_time_does_not_loop(database: TestDatabase, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    async with road(database, rough) as one, fleet(database, ROUGH, tmp_path / "log") as workers:
        job = await one.submit("exit_process", {"gate": "", "marks": str(marks)})
        for _ in range(2):
            process = await workers.start()
            assert await asyncio.wait_for(process.wait(), 60) == 7
        one.start(Sweep(one.pool, one.ids, Lease(1.5)))
        one.start(one.worker())
        await one.until(job.job_id, "failed_retryable")
        assert len(marks.read_text().splitlines()) == 2
        assert await attempts(one) == [(1, "ended", "rescue", "worker_lost"), (2, "ended", "give_up", "worker_lost")]
        assert await causes(one) == ["given_up"]


@proves("G-LEASE-CAP")
async def test_no_heartbeat_prolongs_an_attempt_beyond_its_life_not_even_one_that_ignores_it(database: TestDatabase) -> None:
    waiting = Waiting(max_runtime="2s", stubborn=lambda attempt: attempt == 1)
    async with road(database, waiting.app) as one:
        job = await one.submit("wait_here", {})
        one.start(one.worker(lease=Lease(1.0)))
        one.start(Sweep(one.pool, one.ids, Lease(1.0)))
        # The first attempt is told to stop and does not listen: its lease ends all the same, and another begins.
        await waiting.running(2)
        assert len(waiting.stopped_at) == 1
        waiting.gates[2].set()
        await one.until(job.job_id, "completed")
        waiting.gates[1].set()
        late = "SELECT count(*) FROM deedbox.attempt WHERE report = 'stale' AND attempt = 1"
        await until(lambda: database.value(late), lambda count: count == 1)
        assert await database.value("SELECT output FROM deedbox.result") == {"attempt": 2}
        life = "SELECT extract(epoch FROM ended_at - started_at)::float8 FROM deedbox.attempt WHERE move = 'rescue'"
        seconds = await database.value(life)
        assert isinstance(seconds, float)
        assert 2.0 <= seconds < 4.0


@proves("G-LEASE-CAP")
async def test_an_attempt_that_overruns_is_stopped_before_its_lease_ends(database: TestDatabase) -> None:
    waiting = Waiting(attempts=2, max_runtime="1.5s")
    async with road(database, waiting.app) as one:
        job = await one.submit("wait_here", {})
        one.start(one.worker(lease=Lease(2.0)))
        one.start(Sweep(one.pool, one.ids, Lease(2.0)))
        await one.until(job.job_id, "failed_retryable")
        assert await attempts(one) == [(1, "ended", "back_off", "max_runtime"), (2, "ended", "exhaust", "max_runtime")]


@proves("G-ALERT")
async def test_a_job_taken_over_again_and_again_raises_one_alarm(database: TestDatabase) -> None:
    waiting = Waiting()
    async with road(database, waiting.app) as one:
        job = await one.submit("wait_here", {})
        one.start(one.worker())
        sweep = Sweep(one.pool, one.ids, Lease(30.0))
        for number in range(1, 6):
            await waiting.running(number)
            # The lease runs out before its holder can know.
            await database.rows(LAPSE)
            assert await sweep.rescue() == 1
            assert await causes(one) == (["taken_over_repeatedly"] if number >= 3 else [])
        await waiting.running(6)
        assert await database.value("SELECT takeovers FROM deedbox.queue") == 5
        waiting.gates[6].set()
        await one.until(job.job_id, "completed")
        message = await database.value(
            "SELECT message FROM deedbox.alert WHERE job_id = %s AND opened_at IS NOT NULL", job.job_id
        )
        assert message == "It was taken over from lost workers again and again."


@proves("G-ONE-OUTCOME")
async def test_rescue_and_outcomes_at_the_same_moment_leave_one_end_each(database: TestDatabase) -> None:
    waiting = Waiting()
    async with road(database, waiting.app) as one:
        jobs = [(await one.submit("wait_here", {})).job_id for _ in range(40)]
        one.start(one.worker(slots=40))
        await until(lambda: _count(waiting), lambda count: count == 40)
        sweeps = [Sweep(one.pool, one.ids, Lease(30.0)) for _ in range(3)]
        await database.rows(LAPSE)
        waiting.gates[0].set()
        await asyncio.gather(*(sweep.rescue() for sweep in sweeps))
        for job_id in jobs:
            await one.until(job_id, "completed")
        assert await database.value("SELECT count(*) FROM deedbox.result") == 40
        ends = "SELECT count(*) FROM deedbox.event WHERE type IN ('job.completed', 'job.failed', 'job.canceled')"
        assert await database.value(ends) == 40
        await one.stop_all()
        doubled = (
            "SELECT count(*) FROM (SELECT job_id FROM deedbox.attempt WHERE move = 'complete' GROUP BY 1 HAVING count(*) > 1) d"
        )
        assert await database.value(doubled) == 0


async def _count(waiting: Waiting) -> int:
    return len(waiting.runs)


async def test_rescue_passes_those_it_cannot_have(database: TestDatabase) -> None:
    waiting = Waiting()
    async with road(database, waiting.app) as one:
        jobs = [(await one.submit("wait_here", {})).job_id for _ in range(6)]
        one.start(one.worker(slots=6))
        await until(lambda: _count(waiting), lambda count: count == 6)
        await database.rows(LAPSE)
        async with one.pool.connection() as other, other.transaction():
            # The first ones are somebody else's just now (river#1258): those behind them are taken all the same.
            await other.execute("SELECT FROM deedbox.queue WHERE job_id = ANY(%s) FOR UPDATE", [jobs[:3]])
            assert await Sweep(one.pool, one.ids, Lease(30.0)).rescue() == 3
        assert await Sweep(one.pool, one.ids, Lease(30.0)).rescue() == 3
        waiting.gates[0].set()
        for job_id in jobs:
            await one.until(job_id, "completed")


async def test_one_job_that_cannot_be_moved_does_not_keep_the_others_of_its_page(database: TestDatabase) -> None:
    waiting = Waiting()
    async with road(database, waiting.app) as one:
        jobs = [(await one.submit("wait_here", {})).job_id for _ in range(5)]
        one.start(one.worker(slots=5))
        await until(lambda: _count(waiting), lambda count: count == 5)
        # An event that should not be there stands where the first job's next one belongs.
        bad = "INSERT INTO deedbox.event (job_id, seq, event_id, type, round, at, payload)"
        where = "SELECT job_id, last_seq + 1, job_id, 'job.progress', round, deedbox.clock(), '{}' FROM deedbox.queue"
        await database.rows(f"{bad} {where} WHERE job_id = %s", jobs[0])
        await database.rows(LAPSE)
        assert await Sweep(one.pool, one.ids, Lease(30.0)).rescue() == 4
        assert await one.state(jobs[0]) == "running"
        waiting.gates[0].set()
        for job_id in jobs[1:]:
            await one.until(job_id, "completed")


async def test_a_kind_that_no_worker_knows_waits_visibly_and_is_rescued_too(database: TestDatabase) -> None:
    waiting, known = Waiting(), App()

    @known.action(roles=["operator"], policy=allow(), key="new")
    async def do_known(ctx: Context, _: Given) -> Done:
        return Done(attempt=ctx.attempt)

    known.actions["wait_here"] = waiting.app.actions["wait_here"]
    async with road(database, known) as one:
        job = await one.submit("wait_here", {})
        stop = one.start(one.worker("old"))
        await waiting.running(1)
        await database.rows(LAPSE)
        stop.set()
        del known.actions["wait_here"]
        assert await Sweep(one.pool, one.ids, Lease(30.0)).rescue() == 1
        one.start(one.worker("new"))
        other = await one.submit("do_known", {})
        await one.until(other.job_id, "completed")
        assert await one.state(job.job_id) == "queued"
        waiting.gates[0].set()


@proves("G-SELF-FENCE")
async def test_a_handler_is_stopped_in_time_when_the_database_falls_silent(database: TestDatabase) -> None:
    waiting, lease = Waiting(), Lease(3.0)
    proxy = Proxy(database.direct_url)
    async with road(database, waiting.app) as one, proxy as url:
        job = await one.submit("wait_here", {})
        settings = WorkerSettings(name="cut-off", build="test", slots=1, drain_s=10, poll_s=0.05)
        one.start(Worker(url=url, pool=one.pool, ids=one.ids, app=one.app, lease=lease, settings=settings, wake=Poll()))
        one.start(Sweep(one.pool, one.ids, lease))
        await waiting.running(1)
        old = "SELECT count(*) FROM deedbox.queue WHERE lease_until > started_at + interval '4 seconds'"
        await until(lambda: database.value(old), lambda count: count == 1)
        frozen = time.monotonic()
        proxy.freeze()
        await waiting.running(2)
        assert len(waiting.stopped_at) == 1
        assert waiting.stopped_at[0] - frozen < lease.length
        proxy.thaw()
        # The beats come back: an attempt outlives two leases.
        older = "SELECT count(*) FROM deedbox.queue WHERE attempt > 1 AND started_at < deedbox.clock() - interval '7 seconds'"
        await until(lambda: database.value(older), lambda count: count == 1, within=30)
        waiting.gates[0].set()
        await one.until(job.job_id, "completed")
