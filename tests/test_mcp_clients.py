"""Three clients that others wrote drive real processes: start, poll, cancel and tasks, in both eras."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import until
from tests.servers.commands import ROOT
from tests.servers.fleet import Fleet, fleet
from tests.servers.mcp_house import TakesTasks
from tools import node
from tools.agents import AGENTS
from tools.agents import MISSING as NO_AGENTS

pytestmark = pytest.mark.anyio
Era = Literal["modern", "legacy"]
ERAS: tuple[Era, ...] = ("modern", "legacy")
OUTSIDE = ROOT / "tests" / "outside"
WITHIN_S = 90.0


@dataclass(frozen=True)
class Driven:
    """What a client made of one call: the envelope it was given, and the tools it saw."""

    answer: dict[str, Any]
    tools: list[str]
    took_task: bool = False


@dataclass(frozen=True)
class Driver:
    """One client: calls a tool and says what it was answered; `tasks` declares that it takes them."""

    fleet: Fleet
    url: str
    era: Era

    async def call(self, tool: str, arguments: Mapping[str, Any], *, tasks: bool = False) -> Driven:
        """Call a tool."""
        raise NotImplementedError


class Official(Driver):
    """The client of the official Python SDK."""

    async def call(self, tool: str, arguments: Mapping[str, Any], *, tasks: bool = False) -> Driven:
        """Call a tool."""
        headers = {"Authorization": f"Bearer {self.fleet.key}"}
        taken: list[str] = []

        class Noting(TakesTasks):
            async def resolve(self, handle: Any, ctx: Any) -> Any:
                taken.append(handle.task_id)
                return await super().resolve(handle, ctx)

        async with httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http:
            transport = streamable_http_client(self.url, http_client=http)
            mode = "legacy" if self.era == "legacy" else "auto"
            async with Client(transport, mode=mode, cache=None, extensions=[Noting()] if tasks else []) as client:
                listed = [one.name for one in (await client.list_tools()).tools]
                done = await client.call_tool(tool, dict(arguments))
        answer: Any = done.structured_content
        return Driven(answer, listed, bool(taken))


class FastMcp(Driver):
    """FastMCP's client, in its own environment."""

    async def call(self, tool: str, arguments: Mapping[str, Any], *, tasks: bool = False) -> Driven:
        """Call a tool."""
        given = [str(OUTSIDE / "fastmcp_drive.py"), self.url, self.era, tool, json.dumps(dict(arguments))]
        said = await run(
            [str(AGENTS.python), *given, *(["task"] if tasks else [])],
            {"DEEDBOX_KEY": self.fleet.key, "FASTMCP_CHECK_FOR_UPDATES": "off"},
        )
        found = json.loads(said.strip().splitlines()[-1])
        return Driven(found["answer"], found["tools"], bool(found["tasks"]))


class Inspector(Driver):
    """The Inspector's command line, which drives tasks by itself where the server names them."""

    async def call(self, tool: str, arguments: Mapping[str, Any], *, tasks: bool = False) -> Driven:
        """Call a tool."""
        del tasks
        listed = json.loads(await self.ask("--method", "tools/list"))["tools"]
        given = [f"{name}={json.dumps(value)}" for name, value in arguments.items()]
        pairs = ["--tool-arg", *given] if given else []
        done = json.loads(await self.ask("--method", "tools/call", "--tool-name", tool, *pairs))
        return Driven(done["structuredContent"], [one["name"] for one in listed])

    async def ask(self, *arguments: str) -> str:
        """One run of the program; what it printed."""
        return await run(self.command(*arguments), node.environment())

    def command(self, *arguments: str) -> list[str]:
        """The command line of a run."""
        head = ["--cli", self.url, "--transport", "http", "--protocol-era", self.era]
        return [*node.program("mcp-inspector"), *head, "--header", f"Authorization: Bearer {self.fleet.key}", *arguments]


