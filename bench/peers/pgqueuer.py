"""pgqueuer: jobs are claimed and logged in batches, and deleted when they are done."""

import importlib
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from bench.peers.contract import Began, Pace, Payload

_ENTRY = "note"
_BATCH: dict[Pace, int] = {"drain": 500, "light": 10}


class Member:
    """See bench.peers.contract."""

    def __init__(self, url: str) -> None:
        """Opens nothing."""
        self._library: Any = importlib.import_module("pgqueuer")
        self._asyncpg: Any = importlib.import_module("asyncpg")
        self._url = url
        self._queries: Any

    async def install(self) -> None:
        """Install its tables; they are logged unless told otherwise."""
        connection = await self._asyncpg.connect(self._url)
        await self._library.Queries.from_asyncpg_connection(connection).install()
        await connection.close()

    async def open(self, connections: int) -> None:
        """Open its pool."""
        pool = await self._asyncpg.create_pool(self._url, min_size=min(connections, 8), max_size=connections)
        self._queries = self._library.Queries.from_asyncpg_pool(pool)

    async def put(self, payload: Payload) -> None:
        """Enqueue one job."""
        await self._queries.enqueue(_ENTRY, json.dumps(payload).encode())

    async def put_many(self, payloads: Sequence[Payload]) -> None:
        """Enqueue all in one statement."""
        await self._queries.enqueue(
            [_ENTRY] * len(payloads), [json.dumps(payload).encode() for payload in payloads], [0] * len(payloads)
        )

    async def work(self, began: Began, pace: Pace) -> None:
        """Run its queue manager."""
        pool = await self._asyncpg.create_pool(self._url, min_size=2, max_size=8)
        manager = self._library.PgQueuer.from_asyncpg_pool(pool)

        async def note(job: Any) -> None:
            began(json.loads(job.payload)["number"])

        manager.entrypoint(_ENTRY)(note)
        await manager.qm.run(batch_size=_BATCH[pace], dequeue_timeout=timedelta(seconds=30))
