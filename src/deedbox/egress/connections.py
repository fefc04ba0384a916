"""Open connections, kept for the next exchange only while the last one is fresh in the other side's mind.

A server may close a connection at any moment between two requests, and a request that crosses with its closing looks like one
that was lost: nobody could say whether it was read. So a connection is used again only a moment after its last answer, much
sooner than servers lose patience, and only while the other side has neither closed nor said anything on it.
"""

import select
import ssl
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

import httpcore2

if TYPE_CHECKING:
    import socket

MOST_IDLE = 64
"""Connections to one origin that are kept open between two exchanges."""
LIFE_S = 60.0
"""After so many seconds a connection is opened anew, so that a name that moves, and a rule that goes, are followed."""


_TOGETHER = 32 * 1024  # bytes


class OneWrite(httpcore2.AsyncNetworkStream):
    """A stream that sends a small request in one piece: its head waits for its body, and both for the first read."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        """Writes to `stream` and reads from it."""
        self._stream = stream
        self._waiting = b""
        self._socket: socket.socket = stream.get_extra_info("socket")

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 -- the library's signature
        """Send it now, or with what follows."""
        self._waiting += buffer
        if len(self._waiting) > _TOGETHER:
            await self._flush(timeout)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 -- the library's signature
        """Send what waits, and read."""
        if self._waiting:
            # As the library does: the other side may have answered before it closed, and if not, reading tells.
            with suppress(httpcore2.WriteError):
                await self._flush(timeout)
        return await self._stream.read(max_bytes, timeout)

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 -- the library's signature
    ) -> httpcore2.AsyncNetworkStream:
        """The same over TLS."""
        return OneWrite(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    async def aclose(self) -> None:
        """Close it."""
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        """What the library asks; before each use of a kept connection, whether anything can be read, an end included."""
        if info == "is_readable":
            if self._socket.fileno() < 0:
                return True
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            return bool(poll.poll(0))
        return self._stream.get_extra_info(info)

    async def _flush(self, timeout: float | None) -> None:  # noqa: ASYNC109 -- as its callers
        waiting, self._waiting = self._waiting, b""
        await self._stream.write(waiting, timeout)


class Kept:
    """One connection, with the monotonic times at which it was made, and at which it last became idle."""

    def __init__(self, connection: httpcore2.AsyncHTTPConnection) -> None:
        """Nothing is open yet."""
        self.connection = connection
        self.made = self.idle_since = monotonic()


class Connections:
    """Hands out connections to origins, each to one exchange at a time; every one was opened by `backend`, which checks."""

    def __init__(self, backend: httpcore2.AsyncNetworkBackend, tls: ssl.SSLContext, *, idle_s: float) -> None:
        """A connection waits for its next exchange at most `idle_s` seconds; with zero none is used twice."""
        self._backend = backend
        self._tls = tls
        self._idle_s = idle_s
        self._idle: dict[tuple[bytes, bytes, int], deque[Kept]] = {}

    @asynccontextmanager
    async def lent(self, origin: httpcore2.Origin) -> AsyncGenerator[httpcore2.AsyncHTTPConnection]:
        """A connection for one exchange, which has to be over when the block ends."""
        kept = await self.take(origin)
        try:
            yield kept.connection
        finally:
            await self.give_back(origin, kept)

    async def take(self, origin: httpcore2.Origin) -> Kept:
        """A connection that may be used now, open or to be opened by its first request."""
        idle = self._idle.get((origin.scheme, origin.host, origin.port))
        while idle:
            # The one used last, so that those not needed grow old.
            kept = idle.pop()
            if not kept.connection.has_expired() and monotonic() - kept.made < LIFE_S:
                return kept
            await kept.connection.aclose()
        return Kept(
            httpcore2.AsyncHTTPConnection(
                origin, ssl_context=self._tls, keepalive_expiry=self._idle_s, retries=0, network_backend=self._backend
            )
        )

    async def give_back(self, origin: httpcore2.Origin, kept: Kept) -> None:
        """Keep it for the next exchange where its own has come to a clean end, else close it."""
        idle = self._idle.setdefault((origin.scheme, origin.host, origin.port), deque())
        if self._idle_s <= 0 or not kept.connection.is_idle():
            await kept.connection.aclose()
            return
        now = kept.idle_since = monotonic()
        idle.append(kept)
        # The oldest are first; those behind them are younger. While one is closed others may take what is left.
        while idle and (len(idle) > MOST_IDLE or now - idle[0].idle_since > self._idle_s):
            await idle.popleft().connection.aclose()

    async def aclose(self) -> None:
        """Close those that wait; one that is being used is closed when it is given back."""
        self._idle_s = 0.0
        for idle in self._idle.values():
            while idle:
                await idle.pop().connection.aclose()
