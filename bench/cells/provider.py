"""A provider that takes every request and answers at once, on bare sockets: what is measured is who asks it."""

import asyncio
from collections import Counter
from time import monotonic
from typing import Any, cast

from bench.child import Bench, run

MODULE = "bench.cells.provider"


class Taken:
    """What has arrived: how often each key, and when the first byte of each came."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.keys: Counter[str] = Counter()
        self.came: dict[str, float] = {}
        self.first = 0.0
        self.last = 0.0


class Connection(asyncio.Protocol):
    """One keep-alive connection, a request at a time."""

    def __init__(self, taken: Taken) -> None:
        """Counts into `taken`."""
        self._taken = taken
        self._transport: asyncio.Transport
        self._request = b""
        self._began = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer when the request is whole."""
        self._began = self._began if self._request else monotonic()
        self._request += data
        head, blank, body = self._request.partition(b"\r\n\r\n")
        if not blank:
            return
        lines = head.decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        if len(body) < int(headers.get("content-length", "0")):
            return
        self._request = b""
        key = headers["idempotency-key"]
        self._taken.keys[key] += 1
        self._taken.came.setdefault(key, self._began)
        self._taken.last = monotonic()
        self._taken.first = self._taken.first or self._taken.last
        answer = b'{"id":"note-%d"}' % self._taken.keys.total()
        self._transport.write(
            b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer
        )


async def main(_options: dict[str, Any], _url: str, bench: Bench) -> None:
    """Say the port, and at each word what arrived since the last one; at `times` when each key came."""
    taken = Taken()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(taken), "127.0.0.1", 0)
    bench.say(port=server.sockets[0].getsockname()[1])
    while word := await bench.told():
        if word == "times":
            bench.say(came=taken.came)
            continue
        keys = taken.keys
        bench.say(requests=keys.total(), keys=len(keys), first=taken.first, last=taken.last)
        if keys:
            taken.keys, taken.first = Counter(), 0.0


if __name__ == "__main__":
    run(main)
