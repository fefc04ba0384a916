"""dbos: durable workflows; its client and its workflows run in threads."""

import asyncio
import importlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.peers.contract import Began, Pace, Payload

_QUEUE = "bench"
# The same everywhere, or a worker would not touch what another version of the code has put.
_VERSION = "1"
_OPTIONS = {"workflow_name": "note", "queue_name": _QUEUE, "app_version": _VERSION}
_POLL_S: dict[Pace, float] = {"drain": 0.05, "light": 0.01}
_AT_ONCE, _THREADS, _CONNECTIONS = 200, 16, 20


class Member:
    """See bench.peers.contract."""

    def __init__(self, url: str) -> None:
        """Opens nothing."""
        self._library: Any = importlib.import_module("dbos")
        self._url = url
        self._client: Any

    def _launch(self, began: Began, poll_s: float) -> None:
        main: Any = self._library.DBOS
        config = {
            "name": "bench",
            "system_database_url": self._url,
            "application_version": _VERSION,
            "sys_db_pool_size": _CONNECTIONS,
            "max_executor_threads": _THREADS,
            "log_level": "ERROR",
        }
        main(config=config)

        def note(payload: Payload) -> None:
            began(payload["number"])

        main.workflow(name="note")(note)
        main.launch()
        main.register_queue(_QUEUE, worker_concurrency=_AT_ONCE, polling_interval_sec=poll_s)

    async def install(self) -> None:
        """Launch once: that migrates its tables and keeps its queue."""
        await asyncio.to_thread(self._launch, lambda _: None, _POLL_S["drain"])

    async def open(self, connections: int) -> None:
        """Open a client with as many threads as connections: its asynchronous call waits in a thread."""
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(connections))
        self._client = self._library.DBOSClient(
            system_database_url=self._url, system_database_pool_size=connections, application_name="bench"
        )

    async def put(self, payload: Payload) -> None:
        """Enqueue one workflow."""
        await self._client.enqueue_async(_OPTIONS, payload)

    async def put_many(self, payloads: Sequence[Payload]) -> None:
        """Enqueue all in one transaction."""
        sqlalchemy: Any = importlib.import_module("sqlalchemy")

        def put() -> None:
            engine = sqlalchemy.create_engine(self._url.replace("postgresql://", "postgresql+psycopg://", 1))
            with engine.begin() as connection:
                for payload in payloads:
                    self._client.enqueue_in_transaction(connection, _OPTIONS, payload)

        await asyncio.to_thread(put)

    async def work(self, began: Began, pace: Pace) -> None:
        """Launch, and let its threads work."""
        await asyncio.to_thread(self._launch, began, _POLL_S[pace])
        await asyncio.Event().wait()
