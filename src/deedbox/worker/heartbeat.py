"""Renewal of all leases of a process, from a thread of its own with an event loop and a connection of its own."""

import asyncio
import threading
import time

from deedbox import telemetry
from deedbox.model.lease import Lease
from deedbox.store import queue
from deedbox.store.pg_errors import UNREACHABLE, StoreError
from deedbox.store.pool import Connection, connect
from deedbox.worker.held import HeldAttempts


class Heartbeat:
    """Beats until stopped; handlers that block the event loop or hold on to it do not delay it."""

    def __init__(self, url: str, held: HeldAttempts, lease: Lease, *, prepare: bool = True) -> None:
        """`url` is the database; the connection is opened in the thread."""
        self._url = url
        self._held = held
        self._lease = lease
        self._prepare = prepare
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="deedbox-heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop it and wait for its end."""
        self._stop.set()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        asyncio.run(self._beats())

    async def _beats(self) -> None:
        connection: Connection | None = None
        last = 0.0
        while not self._stop.is_set():
            await asyncio.to_thread(self._stop.wait, self._lease.flags)
            self._held.stop_untrusted()
            try:
                if connection is None or connection.closed:
                    connection = await connect(self._url, "heartbeat", prepare=self._prepare)
                if time.monotonic() - last >= self._lease.beat:
                    last = await self._renew(connection, last)
                else:
                    await self._flags(connection)
            except (StoreError, *UNREACHABLE) as error:
                telemetry.log("heartbeat").warning("beat_failed", error=type(error).__name__)
                if connection is not None:
                    await connection.close()
                connection = None
        if connection is not None:
            await connection.close()

    async def _renew(self, connection: Connection, last: float) -> float:
        held = [item for item in self._held.all() if item.reason is None]
        if not held:
            return last
        sent = time.monotonic()
        # An answer that takes longer than the trust it would give is worth nothing.
        async with asyncio.timeout(self._lease.trust / 2):
            alive = await queue.renew(connection, [item.fence for item in held], self._lease.length)
        self._held.renewed(set(alive), sent + self._lease.trust)
        for item in held:
            attempt_id = item.claimed.attempt_id
            if attempt_id not in alive:
                self._held.stop(attempt_id, "lost")
            elif alive[attempt_id]:
                self._held.stop(attempt_id, "canceled")
        return sent

    async def _flags(self, connection: Connection) -> None:
        held = [item for item in self._held.all() if item.reason is None]
        if not held:
            return
        async with asyncio.timeout(self._lease.trust / 2):
            flagged = await queue.flags(connection, [item.fence for item in held])
        for attempt_id in flagged:
            self._held.stop(attempt_id, "canceled")
