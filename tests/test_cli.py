"""The command line as people and scripts meet it: real processes, their output, and their exit codes."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import psycopg
import pytest
from psycopg import conninfo

from deedbox import embedded
from deedbox.access import IdSource, Pool, add_key, add_user
from deedbox.store.pool import make_pool
from tests.database import TestDatabase, server

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parent.parent
PASSWORD = "ein langes Paßwort"
DEADLINE_S = 60.0

APP = '''
from pydantic import BaseModel
from deedbox import App, Context, allow

app = App()


class Numbers(BaseModel):
    values: list[int]


class Total(BaseModel):
    total: int


@app.action(roles=["operator"], policy=allow())
async def add_numbers(ctx: Context, numbers: Numbers) -> Total:
    """Adds numbers."""
    return Total(total=sum(numbers.values))
'''


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


def environment(url: str | None, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Nothing of this machine's settings goes in."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DEEDBOX_", "AI_ACTIONS", "PG"))}
    named = {} if url is None else {"DEEDBOX_DATABASE_URL": url}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), "PYTHONUTF8": "1", **named, **(extra or {})}


@dataclass(frozen=True)
class Cli:
    url: str | None
    cwd: Path
    extra: Mapping[str, str]

    async def __call__(self, *arguments: str, stdin: str = "") -> Ended:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "deedbox.cli.main",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.cwd,
            env=environment(self.url, self.extra),
        )
        try:
            async with asyncio.timeout(DEADLINE_S):
                out, err = await process.communicate(stdin.encode())
        except BaseException:
            process.kill()
            await process.wait()
            raise
        ended = Ended(process.returncode or 0, out.decode(), err.decode())
        assert "Traceback" not in ended.err, ended.err
        return ended


@pytest.fixture
def cli(database: TestDatabase, tmp_path: Path) -> Cli:
    return Cli(database.owner_url, tmp_path, {})


async def people(url: str, **roles: str) -> None:
    """Make people without a process for each; their own test makes one by the command."""
    async with opened_pool(url) as pool:
        ids = await IdSource.read(pool)
        for name, wanted in roles.items():
            await add_user(pool, ids, "default", name, wanted.split(), PASSWORD)


async def key_of(url: str) -> str:
    async with opened_pool(url) as pool:
        return await add_key(pool, await IdSource.read(pool), "default", "caller", ["operator"], "")


@asynccontextmanager
async def opened_pool(url: str) -> AsyncGenerator[Pool]:
    pool = make_pool(url, "test cli", size=3)
    await pool.open()
    try:
        yield pool
    finally:
        await pool.close()


def refused(ended: Ended, code: int, words: str) -> None:
    """One line on standard error, and nothing else."""
    assert (ended.code, ended.out) == (code, ""), ended
    assert len(ended.err.splitlines()) == 1, ended.err
    assert words in ended.err


def untouched(folder: Path) -> bool:
    return not list(folder.iterdir())


# People and keys -------------------------------------------------------------------------------------------------------


async def test_a_person_is_made_with_the_password_from_standard_input(cli: Cli) -> None:
    made = await cli("users", "add", "Ada", "--role", "manager", "--role", "operator", stdin=f"{PASSWORD}\n")
    assert (made.code, made.out) == (0, "Ada can log in now, as manager, operator\n")
    listed = (await cli("users", "list", "--json")).json()
    assert [(one["name"], one["kind"], one["roles"]) for one in listed] == [("Ada", "person", ["manager", "operator"])]
    refused(await cli("users", "add", "Ada", "--role", "viewer", stdin=f"{PASSWORD}\n"), 1, "taken")


async def test_a_person_without_a_usable_password_or_role_is_refused(cli: Cli) -> None:
    refused(await cli("users", "add", "Ada", "--role", "manager"), 2, "standard input")
    refused(await cli("users", "add", "Ada", "--role", "manager", stdin="short\n"), 1, "at least 8")
    assert (await cli("users", "add", "Ada", "--role", "manager", "--password", PASSWORD)).code == 2
    assert (await cli("users", "list")).out.startswith("nobody yet")


async def test_a_key_is_printed_once_and_ends_when_revoked(cli: Cli) -> None:
    made = await cli("keys", "add", "n8n", "--role", "operator", "--label", "the flow", "--expires", "90d")
    assert made.code == 0
    assert re.fullmatch(r"dbx_[\w-]{43}\n", made.out)
    listed = await cli("keys", "list", "--json")
    assert made.out.strip() not in listed.out
    (line,) = listed.json()
    assert (line["name"], line["label"], line["revoked_at"]) == ("n8n", "the flow", None)
    assert line["expires_at"] is not None
    assert (await cli("keys", "revoke", line["key_id"])).out == "revoked\n"
    refused(await cli("keys", "revoke", line["key_id"]), 3, "no living key")
    refused(await cli("keys", "add", "n8n", "--role", "operator", "--expires", "soon"), 2, "duration")


# The switch ------------------------------------------------------------------------------------------------------------


async def test_only_a_person_with_the_role_turns_the_switch_on(cli: Cli, database: TestDatabase) -> None:
    await people(database.url, Ada="manager", Vera="viewer")
    why = ("--reason", "the desk opens", "--json")
    refused(await cli("switch", "on", "--as", "Ada", *why, stdin="a wrong password\n"), 1, "do not fit")
    refused(await cli("switch", "on", "--as", "Vera", *why, stdin=f"{PASSWORD}\n"), 1, "role")
    refused(await cli("switch", "on", "--as", "Ada", "--reason", " ", stdin=f"{PASSWORD}\n"), 1, "reason")
    assert await database.value("SELECT is_on FROM deedbox.switch WHERE switch_id = 'acts'") is False
    on = (await cli("switch", "on", "--as", "Ada", *why, stdin=f"{PASSWORD}\n")).json()
    assert (on["is_on"], on["by"], on["why"], on["environment"], on["open"]) == (True, "Ada", "the desk opens", False, False)
    off = await cli("switch", "off", "--reason", "enough")
    assert off.code == 0
    assert "enough" in off.out
    assert (await cli("switch", "show", "--json")).json()["is_on"] is False


# What is not there, and what is wrong ----------------------------------------------------------------------------------


async def test_what_is_not_there_ends_with_3(cli: Cli) -> None:
    unknown = str(uuid4())
    refused(await cli("jobs", "show", unknown), 3, "no job")
    refused(await cli("effects", "show", unknown), 3, "no such effect")
    refused(await cli("approvals", "link", unknown), 3, "no open approval")


async def test_what_was_not_understood_ends_with_2(cli: Cli) -> None:
    assert (await cli("jobs", "show", "no-uuid")).code == 2
    refused(await Cli(cli.url, cli.cwd, {"DEEDBOX_PORT": "99999"})("jobs", "list"), 2, "DEEDBOX_PORT")
    refused(await cli("effects", "confirm", str(uuid4()), "--as", "Ada", "--provider-id", "1", "--evidence", "{"), 2, "JSON")


async def test_a_database_that_is_away_or_without_schema_ends_with_3(tmp_path: Path, database: TestDatabase) -> None:
    away = "postgresql://ann:secret-word@127.0.0.1:1/deedbox"
    ended = await Cli(away, tmp_path, {})("jobs", "list")
    refused(ended, 3, "cannot be reached")
    ended = await Cli("nonsense://secret-word", tmp_path, {})("jobs", "list")
    refused(ended, 3, "DEEDBOX_DATABASE_URL")
    assert "secret-word" not in ended.err
    empty = conninfo.make_conninfo(server().owner_url, dbname="postgres")
    refused(await Cli(empty, tmp_path, {})("jobs", "list"), 3, "deedbox migrate")


async def test_a_list_in_the_wrong_place_makes_nothing(tmp_path: Path) -> None:
    refused(await Cli(None, tmp_path, {})("jobs", "list"), 3, "DEEDBOX_STATE")
    assert untouched(tmp_path)


async def test_an_app_that_is_not_there_is_told_in_one_line(cli: Cli) -> None:
    refused(await cli("serve", "nothing_here:app"), 3, "nothing_here")
    refused(await cli("serve", "missing.py"), 3, "missing.py")
    (cli.cwd / "empty.py").write_text("app = 1\n")
    refused(await cli("worker", "empty.py"), 3, "no App")


# Lists, audit, doctor --------------------------------------------------------------------------------------------------


async def test_empty_lists_say_so_and_are_empty_in_json(cli: Cli) -> None:
    assert (await cli("jobs", "list")).out == "no jobs\n"
    for group in ("jobs", "effects", "approvals"):
        assert (await cli(group, "list", "--json")).json() == []


async def test_the_audit_is_whole_until_somebody_changes_it(cli: Cli, database: TestDatabase) -> None:
    await cli("switch", "off", "--reason", "first")
    assert (await cli("audit", "verify")).out.startswith("whole: 1 entries")
    lines = [json.loads(line) for line in (await cli("audit", "export")).out.splitlines()]
    assert [line.get("reason") for line in lines] == ["first", None]
    assert lines[-1]["head"]["entry_sha256"] == lines[-2]["entry_sha256"]
    await database.rows("ALTER TABLE deedbox.audit DISABLE TRIGGER USER")
    await database.rows("UPDATE deedbox.audit SET reason = 'nothing happened' WHERE seq = 1")
    refused(await cli("audit", "verify"), 1, "entry 1 of 1")


async def test_doctor_names_what_is_missing_and_what_to_do(cli: Cli, database: TestDatabase) -> None:
    (cli.cwd / "app.py").write_text(APP.replace('roles=["operator"]', 'roles=["operator"], approvers=["desk_lead"]'))
    ended = await cli("doctor", "app.py", "--json")
    assert ended.code == 1
    missing = {one["what"]: one["to_do"] for one in ended.json() if one["verdict"] == "missing"}
    assert "deedbox users add" in missing["approvers"]
    assert "--owner" in missing["switch, owner"]
    await people(database.url, Ada="manager")
    gaps = [one["said"] for one in (await cli("doctor", "app.py", "--json")).json() if one["what"] == "approvers"]
    assert gaps == ["add_numbers: 1 needed with the role desk_lead, 0 there"]
    await people(database.url, Bo="manager desk_lead")
    await cli("switch", "on", "--as", "Ada", "--reason", "ready", "--owner", "Ada", stdin=f"{PASSWORD}\n")
    whole = await cli("doctor", "app.py")
    assert whole.code == 0, whole.out
    assert "2 may decide" in whole.out


async def test_doctor_works_without_a_database(tmp_path: Path) -> None:
    ended = await Cli(None, tmp_path, {})("doctor")
    assert ended.code == 1
    assert "deedbox migrate" in ended.out
    away = await Cli("postgresql://127.0.0.1:1/deedbox", tmp_path, {})("doctor", "--json")
    assert away.code == 1
    assert [one["what"] for one in away.json() if one["verdict"] == "missing"] == ["database"]
    assert untouched(tmp_path)


# Servers ---------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def running(cli: Cli, *arguments: str) -> AsyncGenerator[tuple[asyncio.subprocess.Process, str]]:
    """A server, and what it said up to the end of its introduction."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "deedbox.cli.main",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=cli.cwd,
        env=environment(cli.url, {"DEEDBOX_PORT": "0", "DEEDBOX_LOG_LEVEL": "warning", "PYTHONUNBUFFERED": "1", **cli.extra}),
    )
    assert process.stdout is not None
    said = ""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while "\nto stop" not in said:
                line = (await process.stdout.readline()).decode()
                assert line, f"it ended: {said}"
                said += line
        yield process, said
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def stopped(process: asyncio.subprocess.Process, number: int = signal.SIGTERM) -> str:
    process.send_signal(number)
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        rest = (await process.stdout.read()).decode()
        assert await process.wait() == 0, rest
    return rest


