"""procrastinate: jobs and their events in two tables, one statement a job."""

import importlib
import logging
from collections.abc import Sequence
from typing import Any

from bench.peers.contract import Began, Pace, Payload

_QUEUE = "bench"
_AT_ONCE = 20
_BATCH = 1000


class Member:
    """See bench.peers.contract."""

    def __init__(self, url: str) -> None:
        """Opens nothing."""
        self._library: Any = importlib.import_module("procrastinate")
        logging.getLogger("procrastinate").setLevel(logging.WARNING)
        self._url = url
        self._app: Any
        self._task: Any

    def _make(self, connections: int, began: Began | None = None) -> Any:
        connector = self._library.PsycopgConnector(conninfo=self._url, min_size=min(connections, 8), max_size=connections)
        app: Any = self._library.App(connector=connector)

        async def note(number: int, **_: object) -> None:
            if began is not None:
                began(number)

        self._task = app.task(note, name="note", queue=_QUEUE)
        return app

    async def install(self) -> None:
        """Apply its schema."""
        app = self._make(2)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    async def open(self, connections: int) -> None:
        """Open its pool."""
        self._app = self._make(connections)
        await self._app.open_async()

    async def put(self, payload: Payload) -> None:
        """Defer one job."""
        await self._task.defer_async(**payload)

    async def put_many(self, payloads: Sequence[Payload]) -> None:
        """Defer by batches."""
        for first in range(0, len(payloads), _BATCH):
            await self._task.batch_defer_async(*payloads[first : first + _BATCH])

    async def work(self, began: Began, _pace: Pace) -> None:
        """Run its worker; LISTEN is its default."""
        app = self._make(_AT_ONCE + 4, began)
        async with app.open_async():
            await app.run_worker_async(queues=[_QUEUE], concurrency=_AT_ONCE, install_signal_handlers=False)
