"""Deedbox beside a server of somebody's own: what a process opens for the drop-in extension, and who calls it."""

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from deedbox.mcp.context import Ctx
    from deedbox.mcp.drop_in import DropIn, WhoCalls

from deedbox.extend.registry import App
from deedbox.model.identity import Principal
from deedbox.settings import Settings
from deedbox.wiring.callers import resolver
from deedbox.wiring.installation import Installation, opened
from deedbox.wiring.mcp_face import mcp_deps
from deedbox.wiring.places import Database


@asynccontextmanager
async def mcp_beside(
    app: App, settings: Settings, database: Database, *, who: "WhoCalls | None" = None
) -> "AsyncGenerator[DropIn]":
    """The extension for an `MCPServer`, over an installation that is open as long as the block.

    Jobs run in the workers (`deedbox worker`), as always. `who` says who calls; without it, whoever holds the key, the token
    or the session that the request brings as `Authorization: Bearer`. Raises what `opened` raises.
    """
    from deedbox.mcp.drop_in import DropIn  # noqa: PLC0415 -- late, as in mcp_face

    stopping = asyncio.Event()
    async with opened(settings, app, database, roles=("api",)) as installation:
        try:
            yield DropIn(mcp_deps(installation, stopping), who or _by_header(installation))
        finally:
            stopping.set()


def _by_header(installation: Installation) -> "WhoCalls":
    resolve = resolver(installation, "mcp")

    async def who(ctx: "Ctx") -> Principal | None:
        given = [] if ctx.request is None else ctx.request.headers.getlist("authorization")
        scheme, _, bearer = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        return await resolve(bearer.strip()) if scheme.lower() == "bearer" and bearer.strip() else None

    return who
