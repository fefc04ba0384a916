"""A provider of notes over HTTP/1.1, written on bare sockets so that it can break at any byte."""

import asyncio
import json
import socket
import struct
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
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


@dataclass(slots=True)
class HttpProvider:
    """Keeps notes by idempotency key; `faults` are used up one per request, and then it behaves.

    `performed` is what it really did, once per key where `honours_keys`.
    """

    honours_keys: bool = True
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
    _writers: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{self.host}:{self.port}"

    @asynccontextmanager
    async def running(self, **options: Any) -> AsyncGenerator["HttpProvider"]:
        """Listen on a free port until the block ends; hanging connections are dropped then."""
        server = await asyncio.start_server(self._connection, self.host, 0, **options)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for writer in list(self._writers):
                writer.transport.abort()

    def hang_up(self) -> None:
        """Close every connection, as a server does that has waited long enough."""
        for writer in list(self._writers):
            writer.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while True:
                if self.faults and self.faults[0] == "hang_before_reading":
                    self.arrived.set()
                    await asyncio.Event().wait()
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
        key = request.headers.get("idempotency-key", "")
        if self.honours_keys and key in self.by_key:
            return self.by_key[key]
        note = {"id": f"note-{len(self.performed) + 1}", "key": key, "body": json.loads(request.body or b"null")}
        self.performed.append(note)
        self.by_key[key] = note
        return note

    def _looked_up(self, request: Request) -> tuple[int, Any]:
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
        if fault == "rate_limited":
            return await self._say(writer, 429, {"error": "slow down"}, self.extra_headers)
        if fault == "refuse":
            return await self._say(writer, self.refusal, {"error": "no"}, self.extra_headers)
        if request.method == "GET" and fault == "none":
            status, value = self._looked_up(request)
            return await self._say(writer, status, value)
        note = self._perform(request) if request.method != "GET" else {"id": "none"}
        if fault == "arrive_twice":
            # Something on the way repeats the request whole: the first answer goes nowhere.
            note = self._perform(request)
        return await self._after(fault, note, writer)

    async def _after(self, fault: Fault, note: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        """Break, or not, after the thing has been done."""
        if fault in _BROKEN:
            await self._raw(writer, _BROKEN[fault])
        if fault in {"accept_then_hang", "accept_then_drip"}:
            await asyncio.Event().wait()
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
        }
        status, value, headers = said.get(fault, (201, note, {}))
        return await self._say(writer, status, value, headers)

    async def _say(
        self, writer: asyncio.StreamWriter, status: int, value: Any, headers: Mapping[str, str] | None = None
    ) -> bool:
        body = json.dumps(value).encode()
        extra = "".join(f"{name}: {text}\r\n" for name, text in (headers or {}).items())
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
        return await self._raw(writer, head.encode() + body)

    async def _raw(self, writer: asyncio.StreamWriter, data: bytes) -> bool:
        writer.write(data)
        await writer.drain()
        return True
