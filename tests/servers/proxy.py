"""A TCP proxy in front of PostgreSQL that can fall silent."""

import asyncio

from psycopg import conninfo


class Proxy:
    """A way to the database that can be frozen: connections stay open and nothing comes through, as when a host is gone."""

    def __init__(self, url: str) -> None:
        self._given = conninfo.conninfo_to_dict(url)
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None
        self._pipes: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return conninfo.make_conninfo("", **(self._given | {"host": "127.0.0.1", "hostaddr": None, "port": port}))

    async def __aexit__(self, *_: object) -> None:
        for pipe in self._pipes:
            pipe.cancel()
        if self._server is not None:
            self._server.close()

    def freeze(self) -> None:
        """Let nothing through any more."""
        self._open.clear()

    def thaw(self) -> None:
        """Go on as before."""
        self._open.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = str(self._given.get("host") or "127.0.0.1"), int(self._given.get("port") or 5432)
        if host.startswith("/"):
            there = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        else:
            there = await asyncio.open_connection(host, port)
        for source, sink in ((reader, there[1]), (there[0], writer)):
            pipe = asyncio.create_task(self._pipe(source, sink))
            self._pipes.add(pipe)
            pipe.add_done_callback(self._pipes.discard)

    async def _pipe(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while chunk := await source.read(1 << 16):
            await self._open.wait()
            sink.write(chunk)
            await sink.drain()
        sink.close()
