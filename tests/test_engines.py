"""The plain road on Debian's PostgreSQL 15, straight and through a pgbouncer in transaction mode, as in production.

`make test-pg15` and `make test-pgbouncer` run everything there; this is the slice that every run of the tests has.
"""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import psycopg
import psycopg.conninfo
import pytest
from pydantic import BaseModel

from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.intake.request import Request
from deedbox.model.policy import hold
from deedbox.settings import Settings
from deedbox.wiring import Database, Installation, find_database, opened, run_roles
from tests.builders import ScriptedConnector
from tests.database import TestDatabase, TestServer, fresh_database
from tests.guarantees import proves
from tests.road import principal, until
from tools import servers, system

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).resolve().parent.parent
# More than the driver's threshold for naming a statement, and more than there are connections: sessions are shared.
JOBS = 12


class Line(BaseModel):
    """What is written."""

    text: str


def make_app(connector: ScriptedConnector) -> App:
    app = App(connectors=[connector])

    @app.action(roles=["operator"], approvers=["manager"], policy=hold())
    async def write_line(ctx: Context, line: Line) -> Line:
        await ctx.progress(1, 2, "half of it")
        kept = await ctx.step("kept", lambda: line)
        ctx.effect("note", target="wall", slot="line", payload={"text": kept.text})
        return kept

    return app


@pytest.fixture(scope="module")
def engine() -> Iterator[servers.Engine]:
    if system.postgres(15) is None:
        pytest.skip(system.POSTGRES_15.missing())
    with servers.postgres(15) as one:
        yield one


@pytest.fixture(scope="module")
def pooler_url(engine: servers.Engine) -> Iterator[str]:
    if system.pgbouncer() is None:
        pytest.skip(system.PGBOUNCER.missing())
    with servers.pooled(engine) as url:
        yield url


def settings_for(url: str, direct_url: str, owner_url: str, *, prepare: bool) -> Settings:
    named = {"database_url": url, "direct_url": direct_url, "migrate_url": owner_url, "AI_ACTIONS_ENABLED": True}
    return Settings.model_validate(named | {"prepare_statements": prepare, "pool_size": 5})


@asynccontextmanager
async def running(settings: Settings, database: Database, app: App) -> AsyncGenerator[Installation]:
    """One process's installation with its three loops."""
    stop = asyncio.Event()
    async with opened(settings, app, database, roles=["worker", "dispatch", "sweep"]) as one:
        loops = asyncio.create_task(run_roles(one, ["worker", "dispatch", "sweep"], stop))
        try:
            yield one
        finally:
            stop.set()
            await loops


async def jobs_in(database: TestDatabase, state: str) -> int:
    """How many jobs are in the state, live or ended."""
    query = (
        "SELECT (SELECT count(*) FROM deedbox.queue WHERE state = %s) + (SELECT count(*) FROM deedbox.result WHERE state = %s)"
    )
    return int(str(await database.value(query, state, state)))


async def walk(database: TestDatabase, settings: Settings, *, heard: bool = True) -> None:
    """Submit, work, hold, approve, dispatch: all jobs at once, each effect once. `heard` is whether notifications arrive."""
    await database.rows("UPDATE deedbox.switch SET is_on = true WHERE switch_id = 'acts'")
    connector = ScriptedConnector()
    async with running(settings, find_database(settings), make_app(connector)) as one:
        await asyncio.wait_for(one.wakeup.ready(), 20)
        caller = await principal(database, one.ids, "caller", "service", "operator")
        approver = await principal(database, one.ids, "approver", "person", "manager")
        requests = [Request(caller, "write_line", {"text": f"Zeile {n}"}, f"key {n}", "http") for n in range(JOBS)]
        jobs = await asyncio.gather(*(one.intake.submit(request) for request in requests))
        again = await asyncio.gather(*(one.intake.submit(request) for request in requests))
        assert [job.job_id for job in again] == [job.job_id for job in jobs]
        await until(lambda: jobs_in(database, "awaiting_human"), lambda seen: seen == JOBS, within=60)
        async with one.wakeup.job(jobs[0].job_id) as told:
            told.clear()
            for row in await database.rows("SELECT approval_id, encode(digest, 'hex') FROM deedbox.approval"):
                await one.approvals.decide(approver, UUID(str(row[0])), str(row[1]), "approve", None, "test")
            await until(lambda: jobs_in(database, "completed"), lambda seen: seen == JOBS, within=60)
            if heard:
                await asyncio.wait_for(told.wait(), 20)
                assert one.wakeup.connections == 1
        assert [order.slot for order in connector.sent] == ["line"] * JOBS
        assert await database.value("SELECT count(*) FROM deedbox.receipt") == JOBS
        async with one.pool.connection() as connection:
            assert psycopg.conninfo.conninfo_to_dict(database.url)["host"] == connection.info.host


@proves("G-ENGINES")
async def test_the_plain_road_on_postgresql_15(engine: servers.Engine) -> None:
    async with fresh_database(TestServer(engine.owner_url, engine.app_url)) as database:
        assert str(await database.value("SHOW server_version")).startswith("15.")
        assert await database.value("SHOW fsync") == "on"
        await walk(database, settings_for(database.url, database.url, database.owner_url, prepare=True))


@proves("G-ENGINES")
async def test_the_plain_road_through_a_pooler_in_transaction_mode(engine: servers.Engine, pooler_url: str) -> None:
    async with fresh_database(TestServer(engine.owner_url, engine.app_url, pooler_url)) as database:
        await walk(database, settings_for(database.url, database.direct_url, database.owner_url, prepare=False))


async def test_without_a_way_past_the_pooler_everything_is_polled(engine: servers.Engine, pooler_url: str) -> None:
    async with fresh_database(TestServer(engine.owner_url, engine.app_url, pooler_url)) as database:
        await walk(database, settings_for(database.url, database.url, database.owner_url, prepare=False), heard=False)


def test_a_server_goes_with_the_process_that_asked_for_it_even_killed() -> None:
    if system.postgres(15) is None:
        pytest.skip(system.POSTGRES_15.missing())
    code = (
        "import sys; from tools import servers\n"
        "with servers.postgres(15) as one: print(one.owner_url, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        url = child.stdout.readline().strip()
        home = Path(str(psycopg.conninfo.conninfo_to_dict(url)["host"]))
        assert (home / "data" / "PG_VERSION").exists()
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL

    asyncio.run(until(lambda: asyncio.to_thread(home.exists), lambda seen: not seen, within=60))
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
