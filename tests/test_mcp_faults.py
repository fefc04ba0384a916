"""What MCP clients met in public, each with the right outcome: doubles, hang-ups, restarts, an absent store, foreign hosts."""

import asyncio
import json
import time
from typing import Any

import httpx2
import pytest

from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import until
from tests.servers.mcp_house import ERAS, Era, McpHouse, mcp_house, message_of, modern, sent
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.anyio
TASKS: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
OLDER = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


def older(method: str, params: dict[str, Any], request_id: Any = 1) -> bytes:
    """A request of the older era, without any handshake before it."""
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}).encode()


async def called(house: McpHouse, era: Era, params: dict[str, Any], headers: dict[str, str] | None = None) -> dict[str, Any]:
    """A call in one message of an era; its envelope."""
    async with house.http() as http:
        if era == "legacy":
            answer = await http.post("/mcp", content=older("tools/call", params), headers={**OLDER, **(headers or {})})
        else:
            answer = await http.post("/mcp", content=modern("tools/call", params), headers=sent("tools/call", params, headers))
    shown: dict[str, Any] = message_of(answer)["result"]["structuredContent"]
    return shown


@proves("G-MCP-KEYS")
async def test_a_call_that_is_sent_twice_at_once_in_two_eras_is_one_job(database: TestDatabase):
    async with mcp_house(database, replicas=2, working=False) as house:
        params = {"name": "note_thing", "arguments": {"text": "a"}}
        answers = await asyncio.gather(*(called(house, era, params) for era in (*ERAS, *ERAS)))
        assert len({answer["job_id"] for answer in answers}) == 1
        assert await house.stored() == 1
        assert len({answer["audit_id"] for answer in answers}) == 4, "each call has an entry of its own"


@proves("G-MCP-KEYS")
@pytest.mark.parametrize("era", ERAS)
async def test_the_first_key_in_the_order_counts(database: TestDatabase, era: Era):
    async with mcp_house(database, working=False) as house:
        arguments = {"name": "note_thing", "arguments": {"text": "a"}}
        meta = {"_meta": {"deedbox/idempotencyKey": "m"}}
        header = {"Idempotency-Key": '"h"'}
        by_param = (await called(house, era, {**arguments, **meta, "idempotencyKey": "p"}, header))["job_id"]
        by_meta = (await called(house, era, {**arguments, **meta}, header))["job_id"]
        by_header = (await called(house, era, arguments, header))["job_id"]
        assert len({by_param, by_meta, by_header}) == 3
        assert (await called(house, era, {**arguments, "idempotencyKey": "h"}))["job_id"] == by_header
        other = {"name": "note_thing", "arguments": {"text": "b"}, "idempotencyKey": "p"}
        assert (await called(house, era, other))["error_code"] == "KEY_REUSED"
        for wrong in ({"idempotencyKey": 5}, {"idempotencyKey": " "}, {"_meta": {"deedbox/idempotencyKey": "x" * 300}}):
            assert (await called(house, era, {**arguments, **wrong}))["error_code"] == "KEY_INVALID", wrong
        # An id of JSON-RPC is no key: the same call is one within the window, whatever its id.
        async with house.http() as http:
            answers = [
                await http.post("/mcp", content=older("tools/call", arguments, number), headers=OLDER) for number in (8, 9)
            ]
        assert len({message_of(one)["result"]["structuredContent"]["job_id"] for one in answers}) == 1


@proves("G-MCP-DETACH")
@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_hangs_up_leaves_a_job_that_goes_on(database: TestDatabase, era: Era):
    async with mcp_house(database) as house:
        params: dict[str, Any] = {"name": "note_slowly", "arguments": {"text": "a"}, "_meta": {"progressToken": 1}}
        body = older("tools/call", params) if era == "legacy" else modern("tools/call", params)
        headers = OLDER if era == "legacy" else sent("tools/call", params)
        async with house.http() as http:
            asked = asyncio.create_task(http.post("/mcp", content=body, headers=headers))
            await house.script.started.wait()
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            if era == "legacy":
                note = json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
                assert (await http.post("/mcp", content=note, headers=OLDER)).status_code == 202
        house.script.go.set()

        async def look() -> object:
            return await database.rows("SELECT state FROM deedbox.result")

        assert await until(look, bool) == [("completed",)]
        assert (house.script.runs, house.script.stopped.is_set()) == (1, False)


@proves("G-MCP-RESTART")
async def test_after_a_restart_of_everything_a_job_is_found_by_its_id(database: TestDatabase):
    params = {"name": "note_slowly", "arguments": {"text": "a"}}
    async with mcp_house(database, working=False) as first:
        task_id = (await first.call("tools/call", params, capabilities=TASKS))["result"]["taskId"]
    async with mcp_house(database) as second:
        second.script.go.set()

        async def look() -> dict[str, Any]:
            return await second.call("tasks/get", {"taskId": task_id}, capabilities=TASKS)

        done = await until(look, lambda answer: answer["result"]["status"] == "completed")
        assert done["result"]["result"]["structuredContent"]["data"] == {"text": "a"}