def address_in(said: str) -> str:
    found = re.search(r"http://127\.0\.0\.1:\d+", said)
    assert found, said
    return found[0]


async def test_serve_takes_a_job_to_its_end_and_stops_on_sigterm(cli: Cli, database: TestDatabase) -> None:
    (cli.cwd / "app.py").write_text(APP)
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
        rest = await stopped(process)
    assert rest.endswith("stopped\n")
    assert await database.value("SELECT count(*) FROM deedbox.process WHERE stopped_at IS NULL") == 0


async def test_parts_run_apart_and_a_waiting_job_is_canceled_by_a_person(cli: Cli, database: TestDatabase) -> None:
    (cli.cwd / "app.py").write_text(APP)
    key = await key_of(database.url)
    await people(database.url, Ada="operator")
    async with running(cli, "api", "app.py") as (process, said):
        headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": "k-1"}
        async with httpx2.AsyncClient(base_url=address_in(said), timeout=DEADLINE_S) as client:
            answer = await client.post("/api/actions/add_numbers/jobs", json={"values": [1]}, headers=headers)
        job_id = answer.json()["job_id"]
        await stopped(process)
    async with running(cli, "dispatch", "app.py") as (process, said):
        assert "dispatch and sweep" in said
        await stopped(process, signal.SIGINT)
    ended = await cli("jobs", "cancel", job_id, "--as", "Ada", "--reason", "not needed", stdin=f"{PASSWORD}\n")
    assert (ended.code, ended.out) == (0, "canceled\n")
    refused(await cli("jobs", "cancel", job_id, "--as", "Ada", "--reason", "again", stdin=f"{PASSWORD}\n"), 1, "ended")
    assert await database.value("SELECT state FROM deedbox.result") == "canceled"


async def test_a_port_that_is_taken_is_told_in_one_line(cli: Cli) -> None:
    (cli.cwd / "app.py").write_text(APP)
    taken = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    async with taken:
        port = taken.sockets[0].getsockname()[1]
        refused(await Cli(cli.url, cli.cwd, {"DEEDBOX_PORT": str(port)})("serve", "app.py"), 3, "DEEDBOX_PORT")


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
            cli = Cli(conninfo.make_conninfo(server().owner_url, dbname=name), tmp_path, {})
            assert (await cli("migrate")).out.startswith("applied 0001_initial")
            assert (await cli("migrate")).out == "up to date\n"
        finally:
            await admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
