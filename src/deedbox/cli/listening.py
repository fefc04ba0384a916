"""The HTTP server of `serve` and `api`: uvicorn as a part of our event loop."""

import asyncio
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HANG_UP_S = 5
"""How long connections may finish when the server is told to stop, in seconds."""

MOST_HELD = 1 << 16
"""From this many bytes on they are not held back: what sends faster than the peer reads must feel it at once."""


class JoinedWrites(asyncio.Transport):
    """A transport that sends in one piece what is written in one turn of the event loop, and otherwise is the one it wraps.

    uvicorn writes the head and the body of an answer one after the other. Sent by themselves they are two calls of the system
    and two packets, and wake the peer twice, which costs more than all else that uvicorn does.
    """

    def __init__(self, wrapped: asyncio.Transport) -> None:
        """Nothing is held back yet."""
        super().__init__()
        self._wrapped = wrapped
        self._held: list[bytes] = []
        self._size = 0
        self._loop = asyncio.get_running_loop()

    def write(self, data: Any) -> None:
        """Send these bytes before this turn of the loop is over, behind all that was written before them."""
        if not self._held:
            self._loop.call_soon(self.flush)
        self._held.append(data)
        self._size += len(data)
        if self._size >= MOST_HELD:
            self.flush()

    def flush(self) -> None:
        """Send what is held back, unless the connection has gone."""
        if self._held:
            data = b"".join(self._held)
            self._held.clear()
            self._size = 0
            if not self._wrapped.is_closing():
                self._wrapped.write(data)

    def close(self) -> None:
        """Close, once everything that was written is sent."""
        self.flush()
        self._wrapped.close()

    def abort(self) -> None:
        """Close at once."""
        self._held.clear()
        self._wrapped.abort()

    def is_closing(self) -> bool:
        """Whether it is closed or about to be."""
        return self._wrapped.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What the wrapped one knows."""
        return self._wrapped.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Stop reading."""
        self._wrapped.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._wrapped.resume_reading()


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's, over joined writes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a connection."""
        super().connection_made(JoinedWrites(cast("asyncio.Transport", transport)))


class ApiServer(uvicorn.Server):
    """uvicorn without its own signal handlers, with a moment at which it listens; `should_exit` stops it."""

    def __init__(self, app: ASGIApp) -> None:
        """The log has our own access lines, by the route's template: uvicorn's would hold paths and queries."""
        super().__init__(
            uvicorn.Config(
                app,
                http=HttpProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=HANG_UP_S,
            )
        )
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so by `ready`."""
        await super().startup(sockets)
        self.ready.set()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals are for the whole process, whose loops stop as well."""
        yield
