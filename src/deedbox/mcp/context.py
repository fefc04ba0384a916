"""What a handler of the face is called with: the SDK's context, and what of it the face looks at."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY, ElicitationCapability
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel
from starlette.requests import Request

from deedbox.mcp.exchange import Exchange
from deedbox.mcp.wire import object_of
from deedbox.model.identity import Principal

TASKS = "io.modelcontextprotocol/tasks"
UI = "io.modelcontextprotocol/ui"
PRINCIPAL = "deedbox.mcp.principal"
EXCHANGE = "deedbox.mcp.exchange"
REFUSED = "deedbox.mcp.refused"
"""Under this name a call finds why its values cannot be kept."""
JOB = "deedbox.job_id"
"""Under this name the line in the log finds the job."""

Ctx: TypeAlias = ServerRequestContext[Any, Request]
Result: TypeAlias = BaseModel | dict[str, Any]


def request_of(ctx: Ctx) -> Request:
    """The HTTP request. Raises RuntimeError outside of one."""
    if ctx.request is None:
        raise RuntimeError("the face is served over HTTP alone")
    return ctx.request


def principal_of(ctx: Ctx) -> Principal:
    """Who asks."""
    principal: Principal = request_of(ctx).scope[PRINCIPAL]
    return principal


def exchange_of(ctx: Ctx) -> Exchange:
    """The exchange under way."""
    exchange: Exchange = request_of(ctx).scope[EXCHANGE]
    return exchange


def note_job(ctx: Ctx, job_id: str | None) -> None:
    """Name the job in the request's line of the log."""
    if job_id is not None:
        request_of(ctx).scope[JOB] = job_id


def is_modern(ctx: Ctx) -> bool:
    """Whether the caller speaks the newer protocol."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def takes_tasks(ctx: Ctx) -> bool:
    """Whether this very request declares that its caller takes tasks, which only the newer protocol defines."""
    known = ctx.session.client_capabilities
    return is_modern(ctx) and known is not None and TASKS in (known.extensions or {})


def require_tasks(ctx: Ctx) -> None:
    """Raise MCPError (-32021) where it does not."""
    if not takes_tasks(ctx):
        raise MCPError(
            MISSING_REQUIRED_CLIENT_CAPABILITY,
            "This needs a client that takes tasks.",
            {"requiredCapabilities": {"extensions": {TASKS: {}}}},
        )


def opens_pages(ctx: Ctx) -> bool:
    """Whether the caller's client can ask its person to open a page."""
    known = ctx.session.client_capabilities
    elicitation: ElicitationCapability | None = known.elicitation if known is not None else None
    return elicitation is not None and elicitation.url is not None


def meta_of(ctx: Ctx) -> Mapping[str, Any]:
    """The request's `_meta` as it was sent."""
    return object_of((ctx.params or {}).get("_meta"))
