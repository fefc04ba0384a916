"""The console over the real gate and store, on loopback, for what is done beside one decision."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2
import uvicorn
from starlette.applications import Starlette

from deedbox.access import LoginGuard, Passwords, csrf_of
from deedbox.access.keys import digest
from deedbox.extend.registry import App
from deedbox.model.identity import Principal
from deedbox.web import WebDeps, routes
from tests.database import TestDatabase
from tests.decisions import Desk, decisions_on


@dataclass
class Site:
    """A running console and the desk behind it."""

    url: str
    desk: Desk

    async def enter(self, who: Principal, *, minutes_ago: float = 60) -> str:
        """A session of this person, opened so long ago; its cookie's value."""
        token = f"session of {who.name}, {minutes_ago} min".replace(" ", "-").replace(",", "")
        await self.desk.database.rows(
            "INSERT INTO deedbox.session (session_sha256, principal_id, method, csrf_sha256, authenticated_at, expires_at)"
            " VALUES (%s, %s, 'password', %s, deedbox.clock() - make_interval(secs => %s), deedbox.clock() + interval '1 day')",
            digest(token),
            who.principal_id,
            digest(csrf_of(token)),
            minutes_ago * 60,
        )
        return token

    def client(self, token: str) -> httpx2.AsyncClient:
        """A browser without scripts that holds this session."""
        headers = {"Origin": self.url, "Sec-Fetch-Site": "same-origin"}
        return httpx2.AsyncClient(
            base_url=self.url, headers=headers, cookies={"deedbox_session": token}, trust_env=False, timeout=60
        )


@asynccontextmanager
async def approving(database: TestDatabase, app: App | None = None) -> AsyncGenerator[Site]:
    """Serve the console on a port of its own."""
    async with decisions_on(database, app) as desk:
        listener = socket.create_server(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        deps = WebDeps(
            pool=desk.pool,
            public_url=url,
            tenant="default",
            card=desk.approvals.card,
            decide=desk.approvals.decide,
            inbox=desk.approvals.inbox,
            approvals=desk.approvals,
            guard=LoginGuard(Passwords()),
        )
        server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes(deps)), log_config=None, lifespan="off", ws="none"))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield Site(url, desk)
        finally:
            server.should_exit = True
            await serving
