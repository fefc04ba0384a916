"""A provider of notes over HTTP/1.1, written on bare sockets so that it can break at any byte."""

import asyncio
import json
import socket
import struct
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, cast, get_args
from urllib.parse import parse_qs, urlsplit

Fault = Literal[
    "none",
    "accept_then_hang",
    "accept_then_reset",
    "accept_then_503",
    "accept_then_garbage",
    "accept_then_close",
    "accept_then_cut",
    "accept_then_oversized",
    "accept_then_drip",
    "accept_then_gzip",
    "accept_then_not_http",
    "accept_without_id",
    "accept_as_303",
    "arrive_twice",
    "accept_as_307",
    "hang_before_reading",
    "rate_limited",
    "refuse",
]


_BROKEN: dict[Fault, bytes] = {
    "accept_then_garbage": b"HTTP/1.1 201 Created\r\nContent-Length: 9\r\n\r\n<html\xff\xfe>\r",
    "accept_then_cut": b'HTTP/1.1 201 Created\r\nContent-Length: 900\r\n\r\n{"id":',
    "accept_then_drip": b'HTTP/1.1 201 Created\r\nContent-Length: 900\r\n\r\n{"id":',
    "accept_then_oversized": b"HTTP/1.1 201 Created\r\nContent-Length: 3000000\r\n\r\n" + b"x" * 3_000_000,
    "accept_then_not_http": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
}
_ENDS = frozenset({"accept_then_reset", "accept_then_close", *_BROKEN})


