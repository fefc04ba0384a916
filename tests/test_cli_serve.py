"""Servers as an operator starts and stops them: real processes from nothing, real signals, and the databases they make."""

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import httpx2
import psycopg
import pytest
from psycopg import conninfo

from deedbox import embedded
from tests.database import TestDatabase, server
from tests.guarantees import proves
from tests.road import until
from tests.servers.commands import DEADLINE_S, PASSWORD, Cli, address_in, introduced, key_of, people, refused

pytestmark = pytest.mark.anyio

APP = """
import asyncio
import threading
import time
from pathlib import Path

from pydantic import BaseModel
from deedbox import App, Context, allow

app = App()


class Numbers(BaseModel):
    values: list[int] = []
    how: str = ""


class Total(BaseModel):
    total: int


@app.action(roles=["operator"], policy=allow(), key="new")
async def add_numbers(ctx: Context, numbers: Numbers) -> Total:
    if numbers.how:
        await ctx.progress(1, 2, "begun")
    if numbers.how == "waits":
        await asyncio.Event().wait()
    while numbers.how == "refuses to be stopped":
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
    if numbers.how == "in a thread":
        await asyncio.to_thread(threading.Event().wait)
    if numbers.how == "blocks the loop":
        threading.Event().wait()
    return Total(total=sum(numbers.values))
"""


@pytest.fixture
def cli(database: TestDatabase, tmp_path: Path) -> Cli:
    (tmp_path / "app.py").write_text(APP)
    return Cli(database.owner_url, tmp_path, {"DEEDBOX_PORT": "0", "DEEDBOX_LOG_LEVEL": "warning", "PYTHONUNBUFFERED": "1"})


