"""The HTTP server of `serve` and `api`: uvicorn as a part of our event loop."""

import asyncio
import socket
from collections.abc import Generator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

HANG_UP_S = 5
"""How long connections may finish when the server is told to stop, in seconds."""


class ApiServer(uvicorn.Server):
    """uvicorn without its own signal handlers, with a moment at which it listens; `should_exit` stops it."""

    def __init__(self, app: ASGIApp) -> None:
        """The log has our own access lines, by the route's template: uvicorn's would hold paths and queries."""
        super().__init__(
            uvicorn.Config(
                app,
                http="httptools",
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
