"""An agent: a model that calls actions until it has an answer, over checkpoints that outlive the attempt.

The loop is pydantic-ai's. Its model answers from the checkpoints first and asks an endpoint only for what has not been said;
its tools are actions, called through `Story`. No retry is wrapped around it: what fails ends the attempt, and the next attempt
goes on. What a tool has not decided yet ends the turn as pending, because a model that is told "not yet" makes something up.

No failure made here contains the prompt, the answer, an argument, the key or the host.
"""

import asyncio
import inspect
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, cast

from pydantic import BaseModel
from pydantic_ai import Agent, CallDeferred, DeferredToolRequests, ModelRetry, TextOutput
from pydantic_ai.exceptions import AgentRunError, UserError
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, ToolCallPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_ai.toolsets.abstract import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from deedbox.extend.action import Action
from deedbox.extend.agents import AgentLimits, PendingCall, ToolPending
from deedbox.extend.contract import input_schema
from deedbox.model.errors import Problem
from deedbox.model.failure import ActionFailure, Failure
from deedbox.model.fingerprint import jcs, sha256
from deedbox.model.values import storable
from deedbox.store.model_calls import SpentRow
from deedbox.worker.agent_story import AgentRun, Outcome, Story
from deedbox.worker.endpoint import EndpointClient, model_of
from deedbox.worker.model_answer import AnswerError, read_answer
from deedbox.worker.model_call import AWAY, MODEL_REFUSED, larger, repair_request, sendable, spent, unusable, wanted

_ANYTHING = SchemaValidator(core_schema.any_schema())
_RULES = (
    "Tools answer with an envelope. Only status success means that something was done. With status error nothing that you may "
    "count on was done: say so, or correct the arguments that errors names. Never call a tool again that has answered with "
    "retryable false. Never claim what no tool has answered."
)
_EXHAUSTED: dict[str, Any] = {
    "status": "error",
    "job_id": None,
    "object_id": None,
    "human_message": "The budget of calls of this job is used up. Answer with what is known.",
    "retryable": False,
    "audit_id": None,
    "error_code": "BUDGET_EXHAUSTED",
    "errors": [],
    "data": None,
}


async def run_agent(clients: Sequence[EndpointClient], run: AgentRun) -> BaseModel:
    """The agent's validated answer. Raises ToolPending, or ActionFailure."""
    if run.ask.limits.cost is not None and any(client.endpoint.input_price is None for client in clients):
        raise ActionFailure("bug", "no_price", "A limit of cost needs endpoints that have a price.")
    turns = _Turns(clients, run)
    calls = _Calls(run, turns)
    answer = _Answer(run.ask.output)
    agent: Agent[object, Any] = Agent(
        turns,
        output_type=[TextOutput(answer.read), DeferredToolRequests],
        instructions=sendable("\n\n".join(part for part in (run.ask.instructions, _RULES, wanted(run.ask.output)) if part)),
        toolsets=[calls],
        # Wrong names of tools are among the calls that the budget counts; answers are repaired as often as elsewhere.
        retries={"tools": run.ask.limits.tool_calls, "output": clients[0].endpoint.repairs},
        name=run.ask.name,
    )
    found, failure = None, None
    try:
        found = (await agent.run(sendable(run.ask.prompt))).output
    except ActionFailure as error:
        failure = error
    except (AgentRunError, UserError, ValueError, LookupError, TypeError):
        # Here and above nothing is raised again as it came: the library's words quote the answer.
        failure = turns.failed or calls.failed or _of(answer.problems, clients[0].endpoint.repairs)
    finally:
        await calls.end()
    if failure is not None:
        raise failure
    if isinstance(found, DeferredToolRequests):
        raise ToolPending(calls.pending)
    return cast("BaseModel", found)


def _of(problems: Sequence[Problem], repairs: int) -> ActionFailure:
    if problems:
        return _raised(unusable(problems, cut=False, repairs=repairs))
    return ActionFailure("invalid_output", "invalid_output", "The model's answers are none that an agent can go on with.")


def _raised(failure: Failure) -> ActionFailure:
    return ActionFailure(failure.failure_class, failure.code, failure.message, retry_after=failure.retry_after)


