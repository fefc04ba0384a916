"""How an attempt asks models: what it is lent for it, what is shown while an answer comes, and what is kept of what it took."""

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import BaseModel

from deedbox import telemetry
from deedbox.extend.action import Action
from deedbox.extend.agents import AgentAsk
from deedbox.extend.sensitive import sensitive_paths
from deedbox.model.failure import ActionFailure
from deedbox.model.fingerprint import sha256
from deedbox.model.sensitive import HIDDEN
from deedbox.store import model_calls
from deedbox.store.ids import IdSource
from deedbox.store.model_calls import ModelCallRow
from deedbox.store.pool import Connection
from deedbox.worker.agent_story import AgentRun, Calls, Story
from deedbox.worker.held import Held
from deedbox.worker.model_answer import read_draft
from deedbox.worker.model_result import ModelCall, ModelFailure, Spent, Terms


class Store(Protocol):
    """A connection for one call of the handler; that the database is away is a failure of class lost."""

    def __call__(self, *, whole: bool = False) -> AbstractAsyncContextManager[Connection]:
        """Each statement a transaction of its own, or with `whole` all of them one."""
        ...


class Models(Protocol):
    """Asks the configured models."""

    async def call(
        self, output: type[BaseModel], prompt: str, *, instructions: str | None = None, terms: Terms = ...
    ) -> ModelCall:
        """A validated output, or ActionFailure."""
        ...

    async def agent(self, run: AgentRun) -> BaseModel:
        """A validated output from a model that calls tools, or ActionFailure."""
        ...


@dataclass(slots=True)
class Journal:
    """What the attempt used: kept with it."""

    models: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    usage: dict[str, int] = field(default_factory=dict[str, int])
    repairs: int = 0
    validation: str | None = None
    prompt_version: str | None = None
    """Of the last question that named one."""

    def kept(self) -> dict[str, Any]:
        """What is stored of it with the attempt; nothing where nothing was used."""
        if not (self.models or self.usage or self.repairs or self.validation):
            return {}
        every = {
            "model": self.models,
            "prompt_version": self.prompt_version,
            "validation": self.validation,
            "usage": self.usage,
            "repairs": self.repairs,
        }
        return {name: value for name, value in every.items() if value}

    def used(
        self,
        identity: Mapping[str, Any],
        repairs: int,
        usage: Mapping[str, int],
        validation: str,
        prompt_version: str | None = None,
    ) -> None:
        """Add what one question used."""
        self.models.append({**identity} if prompt_version is None else {**identity, "prompt_version": prompt_version})
        self.prompt_version = prompt_version or self.prompt_version
        self.repairs += repairs
        self.validation = validation
        for name, count in usage.items():
            self.usage[name] = self.usage.get(name, 0) + count


@dataclass(frozen=True, slots=True)
class Lending:
    """What a process lends to its attempts for asking models; `outside` is for the time in which one waits for other jobs."""

    models: Models | None = None
    actions: Mapping[str, Action] = field(default_factory=dict[str, Action])
    calls: Calls | None = None
    outside: Callable[[], AbstractContextManager[None]] | None = None


