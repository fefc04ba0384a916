"""Handlers that are `def`: what they can call, how many run, and what becomes of one that was stopped."""

import asyncio
import functools
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel

from deedbox import telemetry
from deedbox.extend.action import RegistrationError
from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.model.backoff import Retry
from deedbox.model.failure import ActionFailure
from deedbox.model.lease import Lease
from deedbox.model.policy import allow, hold
from deedbox.sweep.service import Sweep
from deedbox.worker.loop import Worker, WorkerSettings
from deedbox.worker.model_call import ModelClient, ModelEndpoint
from tests.builders import ScriptedConnector
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import Poll, road, until
from tests.servers.openai_endpoint import OpenAiEndpoint

pytestmark = pytest.mark.anyio
NO_TRUST = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class Given(BaseModel):
    """A name for the run."""

    name: str = ""


class Done(BaseModel):
    """What came out."""

    text: str = ""


class Blocked:
    """An action whose thread waits until it is let go, and one that is quick."""

    def __init__(self) -> None:
        self.app = App()
        self.go = threading.Event()
        self.running: list[str] = []
        self.refusals: list[str] = []

        @self.app.action(roles=["operator"], policy=allow(), key="new", retry=Retry(3, base=0.01, cap=0.05))
        def wait_long(ctx: Context, given: Given) -> Done:
            self.running.append(given.name)
            self.go.wait()
            try:
                ctx.sync.progress(1, 2)
            except ActionFailure as refused:
                self.refusals.append(refused.code)
            return Done(text=given.name)

    async def count(self) -> int:
        """How many have begun."""
        return len(self.running)


