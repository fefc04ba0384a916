"""A queue of notifications that is full, a hundred thousand jobs due at once, and a task that nobody holds."""

import asyncio
import gc
import shutil
import tempfile
import weakref
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
from pydantic import BaseModel

from deedbox import Context, embedded
from deedbox.extend.registry import App
from deedbox.intake.request import Request
from deedbox.model.policy import allow
from deedbox.store import sweep
from deedbox.store.transaction import transaction
from deedbox.store.wakeup import QUEUE, Wakeup
from deedbox.sweep.service import PAGE
from tests.database import TestDatabase, TestServer, fresh_database
from tests.guarantees import proves
from tests.road import Road, road, until

pytestmark = pytest.mark.anyio

# The fewest pages that PostgreSQL takes for its queue of notifications, 512 KiB.
_FEWEST_PAGES = 64


class Given(BaseModel):
    number: int


class Answer(BaseModel):
    number: int


def _app() -> App:
    app = App()

    @app.action(roles=["operator"], policy=allow())
    async def say_number(_ctx: Context, given: Given) -> Answer:
        return Answer(number=given.number)

    return app


def _start_small(state: Path) -> embedded.Running:
    # The account that runs the server passes through.
    state.chmod(0o711)
    embedded.start(state).stop()
    with (state / "postgres" / "data" / "postgresql.conf").open("a", encoding="utf-8") as settings:
        settings.write(f"\nmax_notify_queue_pages = {_FEWEST_PAGES}\n")
    return embedded.start(state)


@asynccontextmanager
async def _small_queue() -> AsyncGenerator[TestServer]:
    """A server of its own whose queue of notifications is as short as it can be."""
    state = Path(tempfile.mkdtemp(prefix="deedbox-notify-"))
    try:
        running = await asyncio.to_thread(_start_small, state)
        try:
            yield TestServer(running.info.owner_url, running.info.app_url)
        finally:
            await asyncio.to_thread(running.stop)
    finally:
        await asyncio.to_thread(embedded.remove, state)
        shutil.rmtree(state, ignore_errors=True)


async def _fill(database: TestDatabase) -> None:
    """Notify until the queue takes no more."""
    async with await psycopg.AsyncConnection.connect(database.owner_url, autocommit=True) as loud:
        with pytest.raises(psycopg.Error, match="NOTIFY queue"):
            await _shout(loud)


async def _shout(loud: psycopg.AsyncConnection[Any]) -> None:
    while True:
        await loud.execute("SELECT pg_notify('noise', repeat('x', 7000) || n) FROM generate_series(1, 10) AS n")


@proves("G-TOLD-LATE")
async def test_a_full_queue_of_notifications_makes_nobody_fail_and_is_left_behind() -> None:
    async with _small_queue() as server, fresh_database(server) as database, road(database, _app()) as one:
        wakeup = Wakeup(database.direct_url)
        stuck = await psycopg.AsyncConnection.connect(database.owner_url)
        listening = asyncio.create_task(wakeup.run())
        try:
            await stuck.execute("LISTEN noise")
            await stuck.commit()
            # In a transaction it reads no notification, and nothing behind the first one can be dropped.
            await stuck.execute("SELECT 1")
            await _fill(database)
            jobs = await asyncio.gather(*(one.submit("say_number", {"number": n}, f"k{n}") for n in range(20)))
            assert [job.replayed for job in jobs] == [False] * 20
            one.start(one.worker())
            for job in jobs:
                await one.until(job.job_id, "completed")
            await stuck.close()
            await wakeup.ready()
            signal = wakeup.event(QUEUE)
            later = 20

            async def heard() -> bool:
                """Accept one more job, and say whether that was told to whoever listens."""
                nonlocal later
                later += 1
                signal.clear()
                await one.submit("say_number", {"number": later}, f"k{later}")
                try:
                    await asyncio.wait_for(signal.wait(), 1)
                except TimeoutError:
                    return False
                return True

            await until(heard, bool)
        finally:
            await stuck.close()
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)


@proves("G-HELD-TASKS")
async def test_an_attempt_that_nobody_but_its_worker_holds_is_not_collected(database: TestDatabase) -> None:
    waits: list[weakref.ref[asyncio.Future[int]]] = []
    begun = asyncio.Event()
    app = App()

    @app.action(roles=["operator"], policy=allow())
    async def wait_long(_ctx: Context, given: Given) -> Answer:
        # Whatever would wake it knows it by a weak reference, so this future and the task that waits for it hold each other.
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        waits.append(weakref.ref(answer))
        begun.set()
        return Answer(number=given.number + await answer)

    async with road(database, app) as one:
        job = await one.submit("wait_long", {"number": 1}, "k1")
        one.start(one.worker())
        await begun.wait()
        await asyncio.sleep(0)
        gc.collect()
        answer = waits[0]()
        assert answer is not None, "the attempt was collected while it ran"
        answer.set_result(2)
        await one.until(job.job_id, "completed")


@proves("G-DUE-AT-ONCE")
async def test_jobs_that_fall_due_at_one_instant_become_due_page_by_page_and_two_sweeps_share_them(
    database: TestDatabase,
) -> None:
    async with road(database, _app()) as one:
        await _all_for_one_moment(one, 2 * PAGE + 7)
        async with transaction(one.pool) as first, transaction(one.pool) as second:
            # Neither has committed: the second one waits for nothing and takes others.
            assert await sweep.promote(first, PAGE) == PAGE
            assert await sweep.promote(second, PAGE) == PAGE
            assert await _due(database) == 0
        assert await _due(database) == 2 * PAGE
        async with transaction(one.pool) as third:
            assert await sweep.promote(third, PAGE) == 7
        assert await _due(database) == 2 * PAGE + 7


async def _all_for_one_moment(one: Road, count: int) -> None:
    """Jobs that were all asked to begin at the same moment, which passes."""
    now = cast("datetime", await one.database.value("SELECT deedbox.clock()"))
    at = (now + timedelta(hours=1)).isoformat()
    calls = [Request(one.caller, "say_number", {"number": n}, f"k{n}", "http", run_at=at) for n in range(count)]
    await one.intake.submit_many(calls)
    assert await _due(one.database) == 0
    await one.database.shift_clock(2 * 3600)


async def _due(database: TestDatabase) -> Any:
    return await database.value("SELECT count(*) FROM deedbox.queue WHERE state = 'queued' AND due")
