"""The command line as people and scripts meet it: what commands answer, and their exit codes."""

import asyncio
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
from psycopg import conninfo

from deedbox.access import KeyCache, LoginGuard, login, resolve_key, resolve_session
from tests.database import TestDatabase, server
from tests.servers.commands import PASSWORD, Cli, opened_pool, people, refused

pytestmark = pytest.mark.anyio

APP = """
from pydantic import BaseModel
from deedbox import App, Context, allow

app = App()


class Numbers(BaseModel):
    values: list[int]


class Total(BaseModel):
    total: int


@app.action(roles=["operator"], approvers=["desk_lead"], policy=allow())
async def add_numbers(ctx: Context, numbers: Numbers) -> Total:
    return Total(total=sum(numbers.values))
"""


@pytest.fixture
def cli(database: TestDatabase, tmp_path: Path) -> Cli:
    return Cli(database.owner_url, tmp_path)


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


async def test_a_key_is_rotated_with_an_overlap_and_the_old_one_ends_alone(cli: Cli, database: TestDatabase) -> None:
    first = (await cli("keys", "add", "n8n", "--role", "operator", "--label", "old")).out.strip()
    second = (await cli("keys", "add", "n8n", "--role", "operator", "--label", "new")).out.strip()
    refused(await cli("keys", "add", "n8n", "--role", "manager"), 1, "other roles")
    refused(await cli("keys", "add", "n8n", "--role", "Operator!"), 1, "role")
    lines = {line["label"]: line["key_id"] for line in (await cli("keys", "list", "--json")).json()}
    assert (await cli("keys", "revoke", lines["old"])).code == 0
    async with opened_pool(database.url) as pool:
        assert await resolve_key(pool, first, KeyCache()) is None
        holder = await resolve_key(pool, second, KeyCache())
    assert holder is not None
    assert (holder.name, holder.kind, holder.roles) == ("n8n", "service", frozenset({"operator"}))
    (line,) = (await cli("users", "list", "--json")).json()
    assert (line["name"], line["kind"], line["keys"]) == ("n8n", "service", 1)


async def test_log_out_ends_every_session_of_one_person(cli: Cli, database: TestDatabase) -> None:
    await people(database.url, Ada="manager", Bo="operator")
    async with opened_pool(database.url) as pool:
        opened = [
            await login(pool, "default", name, PASSWORD, guard=LoginGuard(), peer="test") for name in ("Ada", "Ada", "Bo")
        ]
        tokens = [one.token for one in opened if one is not None]
        ended = await cli("users", "log-out", "Ada")
        assert ended.code == 0
        assert ended.out.startswith("2 sessions")
        assert [await resolve_session(pool, token) is not None for token in tokens] == [False, False, True]
    assert (await cli("users", "log-out", "Nobody")).out == "0 sessions ended\n"
    assert (await cli("users", "log-out", "Bo")).out == "1 session ended\n"


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
    assert await database.value("SELECT count(*) FROM deedbox.session WHERE revoked_at IS NULL") == 0
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
    refused(await cli.but(DEEDBOX_PORT="99999")("jobs", "list"), 2, "DEEDBOX_PORT")
    refused(await cli("effects", "confirm", str(uuid4()), "--as", "Ada", "--provider-id", "1", "--evidence", "{"), 2, "JSON")


async def test_a_database_that_is_away_or_without_schema_ends_with_3(tmp_path: Path, database: TestDatabase) -> None:
    away = "postgresql://ann:secret-word@127.0.0.1:1/deedbox"
    ended = await Cli(away, tmp_path)("jobs", "list")
    refused(ended, 3, "cannot be reached")
    ended = await Cli("nonsense://secret-word", tmp_path)("jobs", "list")
    refused(ended, 3, "DEEDBOX_DATABASE_URL")
    assert "secret-word" not in ended.err
    empty = conninfo.make_conninfo(server().owner_url, dbname="postgres")
    refused(await Cli(empty, tmp_path)("jobs", "list"), 3, "deedbox migrate")


async def test_a_list_in_the_wrong_place_makes_nothing(tmp_path: Path) -> None:
    refused(await Cli(None, tmp_path)("jobs", "list"), 3, "DEEDBOX_STATE")
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


@pytest.mark.parametrize("columns", [40, 80, 200])
async def test_no_value_of_a_list_is_lost_in_a_narrow_terminal(cli: Cli, columns: int) -> None:
    await cli("keys", "add", "n8n", "--role", "operator", "--label", "the flow that watches the mailbox", "--expires", "90d")
    (line,) = (await cli("keys", "list", "--json")).json()
    shown = await asyncio.to_thread(in_terminal, cli, columns, "keys", "list")
    assert max(len(row) for row in shown.splitlines()) <= columns
    for value in (line["key_id"], "n8n", line["created_at"][:10], line["expires_at"][:10], "mailbox"):
        assert value in shown


def in_terminal(cli: Cli, columns: int, *arguments: str) -> str:
    """What a command shows in a terminal of so many columns, without its colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [sys.executable, "-m", "deedbox.cli.main", *arguments]
    process = subprocess.Popen(command, stdout=theirs, env={**cli.environment, "TERM": "xterm"}, cwd=cli.cwd)
    os.close(theirs)
    shown = b""
    # At the end of the last writer a terminal fails to read, on Linux at least.
    with suppress(OSError):
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    assert process.wait() == 0
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())


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
    (cli.cwd / "app.py").write_text(APP)
    ended = await cli("doctor", "app.py", "--json")
    assert ended.code == 1
    missing = {one["what"]: one["to_do"] for one in ended.json() if one["verdict"] == "missing"}
    assert "deedbox users add" in missing["approvers"]
    assert "--owner" in missing["switch, owner"]
    await people(database.url, Ada="manager")
    gaps = [one["said"] for one in (await cli("doctor", "app.py", "--json")).json() if one["what"] == "approvers"]
    assert gaps == ["add_numbers: 1 needed with the role desk_lead, 0 there"]
    assert (await cli("roles", "add", "desk_lead")).code == 0
    await people(database.url, Bo="manager desk_lead")
    await cli("switch", "on", "--as", "Ada", "--reason", "ready", "--owner", "Ada", stdin=f"{PASSWORD}\n")
    whole = await cli("doctor", "app.py")
    assert whole.code == 0, whole.out
    assert "2 may decide" in whole.out
    (growth,) = [one for one in (await cli("doctor", "--json")).json() if one["what"] == "growth"]
    assert growth["verdict"] == "ok"
    assert re.match(
        r"2 months kept, the oldest of \w+ \d{4}, 3 of 3 ahead; [\d.]+ MiB in them, [\d.]+ MiB in all; ", growth["said"]
    )


async def test_doctor_works_without_a_database(tmp_path: Path) -> None:
    ended = await Cli(None, tmp_path)("doctor")
    assert ended.code == 1
    assert "deedbox migrate" in ended.out
    away = await Cli("postgresql://127.0.0.1:1/deedbox", tmp_path)("doctor", "--json")
    assert away.code == 1
    assert [one["what"] for one in away.json() if one["verdict"] == "missing"] == ["database"]
    assert untouched(tmp_path)
