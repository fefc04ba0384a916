"""Keys, sessions, roles and tenants at the terminal."""

import re
from pathlib import Path

import pytest

from deedbox.access import LoginGuard, login, resolve_key, resolve_session
from tests.database import TestDatabase
from tests.servers.commands import PASSWORD, Cli, opened_pool, people, refused

pytestmark = pytest.mark.anyio
KEY = r"dbx_[\w-]{43}\n"


@pytest.fixture
def cli(database: TestDatabase, tmp_path: Path) -> Cli:
    return Cli(database.owner_url, tmp_path)


async def test_keys_of_all_kinds_are_made_rotated_and_listed(cli: Cli, database: TestDatabase) -> None:
    await people(database.url, Ada="manager")
    service = await cli("keys", "add", "agent", "--role", "operator", "--label", "flow", "--acts-for-others")
    form = await cli(
        *("keys", "add-form", "web", "--role", "operator", "--action", "ask_desk"),
        *("--origin", "https://www.shop.example", "--rate", "5", "--label", "page"),
    )
    mine = await cli("keys", "mint", "--as", "Ada", "--hours", "2", "--label", "tool", stdin=f"{PASSWORD}\n")
    rotated = await cli("keys", "rotate", "flow", "--overlap", "24h")
    for made in (service, form, mine, rotated):
        assert made.code == 0, made
        assert re.fullmatch(KEY, made.out)
    assert "good until" in rotated.err
    lines = (await cli("keys", "list", "--json")).json()
    assert {line["kind"] for line in lines} == {"service", "form", "personal"}
    first, second = (line for line in reversed(lines) if line["label"] == "flow")
    assert first["replaced_by"] == second["key_id"]
    assert first["expires_at"] is not None
    assert first["acts_for_others"] is second["acts_for_others"] is True
    shown = (await cli("keys", "list")).out
    assert "form: ask_desk from https://www.shop.example" in shown
    assert "acts for others" in shown
    refused(await cli("keys", "rotate", "no such"), 3, "No living key")
    refused(await cli("keys", "rotate", "page", "--overlap", "soon"), 2, "duration")
    refused(await cli("keys", "mint", "--as", "Ada", stdin="wrong password\n"), 1, "do not fit")
    async with opened_pool(database.url) as pool:
        holder = await resolve_key(pool, mine.out.strip())
    assert holder is not None
    assert (holder.name, holder.method) == ("Ada", "personal_key")
    # A personal key stands for the password where a command asks who does it, and for nobody else.
    done = await cli("switch", "on", "--as", "Ada", "--reason", "it opens", stdin=mine.out)
    assert done.code == 0, done
    refused(await cli("switch", "on", "--as", "Bo", "--reason", "it opens", stdin=mine.out), 1, "do not fit")
    refused(await cli("keys", "mint", "--as", "Ada", stdin=mine.out), 1, "logged in")
    without = cli.but(
        DEEDBOX_LOCAL_ACCOUNTS="false",
        DEEDBOX_OIDC='[{"name": "corp", "issuer": "https://login.example", "client_id": "deedbox"}]',
    )
    refused(await without("switch", "on", "--as", "Ada", "--reason", "x", stdin=f"{PASSWORD}\n"), 1, "passwords are not taken")
    assert (await without("switch", "on", "--as", "Ada", "--reason", "it opens", stdin=mine.out)).code == 0


async def test_sessions_of_a_person_are_listed_and_one_is_ended(cli: Cli, database: TestDatabase) -> None:
    await people(database.url, Ada="viewer")
    async with opened_pool(database.url) as pool:
        opened = [await login(pool, "default", "Ada", PASSWORD, guard=LoginGuard(), peer="192.0.2.7") for _ in range(2)]
        lines = (await cli("users", "sessions", "Ada", "--json")).json()
        assert [(line["method"], line["peer"]) for line in lines] == [("password", "192.0.2.7")] * 2
        left = (await cli("users", "sessions", "Ada", "--end", lines[0]["session_id"], "--json")).json()
        assert [line["session_id"] for line in left] == [lines[1]["session_id"]]
        alive = [one is not None and await resolve_session(pool, one.token) is not None for one in opened]
        assert sorted(alive) == [False, True]
    refused(await cli("users", "sessions", "Ada", "--end", lines[0]["session_id"]), 3, "no open session")
    assert "192.0.2.7" in (await cli("users", "sessions", "Ada")).out
    assert (await cli("users", "sessions", "Bo")).out == "Bo is not logged in\n"


async def test_roles_of_ones_own_and_tenants_are_made_and_listed(cli: Cli) -> None:
    refused(await cli("users", "add", "Ada", "--role", "auditor", stdin=f"{PASSWORD}\n"), 1, "deedbox roles add")
    assert (await cli("roles", "add", "auditor", "--verb", "read")).out == "auditor is a role now: it may read\n"
    assert (await cli("users", "add", "Ada", "--role", "auditor", stdin=f"{PASSWORD}\n")).code == 0
    assert (await cli("roles", "add", "auditor", "--verb", "read", "--verb", "cancel")).out.startswith("auditor was changed")
    listed = {line["role"]: line for line in (await cli("roles", "list", "--json")).json()}
    assert listed["auditor"] == {"role": "auditor", "verbs": ["read", "cancel"], "built_in": False, "holders": 1}
    assert listed["admin"]["built_in"] is True
    refused(await cli("roles", "add", "admin", "--verb", "read"), 1, "built in")
    refused(await cli("roles", "add", "pilot", "--verb", "fly"), 1, "not a verb")
    refused(await cli("roles", "remove", "auditor"), 3, "held")
    await cli("roles", "add", "spare")
    assert (await cli("roles", "remove", "spare")).code == 0
    assert "do nothing by itself" in (await cli("roles", "add", "spare")).out
    assert (await cli("tenants", "add", "north")).out == "north is a tenant now\n"
    refused(await cli("tenants", "add", "north"), 1, "already")
    refused(await cli("tenants", "add", "No Such"), 1, "lower-case")
    north = cli.but(DEEDBOX_TENANT="north")
    assert (await north("users", "add", "Ada", "--role", "viewer", stdin=f"{PASSWORD}\n")).code == 0
    lines = {line["tenant"]: line for line in (await cli("tenants", "list", "--json")).json()}
    assert {name: line["people"] for name, line in lines.items()} == {"default": 1, "north": 1}
    assert "north" in (await cli("tenants", "list")).out