@proves("G-SYNC")
async def test_a_def_handler_has_all_of_the_context_and_the_loop_stays_free(database: TestDatabase) -> None:
    app, seen, free = App(connectors=[ScriptedConnector()]), dict[str, Any](), threading.Event()

    @app.action(roles=["operator"], approvers=["manager"], policy=hold(), key="new")
    def draft_reply(ctx: Context, given: Given) -> Done:
        def work() -> str:
            seen["step"] = threading.get_ident()
            return "from " + ctx.sync.step("inner", lambda: "inside")

        seen["thread"], seen["bound"] = threading.get_ident(), telemetry.ATTEMPT.get()
        assert free.wait(30)
        text = ctx.sync.step("work", work, given={"name": given.name})
        ctx.sync.progress(1, 2, "half")
        ctx.sync.partial({"text": text})
        with pytest.raises(ActionFailure, match="No target"):
            ctx.sync.read("crm", "/customers")
        with pytest.raises(ActionFailure, match="No model"):
            ctx.sync.model(Done, "?")
        with pytest.raises(ZeroDivisionError):
            ctx.sync.step("fails", lambda: 1 // 0)
        ctx.effect("note", target="desk", slot="reply", payload={"text": text})
        return Done(text=text)

    @app.action(roles=["operator"], policy=allow(), key="new")
    async def free_it(_: Context, given: Given) -> Done:
        free.set()
        return Done(text=given.name)

    async with road(database, app) as one:
        job = await one.submit("draft_reply", {"name": "a"})
        one.start(one.worker())
        await one.submit("free_it", {})
        await one.until(job.job_id, "awaiting_human")
        assert seen["thread"] == seen["step"] != threading.get_ident()
        assert seen["bound"][0] == job.job_id
        kept = await database.rows("SELECT name, value->>'value' FROM deedbox.step ORDER BY name")
        assert kept == [("inner", "inside"), ("work", "from inside")]
        kinds = [kind for _, kind in await one.events(job.job_id)]
        assert {"job.progress", "job.partial"} <= set(kinds)
        assert await database.value("SELECT count(*) FROM deedbox.approval") == 1


@proves("G-SYNC")
async def test_there_are_never_more_threads_than_slots(database: TestDatabase) -> None:
    blocked = Blocked()
    async with road(database, blocked.app) as one:
        jobs = [(await one.submit("wait_long", {"name": str(number)})).job_id for number in range(5)]
        one.start(one.worker(slots=2))
        await until(blocked.count, lambda count: count == 2)
        waiting = "SELECT count(*) FROM deedbox.queue WHERE state = 'queued'"
        assert await database.value(waiting) == 3
        assert sum(thread.name.startswith("attempt-") for thread in threading.enumerate()) == 2
        blocked.go.set()
        for job_id in jobs:
            await one.until(job_id, "completed")
        assert sorted(blocked.running) == list("01234")


@proves("G-SYNC", "G-CANCEL")
async def test_a_canceled_thread_keeps_its_slot_until_it_returns_and_its_outcome_is_refused(database: TestDatabase) -> None:
    blocked = Blocked()
    async with road(database, blocked.app) as one:
        job = await one.submit("wait_long", {"name": "first"})
        one.start(one.worker(slots=1, lease=Lease(1.0)))
        one.start(Sweep(one.pool, one.ids, Lease(1.0)))
        await until(blocked.count, lambda count: count == 1)
        await database.rows("UPDATE deedbox.queue SET cancel_requested = true")
        # Nothing can stop the thread: its lease runs out, and the sweep ends the job.
        await one.until(job.job_id, "canceled")
        second = await one.submit("wait_long", {"name": "second"})
        waits = (
            "SELECT count(*) FROM deedbox.queue WHERE state = 'queued' AND updated_at < deedbox.clock() - interval '2 seconds'"
        )
        await until(lambda: database.value(waits), lambda count: count == 1)
        blocked.go.set()
        await one.until(second.job_id, "completed")
        assert blocked.running == ["first", "second"]
        assert blocked.refusals == ["attempt_stopped"]
        ended = "SELECT state, output FROM deedbox.result WHERE job_id = %s"
        assert await database.rows(ended, job.job_id) == [("canceled", None)]


async def test_a_thread_that_waits_for_an_answer_learns_at_once_that_it_was_stopped(database: TestDatabase) -> None:
    app = App()

    @app.action(roles=["operator"], policy=allow(), key="new")
    def ask_model(ctx: Context, _: Given) -> Done:
        return ctx.sync.model(Done, "What is it?")

    with OpenAiEndpoint(["hang"], valid={"text": ""}) as server:
        models = ModelClient(
            ModelEndpoint(server.base_url, None, "tiny", timeout_s=3000), httpx2.AsyncClient(trust_env=False, verify=NO_TRUST)
        )
        async with road(database, app) as one:
            job = await one.submit("ask_model", {})
            settings = WorkerSettings(name="w", build="test", slots=1, poll_s=0.05)
            one.start(
                Worker(
                    url=one.database.url,
                    pool=one.pool,
                    ids=one.ids,
                    app=app,
                    lease=Lease(30.0),
                    settings=settings,
                    wake=Poll(),
                    models=models,
                )
            )
            assert await asyncio.to_thread(server.hanging.wait, 30)
            await database.rows("UPDATE deedbox.queue SET cancel_requested = true")
            await one.until(job.job_id, "canceled")
            # The worker's own word, long before the lease would have run out.
            assert await database.rows("SELECT move, code FROM deedbox.attempt") == [("cancel", "canceled")]
        await models.aclose()


async def test_a_worker_that_drains_does_not_wait_for_a_thread(database: TestDatabase) -> None:
    blocked = Blocked()
    async with road(database, blocked.app) as one:
        job = await one.submit("wait_long", {"name": "first"})
        stop = one.start(one.worker(drain_s=0.1))
        await until(blocked.count, lambda count: count == 1)
        stop.set()
        await one.stop_all()
        assert await one.state(job.job_id) == "queued"
        blocked.go.set()


async def test_the_threads_calls_are_refused_on_the_event_loop_itself(database: TestDatabase) -> None:
    app = App()

    @app.action(roles=["operator"], policy=allow(), key="new")
    async def mix_both(ctx: Context, given: Given) -> Done:
        if given.name == "thread":
            await asyncio.to_thread(ctx.sync.progress, 1, 2)
        else:
            ctx.sync.progress(1, 2)
        return Done()

    async with road(database, app) as one:
        one.start(one.worker())
        wrong = await one.submit("mix_both", {"name": "loop"})
        await one.until(wrong.job_id, "failed_terminal")
        assert await database.value("SELECT code FROM deedbox.result") == "sync_on_loop"
        right = await one.submit("mix_both", {"name": "thread"})
        await one.until(right.job_id, "completed")


@pytest.mark.parametrize("error", [SystemExit(3), StopIteration(), KeyError("k"), asyncio.CancelledError()])
async def test_whatever_a_handler_raises_ends_its_job_and_nothing_else(database: TestDatabase, error: BaseException) -> None:
    app = App()

    @app.action(roles=["operator"], policy=allow(), key="new")
    def raise_here(_: Context, given: Given) -> Done:
        if given.name:
            return Done(text=given.name)
        raise error

    @app.action(roles=["operator"], policy=allow(), key="new")
    async def raise_there(_: Context, __: Given) -> Done:
        raise error

    async with road(database, app) as one:
        one.start(one.worker())
        for action in ("raise_here", "raise_there"):
            job = await one.submit(action, {})
            await one.until(job.job_id, "failed_terminal")
            assert await database.value("SELECT class FROM deedbox.result WHERE job_id = %s", job.job_id) == "bug"
        after = await one.submit("raise_here", {"name": "still there"})
        await one.until(after.job_id, "completed")


def _plain(wrapped: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(wrapped)
    def inner(*given: Any) -> Any:
        return wrapped(*given)

    return inner


def test_what_looks_like_a_handler_and_is_none_is_refused() -> None:
    app = App()

    async def hidden_async(_: Context, given: Given) -> Done:
        return Done(text=given.name)

    def yields_parts(_: Context, given: Given) -> Iterator[Done]:
        yield Done(text=given.name)

    for handler, said in ((_plain(hidden_async), "inside a decorator"), (yields_parts, "must not yield")):
        with pytest.raises(RegistrationError, match=said):
            app.action(roles=["operator"], policy=allow())(handler)
