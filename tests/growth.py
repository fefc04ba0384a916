"""An application with every kind of content, and what tests of growth do with it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from uuid import UUID

from pydantic import BaseModel

from deedbox.dispatch.loop import Dispatcher
from deedbox.extend.context import Context
from deedbox.extend.document import Document
from deedbox.extend.registry import App
from deedbox.gate.decide import decide
from deedbox.intake.request import Request, Upload
from deedbox.model.backoff import Retry
from deedbox.model.failure import ActionFailure
from deedbox.model.policy import allow, hold
from deedbox.store.prune import Retention
from deedbox.sweep.prune import Pruning
from tests.builders import ScriptedConnector
from tests.database import TestDatabase
from tests.road import Road, road

MARK = "Zwiebelkuchen"


class Letter(BaseModel):
    """What comes in."""

    text: str
    file: Document | None = None


class Note(BaseModel):
    """What goes out."""

    text: str


def make_app(connector: ScriptedConnector | None = None) -> App:
    app = App(connectors=[connector or ScriptedConnector()])

    @app.action(roles=["operator"], approvers=["manager"], policy=hold())
    async def write_note(ctx: Context, letter: Letter) -> Note:
        await ctx.progress(1, 2, f"read {letter.text}")
        await ctx.partial({"draft": letter.text})
        kept = await ctx.step("kept", lambda: {"kept": letter.text})
        ctx.effect("note", target="wall", slot="line", payload={"text": kept["kept"]})
        return Note(text=letter.text)

    @app.action(roles=["operator"], policy=allow())
    async def echo_note(ctx: Context, letter: Letter) -> Note:
        return Note(text=letter.text)

    @app.action(roles=["operator"], policy=allow(), keep="10d", retry=Retry(attempts=1))
    async def brief_note(ctx: Context, letter: Letter) -> Note:
        if letter.text == "park":
            raise ActionFailure("overloaded", "busy", "It was busy.")
        return Note(text=letter.text)

    return app


def pruning(one: Road, **options: float) -> Pruning:
    by_action = {name: action.keep_s for name, action in one.app.actions.items() if action.keep_s is not None}
    return Pruning(one.pool, one.ids, Retention(by_action=by_action, **options))


async def finish_note(one: Road, key: str) -> UUID:
    """A job with every kind of content, from its upload to the receipt."""
    upload = Upload(f"{MARK}.txt", "text/plain", MARK.encode())
    job = await one.intake.submit(Request(one.caller, "write_note", {"text": MARK}, key, "http", {"file": [upload]}))
    await one.until(job.job_id, "awaiting_human")
    ((approval_id, digest),) = await one.database.rows(
        "SELECT approval_id, encode(digest, 'hex') FROM deedbox.approval WHERE job_id = %s", job.job_id
    )
    await decide(
        one.pool,
        one.ids,
        one.approver,
        approval_id=UUID(str(approval_id)),
        digest_hex=str(digest),
        choice="approve",
        reason=None,
        how="test",
    )
    await one.until(job.job_id, "completed")
    return job.job_id


@asynccontextmanager
async def working(database: TestDatabase, app: App | None = None) -> AsyncGenerator[Road]:
    """A road with its loops running."""
    await database.rows("UPDATE deedbox.switch SET is_on = true WHERE switch_id = 'acts'")
    async with road(database, app or make_app()) as one:
        one.start(one.worker())
        one.start(Dispatcher(one.pool, one.ids, one.app.connectors, environment_on=True))
        yield one


async def until_blocked(database: TestDatabase) -> None:
    """Return once PostgreSQL says that a session of this database waits for a lock."""
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"
    )
    async with asyncio.timeout(20):
        while not await database.value(query):  # noqa: ASYNC110 -- each round is a question to PostgreSQL
            await asyncio.sleep(0)
