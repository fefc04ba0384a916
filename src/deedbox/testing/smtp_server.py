"""A mail server on bare sockets that can stall, close, reset or refuse at every phase."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, cast

Phase = Literal["banner", "ehlo", "starttls", "auth", "mail", "rcpt", "data", "body", "dot"]
PHASES: tuple[Phase, ...] = ("banner", "ehlo", "mail", "rcpt", "data", "dot")
Fault = str  # "stall", "close", "reset", or a reply such as "451 later"


_HEALTHY: dict[str, tuple[Phase, str]] = {
    "STARTTLS": ("starttls", "220 go ahead"),
    "MAIL": ("mail", "250 ok"),
    "RCPT": ("rcpt", "250 ok"),
    "DATA": ("data", "354 go on"),
}


# The names of the conformance run, and what a mail server can do that comes to the same.
_PLAYS: dict[str, tuple[Phase, Fault]] = {
    "accept_then_hang": ("dot", "stall"),
    "accept_then_reset": ("dot", "reset"),
    "accept_then_close": ("dot", "close"),
    "accept_then_garbage": ("dot", "garbage"),
    "accept_then_drip": ("dot", "250-more to come"),
    "accept_then_oversized": ("dot", "250 " + "x" * 3_000_000),
    "hang_before_reading": ("banner", "stall"),
    "refuse": ("rcpt", "550 no such user"),
}


class _GoneError(Exception):
    """The server drops the connection."""


@dataclass(slots=True)
class Mail:
    """What the server took over: only mails whose final dot arrived."""

    sender: str
    recipients: list[str]
    data: bytes


@dataclass(slots=True)
class SmtpServer:
    """`faults` says what happens at a phase, for every connection; a fault at `dot` comes after the mail was taken.

    A stall at `body` ends with `released`: the server then goes on reading the message.
    """

    faults: dict[Phase, Fault] = field(default_factory=dict[Phase, Fault])
    tls: ssl.SSLContext | None = None
    implicit_tls: bool = False
    password: bytes | None = None
    refused_recipient: str | None = None
    recipient_refusal: str = "550 no such user"
    mails: list[Mail] = field(default_factory=list[Mail])
    commands: list[str] = field(default_factory=list[str])
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    receive_buffer: int | None = None
    connections: int = 0
    host: str = "127.0.0.1"
    port: int = 0
    _listening: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set["asyncio.Task[None]"])

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["SmtpServer"]:
        """Listen on a free port until the block ends."""
        await self._open(0)
        try:
            yield self
        finally:
            await self._drop()

    @asynccontextmanager
    async def away(self) -> AsyncGenerator[None]:
        """Refuse every connection until the block ends."""
        await self._drop()
        try:
            yield
        finally:
            self.released = asyncio.Event()
            await self._open(self.port)

    async def _drop(self) -> None:
        """End every connection, stalled ones too, and wait until its task has ended."""
        if self._listening is not None:
            self._listening.close()
        tasks = list(self._tasks)
        for writer in list(self._writers):
            writer.transport.abort()
        self.released.set()
        if tasks:
            await asyncio.wait(tasks)

    async def _open(self, port: int) -> None:
        implicit = self.tls if self.implicit_tls else None
        listening = socket.create_server((self.host, port))
        if self.receive_buffer is not None:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer)
        self._listening = await asyncio.start_server(self._connection, sock=listening, ssl=implicit)
        self.port = listening.getsockname()[1]

    # What the conformance run asks of a provider.

    def plays(self, fault: str) -> bool:
        """Whether it can break in this way; a reply of 4xx or 5xx to the final dot says that nothing was taken."""
        return fault in _PLAYS

    def play_next(self, fault: str) -> None:
        """Break in this way until told to forget it."""
        phase, how = _PLAYS[fault]
        self.faults[phase] = how

    def forget(self) -> None:
        """Behave again."""
        self.faults.clear()

    @property
    def calls(self) -> int:
        """How many conversations were begun."""
        return self.connections

    @property
    def wait_s(self) -> float:
        """Mail has no such wish."""
        return 0.0

    async def effects_of(self, effect_id: str) -> int | None:
        """How many mails with this effect's Message-ID were taken over."""
        wanted = effect_id.encode()
        return sum(
            any(line.lower().startswith(b"message-id:") and wanted in line for line in mail.data.split(b"\r\n"))
            for mail in self.mails
        )

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        task = cast("asyncio.Task[None] | None", asyncio.current_task())
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            await self._say(writer, "banner", "220 test ready")
            await self._commands(reader, writer)
        except (_GoneError, ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()
            self.ended.set()

    async def _commands(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sender, recipients = "", list[str]()
        while True:
            line = (await reader.readuntil(b"\r\n")).decode("ascii").strip()
            self.commands.append(line)
            verb = line.split(" ", 1)[0].upper()
            if verb == "QUIT":
                return
            phase, reply = self._reply(verb, line, writer)
            await self._say(writer, phase, reply)
            if verb == "MAIL":
                sender = line
            elif verb == "RCPT":
                recipients.append(line.partition("<")[2].rstrip(">"))
            elif verb == "STARTTLS" and self.tls is not None:
                await writer.start_tls(self.tls)
            elif verb == "DATA" and "data" not in self.faults:
                await self._body(reader, writer, sender, recipients)

    def _reply(self, verb: str, line: str, writer: asyncio.StreamWriter) -> tuple[Phase, str]:
        """The phase of a command and what a healthy server answers."""
        if verb == "EHLO":
            offers = ["250-test"]
            if self.tls is not None and writer.get_extra_info("sslcontext") is None:
                offers.append("250-STARTTLS")
            if self.password is not None:
                offers.append("250-AUTH PLAIN")
            return "ehlo", "\r\n".join([*offers, "250 SIZE 10000000"])
        if verb == "AUTH":
            right = self.password is not None and line.encode().endswith(self.password)
            return "auth", "235 welcome" if right else "535 wrong"
        if verb == "RCPT" and self.refused_recipient is not None and self.refused_recipient in line:
            return "rcpt", self.recipient_refusal
        return _HEALTHY[verb]

    async def _body(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sender: str, recipients: list[str]
    ) -> None:
        if "body" in self.faults:
            await self._say(writer, "body", "")
        lines: list[bytes] = []
        while (line := await reader.readuntil(b"\r\n")) != b".\r\n":
            lines.append(line.removeprefix(b".") if line.startswith(b".") else line)
        fault = self.faults.get("dot", "")
        if not fault or not fault[0].isdigit() or fault.startswith("2"):
            self.mails.append(Mail(sender, recipients, b"".join(lines)))
        await self._say(writer, "dot", "250 queued as 4711")

    async def _say(self, writer: asyncio.StreamWriter, phase: Phase, reply: str) -> None:
        fault = self.faults.get(phase)
        if fault is not None:
            self.reached.set()
        if fault == "stall":
            await self.released.wait()
            if phase == "body":
                return
        if fault == "reset":
            sock: socket.socket = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        if fault in {"close", "reset"}:
            raise _GoneError
        writer.write((fault or reply).encode() + b"\r\n")
        await writer.drain()
