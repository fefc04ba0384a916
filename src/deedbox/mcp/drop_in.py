"""Deedbox's tools and tasks on an `MCPServer` that somebody has already: one extension of the SDK's, and one middleware.

    tools = DropIn(deps, who)
    server = MCPServer("shop", extensions=[tools], middleware=[tools.listing])

The other server keeps its transport, its own tools and its way of asking who is there. What is called of ours takes the same
road as at our own face: accepted under its key, committed, run by a worker, followed by its job's id or as a task.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST, CallToolRequestParams, ListToolsResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

from deedbox.mcp.calls import Calls
from deedbox.mcp.context import EXCHANGE, PRINCIPAL, REFUSED, TASKS, Ctx
from deedbox.mcp.deps import McpDeps
from deedbox.mcp.exchange import Exchange
from deedbox.mcp.following import Following
from deedbox.mcp.tasks import TaskParams, Tasks, UpdateParams
from deedbox.mcp.wire import object_of
from deedbox.model.identity import Principal
from deedbox.operate.follow import Follow

if TYPE_CHECKING:
    from starlette.requests import Request

WhoCalls = Callable[[Ctx], Awaitable[Principal | None]]
"""Who calls, by whatever the other server knows of it; None for somebody whom Deedbox does not know."""


class _Borrowed(Exchange):
    """An exchange of the other server's: what is said goes through its session; its transport decides what a hang-up does."""

    session: Any = None

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far it is, to a caller that gave a token for it."""
        if self.progress_token is not None:
            await self.session.report_progress(progress, total, message)


class DropIn(Extension):
    """The extension: names `io.modelcontextprotocol/tasks`, answers its methods, and takes the calls of Deedbox's tools.

    A tool of the other server with the name of one of ours is not reached by whoever may use ours. Nothing is pushed:
    `subscriptions/listen` stays the other server's.
    """

    identifier = TASKS

    def __init__(self, deps: McpDeps, who: WhoCalls) -> None:
        """`deps` as for our own face; its host and origin checks, its transport and its `who` are not used."""
        # The page that hosts show is a resource of our own face, which is not served here.
        deps = replace(deps, view=None)
        self._who = who
        self._tools = deps.tools
        self._tasks = Tasks(deps)
        self._calls = Calls(deps, self._tasks, Following(Follow(deps.views, deps.wakeup), deps.stopping))
        self._running: set[asyncio.Future[Any]] = set()

    def methods(self) -> Sequence[MethodBinding]:
        """The methods of tasks, in the protocol that defines them."""
        bound = (
            ("tasks/get", TaskParams, self._tasks.get),
            ("tasks/update", UpdateParams, self._tasks.update),
            ("tasks/cancel", TaskParams, self._tasks.cancel),
        )
        versions = frozenset(MODERN_PROTOCOL_VERSIONS)
        return [MethodBinding(name, params, self._known(handler), versions) for name, params, handler in bound]

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Take the call of one of our tools that the caller may use; every other is the other server's."""
        principal = await self._enter(ctx)
        if principal is None or params.name not in await self._names(ctx):
            return await call_next(ctx)
        # Shielded: a caller that hangs up while a job is accepted leaves a job that goes on.
        call = asyncio.ensure_future(self._calls.call(ctx, params))
        self._running.add(call)
        call.add_done_callback(self._running.discard)
        return await asyncio.shield(call)

    async def listing(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Middleware: beside the other server's tools those of ours that the caller may use; no tasks in the older era."""
        result = await call_next(ctx)
        if ctx.method == "initialize":
            return _without_tasks(result)
        if ctx.method != "tools/list" or await self._enter(ctx) is None:
            return result
        ours = [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in (await self._listed(ctx)).tools]
        shown = _plain(result)
        by_name = {_name(one): one for one in [*_objects(shown.get("tools")), *ours]}
        return {**shown, "tools": [by_name[name] for name in sorted(by_name)]}

    def _known(self, handler: Callable[[Ctx, Any], Awaitable[Any]]) -> Callable[[Ctx, Any], Awaitable[Any]]:
        async def handle(ctx: Ctx, params: Any) -> Any:
            if await self._enter(ctx) is None:
                raise MCPError(INVALID_REQUEST, "Deedbox does not know who calls.")
            return await handler(ctx, params)

        return handle

    async def _enter(self, ctx: ServerRequestContext[Any, Any]) -> Principal | None:
        """Find out who calls, and put what our handlers look at where they look for it."""
        request: Request | None = ctx.request
        if request is None:
            return None
        scope = request.scope
        if PRINCIPAL not in scope:
            principal = await self._who(ctx)
            if principal is None or principal.form is not None:
                return None
            token = object_of(object_of(ctx.params).get("_meta")).get("progressToken")
            exchange = _Borrowed(request, ctx.request_id or 0, ctx.method, token if isinstance(token, int | str) else None)
            exchange.session = ctx.session
            scope.update({PRINCIPAL: principal, EXCHANGE: exchange, REFUSED: None})
        found: Principal = scope[PRINCIPAL]
        return found

    async def _listed(self, ctx: Ctx) -> ListToolsResult:
        return await self._calls.listed(ctx, None)

    async def _names(self, ctx: Ctx) -> frozenset[str]:
        return frozenset(tool.name for tool in (await self._listed(ctx)).tools)


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [object_of(one) for one in cast("list[Any]", value)] if isinstance(value, list) else []


def _name(tool: Mapping[str, Any]) -> str:
    return str(tool.get("name"))


def _plain(result: HandlerResult) -> dict[str, Any]:
    if isinstance(result, BaseModel):
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return dict(object_of(result))


def _without_tasks(result: HandlerResult) -> HandlerResult:
    shown: Mapping[str, Any] = _plain(result)
    capabilities = object_of(shown.get("capabilities"))
    extensions = {name: value for name, value in object_of(capabilities.get("extensions")).items() if name != TASKS}
    return {**shown, "capabilities": {**capabilities, "extensions": extensions}}