@dataclass(slots=True)
class _Answer:
    """Reads the last answer, as tolerantly as that of a plain question."""

    output: type[BaseModel]
    problems: tuple[Problem, ...] = ()

    def read(self, text: str) -> BaseModel:
        """The answer, or what is wrong with it, for the model."""
        try:
            return read_answer(self.output, text)
        except AnswerError as error:
            self.problems = error.problems
            request = repair_request(error.problems)
        raise ModelRetry(request)


class _Turns(WrapperModel):
    """The model: what it has said comes from the checkpoints, and is asked for once."""

    def __init__(self, clients: Sequence[EndpointClient], run: AgentRun) -> None:
        super().__init__(clients[0].model)
        self._clients = clients
        self._ask = run.ask
        self._story = run.story
        self.turn = -1
        self.failed: ActionFailure | None = None

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,  # noqa: ARG002 -- the endpoint has its own
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """The answer of the next turn."""
        self.turn += 1
        said = self._story.said(self.turn)
        if said is not None:
            (response,) = ModelMessagesTypeAdapter.validate_json(f"[{said}]")
            return cast("ModelResponse", response)
        try:
            return await self._asked(messages, model_request_parameters)
        except ActionFailure as failure:
            self.failed = failure
            raise

    async def _asked(self, messages: list[ModelMessage], parameters: ModelRequestParameters) -> ModelResponse:
        limits = self._ask.limits
        before = await self._story.spent(self._clients[0].endpoint.currency)
        if before.canceled:
            # The worker is about to be told; until then nothing more is spent.
            raise ActionFailure("canceled", "canceled", "The job was canceled while it ran.")
        if (what := _over(before, limits)) is not None:
            raise ActionFailure("denied", "budget_exhausted", f"The job's budget of {what} is used up.")
        for client in self._clients[:-1]:
            answer = await self._of_one(client, messages, parameters)
            if isinstance(answer, ModelResponse):
                return answer
            if answer.failure_class not in AWAY:
                raise _raised(answer)
        answer = await self._of_one(self._clients[-1], messages, parameters)
        if isinstance(answer, Failure):
            raise _raised(answer)
        return answer

    async def _of_one(
        self, client: EndpointClient, messages: list[ModelMessage], parameters: ModelRequestParameters
    ) -> ModelResponse | Failure:
        """One endpoint's answer to this turn, kept; what was cut off is asked for again once, with a larger limit."""
        started, limit, sent = time.monotonic(), client.endpoint.max_output_tokens, 0
        tokens_in, tokens_out, model = 0, 0, client.endpoint.model
        while True:
            key = f"{self._story.key(self.turn)}-{sent}"
            response = await client.ask(
                messages, limit=limit, parameters=parameters, listener=self._story.listener(self.turn), key=key
            )
            sent += 1
            failure = response if isinstance(response, Failure) else None
            cut = False
            if isinstance(response, ModelResponse):
                tokens_in += response.usage.input_tokens
                tokens_out += response.usage.output_tokens
                model = model_of(response, model)
                cut = response.finish_reason == "length"
                if response.finish_reason == "content_filter":
                    failure = MODEL_REFUSED
                elif cut and sent == 1 and client.endpoint.repairs:
                    limit = larger(limit, response)
                    continue
                elif cut:
                    failure = unusable((), cut=True, repairs=sent - 1)
            took = round((time.monotonic() - started) * 1000)
            asked_for = 0 if failure is not None else _tool_calls(cast("ModelResponse", response))
            facts = spent(
                client.endpoint,
                model,
                sent,
                tokens_in,
                tokens_out,
                took,
                tool_calls=asked_for,
                repairs=sent - 1,
                code=None if failure is None else failure.code,
            )
            usage = {"input_tokens": tokens_in, "output_tokens": tokens_out, "requests": sent}
            self._story.used({**client.endpoint.identity, "model": model}, usage, repaired=sent > 1)
            if failure is not None:
                await self._story.tell_failed(self.turn, facts)
                return failure
            answer = cast("ModelResponse", response)
            await self._story.keep_said(self.turn, json.dumps(_dumped(answer)), facts)
            return answer


def _dumped(response: ModelResponse) -> Any:
    return storable(json.loads(ModelMessagesTypeAdapter.dump_json([response]))[0])


def _tool_calls(response: ModelResponse) -> int:
    return sum(isinstance(part, ToolCallPart) for part in response.parts)


