"""The MCP Inspector's web client as it comes from its package, on ports and a home of its own, without opening any browser."""

import asyncio
import base64
import json
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx2

from tests.servers.listening import free_port
from tools import node


@dataclass(frozen=True)
class Inspector:
    """A running Inspector that knows one server."""

    url: str
    token: str
    server: str

    def link(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """The address at which it connects, and has a tool and its arguments ready."""
        given = base64.urlsafe_b64encode(json.dumps(arguments).encode()).decode().rstrip("=")
        query = {"serverUrl": self.server, "transport": "http", "autoConnect": self.token, "openApp": tool, "appArgs": given}
        return f"{self.url}/?{urlencode(query)}"


@asynccontextmanager
async def inspector(place: Path, server: str, bearer: str) -> AsyncGenerator[Inspector]:
    """Run it against a server. Raises LookupError where Node's packages are not set up."""
    port, token = free_port(), secrets.token_hex(24)
    environment = {
        **node.environment(),
        "HOME": str(place),
        "HOST": "127.0.0.1",
        "CLIENT_PORT": str(port),
        "MCP_SANDBOX_PORT": "0",
        "MCP_APP_ORIGIN_PORT": "0",
        "MCP_AUTO_OPEN_ENABLED": "false",
        "MCP_INSPECTOR_API_TOKEN": token,
    }
    config = place / "inspector.json"
    known = {"type": "streamable-http", "url": server, "headers": {"Authorization": f"Bearer {bearer}"}}
    # The link looks for a server of this name, and takes its headers where type and address are the link's.
    await asyncio.to_thread(config.write_text, json.dumps({"mcpServers": {"deep-link": known}}))
    command = [*node.program("mcp-inspector"), "--web", "--config", str(config)]
    with (place / "inspector.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, env=environment, cwd=place, stdout=log, stderr=log)
    try:
        await _listening(f"http://127.0.0.1:{port}/", place / "inspector.log")
        yield Inspector(f"http://127.0.0.1:{port}", token, server)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _listening(url: str, log: Path) -> None:
    try:
        async with asyncio.timeout(60), httpx2.AsyncClient(trust_env=False) as http:
            while True:
                try:
                    if (await http.get(url)).status_code == 200:
                        return
                except httpx2.HTTPError:
                    pass
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"the Inspector does not listen: {await asyncio.to_thread(log.read_text)}") from None
