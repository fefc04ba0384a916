"""The HTTP face on a real loopback server, over a real database, with the real stations behind it."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
from pydantic import BaseModel, Field

from deedbox.access import KeyCache, add_key, resolve_key
from deedbox.extend.context import Context
from deedbox.extend.document import Document
from deedbox.extend.registry import App
from deedbox.http.app import make_app
from deedbox.http.deps import HttpDeps, Limits, LoggedIn
from deedbox.model.backoff import Retry
from deedbox.model.errors import DeedboxError
from deedbox.model.failure import ActionFailure
from deedbox.model.identity import Principal
from deedbox.model.policy import allow, hold
from deedbox.operate.alerts import Alerts
from deedbox.operate.approvals import Approvals
from deedbox.operate.auditing import Auditing
from deedbox.operate.callbacks import Callbacks
from deedbox.operate.follow import Follow
from deedbox.operate.lanes import Lanes
from deedbox.operate.policy import Policies
from deedbox.operate.report import Reports
from deedbox.operate.rounds import Rounds
from deedbox.operate.targets import Targets
from deedbox.operate.tools import Tools
from deedbox.operate.verbs import Verbs
from deedbox.operate.views import Views
from deedbox.store.wakeup import Wakeup
from tests.builders import ScriptedConnector
from tests.database import TestDatabase
from tests.road import Road, principal, road
from tests.servers.listening import Listening

PERSON_TOKEN = "a person's own key"
FAULTY_TOKEN = "makes the server fail"
LIMITS = Limits(json_bytes=64 << 10, upload_bytes=128 << 10, total_bytes=1 << 20, parts=20)


class Note(BaseModel):
    """What is noted: a number, a text, and anything at all."""

    number: int = 0
    text: str = ""
    anything: Any = None


class Paper(BaseModel):
    """Documents with a title."""

    file: Document
    more: list[Document] = Field(default_factory=list[Document])
    title: str = ""
    pages: int = 0


class Told(BaseModel):
    """What came of it."""

    text: str


class Sought(BaseModel):
    """What is looked for, bounded as a tool's arguments are."""

    text: str = Field(max_length=20)
    limit: int = Field(default=1, ge=1, le=9)


class Found(BaseModel):
    """What was found."""

    text: str = Field(max_length=20)


@dataclass
class Script:
    """What the handlers do, and how often they ran."""

    go: asyncio.Event = field(default_factory=asyncio.Event)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    runs: int = 0


def desk(script: Script) -> App:
    """Five actions: one quick, one slow, one that reads documents, one whose effect is held, and one that agents may call."""
    app = App(connectors=[ScriptedConnector()])

    @app.action(roles=["operator"], policy=allow())
    async def note_thing(_ctx: Context, note: Note) -> Told:
        """Note a thing."""
        script.runs += 1
        if note.text == "refuse":
            raise ActionFailure("caller_error", "no_such_customer", "There is no such customer.")
        return Told(text=note.text)

    @app.action(roles=["operator"], policy=allow(), retry=Retry(attempts=3), key="new")
    async def note_slowly(ctx: Context, note: Note) -> Told:
        """Note a thing once the test says so."""
        await ctx.progress(1, 2, "half of it")
        await ctx.partial({"text": note.text[:1]})
        script.started.set()
        await script.go.wait()
        await ctx.progress(2, 2, "all of it")
        return Told(text=note.text)

    @app.action(roles=["operator"], policy=allow(), key="content")
    async def read_paper(ctx: Context, paper: Paper) -> Told:
        """Read a paper."""
        content = await ctx.document(paper.file)
        return Told(text=f"{paper.file.name}: {len(content)}")

    @app.action(roles=["operator"], approvers=["manager"], policy=hold(expires="1h"))
    async def send_note(ctx: Context, note: Note) -> Told:
        """Send a note."""
        await ctx.partial({"draft": note.text})
        ctx.effect("note", target="someone", slot="note", payload={"text": note.text})
        return Told(text="planned")

    @app.action(roles=["operator"], policy=allow(), consequence="read", tool=True)
    async def find_note(_ctx: Context, sought: Sought) -> Found:
        """Find a note."""
        if sought.text == "nothing":
            raise ActionFailure("caller_error", "no_such_note", "There is no such note.")
        return Found(text=sought.text)

    return app


