"""A proxy of the kind that breaks streams: it passes on nothing before the answer is whole, and cuts what takes too long."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

_CUT = b"HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@dataclass
class Buffering:
    """One request per connection to one server.

    `patience_s` is how long it waits for a whole answer before it hangs up on the server and answers 504. `loses` answers are
    thrown away once they are whole, and their clients hung up on: the work was done, and nobody hears of it.
    """

    port: int
    patience_s: float
    loses: int = 0
    cut: int = 0
    lost: int = 0
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one request there, and its answer back when it is whole."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            lines = [line for line in head[:-4].split(b"\r\n") if not line.lower().startswith(b"connection:")]
            length = next((int(line.partition(b":")[2]) for line in lines if line.lower().startswith(b"content-length:")), 0)
            there, back = await asyncio.open_connection("127.0.0.1", self.port)
            back.write(b"\r\n".join([*lines, b"Connection: close"]) + b"\r\n\r\n" + await reader.readexactly(length))
            answer = _CUT
            try:
                async with asyncio.timeout(self.patience_s):
                    answer = await there.read()
            except TimeoutError:
                self.cut += 1
            back.close()
            if self.loses > 0:
                self.loses -= 1
                self.lost += 1
            else:
                writer.write(answer)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def buffering(port: int, *, patience_s: float) -> AsyncGenerator[Buffering]:
    """Such a proxy before a server on loopback."""
    one = Buffering(port, patience_s)
    server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    one.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield one
    finally:
        server.close()