@asynccontextmanager
async def running(cli: Cli, *arguments: str) -> AsyncGenerator[tuple[asyncio.subprocess.Process, str]]:
    """A server, and what it said up to the end of its introduction."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "deedbox.cli.main", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=cli.cwd,
        env=cli.environment,
    )
    async with introduced(process) as said:
        yield process, said


async def stopped(process: asyncio.subprocess.Process, numbers: Sequence[int] = (signal.SIGTERM,)) -> tuple[int, str]:
    """Send the signals, each once the one before it was answered; returns the exit code and what was said."""
    assert process.stdout is not None
    said = ""
    async with asyncio.timeout(DEADLINE_S):
        for number in numbers:
            process.send_signal(number)
            said += (await process.stdout.readline()).decode()
        said += (await process.stdout.read()).decode()
        return await process.wait(), said


async def test_serve_takes_a_job_to_its_end_and_stops_on_sigterm(cli: Cli, database: TestDatabase) -> None:
    key = await key_of(database.url)
    async with running(cli, "serve", "app.py") as (process, said):
        assert "nobody can log in yet" in said
        assert "no program can call" not in said
        headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": "k-1", "Prefer": "wait=20"}
        async with httpx2.AsyncClient(base_url=address_in(said), timeout=DEADLINE_S) as client:
            answer = await client.post("/api/actions/add_numbers/jobs", json={"values": [1, 2, 3]}, headers=headers)
            job_id = answer.json()["job_id"]
            async with asyncio.timeout(DEADLINE_S):
                job = answer.json()
                while job.get("result") is None:
                    url = f"/api/jobs/{job_id}?wait=20"
                    job = (await client.get(url, headers={"Authorization": f"Bearer {key}"})).json()
        assert job["result"] == {"total": 6}
        shown = await cli("jobs", "show", job_id)
        assert shown.code == 0
        assert "job.completed" in shown.out
        whole = (await cli("jobs", "show", job_id, "--json")).json()
        assert whole["state"] == "completed"
        assert {"event", "attempt"} <= {line["kind"] for line in whole["timeline"]}
        assert [one["job_id"] for one in (await cli("jobs", "list", "--json")).json()] == [job_id]
        code, rest = await stopped(process)
    assert code == 0
    assert rest.endswith("stopped\n")
    assert await database.value("SELECT count(*) FROM deedbox.process WHERE stopped_at IS NULL") == 0


async def test_parts_run_apart_and_a_waiting_job_is_canceled_by_a_person(cli: Cli, database: TestDatabase) -> None:
    key = await key_of(database.url)
    await people(database.url, Ada="operator")
    async with running(cli, "api", "app.py") as (process, said):
        job_id = await submitted(said, key)
        assert (await stopped(process))[0] == 0
    async with running(cli, "dispatch", "app.py") as (process, said):
        assert "dispatch and sweep" in said
        assert (await stopped(process, [signal.SIGINT]))[0] == 0
    ended = await cli("jobs", "cancel", job_id, "--as", "Ada", "--reason", "not needed", stdin=f"{PASSWORD}\n")
    assert (ended.code, ended.out) == (0, "canceled\n")
    refused(await cli("jobs", "cancel", job_id, "--as", "Ada", "--reason", "again", stdin=f"{PASSWORD}\n"), 1, "ended")
    assert await database.value("SELECT state FROM deedbox.result") == "canceled"


async def submitted(said: str, key: str, how: str = "") -> str:
    """Submit a job where this server listens; returns its id."""
    async with httpx2.AsyncClient(base_url=address_in(said), timeout=DEADLINE_S) as client:
        body = {"values": [1], "how": how}
        headers = {"Authorization": f"Bearer {key}"}
        answer = await client.post("/api/actions/add_numbers/jobs", json=body, headers=headers)
        assert answer.status_code == 202, answer.text
        return answer.json()["job_id"]


# Told to stop more than once -------------------------------------------------------------------------------------------


@proves("G-DRAIN")
@pytest.mark.parametrize(
    ("how", "signals"),
    [
        ("waits", (signal.SIGTERM, signal.SIGTERM)),
        ("refuses to be stopped", (signal.SIGTERM, signal.SIGINT)),
        ("in a thread", (signal.SIGINT, signal.SIGTERM)),
    ],
)
async def test_a_second_signal_ends_a_draining_server_at_once(
    cli: Cli, database: TestDatabase, how: str, signals: tuple[int, int]
) -> None:
    key = await key_of(database.url)
    # It would drain for an hour.
    async with running(cli.but(DEEDBOX_DRAIN_S="3600"), "serve", "app.py") as (process, said):
        job_id = await submitted(said, key, how)
        await begun(database)
        code, rest = await stopped(process, signals)
    assert code == 130, rest
    assert rest.startswith("stopping: finishing what is under way"), rest
    assert "Traceback" not in rest, rest
    # Nothing is lost: it stands under its lease, for the next process to take over.
    state = await database.rows("SELECT state, job_id::text FROM deedbox.queue")
    assert state == [("running", job_id)]


async def test_a_handler_that_blocks_everything_cannot_keep_the_process_from_ending(cli: Cli, database: TestDatabase) -> None:
    key = await key_of(database.url)
    async with running(cli.but(DEEDBOX_DRAIN_S="3600"), "serve", "app.py") as (process, said):
        await submitted(said, key, "blocks the loop")
        await begun(database)
        code, rest = await stopped(process, [signal.SIGTERM] * 3)
    assert code == 130
    assert rest.endswith("stopped where it stood\n")


async def begun(database: TestDatabase) -> None:
    """Return once the handler runs."""
    query = "SELECT count(*) FROM deedbox.event WHERE type = 'job.progress'"
    await until(lambda: database.value(query), bool, within=DEADLINE_S)


# What cannot be started, and databases that are made -------------------------------------------------------------------


async def test_a_port_that_is_taken_is_told_in_one_line(cli: Cli) -> None:
    taken = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    async with taken:
        port = taken.sockets[0].getsockname()[1]
        refused(await cli.but(DEEDBOX_PORT=str(port))("serve", "app.py"), 3, "DEEDBOX_PORT")


async def test_the_embedded_database_is_made_used_and_let_go_of(tmp_path: Path) -> None:
    cli = Cli(None, tmp_path, {"DEEDBOX_STATE": str(tmp_path / "Zustand ä")})
    try:
        made = await cli("users", "add", "Ada", "--role", "manager", stdin=f"{PASSWORD}\n")
        assert made.code == 0, made
        state = embedded.status(tmp_path / "Zustand ä")
        assert (state.made, state.running) == (True, False)
        assert [one["name"] for one in (await cli("users", "list", "--json")).json()] == ["Ada"]
        assert not embedded.status(tmp_path / "Zustand ä").running
    finally:
        embedded.remove(tmp_path / "Zustand ä")


async def test_migrate_makes_the_schema_of_a_database_of_ones_own(tmp_path: Path) -> None:
    name = f"t_cli_{uuid4().hex[:12]}"
    admin_url = conninfo.make_conninfo(server().owner_url, dbname="postgres")
    async with await psycopg.AsyncConnection.connect(admin_url, autocommit=True) as admin:
        await admin.execute(f"CREATE DATABASE {name}".encode())
        try:
            cli = Cli(conninfo.make_conninfo(server().owner_url, dbname=name), tmp_path)
            assert (await cli("migrate")).out.startswith("applied 0001_initial")
            assert (await cli("migrate")).out == "up to date\n"
        finally:
            await admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