@dataclass(slots=True)
class Asking:
    """Asks models for one attempt. `event` and `shown` are the attempt's own: fenced, and without what is sensitive."""

    lent: Lending
    held: Held
    ids: IdSource
    journal: Journal
    store: Store
    event: Callable[[str, dict[str, Any]], Awaitable[None]]
    shown: Callable[[Any, type[BaseModel]], Any]
    _asked: int = 0
    _agents: set[str] = field(default_factory=set[str])

    async def model(
        self,
        output: type[BaseModel],
        prompt: str,
        instructions: str | None,
        *,
        endpoint: str | None,
        prompt_version: str | None,
        draft: bool,
    ) -> BaseModel:
        """A validated value. Raises ActionFailure."""
        models = self._models()
        number, self._asked = self._asked, self._asked + 1
        schema = json.dumps(output.model_json_schema(), sort_keys=True)
        texts = [str(self.held.claimed.job_id), schema, prompt, instructions or ""]
        terms = Terms(
            endpoint=endpoint,
            prompt_version=prompt_version,
            listener=self.drafts(f"model {number}", output) if draft else None,
            told=lambda spent: self.told("model", number, spent),
            key=sha256(json.dumps(texts).encode()).hex()[:32],
        )
        try:
            call = await models.call(output, prompt, instructions=instructions, terms=terms)
        except ModelFailure as failure:
            self.journal.used(failure.identity, failure.repairs, failure.usage, failure.validation, prompt_version)
            raise
        self.journal.used(call.identity, call.repairs, call.usage, call.validation, prompt_version)
        telemetry.log_payload("model", "prompt", {"prompt": prompt, "instructions": instructions})
        telemetry.log_payload("model", "answer", call.output.model_dump(mode="json"), sensitive_paths(output))
        return call.output

    async def agent(self, ask: AgentAsk) -> BaseModel:
        """A validated value from a model that calls tools. Raises ActionFailure."""
        models = self._models()
        if self.lent.calls is None:
            raise ActionFailure("bug", "no_tools", "This process cannot call actions for an agent.")
        for name in ask.tools:
            if name not in self.lent.actions or name == self.held.claimed.action:
                raise ActionFailure("bug", "unknown_tool", f"{name!r} is no action that this agent could call.")
            if (why := self.lent.actions[name].offer.withheld) is not None:
                raise ActionFailure("bug", "unknown_tool", f"{name!r} is no tool: {why}.")
        if ask.name in self._agents:
            raise ActionFailure("bug", "step_under_way", f"The agent {ask.name!r} is under way in this attempt already.")
        self._agents.add(ask.name)
        try:
            story = Story(self, ask, self.lent.calls)
            await story.open()
            tools = [self.lent.actions[name] for name in ask.tools]
            telemetry.log_payload("agent", "prompt", {"prompt": ask.prompt, "instructions": ask.instructions})
            answer = await models.agent(AgentRun(ask, tools, story))
            telemetry.log_payload("agent", "answer", answer.model_dump(mode="json"), sensitive_paths(ask.output))
            return answer
        finally:
            self._agents.discard(ask.name)

    async def told(self, part: str, turn: int, spent: Spent) -> None:
        """Keep what a question took."""
        async with self.store() as connection:
            await model_calls.journal(connection, self.row(part, turn, spent))

    def row(self, part: str, turn: int, spent: Spent) -> ModelCallRow:
        """The journal's row for it; it is counted in the metrics as well."""
        telemetry.MODEL_TOKENS.labels(spent.endpoint, "in").inc(spent.input_tokens)
        telemetry.MODEL_TOKENS.labels(spent.endpoint, "out").inc(spent.output_tokens)
        if spent.cost is not None and spent.currency is not None:
            telemetry.MODEL_COST.labels(spent.endpoint, spent.currency).inc(float(spent.cost))
        claimed = self.held.claimed
        return ModelCallRow(
            call_id=self.ids.new(),
            job_id=claimed.job_id,
            attempt_id=claimed.attempt_id,
            tenant=claimed.tenant,
            action=claimed.action,
            part=part,
            turn=turn,
            endpoint=spent.endpoint,
            model=spent.model,
            requests=spent.requests,
            input_tokens=spent.input_tokens,
            output_tokens=spent.output_tokens,
            duration_ms=spent.duration_ms,
            tool_calls=spent.tool_calls,
            repairs=spent.repairs,
            cost=spent.cost,
            currency=spent.currency,
            code=spent.code,
        )

    def drafts(self, stream: str, output: type[BaseModel]) -> Callable[[str], Awaitable[None]]:
        """Shows an answer while it comes. What an earlier attempt has shown of it is not shown again."""
        shown_to: int | None = None
        last: Any = None

        async def listen(text: str) -> None:
            nonlocal shown_to, last
            if shown_to is None:
                shown_to = await self._shown_before(stream)
            value = read_draft(text, whole_texts=bool(HIDDEN.get()))
            if value is None or value == last or len(text) <= shown_to:
                return
            last, shown_to = value, len(text)
            shown = self.shown(value, output)
            await self.event("job.partial", {"draft": True, "value": shown, "stream": stream, "size": len(text)})

        return listen

    async def _shown_before(self, stream: str) -> int:
        if self.held.claimed.attempt == 1:
            return 0
        async with self.store() as connection:
            return await model_calls.drafted(connection, self.held.claimed.job_id, stream)

    def _models(self) -> Models:
        if self.lent.models is None:
            raise ActionFailure("bug", "no_model", "No model endpoint is configured.")
        return self.lent.models
