"""Replicas of the face over one database, a worker and a dispatcher beside them, and a balancer in front.

The suite sends no credentials, so whoever calls is one fixed operator, and its forms are answered for one fixed manager: that
is the fixture's doing alone. The product asks by URL, and a person decides on the page.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from deedbox import wiring
from deedbox.mcp import McpDeps, McpFace
from deedbox.mcp.context import Ctx
from deedbox.mcp.wire import object_of
from deedbox.model.identity import Principal
from deedbox.operate.job_view import JobView
from deedbox.settings import Settings
from deedbox.store import switch
from deedbox.store.transaction import transaction
from deedbox.wiring import Database, Installation
from deedbox.wiring.mcp_face import make_mcp
from tests.conformance_app.beside import put_beside
from tests.conformance_app.fixtures import PLAIN, additions, with_jobs
from tests.conformance_app.jobs import app
from tests.database import TestDatabase
from tests.road import principal
from tests.servers.listening import Listening
from tests.servers.round_robin import round_robin

_FORM = {"type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"]}


@dataclass
class FormAsks:
    """Asks by form, as the suite wants it: a yes is a decision of the fixture's manager, made on the real road."""

    installation: Installation
    manager: Principal

    async def wanted(self, ctx: Ctx, job: JobView) -> dict[str, dict[str, Any]]:
        """A form for each open approval."""
        known = ctx.session.client_capabilities
        if known is None or known.elicitation is None or job.state != "awaiting_human":
            return {}
        params = {"mode": "form", "message": f"Shall {job.action} go on?", "requestedSchema": _FORM}
        return {
            str(one.approval_id): {"method": "elicitation/create", "params": params}
            for one in job.approvals
            if one.state == "pending"
        }

    async def answered(self, ctx: Ctx, job: JobView, responses: Mapping[str, Any]) -> None:
        """Decide what was answered with yes."""
        del ctx
        approvals = self.installation.approvals
        for one in job.approvals:
            given = object_of(responses.get(str(one.approval_id)))
            if one.state != "pending" or given.get("action") != "accept":
                continue
            card = await approvals.card(self.manager.tenant, one.approval_id, self.manager)
            assert card is not None
            await approvals.decide(self.manager, one.approval_id, card.digest_hex, "approve", None, "fixture")


def _face(installation: Installation, stopping: asyncio.Event, caller: Principal, manager: Principal) -> McpFace:
    async def who(_request: Request) -> Principal | Response:
        return caller

    deps: McpDeps = make_mcp(installation, stopping, who).deps
    deps = replace(deps, asks=FormAsks(installation, manager))
    face = McpFace(replace(deps, additions=additions({**PLAIN, **with_jobs(deps)})))
    put_beside(face)
    return face


@asynccontextmanager
async def replicas(database: TestDatabase, many: int) -> AsyncGenerator[str]:
    """The URL of the face on so many replicas, each asked in turn."""
    place = Database(database.url, database.owner_url, direct=database.direct_url)
    settings = Settings.model_validate({"AI_ACTIONS_ENABLED": True, "pool_size": 5})
    stopping = asyncio.Event()
    async with AsyncExitStack() as stack:
        beside = await stack.enter_async_context(wiring.opened(settings, app(), place, roles=("worker", "dispatch")))
        caller = await principal(database, beside.ids, "caller", "service", "operator")
        manager = await principal(database, beside.ids, "manager", "person", "manager")
        async with transaction(beside.pool) as connection:
            await switch.turn_root(connection, "acts", is_on=True, changed_by="test", reason="a test")
        loops = asyncio.create_task(wiring.run_roles(beside, ("worker", "dispatch"), stopping))
        servers: list[tuple[Listening, asyncio.Task[None]]] = []
        ports: list[int] = []
        try:
            for _ in range(many):
                one = await stack.enter_async_context(wiring.opened(settings, app(), place, roles=("api",)))
                listener = socket.create_server(("127.0.0.1", 0))
                ports.append(listener.getsockname()[1])
                server = Listening(Starlette(routes=[_face(one, stopping, caller, manager).route()]))
                servers.append((server, asyncio.create_task(server.serve(sockets=[listener]))))
                await server.listening.wait()
            if many == 1:
                yield f"http://127.0.0.1:{ports[0]}/mcp"
            else:
                yield await stack.enter_async_context(round_robin(ports)) + "/mcp"
        finally:
            stopping.set()
            for server, _ in servers:
                server.should_exit = True
            await asyncio.gather(loops, *(task for _, task in servers))
