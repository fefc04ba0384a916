"""The MCP face over what a process has open, on the same application as the HTTP API."""

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from deedbox.http.deps import HttpDeps
    from deedbox.mcp import McpDeps, McpFace, View
    from deedbox.mcp.deps import Who

from deedbox.wiring.callers import resolver
from deedbox.wiring.installation import Installation


def mcp_routes(installation: Installation, stopping: asyncio.Event, http: "HttpDeps") -> "Sequence[BaseRoute]":
    """The route of the face, where it is served; who calls is found out as at the HTTP API."""
    if not installation.settings.mcp:
        return ()
    from deedbox.http.routing import who  # noqa: PLC0415 -- late, as below

    # Tokens are for a face: one that opens this one need not open the other.
    here = replace(http, face="mcp", resolve_key=resolver(installation, "mcp"))
    return (make_mcp(installation, stopping, partial(who, here)).route(),)


def make_mcp(installation: Installation, stopping: asyncio.Event, who: "Who") -> "McpFace":
    """The face; `who` says who holds a request's bearer token, as the HTTP API does, and `stopping` lets its streams go."""
    # Imported late: a command that only asks must not wait for the protocol's library.
    from deedbox.mcp import McpFace  # noqa: PLC0415

    return McpFace(mcp_deps(installation, stopping, who))


def mcp_deps(installation: Installation, stopping: asyncio.Event, who: "Who | None" = None) -> "McpDeps":
    """What the face stands on, in this process; without `who` for a server that asks by itself who is there."""
    from deedbox.mcp import McpDeps, PageAsks  # noqa: PLC0415 -- late, as above
    from deedbox.operate.asking import ApprovalPages  # noqa: PLC0415
    from deedbox.operate.replies import Replies  # noqa: PLC0415

    settings = installation.settings
    return McpDeps(
        tools=installation.tools,
        views=installation.views,
        approvals=installation.approvals,
        who=who or _nobody,
        public_url=settings.public_url,
        asks=PageAsks(ApprovalPages(installation.pool, settings.public_url)),
        keys=installation.secrets,
        replies=Replies(installation.pool),
        hears=installation.wakeup,
        wakeup=installation.wakeup,
        hosts=tuple(sorted(settings.mcp_hosts)),
        origins=tuple(sorted(settings.mcp_origins)),
        max_bytes=settings.max_json_bytes,
        view=_view(),
        stopping=stopping,
    )


async def _nobody(_request: "Request") -> "Response":
    raise RuntimeError("who calls is for the server that this was added to")


def _view() -> "View":
    """The page that hosts show beside tools."""
    from deedbox.mcp.widget import view  # noqa: PLC0415

    return view()