@dataclass
class Api:
    """A running server and what it stands on."""

    url: str
    port: int
    road: Road
    script: Script
    wakeup: Wakeup
    key: str
    foreign_key: str
    views: Views
    refused: list[str]
    stopping: asyncio.Event

    @property
    def database(self) -> TestDatabase:
        """The database behind it."""
        return self.road.database

    def client(self, key: str | None = "", *, connections: int = 100) -> httpx2.AsyncClient:
        """A program that calls the API, with the first key unless another is named."""
        headers = {} if key is None else {"Authorization": f"Bearer {key or self.key}"}
        limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=connections)
        return httpx2.AsyncClient(base_url=self.url, headers=headers, limits=limits, trust_env=False, timeout=120)

    async def stored(self) -> dict[str, int]:
        """How many rows there are of everything that an accepted call stores."""
        tables = ("job", "job_payload", "queue", "event", "idempotency", "document", "job_document", "result")
        counts = ", ".join(f"(SELECT count(*) FROM deedbox.{table})" for table in tables)  # noqa: S608 -- names from the line above
        row = (await self.database.rows(f"SELECT {counts}"))[0]
        return {table: int(str(count)) for table, count in zip(tables, row, strict=True)}

    async def raw(self, request: bytes) -> bytes:
        """Send bytes on a connection of their own, say that nothing follows, and read the whole answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(request)
            await writer.drain()
            return await asyncio.wait_for(reader.read(), 20)
        finally:
            writer.close()


@asynccontextmanager
async def api(database: TestDatabase, *, keep_alive_s: float = 15.0, limits: Limits = LIMITS) -> AsyncGenerator[Api, None]:
    """Serve the API on a port of its own."""
    script = Script()
    async with road(database, desk(script), callbacks=["shop"]) as one:
        key = await add_key(one.pool, one.ids, "default", "program", ["operator"], "test")
        foreign_key = await add_key(one.pool, one.ids, "default", "stranger", ["operator"], "test")
        wakeup = Wakeup(database.direct_url)
        listening = asyncio.create_task(wakeup.run())
        await wakeup.ready()
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        cache = KeyCache()
        views = Views(one.pool, one.app.actions)
        refused: list[str] = []
        stopping = asyncio.Event()

        async def resolve(bearer: str) -> Principal | None:
            if bearer == FAULTY_TOKEN:
                raise RuntimeError("the inside of things")
            return one.approver if bearer == PERSON_TOKEN else await resolve_key(one.pool, bearer, cache)

        async def login(name: str, password: str, peer: str) -> LoggedIn | None:
            assert peer == "127.0.0.1"
            return LoggedIn(PERSON_TOKEN, 28800.0, one.approver) if (name, password) == ("approver", "secret word") else None

        async def journal(_submission: object, error: DeedboxError) -> None:
            refused.append(error.code)

        verbs = Verbs(one.pool, one.ids, one.app.connectors)
        tools = Tools(
            one.pool,
            one.ids,
            one.app.actions,
            intake=one.intake,
            views=views,
            follow=Follow(views, wakeup),
            verbs=verbs,
            public_url=url,
        )
        deps = HttpDeps(
            app=one.app,
            intake=one.intake,
            views=views,
            resolve_key=resolve,
            verbs=verbs,
            tools=tools,
            reports=Reports(one.pool),
            approvals=Approvals(one.pool, one.ids, public_url=url, connectors=one.app.connectors, actions=one.app.actions),
            rounds=Rounds(one.pool, one.ids, one.app.actions, one.intake),
            lanes=Lanes(one.pool),
            policies=Policies(one.pool, one.app.actions, one.app.connectors),
            alerts=Alerts(one.pool),
            callbacks=Callbacks(one.pool, one.ids),
            targets=Targets(one.pool, one.app.connectors),
            public_url=url,
            auditing=Auditing(one.pool),
            login=login,
            wakeup=wakeup,
            limits=limits,
            refused=journal,
            stopping=stopping,
            keep_alive_s=keep_alive_s,
        )
        server = Listening(make_app(deps))
        running = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            await server.listening.wait()
            yield Api(url, port, one, script, wakeup, key, foreign_key, views, refused, stopping)
        finally:
            stopping.set()
            server.should_exit = True
            await running
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)


async def reader(database: TestDatabase, one: Road) -> Principal:
    """A person who may read everything of the tenant."""
    return await principal(database, one.ids, "reader", "person", "viewer")


def form(parts: list[tuple[str, bytes]], *, boundary: str = "bound", end: bool = True) -> tuple[bytes, dict[str, str]]:
    """A multipart body of (Content-Disposition and further headers, content), byte by byte as given, and its headers."""
    body = b"".join(
        b"--" + boundary.encode() + b"\r\n" + head.encode("latin-1") + b"\r\n\r\n" + content + b"\r\n"
        for head, content in parts
    )
    body += f"--{boundary}--\r\n".encode() if end else b""
    return body, {"Content-Type": f"multipart/form-data; boundary={boundary}"}


def part(name: str, content: bytes, *, file: str | None = None, media_type: str | None = None) -> tuple[str, bytes]:
    """One part with UTF-8 names."""
    head = f'Content-Disposition: form-data; name="{name}"' + (f'; filename="{file}"' if file is not None else "")
    head += f"\r\nContent-Type: {media_type}" if media_type else ""
    return head.encode().decode("latin-1"), content


def problem_of(response: httpx2.Response) -> tuple[int, str, list[str]]:
    """Status, code and pointers of a refusal, which must be problem details."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    body: Mapping[str, Any] = json.loads(response.content)
    assert set(body) == {"type", "title", "status", "detail", "code", "retryable", "errors"}
    assert body["status"] == response.status_code
    assert "Traceback" not in response.text
    return response.status_code, body["code"], [error["pointer"] for error in body["errors"]]
