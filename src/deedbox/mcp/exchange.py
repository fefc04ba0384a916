"""One request and its answer: JSON where the handler says nothing before its end, a stream of events where it does.

A caller that hangs up ends the handler, unless it has begun to accept a job: a job that was asked for is kept, whoever waits.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.message import MessageMetadata, ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import ProgressToken, RequestId
from starlette.requests import Request
from starlette.types import Message, Send

from deedbox.mcp import wire

PING_S = 15.0
"""Seconds of silence after which a stream says that it is still there."""
_MOST_UNREAD = 64

Ask = Callable[["Exchange", str, Mapping[str, Any] | None, float | None], Awaitable[dict[str, Any]]]
"""Sends a request to the caller on the exchange's stream, and returns what it answers."""


@dataclass
class Exchange:
    """What a handler has of the request that it answers; the SDK's `DispatchContext`."""

    request: Request
    request_id: RequestId
    method: str
    progress_token: ProgressToken | None = None
    ask: Ask | None = None
    """Where the caller can be asked something; nobody is asked in the newer protocol."""
    streams: bool = True
    """Whether the caller takes a stream; what is said to one who does not is dropped."""
    cancel_requested: anyio.Event = field(default_factory=anyio.Event)
    keeps_on: bool = False
    """Set by a handler that must end what it has begun although its caller hangs up."""
    _frames: "deque[bytes]" = field(default_factory=deque["bytes"])
    _room: asyncio.Event = field(default_factory=asyncio.Event)
    _news: "asyncio.Future[None] | None" = None
    """Done when there is a frame, or the handler or the caller has gone: what an answer under way waits for."""

    @property
    def transport(self) -> TransportContext:
        """What is known of the transport."""
        return TransportContext(
            kind="streamable-http", can_send_request=self.can_send_request, headers=dict(self.request.headers)
        )

    @property
    def message_metadata(self) -> MessageMetadata:
        """The HTTP request, which the SDK hands to handlers."""
        return ServerMessageMetadata(request_context=self.request, can_send_request=self.can_send_request)

    @property
    def can_send_request(self) -> bool:
        """Whether the caller can be asked something on this stream."""
        return self.ask is not None and self.streams

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Ask the caller, and wait for the answer. Raises NoBackChannelError, or MCPError with what it answers instead."""
        if self.ask is None or not self.streams:
            raise NoBackChannelError(method)
        return await self.ask(self, method, params, (opts or {}).get("timeout"))

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Tell the caller something on this request's stream."""
        del opts
        await self.say({"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": dict(params)})})

    async def say(self, message: Mapping[str, Any]) -> None:
        """Put a message on the stream; waits where the caller reads more slowly than it is told."""
        while self.streams and len(self._frames) >= _MOST_UNREAD:
            self._room.clear()
            await self._room.wait()
        if self.streams:
            self._frames.append(wire.frame(message))
            self._stir()

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far it is, to a caller that gave a token for it; to any other nothing is said."""
        if self.progress_token is None:
            return
        params: dict[str, Any] = {"progressToken": self.progress_token, "progress": progress}
        params |= {} if total is None else {"total": total}
        params |= {} if message is None else {"message": message}
        await self.notify("notifications/progress", params)

    async def answer(
        self, work: Awaitable[dict[str, Any]], send: Send, *, modern: bool, headers: Mapping[str, str] | None = None
    ) -> None:
        """Do the work and send what comes of it; what it raises becomes a JSON-RPC error."""
        handler = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(self._gone())
        for task in (handler, gone):
            task.add_done_callback(self._stir)
        try:
            begun = await self._stream(handler, gone, send, dict(headers or {}))
            if gone.done() and not handler.done():
                self.cancel_requested.set()
                if self.keeps_on:
                    self._stop_saying()
                    await asyncio.wait({handler})
                return
            message = await self._message(handler)
            if begun:
                await send({"type": "http.response.body", "body": wire.frame(message), "more_body": False})
            else:
                response = wire.json_response(message, modern=modern, headers=headers)
                await response(self.request.scope, self.request.receive, send)
        finally:
            for task in (handler, gone):
                task.cancel()
            await asyncio.gather(handler, gone, return_exceptions=True)

    def _stop_saying(self) -> None:
        """Nobody reads any more: whoever waits for room goes on."""
        self.streams = False
        self._frames.clear()
        self._room.set()

    async def _message(self, handler: "asyncio.Future[dict[str, Any]]") -> dict[str, Any]:
        try:
            return wire.result_message(self.request_id, await handler)
        except Exception as failure:  # noqa: BLE001 -- whatever it was, the caller gets an error with its id, and the log the rest
            return wire.failure_message(self.request_id, self.method, failure)

    async def _stream(
        self, handler: "asyncio.Future[dict[str, Any]]", gone: "asyncio.Future[None]", send: Send, headers: dict[str, str]
    ) -> bool:
        """Send what the handler says until it has ended or the caller is gone; returns whether a stream was begun."""
        begun = False
        while True:
            frame = await self._next(handler, gone)
            if frame is None and (handler.done() or gone.done()):
                return begun
            if frame is None and not self.streams:
                continue
            if not begun:
                begun = True
                await _begin(send, {**headers, **wire.STREAM_HEADERS})
            await send({"type": "http.response.body", "body": frame or wire.PING, "more_body": True})

    async def _next(self, handler: "asyncio.Future[dict[str, Any]]", gone: "asyncio.Future[None]") -> bytes | None:
        """What is to be sent next; None at the end of either, or after a while of silence."""
        if not self._frames and not handler.done() and not gone.done():
            self._news = asyncio.get_running_loop().create_future()
            with suppress(TimeoutError):
                async with asyncio.timeout(PING_S):
                    await self._news
        if not self._frames:
            return None
        self._room.set()
        return self._frames.popleft()

    def _stir(self, _: object = None) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def _gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _receive(self) -> Message:
        return await self.request.receive()


async def _begin(send: Send, headers: Mapping[str, str]) -> None:
    raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": raw})


async def patiently(stopping: asyncio.Event, wait_s: float, ask: Callable[[float], Awaitable[Any]]) -> Any:
    """Ask with a wait that is given up when the server stops, and then asked without one."""
    if wait_s <= 0 or stopping.is_set():
        return await ask(0)
    asked, stopped = asyncio.ensure_future(ask(wait_s)), asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({asked, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            return asked.result()
    finally:
        for task in (asked, stopped):
            task.cancel()
        await asyncio.gather(asked, stopped, return_exceptions=True)
    return await ask(0)


__all__ = ["PING_S", "Ask", "Exchange", "patiently"]
