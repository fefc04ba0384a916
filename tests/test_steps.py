"""Steps: one that succeeded is never repeated, one that was under way is, and only who holds the lease may write one."""

import asyncio
import os
import signal
import ssl
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel

from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.model.backoff import Retry
from deedbox.model.failure import ActionFailure
from deedbox.model.lease import Lease
from deedbox.model.policy import allow
from deedbox.sweep.service import Sweep
from deedbox.worker.loop import Worker, WorkerSettings
from deedbox.worker.model_call import ModelClient, ModelEndpoint
from tests.apps.launch import fleet
from tests.apps.rough import app as rough
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import Poll, road, until
from tests.servers.openai_endpoint import OpenAiEndpoint

pytestmark = pytest.mark.anyio
ROUGH = "tests.apps.rough:app"
FEW = Retry(attempts=3, base=0.01, cap=0.05)
NO_TRUST = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class Given(BaseModel):
    """Nothing of importance."""

    number: int = 0


class Draft(BaseModel):
    """What a model answers, and what a handler does."""

    priority: str = "low"
    subject: str = ""


@proves("G-STEP-ONCE", "G-KILL9")
@pytest.mark.parametrize(("action", "runs"), [("step_then_wait", 1), ("wait_in_step", 2)])
async def test_a_kill_after_a_step_does_not_repeat_it_and_one_within_does(
    database: TestDatabase, tmp_path: Path, action: str, runs: int
) -> None:
    gate, marks = tmp_path / "gate", tmp_path / "marks"
    async with road(database, rough) as one, fleet(database, ROUGH, tmp_path / "log") as workers:
        job = await one.submit(action, {"gate": str(gate), "marks": str(marks)})
        await workers.start()
        first = await workers.holder()
        os.kill(first, signal.SIGKILL)
        await workers.start()
        second = await workers.holder(beside=first)
        gate.touch()
        await one.until(job.job_id, "completed", within=30)
        assert [int(line) for line in marks.read_text().splitlines()] == [first, second][:runs]
        assert await database.value("SELECT output FROM deedbox.result") == {"pid": second, "attempt": 2}
        # The step is the first attempt's where it had ended, and the second's where it had not.
        owner = "SELECT a.attempt FROM deedbox.step s JOIN deedbox.attempt a USING (job_id, attempt_id)"
        assert await database.value(owner) == runs


@proves("G-STEP-ONCE", "G-FENCE")
async def test_a_step_written_by_a_replaced_attempt_is_refused(database: TestDatabase) -> None:
    app, gates, begun = App(), {1: asyncio.Event(), 2: asyncio.Event()}, {1: asyncio.Event(), 2: asyncio.Event()}
    refused: list[ActionFailure] = []

    @app.action(roles=["operator"], policy=allow(), key="new", retry=FEW)
    async def count_up(ctx: Context, _: Given) -> Draft:
        async def work() -> int:
            begun[ctx.attempt].set()
            await gates[ctx.attempt].wait()
            return ctx.attempt

        try:
            number = await ctx.step("work", work)
        except ActionFailure as failure:
            refused.append(failure)
            raise
        return Draft(subject=str(number))

    async with road(database, app) as one:
        job = await one.submit("count_up", {})
        one.start(one.worker(lease=Lease(60.0)))
        await begun[1].wait()
        await database.rows("UPDATE deedbox.queue SET lease_until = deedbox.clock() - interval '1 second'")
        await Sweep(one.pool, one.ids, Lease(60.0)).rescue()
        await begun[2].wait()
        gates[1].set()
        late = "SELECT count(*) FROM deedbox.attempt WHERE report = 'stale'"
        await until(lambda: database.value(late), lambda count: count == 1)
        assert [failure.code for failure in refused] == ["lease_lost"]
        assert await database.value("SELECT count(*) FROM deedbox.step") == 0
        gates[2].set()
        await one.until(job.job_id, "completed")
        assert await database.value("SELECT output->>'subject' FROM deedbox.result") == "2"


