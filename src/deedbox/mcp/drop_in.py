"""What our own face offers on an `MCPServer` that somebody has already: one extension of the SDK's, and one middleware.

    tools = DropIn(deps, who)
    server = MCPServer("shop", extensions=[tools], middleware=[tools.listing])

The other server keeps its transport, its own tools and its way of asking who is there. What is called of ours takes the same
road as at our own face: accepted under its key, committed, run by a worker, followed by its job's id or as a task.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_REQUEST,
    CallToolRequestParams,
    ListToolsResult,
    ReadResourceRequestParams,
    SubscriptionsListenRequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from deedbox.mcp.calls import Calls
from deedbox.mcp.context import EXCHANGE, PRINCIPAL, REFUSED, TASKS, UI, Ctx
from deedbox.mcp.deps import McpDeps
from deedbox.mcp.exchange import Exchange
from deedbox.mcp.following import Following
from deedbox.mcp.listen import Listening
from deedbox.mcp.resources import Resources, job_of
from deedbox.mcp.tasks import TaskParams, Tasks, UpdateParams
from deedbox.mcp.wire import object_of
from deedbox.model.identity import Principal
from deedbox.operate.follow import Follow

WhoCalls = Callable[[Ctx], Awaitable[Principal | None]]
"""Who calls, by whatever the other server knows of it; None for somebody whom Deedbox does not know."""


_CTX = "deedbox.mcp.ctx"
"""Under this name a look for whether the caller's key is still good finds what the other server knows of the caller."""


class _Said(BaseModel):
    """A notification of whatever name: the SDK's session has types for its own alone."""

    method: str
    params: dict[str, Any] | None = None


class _Borrowed(Exchange):
    """An exchange of the other server's: what is said goes through its session; its transport decides what a hang-up does."""

    session: Any = None

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Tell the caller something on this request's stream."""
        del opts
        said = _Said(method=method, params=None if params is None else dict(params))
        await self.session.send_notification(said, related_request_id=self.request_id)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far it is, to a caller that gave a token for it."""
        if self.progress_token is not None:
            await self.session.report_progress(progress, total, message)


class DropIn(Extension):
    """The extension: names `io.modelcontextprotocol/tasks`, answers its methods, and takes the calls of Deedbox's tools.

    A tool of the other server with the name of one of ours is not reached by whoever may use ours. A subscription that names
    a task or a job is ours alone, and says so in what it acknowledges: for news of the other server a client opens another.
    """

    identifier = TASKS

    def __init__(self, deps: McpDeps, who: WhoCalls) -> None:
        """`deps` as for our own face; its host and origin checks, its transport and its `who` are not used."""
        deps = replace(deps, who=self._still)
        self._who = who
        self._view = deps.view
        self._tasks = Tasks(deps)
        self._resources = Resources(deps)
        self._subscriptions = Listening(deps, self._tasks)
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
        """Middleware: what the other server lists and offers, with ours beside it as far as the caller may use it."""
        params = object_of(ctx.params)
        match ctx.method:
            case "initialize" | "server/discover":
                return self._extended(await call_next(ctx), tasks=ctx.method != "initialize")
            case "resources/read" if self._is_ours(str(params.get("uri"))) and await self._enter(ctx) is not None:
                return await self._resources.read(ctx, ReadResourceRequestParams.model_validate(params))
            case "subscriptions/listen" if self._names_ours(params) and await self._enter(ctx) is not None:
                return await self._subscriptions.listen(ctx, SubscriptionsListenRequestParams.model_validate(params))
            case "tools/list" | "resources/list" | "resources/templates/list":
                return await self._beside(ctx, await call_next(ctx))
            case _:
                return await call_next(ctx)

    async def _beside(self, ctx: ServerRequestContext[Any, Any], result: HandlerResult) -> HandlerResult:
        if await self._enter(ctx) is None:
            return result
        if ctx.method == "tools/list":
            shown, member, name = await self._listed(ctx), "tools", "name"
        elif ctx.method == "resources/list":
            shown, member, name = await self._resources.listed(ctx, None), "resources", "uri"
        else:
            shown, member, name = await self._resources.templates(ctx, None), "resourceTemplates", "uriTemplate"
        theirs = _plain(result)
        by_name = {str(one.get(name)): one for one in [*_objects(theirs.get(member)), *_objects(_plain(shown).get(member))]}
        return {**theirs, member: [by_name[key] for key in sorted(by_name)]}

    def _is_ours(self, uri: str) -> bool:
        return job_of(uri) is not None or (self._view is not None and uri == self._view.uri)

    def _names_ours(self, params: Mapping[str, Any]) -> bool:
        asked = object_of(params.get("notifications"))
        uris = asked.get("resourceSubscriptions")
        return "taskIds" in asked or (isinstance(uris, list) and any(job_of(str(uri)) for uri in cast("list[Any]", uris)))

    def _extended(self, result: HandlerResult, *, tasks: bool) -> HandlerResult:
        """What the server says of itself: that it has the page, and tasks where the protocol defines them."""
        shown: Mapping[str, Any] = _plain(result)
        capabilities = object_of(shown.get("capabilities"))
        extensions = dict(object_of(capabilities.get("extensions")))
        if not tasks:
            extensions.pop(TASKS, None)
        if self._view is not None:
            extensions[UI] = {}
        return {**shown, "capabilities": {**capabilities, "extensions": extensions}}

    async def _still(self, request: Request) -> Principal | Response:
        """Who calls, asked again while a stream goes on."""
        return await self._who(request.scope[_CTX]) or Response(status_code=401)

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
            scope.update({PRINCIPAL: principal, EXCHANGE: exchange, REFUSED: None, _CTX: ctx})
        found: Principal = scope[PRINCIPAL]
        return found

    async def _listed(self, ctx: Ctx) -> ListToolsResult:
        return await self._calls.listed(ctx, None)

    async def _names(self, ctx: Ctx) -> frozenset[str]:
        return frozenset(tool.name for tool in (await self._listed(ctx)).tools)


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [object_of(one) for one in cast("list[Any]", value)] if isinstance(value, list) else []


def _plain(result: HandlerResult) -> dict[str, Any]:
    if isinstance(result, BaseModel):
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return dict(object_of(result))
