"""A server in this process that says when it listens, and a port for one in another process."""

import asyncio
import socket
from typing import Any, Literal

import uvicorn


class Listening(uvicorn.Server):
    """`listening` is set once it takes connections; it writes no log of its own."""

    def __init__(self, asgi: Any, *, lifespan: Literal["auto", "off"] = "off", access_log: bool = False) -> None:
        """`lifespan` is `auto` for an application that has to be started."""
        super().__init__(uvicorn.Config(asgi, log_config=None, access_log=access_log, lifespan=lifespan, ws="none"))
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


def free_port() -> int:
    """A port of the loopback address that nobody listens on just now, for a server that may have to come back to it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