@proves("G-STEP-ONCE")
async def test_a_retry_after_a_model_step_does_not_ask_the_model_again(database: TestDatabase) -> None:
    app, runs = App(), list[int]()

    @app.action(roles=["operator"], policy=allow(), key="new", retry=FEW)
    async def draft_reply(ctx: Context, _: Given) -> Draft:
        runs.append(ctx.attempt)
        draft = await ctx.step("draft", lambda: ctx.model(Draft, "What is it?"), given={"prompt": "v1"})
        if ctx.attempt < 3:
            raise ActionFailure("overloaded", "crm_busy", "The CRM is busy.")
        return draft

    valid: dict[str, Any] = {"priority": "high", "subject": "Fridge ✓"}
    with OpenAiEndpoint(["prose", "valid"], valid=valid) as server:
        client = ModelClient(ModelEndpoint(server.base_url, None, "tiny"), httpx2.AsyncClient(trust_env=False, verify=NO_TRUST))
        async with road(database, app) as one:
            job = await one.submit("draft_reply", {})
            one.start(
                Worker(
                    url=database.url,
                    pool=one.pool,
                    ids=one.ids,
                    app=app,
                    lease=Lease(2.0),
                    settings=WorkerSettings(name="w", build="test", slots=1, poll_s=0.05),
                    wake=Poll(),
                    models=client,
                )
            )
            one.start(Sweep(one.pool, one.ids, Lease(2.0)))
            await one.until(job.job_id, "completed", within=30)
            assert await database.value("SELECT output FROM deedbox.result") == valid
        await client.aclose()
    assert runs == [1, 2, 3]
    # One question and one repair, both of the first attempt.
    assert len(server.requests) == 2
    assert await database.rows("SELECT attempt, repairs FROM deedbox.attempt WHERE usage IS NOT NULL") == [(1, 1)]


class Bugs:
    """Misuses of steps."""

    async def other_input(self, ctx: Context) -> object:
        """The same name for something else."""
        await ctx.step("work", lambda: 1, given={"number": 1})
        return await ctx.step("work", lambda: 2, given={"number": 2})

    async def twice_at_once(self, ctx: Context) -> object:
        """The same name while it is under way."""
        return await asyncio.gather(*(ctx.step("work", lambda: asyncio.sleep(0, "worked")) for _ in range(2)))

    async def local_type(self, ctx: Context) -> object:
        """A result that no later attempt could read."""

        class Hidden(BaseModel):
            number: int = 0

        return await ctx.step("work", Hidden)

    async def no_json(self, ctx: Context) -> object:
        """A result that is neither a model nor JSON."""
        return await ctx.step("work", object)


@pytest.mark.parametrize(
    ("misuse", "code"),
    [
        ("other_input", "step_input_changed"),
        ("twice_at_once", "step_under_way"),
        ("local_type", "step_type_unknown"),
        ("no_json", "handler_error"),
    ],
)
async def test_a_step_that_could_not_be_kept_or_told_apart_is_a_bug_at_once(
    database: TestDatabase, misuse: str, code: str
) -> None:
    app = App()

    @app.action(roles=["operator"], policy=allow(), key="new", retry=FEW)
    async def misuse_steps(ctx: Context, _: Given) -> Draft:
        await getattr(Bugs(), misuse)(ctx)
        return Draft()

    async with road(database, app) as one:
        job = await one.submit("misuse_steps", {})
        one.start(one.worker())
        await one.until(job.job_id, "failed_terminal")
        assert await database.rows("SELECT class, code, attempt FROM deedbox.result") == [("bug", code, 1)]


async def test_what_a_step_gives_back_is_the_same_value_in_every_attempt(database: TestDatabase) -> None:
    app, seen = App(), list[tuple[int, object]]()

    @app.action(roles=["operator"], policy=allow(), key="new", retry=FEW)
    async def keep_values(ctx: Context, _: Given) -> Draft:
        async def later() -> Draft:
            return Draft(subject="Grüße\x00")

        values: list[object] = [
            await ctx.step("model", later),
            await ctx.step("text", lambda: "ß"),
            await ctx.step("none", lambda: None),
            await ctx.step("list", lambda: [1, {"a": True}]),
        ]
        seen.append((ctx.attempt, values))
        if ctx.attempt == 1:
            raise ActionFailure("not_sent", "away", "Nobody was there.")
        return Draft()

    async with road(database, app) as one:
        job = await one.submit("keep_values", {})
        one.start(one.worker())
        one.start(Sweep(one.pool, one.ids, Lease(2.0)))
        await one.until(job.job_id, "completed")
        (_, first), (_, second) = seen
        assert first == [Draft(subject="Grüße\x00"), "ß", None, [1, {"a": True}]]
        # What no store can keep is kept as its escape.
        assert second == [Draft(subject="Grüße\\u0000"), "ß", None, [1, {"a": True}]]
