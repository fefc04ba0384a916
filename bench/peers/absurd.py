"""absurd: durable tasks in stored procedures; a client holds one connection, and workers poll."""

import asyncio
import importlib
from collections.abc import Sequence
from typing import Any

from bench.peers.contract import Began, Pace, Payload

_QUEUE = "bench"
_AT_ONCE: dict[Pace, int] = {"drain": 50, "light": 10}
_POLL_S: dict[Pace, float] = {"drain": 0.25, "light": 0.01}


class Member:
    """See bench.peers.contract."""

    def __init__(self, url: str) -> None:
        """Opens nothing."""
        self._library: Any = importlib.import_module("absurd_sdk")
        self._psycopg: Any = importlib.import_module("psycopg")
        self._url = url
        self._free: asyncio.LifoQueue[Any] = asyncio.LifoQueue()

    async def _connect(self) -> Any:
        return await self._psycopg.AsyncConnection.connect(self._url, autocommit=True)

    async def install(self) -> None:
        """Run the schema that its tool brings, and make the queue."""
        connection = await self._connect()
        await connection.execute(importlib.import_module("absurdctl").BUNDLED_SCHEMA_SQL)
        await self._library.AsyncAbsurd(connection, queue_name=_QUEUE).create_queue()
        await connection.close()

    async def open(self, connections: int) -> None:
        """Open so many clients."""
        for _ in range(connections):
            self._free.put_nowait(self._library.AsyncAbsurd(await self._connect(), queue_name=_QUEUE))

    async def put(self, payload: Payload) -> None:
        """Spawn one task over a client that is free."""
        client = await self._free.get()
        try:
            await client.spawn("note", payload, queue=_QUEUE)
        finally:
            self._free.put_nowait(client)

    async def put_many(self, payloads: Sequence[Payload]) -> None:
        """Spawn all in one transaction."""
        connection = await self._connect()
        client = self._library.AsyncAbsurd(connection, queue_name=_QUEUE)
        async with connection.transaction():
            for payload in payloads:
                await client.spawn("note", payload, queue=_QUEUE)

    async def work(self, began: Began, pace: Pace) -> None:
        """Run its worker."""
        client = self._library.AsyncAbsurd(await self._connect(), queue_name=_QUEUE)

        async def note(payload: Payload, _context: object) -> None:
            began(payload["number"])

        client.register_task(name="note", queue=_QUEUE)(note)
        await client.start_worker(concurrency=_AT_ONCE[pace], poll_interval=_POLL_S[pace])
