"""One connection per process that listens, and the subscribers it wakes.

LISTEN makes a look earlier and is never the truth: subscribers poll as well. After every new connection everybody is woken,
since what was said in between is lost. The listener sends itself a ping through the database; one that does not come back
means that the connection, or a pooler behind it, no longer listens, although nothing has failed.
"""

import asyncio
import random
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Literal
from uuid import UUID
from weakref import WeakSet

import psycopg
from psycopg import Notify, sql

from deedbox.store.pool import Connection, connect
from deedbox.telemetry import log

QUEUE = "deedbox_queue"
EVENTS = "deedbox_events"
OUTBOX = "deedbox_outbox"
REPLIES = "deedbox_replies"
CHANNELS = (QUEUE, EVENTS, OUTBOX, REPLIES)
_OF_ROLES = {"api": {EVENTS, REPLIES}, "worker": {QUEUE, EVENTS}, "dispatch": {OUTBOX, EVENTS}}

_PING = "deedbox_ping"
_LONGEST_WAIT_S = 15.0
_REMEMBERED = 4096
"""How many tellings about jobs are remembered: a quick job is told of before whoever asked for it has subscribed."""


def channels_for(roles: Collection[str]) -> tuple[str, ...]:
    """What a process in these roles has to hear of: each channel that it does not need would wake it for nothing.

    All of them where it has no role.
    """
    wanted = set[str]().union(*(_OF_ROLES.get(role, ()) for role in roles)) if roles else CHANNELS
    return tuple(channel for channel in CHANNELS if channel in wanted)


class Signal(asyncio.Event):
    """An event that forgets itself when a wait with a time limit returns, so that the next wait waits again."""

    def __init__(self, listens: Callable[[], bool] | None = None) -> None:
        """`listens` says whether somebody would set it."""
        super().__init__()
        self._listens = listens or (lambda: False)

    @property
    def live(self) -> bool:
        """Whether a connection listens just now, so that what is new will be told."""
        return self._listens()

    async def wait(self, timeout_s: float | None = None) -> Literal[True]:
        """Return when woken, or after `timeout_s` seconds; without a limit it is asyncio's own wait, which clears nothing."""
        if timeout_s is None:
            return await super().wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await super().wait()
        self.clear()
        return True


class Wakeup:
    """Listens on the channels and wakes the subscribers of this process."""

    def __init__(self, url: str, channels: Sequence[str] = CHANNELS, *, ping_s: float = 10.0, answer_s: float = 5.0) -> None:
        """A ping goes out after `ping_s` seconds of listening and has to be back within `answer_s`."""
        self._url = url
        self._channels = tuple(channels)
        self._ping_s = ping_s
        self._answer_s = answer_s
        # A name of this process's own: the ping of one process wakes no other.
        self.ping_channel = f"{_PING}_{secrets.token_hex(6)}"
        self._events: dict[str, WeakSet[Signal]] = {channel: WeakSet() for channel in CHANNELS}
        self._jobs: dict[str, set[Signal]] = {}
        self._told: dict[str, None] = {}
        self._hears: set[Callable[[str], None]] = set()
        self._listening = asyncio.Event()
        self._connections = 0

    @property
    def connections(self) -> int:
        """How often a connection began to listen; more than one means that it was lost in between."""
        return self._connections

    def listens(self) -> bool:
        """Whether a connection listens just now."""
        return self._listening.is_set()

    async def ready(self) -> None:
        """Wait until a connection listens."""
        await self._listening.wait()

    def event(self, channel: str) -> Signal:
        """A signal of the caller's own that is set at every notification on the channel. Raises KeyError for an unknown one.

        It is never live where this process does not listen to the channel.
        """
        signal = Signal(self.listens if channel in self._channels else None)
        self._events[channel].add(signal)
        return signal

    @asynccontextmanager
    async def job(self, job_id: UUID) -> AsyncGenerator[Signal]:
        """A signal that is set when something of this job is new, or was just now. Subscribe first, then read, then wait."""
        signal, name = Signal(), job_id.hex
        if name in self._told:
            signal.set()
        self._jobs.setdefault(name, set()).add(signal)
        try:
            yield signal
        finally:
            subscribers = self._jobs[name]
            subscribers.discard(signal)
            if not subscribers:
                del self._jobs[name]

    @asynccontextmanager
    async def replies(self, hear: Callable[[str], None]) -> AsyncGenerator[None]:
        """Call `hear` with every piece of a reply that any process hands over; what is said while nobody listens is lost."""
        self._hears.add(hear)
        try:
            yield
        finally:
            self._hears.discard(hear)

    async def run(self) -> None:
        """Listen until cancelled, through every restart of the database."""
        failures = 0
        while True:
            started = time.monotonic()
            try:
                await self._listen()
            except (psycopg.Error, OSError, TimeoutError) as error:
                log("wakeup").warning("listener_lost", error=type(error).__name__)
            finally:
                self._listening.clear()
            failures = 1 if time.monotonic() - started > _LONGEST_WAIT_S else failures + 1
            ceiling = min(_LONGEST_WAIT_S, 0.1 * 2.0 ** min(failures, 10))
            await asyncio.sleep(ceiling * random.uniform(0.5, 1.0))  # noqa: S311 -- jitter

    async def _listen(self) -> None:
        connection = await connect(self._url, "wakeup", prepare=False)
        try:
            for channel in (*self._channels, self.ping_channel):
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            self._connections += 1
            self._listening.set()
            self._wake_all()
            while True:
                async for notify in connection.notifies(timeout=self._ping_s):
                    self._take(notify)
                await self._prove(connection)
        finally:
            await connection.close()

    async def _prove(self, connection: Connection) -> None:
        """Send a ping and wait for it. Raises TimeoutError when it does not come back."""
        async with asyncio.timeout(self._answer_s):
            await connection.execute("SELECT pg_notify(%s, '')", [self.ping_channel])
            back = False
            while not back:
                async for notify in connection.notifies(stop_after=1):
                    back = back or notify.channel == self.ping_channel
                    self._take(notify)

    def _take(self, notify: Notify) -> None:
        for signal in self._events.get(notify.channel, ()):
            signal.set()
        if notify.channel == REPLIES:
            for hear in tuple(self._hears):
                hear(notify.payload)
        if notify.channel != EVENTS:
            return
        for name in notify.payload.split(","):
            self._told[name] = None
            for signal in self._jobs.get(name, ()):
                signal.set()
        while len(self._told) > _REMEMBERED:
            del self._told[next(iter(self._told))]

    def _wake_all(self) -> None:
        for signals in (*self._events.values(), *self._jobs.values()):
            for signal in signals:
                signal.set()
