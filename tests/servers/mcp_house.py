"""A whole installation behind its MCP face, on as many replicas as wanted, with clients of both eras."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import httpx2
from mcp import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, Request, RequestParams, Result
from pydantic import BaseModel, ConfigDict, Field

from deedbox import wiring
from deedbox.access import add_key
from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.model.backoff import Retry
from deedbox.model.failure import ActionFailure
from deedbox.model.policy import allow, hold
from deedbox.settings import Settings
from deedbox.store import switch
from deedbox.store.transaction import transaction
from deedbox.wiring import Database, Installation
from tests.builders import ScriptedConnector
from tests.database import TestDatabase
from tests.servers.listening import Listening
from tests.servers.round_robin import round_robin

TASKS = "io.modelcontextprotocol/tasks"
MODERN = "2026-07-28"
Era = Literal["2026-07-28", "legacy"]
ERAS: tuple[Era, ...] = (MODERN, "legacy")
Text = Annotated[str, Field(max_length=200)]


class Note(BaseModel):
    """What is noted."""

    model_config = ConfigDict(extra="forbid")
    text: Text = ""


class Told(BaseModel):
    """What came of it."""

    text: Text


@dataclass
class Script:
    """What the handlers do, and how often they ran."""

    go: asyncio.Event = field(default_factory=asyncio.Event)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    runs: int = 0


def desk(script: Script) -> App:
    """Quick, slow, held, refused and broken."""
    app = App(connectors=[ScriptedConnector()])

    @app.action(roles=["operator"], approvers=["manager"], tool=True)
    async def note_thing(_ctx: Context, note: Note) -> Told:
        """Note a thing."""
        script.runs += 1
        if note.text == "refuse":
            raise ActionFailure("caller_error", "customer_not_found", "There is no such customer.")
        if note.text == "break":
            raise RuntimeError("the inside of things")
        return Told(text=note.text)

    @app.action(roles=["operator"], policy=allow(), retry=Retry(attempts=2, base=0.01, cap=0.01), key="new", tool=True)
    async def note_slowly(ctx: Context, note: Note) -> Told:
        """Note a thing once the test says so."""
        script.runs += 1
        await ctx.progress(1, 3, "begun")
        await ctx.partial({"text": note.text[:1]})
        script.started.set()
        try:
            await script.go.wait()
        except asyncio.CancelledError:
            script.stopped.set()
            raise
        if note.text == "away":
            raise ActionFailure("overloaded", "shop_busy", "The shop is busy.")
        await ctx.progress(2, 3, "nearly")
        return Told(text=note.text)

    @app.action(roles=["operator"], approvers=["manager"], policy=hold(expires="1h"), tool=True)
    async def send_note(ctx: Context, note: Note) -> Told:
        """Send a note."""
        script.runs += 1
        ctx.effect("note", target="someone", slot="note", payload={"text": note.text})
        return Told(text="planned")

    @app.action(roles=["manager"], policy=allow(), tool=True, consequence="read")
    async def read_books(_ctx: Context, _note: Note) -> Told:
        """Read the books."""
        return Told(text="read")

    return app


class TaskParams(RequestParams):
    """Which task."""

    task_id: str


class GetTask(Request[TaskParams, Literal["tasks/get"]]):
    """Asks how a task stands."""

    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams
    name_param = "taskId"


class CancelTask(Request[TaskParams, Literal["tasks/cancel"]]):
    """Cancels a task."""

    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: TaskParams
    name_param = "taskId"


class UpdateParams(TaskParams):
    """Responses by key."""

    input_responses: dict[str, Any]


class UpdateTask(Request[UpdateParams, Literal["tasks/update"]]):
    """Answers what a task asks."""

    method: Literal["tasks/update"] = "tasks/update"
    params: UpdateParams
    name_param = "taskId"


class Task(Result):
    """A task as it is told."""

    model_config = ConfigDict(extra="allow")
    task_id: str = ""
    status: str = ""
    status_message: str | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    input_requests: dict[str, Any] | None = None


class Handle(Result):
    """The answer to a call that became a task."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str


class TakesTasks(ClientExtension):
    """The client's half of the extension: polls until the task is over."""

    identifier = TASKS

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """The shape of a task."""
        return [ResultClaim(result_type="task", model=Handle, resolve=self.resolve)]

    async def resolve(self, handle: Handle, ctx: ClaimContext) -> CallToolResult:
        """The result of the task."""
        while True:
            task = await get_task(ctx.session, handle.task_id)
            if task.status in {"completed", "failed", "cancelled"}:
                assert task.result is not None, task
                return CallToolResult.model_validate(task.result)
            await asyncio.sleep(0.05)


async def get_task(session: Any, task_id: str) -> Task:
    """A task as it stands."""
    task: Task = await session.send_request(GetTask(params=TaskParams(task_id=task_id)), Task)
    return task


