"""Renewal of all leases of a process, from a thread of its own with an event loop and a connection of its own.

Two things go on in the thread and never wait for one another: beats, which need the database, and the fence, which gives up
what the database has not confirmed for too long. A beat that hangs, however it hangs, cannot keep a handler going beyond
its lease.
"""

import asyncio
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from deedbox import telemetry
from deedbox.model.lease import Lease
from deedbox.model.pause import pause
from deedbox.store import queue
from deedbox.store.pg_errors import UNREACHABLE, StoreError
from deedbox.store.pool import Connection, connect
from deedbox.worker.held import Held, HeldAttempts

T = TypeVar("T")
SHORTEST_LOOK_S = 0.01


class Heartbeat:
    """Beats until stopped; handlers that block the event loop or hold on to it do not delay it."""

    def __init__(self, url: str, held: HeldAttempts, lease: Lease, *, prepare: bool = True) -> None:
        """`url` is the database; the connection is opened in the thread."""
        self._url = url
        self._held = held
        self._lease = lease
        self._prepare = prepare
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._left: set[asyncio.Task[None]] = set()
        self._connection: Connection | None = None
        self._thread = threading.Thread(target=self._run, name="deedbox-heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop it and wait for its end."""
        with suppress(RuntimeError):  # it has ended already
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(timeout=10)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        fence = asyncio.create_task(self._fence(), name="fence")
        try:
            await self._beats()
        finally:
            fence.cancel()
            self._let_go()
            if self._left:
                await asyncio.wait(self._left, timeout=1)

    async def _fence(self) -> None:
        """Give up in time what is not to be believed any more, whatever the database does."""
        while True:
            following = self._held.stop_untrusted(self._lease.margin) - time.monotonic()
            await asyncio.sleep(min(self._lease.flags, max(SHORTEST_LOOK_S, following)))

    async def _beats(self) -> None:
        last = -1e9
        while not await pause(self._stop, self._lease.flags, least=1.0):
            try:
                # Also while nothing is held: the first beat of a lease must not have to wait for a connection.
                if self._connection is None or self._connection.closed:
                    self._connection = await self._bounded(connect(self._url, "heartbeat", prepare=self._prepare))
                if not self._to_beat():
                    continue
                if time.monotonic() - last >= self._lease.beat:
                    last = await self._renew(self._connection)
                else:
                    await self._flags(self._connection)
            except (StoreError, *UNREACHABLE) as error:
                telemetry.log("heartbeat").warning("beat_failed", error=type(error).__name__)
                self._let_go()
            except Exception:  # noqa: BLE001 -- whatever went wrong with one beat, it must not be the last
                telemetry.log("heartbeat").exception("beat_failed")
                self._let_go()

    def _to_beat(self) -> list[Held]:
        """What is held and was not told to stop: a stopped handler's lease is let go, however long it takes to listen."""
        return [item for item in self._held.all() if item.reason is None]

    async def _renew(self, connection: Connection) -> float:
        held = self._to_beat()
        sent = time.monotonic()
        alive = await self._bounded(queue.renew(connection, [item.fence for item in held], self._lease.length))
        self._held.renewed(set(alive), sent + self._lease.trust)
        for item in held:
            attempt_id = item.claimed.attempt_id
            if attempt_id not in alive:
                self._held.stop(attempt_id, "lost")
            elif alive[attempt_id]:
                self._held.stop(attempt_id, "canceled")
        return sent

    async def _flags(self, connection: Connection) -> None:
        held = self._to_beat()
        for attempt_id in await self._bounded(queue.flags(connection, [item.fence for item in held])):
            self._held.stop(attempt_id, "canceled")

    async def _bounded(self, work: Coroutine[Any, Any, T]) -> T:
        """The answer, or TimeoutError: one that takes longer than half the trust it would give is worth nothing.

        What is given up is not waited for: a driver whose server has vanished takes seconds to let go of a statement.
        """
        task = asyncio.create_task(work)
        done, _ = await asyncio.wait({task}, timeout=self._lease.trust / 2)
        if done:
            return task.result()
        task.cancel()
        connection, self._connection = self._connection, None
        self._keep(_abandon(task, connection))
        raise TimeoutError

    def _let_go(self) -> None:
        """Close the connection beside the beats; the next one opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._keep(connection.close())

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._left.add(task)
        task.add_done_callback(self._left.discard)


async def _abandon(task: "asyncio.Task[Any]", connection: Connection | None) -> None:
    """Wait for the end of what was given up, and close what it used."""
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # looked at, so that nobody reports it as forgotten
    if connection is not None:
        await connection.close()
