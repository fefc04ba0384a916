"""A whole installation behind its real HTTP face and console, put together by wiring, on a port of its own."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

from deedbox import wiring
from deedbox.access import add_user
from deedbox.extend.registry import App
from deedbox.settings import Settings
from deedbox.wiring import Database, Installation
from tests.database import TestDatabase
from tests.servers.listening import Listening

PASSWORD = "correct horse, battery"


@dataclass
class House:
    """A running installation."""

    url: str
    installation: Installation
    database: TestDatabase
    asgi: Any
    stopping: asyncio.Event
    """Set, it makes waits and streams let go, as at the server's end."""

    def browser(self) -> httpx2.AsyncClient:
        """A browser without scripts: keeps cookies, follows nothing by itself, and says where its forms come from."""
        headers = {"Origin": self.url, "Sec-Fetch-Site": "same-origin"}
        return httpx2.AsyncClient(base_url=self.url, headers=headers, trust_env=False, timeout=30)

    def api(self, bearer: str | None = None, **headers: str) -> httpx2.AsyncClient:
        """A program with a key, or without one."""
        sent = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx2.AsyncClient(base_url=self.url, headers={**sent, **named}, trust_env=False, timeout=30)

    async def person(self, name: str, *roles: str, tenant: str = "default") -> str:
        """Make a person with the password of all tests and return the principal's id."""
        return await add_user(self.installation.pool, self.installation.ids, tenant, name, roles, PASSWORD)

    async def session(self, name: str) -> str:
        """Log a person in over the API and return the bearer."""
        async with self.api() as client:
            answer = await client.post("/api/login", json={"name": name, "password": PASSWORD})
            assert answer.status_code == 200, answer.text
            return str(answer.json()["token"])

    async def told(self, *verbs: str) -> list[tuple[Any, ...]]:
        """Verb, actor, door, method and detail of the audit's entries with these verbs, in order."""
        return await self.database.rows(
            "SELECT a.verb, a.actor, a.door, a.method, d.detail FROM deedbox.audit a JOIN deedbox.audit_detail d USING (seq)"
            " WHERE a.verb = ANY (%s) ORDER BY a.seq",
            list(verbs),
        )


@asynccontextmanager
async def house(database: TestDatabase, app: App | None = None, **settings: Any) -> AsyncGenerator[House]:
    """Serve an installation; `settings` are those of deedbox.settings."""
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    chosen = Settings(public_url=url, pool_size=4, **settings)
    place = Database(database.url, database.owner_url, direct=database.direct_url)
    stopping = asyncio.Event()
    try:
        async with wiring.opened(chosen, app or App(), place, roles=("api",)) as installation:
            asgi: Any = wiring.make_asgi(installation, stopping)
            server = Listening(asgi)
            running = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                await server.listening.wait()
                yield House(url, installation, database, asgi, stopping)
            finally:
                stopping.set()
                server.should_exit = True
                await running
    finally:
        listener.close()