@dataclass
class McpHouse:
    """A running installation."""

    url: str
    replicas: list[str]
    installation: Installation
    database: TestDatabase
    script: Script
    served: list[Installation]
    key: str
    foreign_key: str

    @asynccontextmanager
    async def client(
        self, era: Era = MODERN, *, key: str | None = None, url: str | None = None, **options: Any
    ) -> AsyncGenerator[Client]:
        """The official client, of an era."""
        headers = {"Authorization": f"Bearer {key or self.key}", **options.pop("headers", {})}
        async with httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http:
            transport = streamable_http_client((url or self.url) + "/mcp", http_client=http)
            mode = "legacy" if era == "legacy" else "auto"
            async with Client(transport, mode=mode, cache=None, **options) as client:
                yield client

    def http(self, key: str | None = "", url: str | None = None) -> httpx2.AsyncClient:
        """A program that writes its own messages."""
        headers = {} if key is None else {"Authorization": f"Bearer {key or self.key}"}
        return httpx2.AsyncClient(base_url=url or self.url, headers=headers, trust_env=False, timeout=60)

    async def call(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        capabilities: Mapping[str, Any] | None = None,
        key: str = "",
        url: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """One message of the newer era, and the message that answers it."""
        async with self.http(key, url) as http:
            answer = await http.post(
                "/mcp", content=modern(method, params, capabilities), headers=sent(method, params, headers)
            )
        return message_of(answer)

    async def stored(self) -> int:
        """How many jobs there are."""
        return int(str(await self.database.value("SELECT count(*) FROM deedbox.job")))


def modern(method: str, params: Mapping[str, Any], capabilities: Mapping[str, Any] | None = None) -> bytes:
    """A request of the newer era."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": dict(capabilities or {}),
        **params.get("_meta", {}),
    }
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}).encode()


def sent(method: str, params: Mapping[str, Any], more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The headers of a request of the newer era."""
    name = params.get("name") or params.get("uri") or params.get("taskId")
    named = {} if name is None else {"Mcp-Name": str(name)}
    return {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": method,
        **named,
        **(more or {}),
    }


def message_of(answer: httpx2.Response) -> dict[str, Any]:
    """The answer's last message, whether it came as JSON or in a stream."""
    if answer.headers["content-type"].startswith("text/event-stream"):
        lines = [line for line in answer.text.splitlines() if line.startswith("data: ")]
        found: dict[str, Any] = json.loads(lines[-1].removeprefix("data: "))
        return found
    body: dict[str, Any] = answer.json()
    return body


@asynccontextmanager
async def mcp_house(
    database: TestDatabase, *, replicas: int = 1, working: bool = True, api_url: str | None = None, **settings: Any
) -> AsyncGenerator[McpHouse]:
    """Serve an installation, by its replicas in turn. `api_url` is their way to the store, where it is another one."""
    script, stopping = Script(), asyncio.Event()
    app = desk(script)
    place = Database(database.url, database.owner_url, direct=database.direct_url)
    chosen = Settings.model_validate({"pool_size": 6, "AI_ACTIONS_ENABLED": True, "lease_s": 3.0, **settings})
    running: list[asyncio.Task[Any]] = []
    servers: list[Listening] = []
    urls: list[str] = []
    served: list[Installation] = []
    async with AsyncExitStack() as stack:
        beside = await stack.enter_async_context(wiring.opened(chosen, app, place, roles=("worker", "dispatch", "sweep")))
        async with transaction(beside.pool) as connection:
            await switch.turn_root(connection, "acts", is_on=True, changed_by="test", reason="a test")
        keys = [await add_key(beside.pool, beside.ids, "default", name, ["operator"], "") for name in ("agent", "stranger")]
        if working:
            running.append(asyncio.create_task(wiring.run_roles(beside, ("worker", "dispatch", "sweep"), stopping)))
        try:
            for _ in range(replicas):
                theirs = place if api_url is None else Database(api_url, database.owner_url, direct=api_url)
                one = await stack.enter_async_context(wiring.opened(chosen, app, theirs, roles=("api",)))
                served.append(one)
                listener = socket.create_server(("127.0.0.1", 0))
                urls.append(f"http://127.0.0.1:{listener.getsockname()[1]}")
                server = Listening(wiring.make_asgi(one, stopping))
                servers.append(server)
                running.append(asyncio.create_task(server.serve(sockets=[listener])))
                await server.listening.wait()
            ports = [int(url.rpartition(":")[2]) for url in urls]
            url = urls[0] if replicas == 1 else await stack.enter_async_context(round_robin(ports))
            yield McpHouse(url, urls, beside, database, script, served, *keys)
        finally:
            stopping.set()
            script.go.set()
            for server in servers:
                server.should_exit = True
            await asyncio.gather(*running)
