"""What a handler sees, and that every job ends once whatever handlers do."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from deedbox.connectors.read import TargetReader
from deedbox.connectors.settings import ConnectorSettings, HttpTargetConfig
from deedbox.egress import EgressPolicy
from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.model.backoff import Retry
from deedbox.model.failure import ActionFailure
from deedbox.model.lease import Lease
from deedbox.model.policy import allow
from deedbox.sweep.service import Sweep
from deedbox.worker.loop import Worker, WorkerSettings
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import Poll, road, until

pytestmark = pytest.mark.anyio
SECRET = "bearer-of-the-crm"


class Given(BaseModel):
    """A number that decides what the handler does."""

    number: int


class Answer(BaseModel):
    """What it says."""

    text: str


async def serve_customer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: list[str]) -> None:
    """Answer one request with a customer, and keep what arrived."""
    seen.append((await reader.readuntil(b"\r\n\r\n")).decode())
    body = b'{"name": "Zo\\u00eb"}'
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    writer.close()


@proves("G-NO-CREDENTIALS-IN-HANDLER")
async def test_a_handler_reads_with_credentials_it_never_sees(database: TestDatabase) -> None:
    app, shown, seen = App(), list[str](), list[str]()

    @app.action(roles=["operator"], policy=allow(), key="new")
    async def read_customer(ctx: Context, given: Given) -> Answer:
        customer: Any = await ctx.read("crm", f"/customers/{given.number}")
        public = {name: getattr(ctx, name) for name in dir(ctx) if not name.startswith("_")}
        shown.extend([repr(ctx), repr(public), repr(customer)])
        return Answer(text=customer["name"])

    server = await asyncio.start_server(lambda reader, writer: serve_customer(reader, writer, seen), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    target = HttpTargetConfig(name="crm", base_url=f"http://127.0.0.1:{port}", bearer=SecretStr(SECRET))
    reader = TargetReader(ConnectorSettings(http=(target,)), EgressPolicy(frozenset({f"127.0.0.1:{port}"})))
    async with server, road(database, app) as one:
        worker = Worker(
            url=database.url,
            pool=one.pool,
            ids=one.ids,
            app=app,
            lease=Lease(2.0),
            settings=WorkerSettings(name="reader", build="test", poll_s=0.05),
            wake=Poll(),
            reader=reader,
        )
        job = await one.submit("read_customer", {"number": 7})
        one.start(worker)
        await one.until(job.job_id, "completed")
        await one.stop_all()
    await reader.aclose()
    assert f"Bearer {SECRET}" in seen[0]
    assert len(shown) == 3
    assert not any(SECRET in text for text in shown)


@proves("G-ONE-OUTCOME")
async def test_every_job_ends_once_whatever_its_handler_does(database: TestDatabase) -> None:
    app = App()

    @app.action(roles=["operator"], policy=allow(), key="new", retry=Retry(attempts=2, base=0.01, cap=0.02))
    async def do_much(ctx: Context, given: Given) -> Answer:
        match given.number % 5:
            case 0:
                raise ActionFailure("overloaded", "busy", "Busy.")
            case 1:
                raise ActionFailure("caller_error", "bad", "Bad.")
            case 2:
                raise RuntimeError("unforeseen")
            case 3 if ctx.attempt == 1:
                raise ActionFailure("not_sent", "gone", "Gone.")
            case _:
                return Answer(text=str(given.number))

    async with road(database, app) as one:
        jobs = await asyncio.gather(*(one.submit("do_much", {"number": number}) for number in range(60)))
        for name in ("w1", "w2", "w3"):
            one.start(one.worker(name))
        one.start(Sweep(one.pool, one.ids, Lease(2.0)))
        unfinished = "SELECT count(*) FROM deedbox.queue WHERE state <> 'failed_retryable'"
        await until(lambda: database.value(unfinished), lambda count: count == 0, within=30)
        await one.stop_all()
        both = await database.value("SELECT count(*) FROM deedbox.queue JOIN deedbox.result USING (job_id)")
        places = await database.value("SELECT (SELECT count(*) FROM deedbox.queue) + (SELECT count(*) FROM deedbox.result)")
        assert (both, places) == (0, len(jobs))
        finals = await database.rows(
            "SELECT count(*) FROM deedbox.event WHERE type IN ('job.completed', 'job.failed', 'job.canceled') GROUP BY job_id"
        )
        assert [row[0] for row in finals] == [1] * len(jobs)
        gaps = await database.value(
            "SELECT count(*) FROM (SELECT job_id FROM deedbox.event GROUP BY job_id HAVING max(seq) <> count(*)) AS gap"
        )
        assert gaps == 0


async def test_a_wake_up_that_fails_after_the_commit_changes_nothing_that_was_committed(database: TestDatabase) -> None:
    app = App()

    @app.action(roles=["operator"], policy=allow())
    async def say_number(ctx: Context, given: Given) -> Answer:
        await ctx.progress(1, 2, "half")
        return Answer(text=str(given.number))

    await database.rows("REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM public")
    async with road(database, app) as one:
        jobs = await asyncio.gather(*(one.submit("say_number", {"number": number}, f"k{number}") for number in range(5)))
        assert [job.replayed for job in jobs] == [False] * 5
        one.start(one.worker())
        for job in jobs:
            await one.until(job.job_id, "completed")
        await one.stop_all()
        assert await database.rows("SELECT DISTINCT attempt, report, move FROM deedbox.attempt") == [(1, "ended", "complete")]