@dataclass(slots=True)
class Request:
    """What arrived: header names in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """What a provider answers: a status, a body that is JSON already, and headers beside its length."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class HttpProvider:
    """Keeps notes by idempotency key; `faults` are used up one per request, and then it behaves.

    `performed` is what it really did, once per key where `honours_keys`, and where `upserts` once per path that was PUT.
    `receipt`, `refusal_body` and `limit_body` give its answers the form of another API, and `look_up` answers its GETs.
    With `behind` it is a relay: that does the work, and the faults come between its answer and the caller.
    """

    honours_keys: bool = True
    key_header: str = "idempotency-key"
    upserts: bool = False
    receipt: Callable[[dict[str, Any]], Any] | None = None
    refusal_body: Any = field(default_factory=lambda: {"error": "no"})
    limit_body: Any = field(default_factory=lambda: {"error": "slow down"})
    look_up: Callable[[Request], tuple[int, Any]] | None = None
    behind: Callable[[Request], Awaitable[Reply]] | None = None
    faults: deque[Fault] = field(default_factory=deque[Fault])
    refusal: int = 422
    extra_headers: dict[str, str] = field(default_factory=dict[str, str])
    requests: list[Request] = field(default_factory=list[Request])
    performed: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    by_key: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    host: str = "127.0.0.1"
    port: int = 0
    connections: int = 0
    unread: int = 0
    _listening: asyncio.Server | None = None
    _options: dict[str, Any] = field(default_factory=dict[str, Any])
    _writers: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])
    _tasks: set["asyncio.Task[Any]"] = field(default_factory=set["asyncio.Task[Any]"])
    _closing: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{self.host}:{self.port}"

    @asynccontextmanager
    async def running(self, **options: Any) -> AsyncGenerator["HttpProvider"]:
        """Listen on a free port until the block ends; hanging connections are dropped then. `options` are asyncio's."""
        self._options = options
        self._listening = await asyncio.start_server(self._connection, self.host, 0, **options)
        self.port = self._listening.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self._listening.close()
            await self._drop()

    @asynccontextmanager
    async def away(self) -> AsyncGenerator[None]:
        """Refuse every connection until the block ends."""
        if self._listening is not None:
            self._listening.close()
        await self._drop()
        try:
            yield
        finally:
            self._closing = asyncio.Event()
            self._listening = await asyncio.start_server(self._connection, self.host, self.port, **self._options)

    # What the conformance run asks of a provider.

    def plays(self, fault: str) -> bool:
        """Whether it can break in this way."""
        return fault in get_args(Fault)

    def play_next(self, fault: str) -> None:
        """Break in this way at the next request."""
        self.faults.append(cast("Fault", fault))

    def forget(self) -> None:
        """Behave again."""
        self.faults.clear()

    @property
    def calls(self) -> int:
        """How many requests reached it; one that it would not read counts as well."""
        return len(self.requests) + self.unread

    @property
    def wait_s(self) -> float:
        """What it asks for with its 429, in seconds."""
        return float(self.extra_headers.get("Retry-After", "0"))

    async def effects_of(self, effect_id: str) -> int | None:
        """How often it did what this effect asks: notes in which the id occurs, as key, in the path or in the body."""
        if self.behind is not None:
            return None
        return sum(effect_id in json.dumps(note) for note in self.performed)

    def hang_up(self) -> None:
        """Close every connection, as a server does that has waited long enough."""
        for writer in list(self._writers):
            writer.close()

    async def _drop(self) -> None:
        """End every connection, hanging ones too, and wait until its task has ended."""
        self._closing.set()
        tasks = list(self._tasks)
        for writer in list(self._writers):
            writer.transport.abort()
        if tasks:
            await asyncio.wait(tasks)

    async def _hang(self) -> NoReturn:
        await self._closing.wait()
        raise ConnectionAbortedError

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            while True:
                if self.faults and self.faults[0] == "hang_before_reading":
                    self.faults.popleft()
                    self.unread += 1
                    self.arrived.set()
                    await self._hang()
                request = await self._read(reader)
                if request is None or not await self._answer(request, writer):
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Request | None:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        method, target, _version = first.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        request = Request(method, target, headers, body)
        self.requests.append(request)
        return request

    def _perform(self, request: Request) -> dict[str, Any]:
        path = urlsplit(request.target).path
        upsert = self.upserts and request.method == "PUT"
        # What is PUT is known by its name, the last part of its path.
        key = path.rpartition("/")[2] if upsert else request.headers.get(self.key_header, "")
        if (upsert or self.honours_keys) and key in self.by_key:
            return self.by_key[key]
        note_id = key if upsert else f"note-{len(self.performed) + 1}"
        note = {"id": note_id, "key": key, "path": path, "body": json.loads(request.body or b"null")}
        self.performed.append(note)
        self.by_key[key] = note
        return note

    def _looked_up(self, request: Request) -> tuple[int, Any]:
        if self.look_up is not None:
            return self.look_up(request)
        parts = urlsplit(request.target)
        if parts.path == "/search":
            wanted = parse_qs(parts.query).get("key", [""])[0]
            return 200, [note for note in self.performed if note["key"] == wanted]
        if parts.path == "/all":
            return 200, self.performed
        found = self.by_key.get(parts.path.rpartition("/")[2])
        return (404, {"error": "no such key"}) if found is None else (200, found)

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        fault = self.faults.popleft() if self.faults else "none"
        self.arrived.set()
        if fault == "hang_before_reading":
            # Told so while a kept connection was already being read: it comes to the same.
            await self._hang()
        if fault == "rate_limited":
            return await self._say(writer, 429, self.limit_body, self.extra_headers)
        if fault == "refuse":
            return await self._say(writer, self.refusal, self.refusal_body, self.extra_headers)
        if self.behind is not None:
            return await self._relay(self.behind, request, fault, writer)
        if request.method == "GET" and fault == "none":
            status, value = self._looked_up(request)
            return await self._say(writer, status, value)
        note = self._perform(request) if request.method != "GET" else {"id": "none"}
        if fault == "arrive_twice":
            # Something on the way repeats the request whole: the first answer goes nowhere.
            note = self._perform(request)
        return await self._after(fault, note, writer)

    async def _relay(
        self, behind: Callable[[Request], Awaitable[Reply]], request: Request, fault: Fault, writer: asyncio.StreamWriter
    ) -> bool:
        """Let the real provider do it, and pass its answer on, unless something happens to it."""
        reply = await behind(request)
        if fault != "none":
            return await self._after(fault, {"id": "relayed"}, writer)
        return await self._write(writer, reply.status, reply.body, reply.headers)

    async def _after(self, fault: Fault, note: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        """Break, or not, after the thing has been done."""
        if fault in _BROKEN:
            await self._raw(writer, _BROKEN[fault])
        if fault in {"accept_then_hang", "accept_then_drip"}:
            await self._hang()
        if fault == "accept_then_reset":
            sock: socket.socket = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        if fault in _ENDS:
            return False
        said: dict[str, tuple[int, Any, dict[str, str]]] = {
            "accept_then_503": (503, {"error": "busy"}, {}),
            "accept_then_gzip": (201, note, {"Content-Encoding": "gzip"}),
            "accept_without_id": (201, {"ok": True}, {}),
            "accept_as_303": (303, None, {"Location": self.url + "/elsewhere"}),
            "accept_as_307": (307, None, {"Location": self.url + "/elsewhere"}),
        }
        if fault in said:
            status, value, headers = said[fault]
        else:
            status, value, headers = 201, note if self.receipt is None else self.receipt(note), {}
        return await self._say(writer, status, value, headers)

    async def _say(
        self, writer: asyncio.StreamWriter, status: int, value: Any, headers: Mapping[str, str] | None = None
    ) -> bool:
        return await self._write(writer, status, json.dumps(value).encode(), headers or {})

    async def _write(self, writer: asyncio.StreamWriter, status: int, body: bytes, headers: Mapping[str, str]) -> bool:
        extra = "".join(f"{name}: {text}\r\n" for name, text in headers.items())
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
        return await self._raw(writer, head.encode() + body)

    async def _raw(self, writer: asyncio.StreamWriter, data: bytes) -> bool:
        writer.write(data)
        await writer.drain()
        return True
