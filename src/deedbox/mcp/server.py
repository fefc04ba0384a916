"""The SDK's server with our handlers: what it says of itself, and what answers which method."""

from typing import Any

from mcp.server import Server
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp_types import (
    CallToolRequestParams,
    DiscoverResult,
    PromptsCapability,
    RequestParams,
    ResourcesCapability,
    ServerCapabilities,
    ToolsCapability,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from deedbox.mcp.calls import Calls
from deedbox.mcp.context import TASKS, UI, Ctx, principal_of
from deedbox.mcp.deps import McpDeps
from deedbox.mcp.following import Following
from deedbox.mcp.listen import Listening
from deedbox.mcp.resources import Resources
from deedbox.mcp.tasks import TaskParams, Tasks, UpdateParams
from deedbox.mcp.wire import object_of
from deedbox.operate.follow import Follow

_LIST_MS = 60_000
_STATIC_MS = 3_600_000
_STATE_S = 600.0
INSTRUCTIONS = (
    "Each tool starts one job and answers within two seconds: with the result when it is quick, else with `status` `pending`"
    " and a `job_id`. Call get_job with it until the status is another; calling the tool again is not needed. What is pending"
    " may wait for a person, who decides on a page of their own: never decide for them. A failure is an answer with `status`"
    " `error`, an `error_code`, and `retryable`."
)


def make_server(deps: McpDeps) -> "Server[Any]":
    """The server over its dependencies; `Server.add_request_handler` takes further methods before it serves."""
    following = Following(Follow(deps.views, deps.wakeup), deps.stopping)
    tasks = Tasks(deps)
    calls = Calls(deps, tasks, following)
    resources = Resources(deps)
    listening = Listening(deps, tasks)
    server: Server[Any] = Server(
        deps.name,
        version=deps.version,
        title="Deedbox",
        website_url=deps.base_url,
        instructions=INSTRUCTIONS,
        cache_hints={
            "server/discover": CacheHint(_STATIC_MS, "private"),
            "tools/list": CacheHint(_LIST_MS, "private"),
            "resources/list": CacheHint(_STATIC_MS, "private"),
            "resources/templates/list": CacheHint(_STATIC_MS, "private"),
            "resources/read": CacheHint(0, "private"),
        },
        on_list_tools=calls.listed,
        on_list_resources=resources.listed,
        on_list_resource_templates=resources.templates,
        on_read_resource=resources.read,
        on_subscriptions_listen=listening.listen,
    )
    server.extensions |= {TASKS: {}, UI: {}}
    # Not among the others: it may also answer with a task, for which the SDK has no type.
    server.add_request_handler("tools/call", CallToolRequestParams, calls.call)
    server.add_request_handler("tasks/get", TaskParams, tasks.get)
    server.add_request_handler("tasks/update", UpdateParams, tasks.update)
    server.add_request_handler("tasks/cancel", TaskParams, tasks.cancel)
    server.middleware.append(_HandshakeWithoutTasks())
    server.middleware.append(
        RequestStateBoundary(
            RequestStateSecurity(keys=list(deps.keys), ttl=_STATE_S, bind_principal=_bound), default_audience=deps.name
        )
    )

    async def discover(ctx: Ctx, params: RequestParams) -> DiscoverResult:
        del params
        known = server.get_capabilities(protocol_version=ctx.protocol_version)
        return DiscoverResult(
            supported_versions=list(MODERN_PROTOCOL_VERSIONS), capabilities=_true(known), instructions=INSTRUCTIONS
        )

    server.add_request_handler("server/discover", RequestParams, discover)
    return server


def _true(known: ServerCapabilities) -> ServerCapabilities:
    """What is served says that its lists change while a client looks at them only where they do: ours do not."""
    return known.model_copy(
        update={
            "tools": ToolsCapability(list_changed=False),
            "resources": ResourcesCapability(subscribe=True, list_changed=False),
            **({} if known.prompts is None else {"prompts": PromptsCapability(list_changed=False)}),
        }
    )


def _bound(ctx: Ctx) -> str:
    return principal_of(ctx).principal_id


class _HandshakeWithoutTasks:
    """Tasks are not defined in the older era, so `initialize` does not name them."""

    async def __call__(self, ctx: "ServerRequestContext[Any, Any]", call_next: CallNext) -> HandlerResult:
        """Pass everything on, and take tasks out of the handshake's answer."""
        result = await call_next(ctx)
        if ctx.method != "initialize" or not isinstance(result, dict):
            return result
        capabilities = object_of(result.get("capabilities"))
        extensions = {name: value for name, value in object_of(capabilities.get("extensions")).items() if name != TASKS}
        return {**result, "capabilities": {**capabilities, "extensions": extensions}}