@pytest.mark.parametrize("era", ERAS)
async def test_a_value_that_no_store_keeps_is_told_to_the_call_it_stands_in(database: TestDatabase, era: Era):
    async with mcp_house(database, working=False) as house:
        for text in ('"a\\u0000"', '"\\ud800"', "1e999", "NaN"):
            params = {"name": "note_thing", "arguments": {"text": "HERE"}}
            body = older("tools/call", params) if era == "legacy" else modern("tools/call", params)
            headers = OLDER if era == "legacy" else sent("tools/call", params)
            async with house.http() as http:
                answer = await http.post("/mcp", content=body.replace(b'"HERE"', text.encode()), headers=headers)
            assert answer.status_code == 200, text
            assert message_of(answer)["id"] == 1
            assert message_of(answer)["result"]["structuredContent"]["error_code"] == "INVALID_INPUT", text
        assert await house.stored() == 0


@proves("G-MCP-NO-STORE")
async def test_what_there_is_is_told_within_a_second_while_the_store_is_away(database: TestDatabase):
    """Also to a key that has to be looked up again: it is believed a while longer for what holds no data."""
    proxy = Proxy(database.url)
    async with proxy as way, mcp_house(database, working=False, api_url=way) as house, house.http() as http:
        for era in ERAS:
            assert (await listed(http, era))["tools"]
        proxy.freeze()
        try:
            for era in ERAS:
                house.served[0].keys.forget()
                began = time.monotonic()
                assert (await listed(http, era))["tools"]
                assert time.monotonic() - began < 1
            house.served[0].keys.forget()
            began = time.monotonic()
            answer = await house.call("server/discover", {})
            assert answer["result"]["supportedVersions"] == ["2026-07-28"]
            assert time.monotonic() - began < 1
        finally:
            proxy.thaw()


async def listed(http: httpx2.AsyncClient, era: Era) -> dict[str, Any]:
    """The list of tools, asked for in one message."""
    if era == "legacy":
        answer = await http.post("/mcp", content=older("tools/list", {}), headers=OLDER)
    else:
        answer = await http.post("/mcp", content=modern("tools/list", {}), headers=sent("tools/list", {}))
    result: dict[str, Any] = message_of(answer)["result"]
    return result


@proves("G-MCP-HOSTS")
async def test_only_hosts_and_origins_that_are_named_are_served(database: TestDatabase):
    settings: dict[str, Any] = {"mcp_hosts": "desk.example,inside.example:*", "mcp_origins": "https://chat.example"}
    async with mcp_house(database, working=False, **settings) as house, house.http() as http:
        body = older("ping", {})

        async def ask(**headers: str) -> httpx2.Response:
            return await http.post("/mcp", content=body, headers={**OLDER, **headers})

        for host in ("127.0.0.1:1", "localhost", "[::1]:80", "desk.example", "inside.example:8080"):
            assert (await ask(Host=host)).status_code == 200, host
        for host in (
            "evil.example",
            "desk.example:81",
            "desk.example.evil.example",
            "localhost.evil.example:80",
            "",
            "x@localhost",
        ):
            assert (await ask(Host=host)).status_code in {400, 421}, host
        allowed = await ask(Origin="https://chat.example")
        assert allowed.headers["access-control-allow-origin"] == "https://chat.example"
        assert (await ask(Origin="http://localhost:6274")).status_code == 200
        for origin in ("https://evil.example", "null", "https://chat.example.evil.example", "http://localhost.evil.example"):
            assert (await ask(Origin=origin)).status_code == 403, origin
        preflight = await http.options("/mcp", headers={"Origin": "https://chat.example"})
        assert (preflight.status_code, preflight.headers["access-control-allow-methods"]) == (204, "POST, DELETE")


async def test_nobody_is_served_without_a_key_and_a_form_key_opens_nothing(database: TestDatabase):
    async with mcp_house(database, working=False) as house:
        for key in (None, "dbx_unknown"):
            async with house.http(key) as http:
                for method in ("initialize", "ping", "tools/list"):
                    answer = await http.post("/mcp", content=older(method, {}), headers=OLDER)
                    assert answer.status_code == 401
                    assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_what_is_no_message_is_refused_with_a_reason(database: TestDatabase):
    async with mcp_house(database, working=False, max_json_bytes=4096) as house, house.http() as http:
        for raw, code in (
            (b"{", -32700),
            (b"\xff", -32700),
            (b"[]", -32600),
            (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
            (b'{"id":1,"method":"ping"}', -32600),
            (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
            (b'{"jsonrpc":"2.0","id":1,"method":5}', -32600),
            (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32600),
        ):
            answer = await http.post("/mcp", content=raw, headers=OLDER)
            assert (answer.status_code, answer.json()["error"]["code"], answer.json()["id"]) == (400, code, None), raw
        long = older("tools/call", {"name": "note_thing", "arguments": {"text": "x" * 5000}})
        assert (await http.post("/mcp", content=long, headers=OLDER)).status_code == 413
        assert (await http.post("/mcp", content=b"{}", headers={"Content-Type": "text/plain"})).status_code == 415
        got = await http.get("/mcp", headers={"Origin": "http://localhost:6274"})
        assert (got.status_code, got.headers["allow"]) == (405, "POST, DELETE, OPTIONS")
        assert got.headers["access-control-allow-origin"] == "http://localhost:6274", "a page may read that it is refused"
        assert (await http.delete("/mcp")).status_code == 204
        assert await house.stored() == 0
