"""Real servers and workers behind MCP clients: killed, restarted, behind proxies that cut and buffer, called twice at once."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import until
from tests.servers.buffering import buffering
from tests.servers.fleet import Fleet, fleet
from tests.servers.mcp_house import ERAS, Era, message_of, modern, sent
from tests.servers.round_robin import round_robin

pytestmark = pytest.mark.anyio
TASKS: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
WITHIN_S = 120.0


@asynccontextmanager
async def client(ships: Fleet, url: str, era: Era) -> AsyncGenerator[Client]:
    """The official client of an era."""
    headers = {"Authorization": f"Bearer {ships.key}"}
    async with httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http:
        transport = streamable_http_client(f"{url}/mcp", http_client=http)
        async with Client(transport, mode="legacy" if era == "legacy" else "auto", cache=None) as one:
            yield one


async def ask(ships: Fleet, url: str, method: str, params: dict[str, Any], **headers: str) -> httpx2.Response:
    """One message of the newer era."""
    key = {"Authorization": f"Bearer {ships.key}"}
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        body, named = modern(method, params, TASKS), sent(method, params, {**key, **headers})
        return await http.post(f"{url}/mcp", content=body, headers=named)


async def task_of(ships: Fleet, url: str, gate: Path) -> str:
    """Start the job that waits for the file, as a task; its id."""
    answer = await ask(ships, url, "tools/call", {"name": "watch_gate", "arguments": {"gate": str(gate)}})
    return str(message_of(answer)["result"]["taskId"])


async def ended(ships: Fleet, url: str, task_id: str) -> dict[str, Any]:
    """The task once it is over."""

    async def look() -> dict[str, Any]:
        found: dict[str, Any] = message_of(await ask(ships, url, "tasks/get", {"taskId": task_id}))["result"]
        return found

    done: dict[str, Any] = await until(look, lambda task: task["status"] != "working", within=WITHIN_S)
    return done


async def moves(database: TestDatabase) -> list[str]:
    return [str(row[0]) for row in await database.rows("SELECT move FROM deedbox.attempt ORDER BY attempt")]


async def lost(call: Coroutine[Any, Any, Any]) -> None:
    """A call whose answer never comes, in a task of its own: clients tear down what is around them in ways of their own."""
    (came,) = await asyncio.gather(asyncio.create_task(call), return_exceptions=True)
    assert isinstance(came, BaseException), came


def at(port: int | None) -> str:
    return f"http://127.0.0.1:{port}"


@proves("G-MCP-KILL9")
async def test_a_worker_that_is_killed_in_mid_job_costs_an_attempt_and_no_task(database: TestDatabase, tmp_path: Path):
    async with fleet(database, tmp_path) as ships:
        url = at((await ships.server()).port)
        first = await ships.worker()
        task_id = await task_of(ships, url, ships.gate())
        assert await ships.holder(ships.gate()) == first.pid
        await first.kill()
        second = await ships.worker()
        assert await ships.holder(ships.gate()) == second.pid
        ships.gate().touch()
        done = await ended(ships, url, task_id)
        assert done["status"] == "completed"
        assert done["result"]["structuredContent"]["data"] == {"text": "seen", "pid": second.pid}
        assert await moves(database) == ["rescue", "complete"]
        assert await ships.stored() == 1


@proves("G-MCP-KILL9")
@pytest.mark.parametrize("era", ERAS)
async def test_a_server_that_is_killed_while_a_client_waits_loses_nothing(database: TestDatabase, tmp_path: Path, era: Era):
    async with fleet(database, tmp_path) as ships:
        first, second = await ships.server(), await ships.server()
        await ships.worker()
        async with client(ships, at(second.port), era) as other:
            arguments = {"gate": str(ships.gate())}

            async def wait() -> None:
                async with client(ships, at(first.port), era) as one:
                    job_id = (await one.call_tool("watch_gate", arguments)).structured_content["job_id"]  # pyright: ignore[reportOptionalSubscript] -- an envelope
                    await one.call_tool("get_job", {"job_id": job_id, "after": 99, "wait_s": 20})

            waiting = asyncio.create_task(lost(wait()))
            await ships.holder(ships.gate())
            await first.kill()
            await waiting
            # The same call again, at another server and with another id: the same job.
            again: Any = (await other.call_tool("watch_gate", arguments)).structured_content
            assert await ships.stored() == 1
            ships.gate().touch()

            async def look() -> Any:
                return (await other.call_tool("get_job", {"job_id": again["job_id"], "wait_s": 5})).structured_content

            done = await until(look, lambda found: found["status"] == "success", within=WITHIN_S)
            assert done["job_id"] == again["job_id"]
            assert await moves(database) == ["complete"]


@proves("G-MCP-KILL9", "G-MCP-RESTART")
async def test_everything_is_killed_and_started_again_between_start_and_get(database: TestDatabase, tmp_path: Path):
    async with fleet(database, tmp_path) as ships:
        server, worker = await ships.server(), await ships.worker()
        task_id = await task_of(ships, at(server.port), ships.gate())
        await ships.holder(ships.gate())
        await asyncio.gather(server.kill(), worker.kill())
        ships.gate().touch()
        again = await ships.server(server.port)
        await ships.worker()
        done = await ended(ships, at(again.port), task_id)
        assert done["status"] == "completed"
        assert await moves(database) == ["rescue", "complete"]


@proves("G-MCP-BUFFERED")
@pytest.mark.parametrize("era", ERAS)
async def test_behind_a_proxy_that_buffers_and_cuts_polling_completes(database: TestDatabase, tmp_path: Path, era: Era):
    async with fleet(database, tmp_path) as ships:
        server = await ships.server()
        await ships.worker()
        async with buffering(server.port or 0, patience_s=4.0) as proxy:
            arguments = {"gate": str(ships.gate())}

            async def poll(job_id: str, wait_s: float) -> Any:
                async with client(ships, proxy.url, era) as one:
                    given = {"job_id": job_id, "after": 99 if wait_s else 0, "wait_s": wait_s}
                    return (await one.call_tool("get_job", given)).structured_content

            async def told(progress: float, total: float | None, message: str | None) -> None:
                """Progress that comes when all is over, or never."""

            async with client(ships, proxy.url, era) as one:
                began = time.monotonic()
                started: Any = (await one.call_tool("watch_gate", arguments, progress_callback=told)).structured_content
                assert time.monotonic() - began < proxy.patience_s
            assert started["status"] == "pending"
            # A wait that is longer than the proxy's patience is cut, and the server is hung up on. The work goes on.
            await lost(poll(started["job_id"], 20))
            assert proxy.cut >= 1
            ships.gate().touch()
            done = await until(lambda: poll(started["job_id"], 0), lambda found: found["status"] == "success", within=WITHIN_S)
            assert done["data"]["result"] == {"text": "seen", "pid": await ships.holder(ships.gate())}
            assert await moves(database) == ["complete"]


@proves("G-MCP-KEYS")
@pytest.mark.parametrize("era", ERAS)
async def test_an_answer_that_is_lost_after_the_commit_is_asked_for_again(database: TestDatabase, tmp_path: Path, era: Era):
    async with fleet(database, tmp_path) as ships:
        server = await ships.server()
        async with buffering(server.port or 0, patience_s=20) as proxy:
            arguments = {"text": "once"}

            async def call() -> None:
                async with client(ships, proxy.url, era) as one:
                    await one.list_tools()
                    proxy.loses = 1
                    await one.call_tool("note_thing", arguments)

            # Some clients ask again by themselves, others leave that to whoever called.
            await asyncio.gather(asyncio.create_task(call()), return_exceptions=True)
            assert (proxy.lost, await ships.stored()) == (1, 1)
            await ships.worker()
            async with client(ships, proxy.url, era) as one:
                again: Any = (await one.call_tool("note_thing", arguments)).structured_content

                async def look() -> Any:
                    return (await one.call_tool("get_job", {"job_id": again["job_id"], "wait_s": 5})).structured_content

                await until(look, lambda found: found["status"] == "success", within=WITHIN_S)
            assert await ships.stored() == 1


@proves("G-MCP-KEYS")
async def test_each_call_twice_at_once_by_two_clients_in_two_eras_is_one_job(database: TestDatabase, tmp_path: Path):
    """Two servers, one client of each era at each; a pair counts where both calls have left within five milliseconds."""
    async with fleet(database, tmp_path) as ships:
        first, second = await ships.server(), await ships.server()
        async with client(ships, at(first.port), "2026-07-28") as newer, client(ships, at(second.port), "legacy") as older:
            await asyncio.gather(newer.list_tools(), older.list_tools())
            pairs = close = 0
            # On a busy machine some pairs are further apart; those are one job each as well.
            while close < 5 and pairs < 50:
                left: list[float] = []

                async def call(one: Client, text: str, left: list[float] = left) -> str:
                    left.append(time.monotonic())
                    answer: Any = (await one.call_tool("note_thing", {"text": text})).structured_content
                    return str(answer["job_id"])

                ids = await asyncio.gather(call(newer, f"n{pairs}"), call(older, f"n{pairs}"))
                assert len(set(ids)) == 1, ids
                pairs += 1
                close += max(left) - min(left) < 0.005
            assert close == 5
            assert await ships.stored() == pairs
            calls = await database.value("SELECT count(DISTINCT job_id) FROM deedbox.every_call WHERE source = 'mcp'")
            assert int(str(calls)) == pairs


@proves("G-MCP-ERAS")
@pytest.mark.parametrize("era", ERAS)
async def test_no_session_is_missed_behind_a_balancer_of_real_servers(database: TestDatabase, tmp_path: Path, era: Era):
    async with fleet(database, tmp_path) as ships:
        ports = [one.port or 0 for one in await asyncio.gather(ships.server(), ships.server())]
        await ships.worker()
        async with round_robin(ports) as url, client(ships, url, era) as one:
            for number in range(4):
                await one.list_tools()
                answer: Any = (await one.call_tool("note_thing", {"text": str(number)})).structured_content

                async def look(job_id: str = answer["job_id"]) -> Any:
                    return (await one.call_tool("get_job", {"job_id": job_id, "wait_s": 5})).structured_content

                await until(look, lambda found: found["status"] == "success", within=WITHIN_S)
            # One of them goes, and whoever is left answers for all.
            assert await ships.stored() == 4


async def test_what_goes_wrong_with_a_tool_is_an_answer_and_never_a_broken_server(database: TestDatabase, tmp_path: Path):
    async with fleet(database, tmp_path) as ships:
        url = at((await ships.server()).port)
        await ships.worker()
        calls: tuple[tuple[dict[str, Any], str], ...] = (
            ({"name": "note_thing", "arguments": {}}, "INVALID_INPUT"),
            ({"name": "note_thing", "arguments": {"text": "x", "more": 1}}, "INVALID_INPUT"),
            ({"name": "no_such_tool", "arguments": {}}, "NOT_FOUND"),
            ({"name": "get_job", "arguments": {"job_id": "none"}}, "NOT_FOUND"),
            ({"name": "note_thing", "arguments": {"text": "nobody"}}, "CUSTOMER_NOT_FOUND"),
        )
        for params, code in calls:
            answer = await ask(ships, url, "tools/call", params)
            assert answer.status_code == 200, (params, answer.text)
            result: dict[str, Any] = message_of(answer)["result"]
            if result.get("resultType") == "task":
                result = (await ended(ships, url, result["taskId"]))["result"]
            assert result["structuredContent"]["error_code"] == code, (params, json.dumps(result))
        assert await ships.stored() == 1
