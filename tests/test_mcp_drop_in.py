"""Deedbox's tools and tasks on an `MCPServer` of somebody's own, beside that server's own tools."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError

from deedbox import wiring
from deedbox.access import add_key
from deedbox.settings import Settings
from deedbox.wiring import Database
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import until
from tests.servers.listening import Listening
from tests.servers.mcp_house import ERAS, Era, Script, TakesTasks, desk

pytestmark = pytest.mark.anyio


@dataclass
class Shop:
    """Somebody's server with Deedbox in it, and a worker elsewhere."""

    url: str
    key: str
    script: Script
    database: TestDatabase

    @asynccontextmanager
    async def client(self, era: Era, key: str | None = None, **options: Any) -> AsyncGenerator[Client]:
        headers = {"Authorization": f"Bearer {key or self.key}"}
        async with httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http:
            transport = streamable_http_client(f"{self.url}/mcp", http_client=http)
            async with Client(transport, mode="legacy" if era == "legacy" else "auto", cache=None, **options) as client:
                yield client


@asynccontextmanager
async def shop(database: TestDatabase) -> AsyncGenerator[Shop]:
    script, stopping = Script(), asyncio.Event()
    app = desk(script)
    place = Database(database.url, database.owner_url, direct=database.direct_url)
    settings = Settings(pool_size=6, lease_s=3.0)
    async with AsyncExitStack() as stack:
        beside = await stack.enter_async_context(wiring.opened(settings, app, place, roles=("worker",)))
        key = await add_key(beside.pool, beside.ids, "default", "agent", ["operator"], "")
        tools = await stack.enter_async_context(wiring.mcp_beside(app, settings, place))
        server = MCPServer("shop", extensions=[tools], middleware=[tools.listing])

        @server.tool()
        async def price_of(ctx: Context[Any], thing: str) -> str:
            """What a thing costs; whoever asks is told when the shop is open."""
            await ctx.notify_resource_updated("shop://hours")
            return f"{thing}: 3 €"

        @server.resource("shop://hours")
        def hours() -> str:
            """When the shop is open."""
            return "9 to 5"

        assert price_of
        assert hours
        asgi = server.streamable_http_app(streamable_http_path="/mcp", stateless_http=True)
        listener = socket.create_server(("127.0.0.1", 0))
        serving = Listening(asgi, lifespan="auto")
        running = [
            asyncio.create_task(wiring.run_roles(beside, ("worker",), stopping)),
            asyncio.create_task(serving.serve(sockets=[listener])),
        ]
        try:
            await serving.listening.wait()
            yield Shop(f"http://127.0.0.1:{listener.getsockname()[1]}", key, script, database)
        finally:
            stopping.set()
            script.go.set()
            serving.should_exit = True
            await asyncio.gather(*running)
            listener.close()


@proves("G-MCP-DROP-IN")
@pytest.mark.parametrize("era", ERAS)
async def test_our_tools_stand_beside_theirs_and_are_jobs(database: TestDatabase, era: Era):
    async with shop(database) as one, one.client(era) as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        assert listed == ["cancel_job", "get_job", "note_slowly", "note_thing", "price_of", "send_note"]
        theirs = await client.call_tool("price_of", {"thing": "tea"})
        assert "tea: 3 €" in str(theirs.content)
        started: Any = (await client.call_tool("note_slowly", {"text": "a"})).structured_content
        assert started["status"] == "pending"
        twice: list[Any] = await asyncio.gather(*(client.call_tool("note_thing", {"text": "once"}) for _ in range(2)))
        assert len({answer.structured_content["job_id"] for answer in twice}) == 1
        one.script.go.set()

        async def look() -> Any:
            return (await client.call_tool("get_job", {"job_id": started["job_id"], "wait_s": 5})).structured_content

        done = await until(look, lambda found: found["status"] == "success")
        assert done["data"]["result"] == {"text": "a"}
        assert await database.value("SELECT count(*) FROM deedbox.job") == 2


