"""The load generator: raw keep-alive connections in a process of its own, bounded in number and in time.

Requests are put together from parts that were built beforehand, with a key and a number that never come twice. Each
connection sends its next request when the answer to the last one is whole. Bytes beyond an answer are an error.
"""

import asyncio
import itertools
from time import monotonic
from typing import Any, cast

from bench.app import ACTION
from bench.child import Bench, run
from bench.note import order

MODULE = "bench.cells.http_load"
_HELD = "@@@@@@@"
# No run gets as far as this; it keeps the numbers of one width, so that all requests are equally long.
MOST = 9_999_999
FIRST = 1_000_000


class Load:
    """What all connections of one run share."""

    wanted = b"HTTP/1.1 202"

    def __init__(self, path: str, key: str, port: int, first: int) -> None:
        """`first` is the number of the first request."""
        body = order(_HELD).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nIdempotency-Key: job-{_HELD}\r\n\r\n"
        )
        self._parts = (head.encode() + body).split(_HELD.encode())
        self._numbers = itertools.count(first)
        self.until = 0.0
        self.waits: list[float] = []
        self.sent = 0
        self.refused = 0
        self.example = ""

    def next(self) -> bytes | None:
        """The next request, or None when the time or the numbers are over."""
        if monotonic() >= self.until or (number := next(self._numbers)) > MOST:
            return None
        self.sent += 1
        return (b"%d" % number).join(self._parts)

    def taken(self, answer: bytes) -> bool:
        """Whether an answer is the one that is wanted."""
        return answer.startswith(self.wanted)


class Connection(asyncio.Protocol):
    """One keep-alive connection; `ended` is done when it has nothing more to send, or broke."""

    def __init__(self, load: Load) -> None:
        """Takes its requests from `load`."""
        self._load = load
        self._transport: asyncio.Transport
        self._answer = b""
        self._sent_at = 0.0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def send(self) -> None:
        """Send the next request, if there is one."""
        request = self._load.next()
        if request is None:
            self.ended.set_result(None)
            return
        self._sent_at = monotonic()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Go on when the answer is whole."""
        answer = self._answer = self._answer + data
        head, blank, body = answer.partition(b"\r\n\r\n")
        if not blank:
            return
        _, _, rest = head.lower().partition(b"\r\ncontent-length:")
        expected = int(rest.partition(b"\r\n")[0])
        if len(body) < expected:
            return
        assert len(body) == expected, answer
        self._load.waits.append(monotonic() - self._sent_at)
        if not self._load.taken(answer):
            self._load.refused += 1
            self._load.example = answer.decode(errors="replace")
        self._answer = b""
        self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        """A connection that broke has lost its answer."""
        if not self.ended.done():
            self.ended.set_exception(exc or ConnectionError("the server closed the connection"))


async def drive(load: Load, options: dict[str, Any], bench: Bench) -> float:
    """Load for so many seconds over so many connections, wait for every answer, and say how many seconds that took."""
    loop = asyncio.get_running_loop()
    connections = [
        (await loop.create_connection(lambda: Connection(load), "127.0.0.1", options["port"]))[1]
        for _ in range(options["connections"])
    ]
    bench.say(ready=True)
    await bench.told()
    began = monotonic()
    load.until = began + options["seconds"]
    for connection in connections:
        connection.send()
    async with asyncio.timeout(options["seconds"] + 30):
        await asyncio.gather(*(connection.ended for connection in connections))
    return monotonic() - began


async def main(options: dict[str, Any], _url: str, bench: Bench) -> None:
    """Load for so many seconds over so many connections, and wait for every answer."""
    load = Load(options.get("path") or f"/api/actions/{ACTION}/jobs", options["key"], options["port"], options["first"])
    seconds = await drive(load, options, bench)
    await bench.report(sent=load.sent, refused=load.refused, example=load.example[:1000], seconds=seconds, waits=load.waits)


if __name__ == "__main__":
    run(main)