async def run(command: list[str], extra: Mapping[str, str]) -> str:
    """Run a program to its end and return what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")} | dict(extra)
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), WITHIN_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, (err.decode()[-3000:], out.decode()[-1000:])
    return out.decode()


async def begun(ships: Fleet, gate: Path, starting: "asyncio.Task[Driven]") -> None:
    """Wait until a worker has the job; a client that has failed before is not waited for."""
    holding = asyncio.create_task(ships.holder(gate))
    await asyncio.wait({holding, starting}, return_when=asyncio.FIRST_COMPLETED)
    if not holding.done():
        starting.result()
    await holding


CLIENTS: dict[str, Callable[[Fleet, str, Era], Driver]] = {
    "official": Official,
    "fastmcp": FastMcp,
    "inspector": Inspector,
}
each_client = pytest.mark.parametrize(
    "name",
    [
        "official",
        pytest.param("fastmcp", marks=pytest.mark.skipif(not AGENTS.is_current(), reason=NO_AGENTS)),
        pytest.param("inspector", marks=pytest.mark.skipif(not node.is_current(), reason=node.MISSING)),
    ],
)
each_era = pytest.mark.parametrize("era", ERAS)


@asynccontextmanager
async def driven(database: TestDatabase, folder: Path, name: str, era: Era) -> AsyncGenerator[tuple[Fleet, Driver]]:
    """A server and a worker, each a process of its own, and a client of them."""
    async with fleet(database, folder) as ships:
        server = await ships.server()
        await ships.worker()
        yield ships, CLIENTS[name](ships, f"http://127.0.0.1:{server.port}/mcp", era)


@proves("G-MCP-CLIENTS")
@each_client
@each_era
async def test_a_client_starts_polls_and_has_the_result(database: TestDatabase, tmp_path: Path, name: str, era: Era):
    async with driven(database, tmp_path, name, era) as (ships, client):
        gate = ships.gate()
        # The Inspector of the newer era follows the task by itself, and comes back when it is over.
        follows = name == "inspector" and era == "modern"
        starting = asyncio.create_task(client.call("watch_gate", {"gate": str(gate)}))
        await begun(ships, gate, starting)
        if follows:
            gate.touch()
            answer = (await starting).answer
        else:
            started = await starting
            assert started.tools == ["cancel_job", "get_job", "note_thing", "watch_gate"]
            assert started.answer["status"] == "pending"
            job = {"job_id": started.answer["job_id"]}
            waiting = (await client.call("get_job", job)).answer
            assert waiting["status"] == "pending"
            assert waiting["data"]["partial"]["value"] == {"seen": False}
            gate.touch()
            answer = (await client.call("get_job", {**job, "after": waiting["data"]["next_after"], "wait_s": 20})).answer
            while answer["status"] == "pending":
                answer = (await client.call("get_job", {**job, "wait_s": 20})).answer
        assert answer["status"] == "success", answer
        assert await ships.stored() == 1


@proves("G-MCP-CLIENTS")
@each_client
@each_era
async def test_a_client_cancels_and_the_handler_stops(database: TestDatabase, tmp_path: Path, name: str, era: Era):
    async with driven(database, tmp_path, name, era) as (ships, client):
        gate = ships.gate()
        starting = asyncio.create_task(client.call("watch_gate", {"gate": str(gate)}))
        await begun(ships, gate, starting)
        job_id = str(await database.value("SELECT job_id FROM deedbox.job"))
        done = (await client.call("cancel_job", {"job_id": job_id, "reason": "no longer wanted"})).answer
        assert done["action"] == "cancel_job" or done["job_id"] == job_id

        async def stopped() -> bool:
            return gate.with_name(f"{gate.name}.stopped").exists()

        await until(stopped, bool, within=30)
        # Whoever followed the job to its end is told in their own way that there is none: the Inspector by its exit code.
        await asyncio.gather(starting, return_exceptions=True)
        last = (await client.call("get_job", {"job_id": job_id, "wait_s": 10})).answer
        assert (last["status"], last["error_code"]) == ("error", "CANCELED"), last
        assert not gate.exists()


@proves("G-MCP-CLIENTS")
@each_client
async def test_a_client_that_takes_tasks_follows_one_to_its_end(database: TestDatabase, tmp_path: Path, name: str):
    async with driven(database, tmp_path, name, "modern") as (ships, client):
        gate = ships.gate()
        starting = asyncio.create_task(client.call("watch_gate", {"gate": str(gate)}, tasks=True))
        await begun(ships, gate, starting)
        # What is done while the call is answered is no task, so the work goes on until it was.
        await ships.answered()
        gate.touch()
        done = await starting
        assert done.answer["status"] == "success", done.answer
        assert done.took_task or name == "inspector"
        # A failure that the business knows is an answer of its task, which no client takes for a broken server.
        refused = await client.call("note_thing", {"text": "nobody"}, tasks=True)
        assert (refused.answer["status"], refused.answer["error_code"]) == ("error", "CUSTOMER_NOT_FOUND")
        assert await ships.stored() == 2