def _over(before: SpentRow, limits: AgentLimits) -> str | None:
    """Which of the limits is reached, None where there is room for one more request."""
    cost = limits.cost
    reached: Mapping[str, bool] = {
        "requests": before.requests >= limits.requests,
        "input tokens": before.input_tokens >= limits.input_tokens,
        "output tokens": before.output_tokens >= limits.output_tokens,
        # One turn is left to answer with what is known once a call was refused for want of budget.
        "calls of tools": before.tool_calls > limits.tool_calls + _GRACE,
        "money": cost is not None and before.cost >= Decimal(cost),
    }
    return next((what for what, is_reached in reached.items() if is_reached), None)


_GRACE = 4
"""Calls beyond the budget that are answered with BUDGET_EXHAUSTED before the agent is ended."""


@dataclass
class _Calls(AbstractToolset[object]):
    """The tools: actions, each call a job. Equal calls of a turn are one, and a kept outcome is not asked for again."""

    run: AgentRun
    turns: _Turns
    pending: list[PendingCall] = field(default_factory=list[PendingCall])
    failed: ActionFailure | None = None
    _under_way: dict[tuple[int, str], asyncio.Task[Outcome]] = field(
        default_factory=dict[tuple[int, str], "asyncio.Task[Outcome]"]
    )
    _before: dict[int, int] = field(default_factory=dict[int, int])
    _taken: dict[int, int] = field(default_factory=dict[int, int])

    @property
    def id(self) -> str:
        """What the library calls it."""
        return "deedbox"

    @property
    def _story(self) -> Story:
        return self.run.story

    async def get_tools(self, ctx: RunContext[object]) -> dict[str, ToolsetTool[object]]:  # noqa: ARG002 -- the same for every turn
        """The actions, as a model is told of them. Their arguments are validated where all inputs are."""
        return {
            action.name: ToolsetTool(
                toolset=self, tool_def=_definition(action), max_retries=self.run.ask.limits.tool_calls, args_validator=_ANYTHING
            )
            for action in self.run.tools
        }

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: RunContext[object], tool: ToolsetTool[object]) -> Any:  # noqa: ARG002 -- the library's signature
        """The envelope of the call; a pending one ends the turn."""
        turn = self.turns.turn
        digest = sha256(jcs([name, storable(tool_args)])).hex()
        key = (turn, digest)
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(self._outcome(turn, digest, name, tool_args))
        try:
            outcome = await asyncio.shield(task)
        except ActionFailure as failure:
            self.failed = failure
            raise
        if outcome.final:
            return _told(outcome.envelope)
        found = outcome.envelope
        waits = PendingCall(name, found.get("job_id"), str(found.get("human_message") or "It has no outcome yet."))
        if waits not in self.pending:
            self.pending.append(waits)
        raise CallDeferred

    async def end(self) -> None:
        """Stop what is still under way; what it had begun is found again by its key."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _outcome(self, turn: int, digest: str, name: str, arguments: Mapping[str, Any]) -> Outcome:
        kept = self._story.outcome(turn, digest)
        if kept is not None:
            self._taken[turn] = self._taken.get(turn, 0) + 1
            return kept
        if turn not in self._before:
            self._before[turn] = (await self._story.spent("", before_turn=turn)).tool_calls
        number = self._before[turn] + self._taken.get(turn, 0)
        self._taken[turn] = self._taken.get(turn, 0) + 1
        if number >= self.run.ask.limits.tool_calls:
            outcome = Outcome({**_EXHAUSTED, "action": name})
        else:
            outcome = await self._story.call(turn, digest, name, arguments)
        if outcome.final:
            await self._story.keep_outcome(turn, digest, outcome)
        return outcome


_ORDER = ("status", "action", "error_code", "human_message", "retryable", "errors", "data", "object_id", "job_id", "audit_id")


def _told(envelope: Mapping[str, Any]) -> dict[str, Any]:
    """The envelope as the model is told it: the same text in every attempt, wherever it was kept meanwhile."""
    ordered = json.loads(json.dumps(envelope, sort_keys=True))
    return {name: ordered.get(name) for name in _ORDER}


def _definition(action: Action) -> ToolDefinition:
    return ToolDefinition(
        name=action.name,
        description=inspect.getdoc(action.handler) or action.title,
        parameters_json_schema=dict(input_schema(action.input_model)),
        strict=False,
    )