@proves("G-MCP-DROP-IN")
async def test_a_call_of_who_takes_tasks_is_one_and_its_progress_is_told(database: TestDatabase):
    async with shop(database) as one:
        told: list[float] = []

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            del total, message
            told.append(progress)

        async with one.client("2026-07-28") as client:
            one.script.go.set()
            quick: Any = await client.call_tool("note_slowly", {"text": "b"}, progress_callback=progress)
            assert quick.structured_content["job_id"]
        async with one.client("2026-07-28", extensions=[TakesTasks()]) as client:
            one.script.go.clear()
            calling = asyncio.create_task(client.call_tool("note_slowly", {"text": "c"}))
            await until(lambda: _running(database), bool)
            one.script.go.set()
            done: Any = await calling
            assert done.structured_content["data"] == {"text": "c"}
        assert told


@proves("G-MCP-DROP-IN")
@pytest.mark.parametrize("era", ERAS)
async def test_a_job_and_the_page_are_resources_beside_theirs(database: TestDatabase, era: Era):
    async with shop(database) as one, one.client(era) as client:
        assert [str(page.uri) for page in (await client.list_resources()).resources] == ["shop://hours", "ui://deedbox/job"]
        templates = (await client.list_resource_templates()).resource_templates
        assert [template.uri_template for template in templates] == ["job://{job_id}"]
        assert "9 to 5" in str((await client.read_resource("shop://hours")).contents)
        page: Any = (await client.read_resource("ui://deedbox/job")).contents[0]
        assert page.mime_type == "text/html;profile=mcp-app"
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert (tools["note_thing"].meta or {})["ui"]["resourceUri"] == "ui://deedbox/job"
        assert "io.modelcontextprotocol/ui" in (client.server_capabilities.extensions or {})
        started: Any = (await client.call_tool("note_slowly", {"text": "a"})).structured_content
        read: Any = (await client.read_resource(f"job://{started['job_id']}")).contents[0]
        assert json.loads(read.text)["job_id"] == started["job_id"]
        one.script.go.set()
    async with shop(database) as other, other.client(era, key="dbx_nobody") as stranger:
        assert [str(page.uri) for page in (await stranger.list_resources()).resources] == ["shop://hours"]
        with pytest.raises(MCPError):
            await stranger.read_resource(f"job://{started['job_id']}")


@proves("G-MCP-DROP-IN", "G-MCP-PUSH")
async def test_news_of_a_job_is_pushed_and_news_of_theirs_stay_theirs(database: TestDatabase):
    async with shop(database) as one, one.client("2026-07-28") as client:
        started: Any = (await client.call_tool("note_slowly", {"text": "a"})).structured_content
        uri = f"job://{started['job_id']}"
        async with client.listen(resource_subscriptions=[uri, "job://x", "shop://hours"]) as changes:
            assert changes.honored.resource_subscriptions == [uri]
            one.script.go.set()
            async with asyncio.timeout(10):
                ours: Any = await anext(aiter(changes))
            assert ours.uri == uri
        async with client.listen(resource_subscriptions=["shop://hours"]) as changes:
            assert changes.honored.resource_subscriptions == ["shop://hours"]
            await client.call_tool("price_of", {"thing": "tea"})
            async with asyncio.timeout(10):
                theirs: Any = await anext(aiter(changes))
            assert theirs.uri == "shop://hours"


async def _running(database: TestDatabase) -> int:
    return int(str(await database.value("SELECT count(*) FROM deedbox.queue WHERE state = 'running'")))


@proves("G-MCP-DROP-IN")
@pytest.mark.parametrize("era", ERAS)
async def test_whom_deedbox_does_not_know_sees_their_tools_and_none_of_ours(database: TestDatabase, era: Era):
    async with shop(database) as one, one.client(era, key="dbx_nobody") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["price_of"]
        assert "tea: 3 €" in str((await client.call_tool("price_of", {"thing": "tea"})).content)
        refused = await asyncio.gather(client.call_tool("note_thing", {"text": "x"}), return_exceptions=True)
        assert isinstance(refused[0], BaseException) or refused[0].is_error, refused
        assert await database.value("SELECT count(*) FROM deedbox.job") == 0
