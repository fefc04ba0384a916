"""What is accepted is told to the workers: with its commit, or soon after it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from pydantic import BaseModel

from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.model.policy import allow
from deedbox.store.wakeup import CHANNELS, EVENTS, OUTBOX, QUEUE, REPLIES, Wakeup, channels_for
from deedbox.wiring import ALL_ROLES
from tests.database import TestDatabase
from tests.road import road

pytestmark = pytest.mark.anyio


class Note(BaseModel):
    number: int


def notes() -> App:
    app = App()

    @app.action(roles=["operator"], policy=allow())
    async def take_note(_ctx: Context, note: Note) -> Note:
        return note

    return app


@asynccontextmanager
async def hearing(database: TestDatabase) -> AsyncGenerator[Callable[[], Awaitable[object]]]:
    """Waits for the next telling; fails loudly where none comes."""
    wakeup = Wakeup(database.direct_url)
    running = asyncio.create_task(wakeup.run())
    try:
        await wakeup.ready()
        queue = wakeup.event("deedbox_queue")
        yield lambda: asyncio.wait_for(queue.wait(60), 10)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_workers_hear_of_each_job_whether_its_commit_tells_them_or_a_statement_behind_it(database: TestDatabase) -> None:
    async with hearing(database) as heard, road(database, notes()) as one:
        for number in range(5):
            # Those that come before the pause behind the first is over are told of by a statement of their own.
            await one.submit("take_note", {"number": number}, f"k{number}")
            await heard()


async def test_a_replay_takes_nothing_from_the_job_before_it(database: TestDatabase) -> None:
    async with hearing(database) as heard, road(database, notes()) as one:
        await one.submit("take_note", {"number": 1}, "k1")
        await heard()
        # The replay's commit has nothing to tell; the job between still has to be heard of.
        await one.submit("take_note", {"number": 2}, "k2")
        await one.submit("take_note", {"number": 1}, "k1")
        await heard()


def test_a_process_listens_to_what_its_roles_need_and_to_nothing_else() -> None:
    assert set(channels_for(ALL_ROLES)) == set(channels_for(())) == set(CHANNELS)
    assert set(channels_for(["api"])) == {EVENTS, REPLIES}
    assert set(channels_for(["worker"])) == {QUEUE, EVENTS}
    assert set(channels_for(["dispatch", "sweep"])) == {OUTBOX, EVENTS}
    assert channels_for(["sweep"]) == ()


async def test_who_asks_for_a_channel_that_is_not_listened_to_is_told_to_poll(database: TestDatabase) -> None:
    wakeup = Wakeup(database.direct_url, channels_for(["api"]))
    running = asyncio.create_task(wakeup.run())
    try:
        await wakeup.ready()
        assert wakeup.event(EVENTS).live
        assert not wakeup.event(QUEUE).live
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
