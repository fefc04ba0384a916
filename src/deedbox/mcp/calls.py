"""Listing and calling tools: each action that the caller may run, the tools beside them, and what was added."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    Tool,
    ToolAnnotations,
)

from deedbox.mcp import keys
from deedbox.mcp.context import (
    REFUSED,
    Ctx,
    Result,
    exchange_of,
    is_modern,
    note_job,
    principal_of,
    request_of,
    takes_tasks,
)
from deedbox.mcp.deps import QUICK_S, QUICK_TASK_S, McpDeps
from deedbox.mcp.following import Following
from deedbox.mcp.own_tools import OwnTools
from deedbox.mcp.results import job_id_of, result_of
from deedbox.mcp.tasks import Tasks
from deedbox.mcp.wire import object_of
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.operate import tools as contract
from deedbox.operate.job_view import JobView
from deedbox.operate.tools import ENVELOPE_SCHEMA, Envelope, ToolCall

_STATE = "job:"
_ASK_S = 0.5


class Calls:
    """The handlers of tools."""

    def __init__(self, deps: McpDeps, tasks: Tasks, following: Following) -> None:
        """A call of somebody who takes tasks becomes one."""
        self._deps = deps
        self._tasks = tasks
        self._following = following
        self._own = {one.tool.name: one for one in OwnTools(deps, following).all()}
        self._added = {one.tool.name: one for one in deps.additions}

    async def listed(self, ctx: Ctx, params: PaginatedRequestParams | None) -> ListToolsResult:
        """What the caller may use, sorted by name. Asks no database; another caller may be shown others."""
        del params
        who = principal_of(ctx)
        tools = [
            *(self._shown(tool) for tool in self._deps.tools.listed(who)),
            *(one.tool for one in self._own.values() if one.may(who)),
            *(one.tool for one in self._added.values()),
        ]
        return ListToolsResult(tools=sorted(tools, key=lambda tool: tool.name))

    def _shown(self, tool: contract.Tool) -> Tool:
        hints = tool.annotations
        view = self._deps.view
        return Tool(
            name=tool.name,
            title=tool.title,
            description=tool.description,
            input_schema=dict(tool.input_schema),
            output_schema=dict(ENVELOPE_SCHEMA),
            annotations=ToolAnnotations(
                read_only_hint=hints["read_only"],
                destructive_hint=hints["destructive"],
                idempotent_hint=hints["idempotent"],
                open_world_hint=hints["open_world"],
            ),
            _meta={
                "deedbox/version": tool.version,
                **({} if view is None else {"ui": {"resourceUri": view.uri, "visibility": ["model", "app"]}}),
            },
        )

    async def call(self, ctx: Ctx, params: CallToolRequestParams) -> Result:
        """Call a tool. What goes wrong with it is an answer, never an error of the protocol."""
        who = principal_of(ctx)
        refused: DeedboxError | None = request_of(ctx).scope.get(REFUSED)
        arguments: Any = (ctx.params or {}).get("arguments")
        arguments = {} if arguments is None else arguments
        if refused is not None:
            return result_of(await self._deps.tools.refuse(who, ToolCall(params.name, {}, source="mcp"), refused), fault=True)
        added = self._added.get(params.name)
        if added is not None:
            return await added.call(ctx, params)
        own = self._own.get(params.name)
        if own is not None and own.may(who):
            return await own.call(ctx, arguments)
        return await self._action(ctx, params, arguments)

    async def _action(self, ctx: Ctx, params: CallToolRequestParams, arguments: Any) -> Result:
        who = principal_of(ctx)
        if is_modern(ctx) and params.request_state is not None:
            return await self._resumed(ctx, params)
        exchange = exchange_of(ctx)
        try:
            call = self._call_of(ctx, params.name, arguments)
        except DeedboxError as error:
            refused = ToolCall(params.name, arguments, source="mcp")
            return result_of(await self._deps.tools.refuse(who, refused, error), fault=True)
        # Whoever hangs up from here on leaves a job that goes on.
        exchange.keeps_on = True
        envelope = await self._accepted(ctx, who, call)
        note_job(ctx, envelope.job_id)
        if envelope.job_id is None:
            return result_of(envelope, fault=not self._offers(who, params.name))
        if takes_tasks(ctx) and envelope.status != "success":
            return await self._tasks.created(ctx, job_id_of(envelope.job_id))
        return await self._with_pages(ctx, envelope)

    def _call_of(self, ctx: Ctx, name: str, arguments: Any) -> ToolCall:
        return ToolCall(
            name,
            arguments,
            key=keys.key_of(ctx),
            source="mcp",
            wait_s=0.0 if exchange_of(ctx).progress_token is not None else self._wait_s(ctx, name),
            caller_run=keys.caller_run(ctx),
            traceparent=keys.traceparent(ctx),
            parent_job_id=keys.parent_of(ctx),
            version=keys.version_of(ctx),
        )

    def _wait_s(self, ctx: Ctx, name: str) -> float:
        return self._deps.tools.wait_s(name, QUICK_TASK_S if takes_tasks(ctx) else QUICK_S)

    async def _accepted(self, ctx: Ctx, who: Principal, call: ToolCall) -> Envelope:
        """The call's answer once it is committed and was waited for a little; with a token, its progress comes first."""
        envelope = await self._deps.tools.call(who, call, hurry=self._deps.stopping)
        if call.wait_s or envelope.job_id is None or envelope.status != "pending":
            return envelope
        wait_s = self._wait_s(ctx, call.action)
        if wait_s <= 0:
            return envelope
        async with self._following.told(ctx, envelope.job_id) as telling:
            later = await self._deps.tools.outcome(who, envelope.job_id, wait_s=wait_s)
            if later.status != "pending":
                await telling.rest()
        # The journal knows this call by the id of its first answer.
        return replace(later, audit_id=envelope.audit_id)

    def _offers(self, who: Principal, name: str) -> bool:
        return any(tool.name == name for tool in self._deps.tools.listed(who))

    # A person has to look at something -------------------------------------------------------------------------------------

    async def _with_pages(self, ctx: Ctx, envelope: Envelope) -> Result:
        """The answer; where it waits for a person and the client can open a page, the client is asked to first."""
        view = await self._waits(principal_of(ctx), envelope)
        wanted = {} if view is None else await self._deps.asks.wanted(ctx, view)
        if view is None or not wanted:
            return result_of(envelope)
        if is_modern(ctx):
            return InputRequiredResult.model_validate(
                {"resultType": "input_required", "inputRequests": wanted, "requestState": f"{_STATE}{view.job_id}"}
            )
        if exchange_of(ctx).can_send_request:
            await self._ask(ctx, view, wanted)
        return result_of(envelope)

    async def _waits(self, who: Principal, envelope: Envelope) -> JobView | None:
        if envelope.status != "pending" or envelope.state != "awaiting_human" or envelope.job_id is None:
            return None
        return await self._deps.views.job(who, job_id_of(envelope.job_id))

    async def _ask(self, ctx: Ctx, view: JobView, wanted: Mapping[str, Mapping[str, Any]]) -> None:
        """Ask on the call's own stream. The answer to the call does not wait for a person: it says that one is asked."""

        async def one(key: str, request: Mapping[str, Any]) -> tuple[str, Any]:
            try:
                return key, await exchange_of(ctx).send_raw_request(request["method"], request["params"], {"timeout": _ASK_S})
            except MCPError:
                return key, None

        answers = dict(await asyncio.gather(*(one(key, request) for key, request in wanted.items())))
        await self._deps.asks.answered(ctx, view, {key: answer for key, answer in answers.items() if answer is not None})

    async def _resumed(self, ctx: Ctx, params: CallToolRequestParams) -> Result:
        """The same call again, with what the client answered: the job is looked for, and nothing is started."""
        who, state = principal_of(ctx), str(params.request_state)
        view = await self._deps.views.job(who, job_id_of(state.removeprefix(_STATE))) if state.startswith(_STATE) else None
        if view is None or view.action != params.name:
            raise MCPError(INVALID_PARAMS, "Invalid or expired requestState")
        note_job(ctx, str(view.job_id))
        await self._deps.asks.answered(ctx, view, object_of((ctx.params or {}).get("inputResponses")))
        if takes_tasks(ctx) and not view.is_over:
            return await self._tasks.created(ctx, view.job_id)
        return result_of(await self._deps.tools.outcome(who, view.job_id, wait_s=QUICK_S))
