"""A balancer that sends each request to the next server in turn: nobody meets the same one twice in a row."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress


class RoundRobin:
    """One request per connection; the answer is passed on as it comes, and a hang-up at either end is passed on as well."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = list(ports)
        self._turn = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one request to the next server."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            lines = [line for line in head[:-4].split(b"\r\n") if not line.lower().startswith(b"connection:")]
            length = next((int(line.partition(b":")[2]) for line in lines if line.lower().startswith(b"content-length:")), 0)
            self._turn += 1
            there, back = await asyncio.open_connection("127.0.0.1", self._ports[self._turn % len(self._ports)])
            back.write(b"\r\n".join([*lines, b"Connection: close"]) + b"\r\n\r\n" + await reader.readexactly(length))
            pipe = asyncio.create_task(_pipe(there, writer))
            gone = asyncio.create_task(reader.read())
            await asyncio.wait({pipe, gone}, return_when=asyncio.FIRST_COMPLETED)
            for task in (pipe, gone):
                task.cancel()
            await asyncio.gather(pipe, gone, return_exceptions=True)
            back.close()
        writer.close()


async def _pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while chunk := await source.read(1 << 16):
        sink.write(chunk)
        await sink.drain()


@asynccontextmanager
async def round_robin(ports: Sequence[int]) -> AsyncGenerator[str]:
    """The URL of a balancer over servers on these ports of loopback."""
    one = RoundRobin(ports)
    server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
