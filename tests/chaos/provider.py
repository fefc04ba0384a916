"""Providers that break at random and keep account of every request that reached them."""

import asyncio
import random
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.servers.http_provider import Fault, HttpProvider, Request

HANG_S = 5.0
"""How long an answer is held back, in seconds: longer than any sending's lease."""

UNSENT: frozenset[Fault] = frozenset({"rate_limited", "refuse"})
"""What a provider answers that has done nothing."""

_WRITES: dict[Fault, int] = {
    "none": 58,
    "accept_then_hang": 6,
    "accept_then_reset": 9,
    "accept_then_503": 9,
    "accept_then_cut": 3,
    "accept_then_garbage": 2,
    "accept_without_id": 2,
    "rate_limited": 9,
    "refuse": 2,
}
_READS: dict[Fault, int] = {"none": 80, "accept_then_reset": 8, "accept_then_503": 6, "rate_limited": 6}


@dataclass(frozen=True, slots=True)
class Arrival:
    """A write that was read to its end, when by the monotonic clock, and what came of it."""

    at: float
    key: str
    fault: Fault

    @property
    def acted(self) -> bool:
        """Whether the provider has done it, now or before."""
        return self.fault not in UNSENT

    @property
    def told(self) -> bool:
        """Whether the sender could read an answer that says so."""
        return self.fault == "none"


@dataclass(slots=True)
class MovingProvider(HttpProvider):
    """A provider whose faults are drawn while `stormy`, and always for a key's first arrival; its door can be shut."""

    name: str = ""
    seed: int = 0
    stormy: bool = False
    arrivals: list[Arrival] = field(default_factory=list[Arrival])
    refusals: int = 0
    _seen: set[str] = field(default_factory=set[str])
    _rng: random.Random = field(default_factory=random.Random)
    _closing: asyncio.Event = field(default_factory=asyncio.Event)
    _keeper: socket.socket | None = None
    _server: asyncio.Server | None = None

    def __post_init__(self) -> None:
        """The draws follow from seed and name."""
        self._rng = random.Random(f"{self.seed}-{self.name}")  # noqa: S311 -- faults, no secrets

    @asynccontextmanager
    async def running(self, **_options: Any) -> AsyncGenerator[HttpProvider]:
        """Listen on a free port until the block ends."""
        # Bound and never listening: it keeps the port from everybody else while the door is shut.
        self._keeper = socket.socket()
        self._keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._keeper.bind((self.host, 0))
        self.port = self._keeper.getsockname()[1]
        await self._open()
        try:
            yield self
        finally:
            if self._server is not None:
                self._server.close()
            self._keeper.close()
            self._closing.set()
            for writer in list(self._writers):
                writer.transport.abort()
            while self._writers:  # noqa: ASYNC110 -- the aborted ones leave within a turn or two of the loop
                await asyncio.sleep(0.01)

    async def refuse_for(self, pause_s: float) -> None:
        """Refuse every connection for a while, unless it does so already."""
        if self._server is None:
            return
        server, self._server = self._server, None
        self.refusals += 1
        server.close()
        try:
            await asyncio.sleep(pause_s)
        finally:
            await self._open()

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._connection, self.host, self.port, reuse_port=True)

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        key = request.headers.get("idempotency-key", "")
        weights = _READS if request.method == "GET" else _WRITES
        drawn = self.stormy or (request.method != "GET" and key not in self._seen)
        fault: Fault = self._rng.choices(list(weights), list(weights.values()))[0] if drawn else "none"
        self._seen.add(key)
        if fault == "refuse" and self.honours_keys and key in self.by_key:
            fault = "none"  # whoever knows keys answers a known one as before
        self.faults.append(fault)
        if request.method != "GET":
            self.arrivals.append(Arrival(time.monotonic(), key, fault))
        return await HttpProvider._answer(self, request, writer)

    async def _after(self, fault: Fault, note: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        if fault != "accept_then_hang":
            return await HttpProvider._after(self, fault, note, writer)
        with suppress(TimeoutError):
            async with asyncio.timeout(HANG_S):
                await self._closing.wait()
        writer.transport.abort()
        return False
