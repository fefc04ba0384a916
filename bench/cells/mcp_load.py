"""The load generator of MCP: the connections of HTTP, each request a `tools/call` of the newer era with its own key."""

import itertools
import json
from typing import Any

from bench.cells.http_load import FIRST, Load, drive
from bench.child import Bench, run

MODULE = "bench.cells.mcp_load"
__all__ = ["FIRST", "MODULE"]
_VERSION = "2026-07-28"
_HELD = "@@@@@@@"


class Calls(Load):
    """Calls of one tool; counts those that were answered before their job had ended."""

    wanted = b"HTTP/1.1 200"

    def __init__(self, key: str, port: int, tool: str, first: int) -> None:
        """`first` is the number of the first call."""
        super().__init__("/mcp", key, port, first)
        meta: dict[str, Any] = {
            "io.modelcontextprotocol/protocolVersion": _VERSION,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        params: dict[str, Any] = {
            "name": tool,
            "arguments": {"number": "NUMBER"},
            "idempotencyKey": f"job-{_HELD}",
            "_meta": meta,
        }
        text = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        body = text.replace('"NUMBER"', _HELD)
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\n"
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
            f"MCP-Protocol-Version: {_VERSION}\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._parts = (head + body).encode().split(_HELD.encode())
        self._numbers = itertools.count(first)
        self.pending = 0

    def taken(self, answer: bytes) -> bool:
        """Whether the answer is one, and not a failure in the shape of one."""
        self.pending += b'"status":"pending"' in answer
        return super().taken(answer) and b'"isError":true' not in answer and b'"error"' not in answer.partition(b'"result"')[0]


async def main(options: dict[str, Any], _url: str, bench: Bench) -> None:
    """Load for so many seconds over so many connections, and wait for every answer."""
    load = Calls(options["key"], options["port"], options["tool"], options["first"])
    seconds = await drive(load, options, bench)
    figures = {"sent": load.sent, "refused": load.refused, "example": load.example[:1000], "pending": load.pending}
    await bench.report(**figures, seconds=seconds, waits=load.waits)


if __name__ == "__main__":
    run(main)
