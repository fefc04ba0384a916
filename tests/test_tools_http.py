"""Tools over HTTP: the list, the call, and that whoever is known gets an envelope with 200, whatever was sent."""

import asyncio
from typing import Any

import pytest

from deedbox.access import add_key
from tests.builders import ScriptedConnector
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import until
from tests.servers.installed import House, house
from tests.toolbox import Play, toolbox_app

pytestmark = pytest.mark.anyio


async def key(site: House, *roles: str) -> str:
    """A key of a program with these roles."""
    desk = site.installation
    return await add_key(desk.pool, desk.ids, "default", f"program-{'-'.join(roles)}", list(roles), "test")


def app() -> Any:
    """The toolbox's application."""
    return toolbox_app(Play(), ScriptedConnector())


@proves("G-TOOL-SHAPE")
async def test_the_list_and_a_call(database: TestDatabase) -> None:
    """A caller is shown its own tools; a call is pending with its job, and the same key replays it."""
    async with house(database, app()) as site, site.api(await key(site, "operator")) as client:
        listed = (await client.get("/api/tools")).json()
        assert [tool["name"] for tool in listed["tools"]][:2] == ["create_lead", "create_pair"]
        assert listed["tools"][0]["input_schema"]["additionalProperties"] is False
        sent = {"Idempotency-Key": "k", "Deedbox-Caller-Run": "run-1", "Deedbox-Source": "n8n"}
        first = await client.post("/api/tools/create_lead?wait_s=0", json={"name": "Ada"}, headers=sent)
        assert (first.status_code, first.json()["status"]) == (200, "pending"), first.text
        assert int(first.headers["Retry-After"]) >= 1
        again = (await client.post("/api/tools/create_lead?wait_s=0", json={"name": "Ada"}, headers=sent)).json()
        assert again["job_id"] == first.json()["job_id"]
        assert again["audit_id"] != first.json()["audit_id"]
        rows = await database.rows("SELECT source, caller_run, status FROM deedbox.call ORDER BY called_at")
        assert rows == [("n8n", "run-1", "answered"), ("n8n", "run-1", "replayed")]


@proves("G-TOOL-INPUT")
@pytest.mark.parametrize(
    ("path", "content", "headers", "code"),
    [
        ("create_lead", b"{", {}, "INVALID_INPUT"),
        ("create_lead", b"", {}, "INVALID_INPUT"),
        ("create_lead", b"{}", {"Content-Type": "text/plain"}, "INVALID_INPUT"),
        ("create_lead", b'{"name": "x", "name": "y"}', {}, "INVALID_INPUT"),
        ("create_lead", b'{"name": "' + b"x" * 2_000_000 + b'"}', {}, "INVALID_INPUT"),
        ("create_lead", b'{"name": "x"}', {"Idempotency-Key": ""}, "KEY_INVALID"),
        ("create_lead", b'{"name": "x"}', {"Deedbox-Tool-Version": "x"}, "INVALID_INPUT"),
        ("create_lead", b'{"name": "x"}', {"Deedbox-Tool-Version": "9"}, "VERSION_MISMATCH"),
        ("create_lead", b'{"name": "x"}', {"Deedbox-Parent-Job": "nonsense"}, "NOT_FOUND"),
        ("create_lead?wait_s=soon", b'{"name": "x"}', {}, "INVALID_INPUT"),
        ("draft_only", b'{"name": "x"}', {}, "PERMISSION_DENIED"),
        ("keep_inside", b'{"name": "x"}', {}, "NOT_FOUND"),
        ("no_such_tool", b"{}", {}, "NOT_FOUND"),
    ],
)
async def test_whatever_is_sent_is_answered_in_one_shape(
    database: TestDatabase, path: str, content: bytes, headers: dict[str, str], code: str
) -> None:
    """With 200, the code and an audit id that is in the journal; nothing is stored."""
    async with house(database, app()) as site, site.api(await key(site, "operator")) as client:
        given = {"Content-Type": "application/json"} | headers
        answer = await client.post(f"/api/tools/{path}", content=content, headers=given)
        assert answer.status_code == 200, answer.text
        got = answer.json()
        assert (got["status"], got["error_code"], got["job_id"]) == ("error", code, None), got
        assert await database.value("SELECT error_code FROM deedbox.call WHERE call_id = %s", got["audit_id"]) == code
        assert await database.value("SELECT count(*) FROM deedbox.job") == 0


@proves("G-PERMISSIONS")
async def test_whoever_is_not_known_gets_a_problem(database: TestDatabase) -> None:
    """Without a key it is 401; with a form's key, which is public, 403."""
    async with house(database, app()) as site, site.api() as client:
        for made in (client.get("/api/tools"), client.post("/api/tools/create_lead", json={})):
            assert (await made).status_code == 401
        assert await database.value("SELECT count(*) FROM deedbox.call") == 0


async def test_a_server_that_stops_answers_at_once(database: TestDatabase) -> None:
    """A call that waits is answered as pending when the server ends, and is not made twice."""
    async with house(database, app()) as site:
        bearer = await key(site, "operator")
        async with site.api(bearer) as client:
            waiting = asyncio.create_task(client.post("/api/tools/create_lead?wait_s=25", json={"name": "Ada"}))
            await until(lambda: database.value("SELECT count(*) FROM deedbox.job"), lambda count: count == 1)
            site.stopping.set()
            answer = await waiting
            assert (answer.status_code, answer.json()["status"]) == (200, "pending"), answer.text
            assert await database.value("SELECT count(*) FROM deedbox.job") == 1
