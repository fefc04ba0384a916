"""Running one attempt: the handler, what it is lent, and what its end means."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, cast
from uuid import UUID

from pydantic import BaseModel, ValidationError

from deedbox import telemetry
from deedbox.extend.action import Action
from deedbox.extend.agents import AgentAsk
from deedbox.extend.connector import Connector
from deedbox.extend.context import Context, EffectPlan
from deedbox.extend.outcome import Abstain
from deedbox.extend.sensitive import sensitive_paths
from deedbox.extend.sync_context import Bridge
from deedbox.gate.judge import judge
from deedbox.model.failure import ActionFailure, Decision, Failure, FailureClass, classify, decide
from deedbox.model.fingerprint import jcs, sha256
from deedbox.model.sensitive import HIDDEN, Path, masked, texts_at
from deedbox.model.values import short_message, storable
from deedbox.store import alert, queue
from deedbox.store.ids import IdSource
from deedbox.store.pg_errors import UNREACHABLE
from deedbox.store.pool import Connection, Pool
from deedbox.store.tell import tell
from deedbox.store.transaction import autocommit, transaction
from deedbox.worker.agent_story import PREFIX
from deedbox.worker.asking import Asking, Journal, Lending
from deedbox.worker.held import Held, lease_lost
from deedbox.worker.threads import in_thread

PROGRESS_EVERY_S = 0.5


class Reader(Protocol):
    """Reads JSON from a configured target."""

    async def read(self, target_name: str, path: str, deadline_s: float) -> Any:
        """The answer, or ActionFailure."""
        ...


@dataclass(slots=True)
class Outcome:
    """How an attempt ended, before anyone agreed to it."""

    held: Held
    action: Action
    output: Any = None
    plans: tuple[EffectPlan, ...] = ()
    abstained: str | None = None
    failure: Failure | None = None
    journal: Journal = field(default_factory=Journal)
    wait_s: float | None = None
    repeated: bool = False
    """An earlier attempt of this round was tried again for the same class of failure."""

    @property
    def decision(self) -> Decision:
        """What its failure makes of the job, by the matrix and by what the action says. Only where there is a failure."""
        if self.failure is None:
            raise ValueError("an attempt that did not fail needs no decision")
        return decide(self.failure.failure_class, on_failure=self.action.on_failure, repeated=self.repeated)

    @property
    def completes(self) -> bool:
        """Whether the attempt ended well and nothing is left to decide or to send."""
        return self.failure is None and judge(self.action, self.plans, self.abstained) == "complete"

    @property
    def ruled(self) -> bool:
        """Whether the attempt ended well and rules decide about what it proposes."""
        return self.failure is None and judge(self.action, self.plans, self.abstained) == "weigh"


def _said(message: str) -> str:
    """A sentence as it is kept and shown: without secrets and sensitive values."""
    return short_message(telemetry.clean(message))


def shown_of(value: Any, action: Action | None) -> Any:
    """A result in the making as everybody may see it, and as any store can keep it."""
    if isinstance(value, BaseModel):
        value, paths = value.model_dump(mode="json"), sensitive_paths(type(value))
    else:
        paths = action.sensitive_output if action is not None else ()
    return _texts_cleaned(masked(storable(value), paths))


def draft_of(value: Any, output: type[BaseModel]) -> Any:
    """What an answer in the making holds so far, as everybody may see it."""
    return _texts_cleaned(masked(storable(value), sensitive_paths(output)))


def _texts_cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return telemetry.clean(value)
    if isinstance(value, dict):
        return {name: _texts_cleaned(item) for name, item in cast("dict[str, Any]", value).items()}
    return [_texts_cleaned(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


@dataclass(slots=True)
class Port:
    """What one attempt is lent; see deedbox.extend.context.AttemptPort."""

    pool: Pool
    ids: IdSource
    held: Held
    reader: Reader | None
    lent: Lending
    journal: Journal
    read_timeout_s: float = 15.0
    action: Action | None = None
    """Whose output says what of a partial result is sensitive."""
    _last_progress: float = -1e9
    _last_step: int | None = None
    _steps: set[str] = field(default_factory=set[str])
    _asking: Asking | None = None

    @property
    def has_model(self) -> bool:
        """Whether a model endpoint is configured."""
        return self.lent.models is not None

    @asynccontextmanager
    async def _store(self, *, whole: bool = False) -> AsyncGenerator[Connection]:
        """The store for one call of the handler. That it is away is no bug of the handler's: the attempt backs off."""
        try:
            async with (transaction if whole else autocommit)(self.pool) as connection:
                yield connection
        except UNREACHABLE as error:
            raise ActionFailure("lost", "store_away", "The database was away while the attempt ran.") from error

    async def document(self, document_id: UUID) -> bytes:
        """The bytes of a document the job carries."""
        async with self._store() as connection:
            content = await queue.read_document(connection, self.held.claimed.job_id, document_id)
        if content is None:
            raise ActionFailure("bug", "unknown_document", "The job carries no such document.")
        return content

    async def read(self, target: str, path: str) -> Any:
        """GET JSON from a configured target."""
        if self.reader is None:
            raise ActionFailure("bug", "no_targets", f"No target {target!r} is configured.")
        return await self.reader.read(target, path, self.read_timeout_s)

    async def step(self, name: str, input_value: Any, run: Callable[[], Awaitable[Any]]) -> Any:
        """Run once, keep the result, give it to later attempts."""
        if name.startswith(PREFIX):
            raise ActionFailure("bug", "bad_step_name", f"The names of steps do not begin with {PREFIX!r}.")
        if name in self._steps:
            raise ActionFailure("bug", "step_under_way", f"The step {name!r} is under way in this attempt already.")
        given = input_value.model_dump(mode="json") if isinstance(input_value, BaseModel) else input_value
        digest = sha256(jcs(given))
        self._steps.add(name)
        try:
            return await self._step(name, digest, run)
        finally:
            self._steps.discard(name)

    async def _step(self, name: str, digest: bytes, run: Callable[[], Awaitable[Any]]) -> Any:
        async with self._store() as connection:
            kept = await queue.read_step(connection, self.held.claimed.job_id, name)
        if kept is not None:
            if kept[0] != digest:
                raise ActionFailure("bug", "step_input_changed", f"The step {name!r} was stored for another input.")
            return _restore(json.loads(kept[1]))
        value = await run()
        value_json = json.dumps(storable(_keep(value)))
        async with self._store() as connection:
            stored = await queue.write_step(connection, self.held.fence, name=name, input_sha256=digest, value_json=value_json)
        if not stored:
            raise lease_lost()
        return value

    async def retried_before(self, failure_class: FailureClass) -> bool:
        """Whether an earlier attempt of this round was tried again for the same class of failure."""
        claimed = self.held.claimed
        async with self._store() as connection:
            return await alert.retried_before(connection, claimed.job_id, claimed.round, failure_class)

    async def progress(self, step: int, total_steps: int, message: str) -> None:
        """Report how far it is: at most two a second, and no step twice, also none that an earlier attempt reported."""
        if self._last_step is None:
            self._last_step = await self._reported()
        now = time.monotonic()
        if step <= self._last_step or (now - self._last_progress < PROGRESS_EVERY_S and step != total_steps):
            telemetry.log("worker").debug("progress_dropped", step=step, total_steps=total_steps)
            return
        self._last_step, self._last_progress = step, now
        await self._event("job.progress", {"step": step, "total_steps": total_steps, "message": _said(message)})

    async def _reported(self) -> int:
        if self.held.claimed.attempt == 1:
            return -1
        async with self._store() as connection:
            return await queue.last_step(connection, self.held.claimed.job_id)

    async def partial(self, value: Any) -> None:
        """Report a result in the making."""
        await self._event("job.partial", {"draft": True, "value": shown_of(value, self.action)})

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
        """Ask a configured model for a validated value."""
        return await self._asks().model(
            output, prompt, instructions, endpoint=endpoint, prompt_version=prompt_version, draft=draft
        )

    async def agent(self, ask: AgentAsk) -> BaseModel:
        """Let a model call tools until it has a validated value."""
        return await self._asks().agent(ask)

    def _asks(self) -> Asking:
        if self._asking is None:
            self._asking = Asking(self.lent, self.held, self.ids, self.journal, self._store, self._event, draft_of)
        return self._asking

    async def _event(self, event_type: str, payload: dict[str, Any]) -> None:
        async with self._store() as connection:
            kept = await queue.add_event(
                connection,
                self.held.fence,
                event_id=self.ids.new(),
                event_type=event_type,
                payload_json=json.dumps(payload, default=str),
            )
        if not kept:
            raise lease_lost()
        await tell(self.pool, jobs=[self.held.claimed.job_id])


def _keep(value: Any) -> Any:
    if not isinstance(value, BaseModel):
        return {"value": value}
    name = f"{type(value).__module__}:{type(value).__qualname__}"
    if _type_called(name) is not type(value):
        # Better at the first attempt than at the second, which could not read it.
        raise ActionFailure("bug", "step_type_unknown", f"A step cannot keep a {type(value).__name__}: it is no module's own.")
    return {"model": name, "value": value.model_dump(mode="json")}


def _restore(kept: dict[str, Any]) -> Any:
    name = kept.get("model")
    if name is None:
        return kept["value"]
    found = _type_called(cast("str", name))
    if found is None:
        raise ActionFailure("bug", "step_type_unknown", f"The stored step holds a {name}, which this code does not have.")
    return found.model_validate(kept["value"])


def _type_called(name: str) -> type[BaseModel] | None:
    import sys  # noqa: PLC0415 -- only modules that are loaded already are looked at; nothing is imported by a stored name

    module_name, _, qualified = name.partition(":")
    found: Any = sys.modules.get(module_name)
    for part in qualified.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, BaseModel) else None


async def execute(action: Action, connectors: dict[str, Connector], port: Port) -> Outcome:
    """Run the handler to its end and say how it ended. Raises CancelledError only when the attempt was stopped."""
    held, claimed = port.held, port.held.claimed
    held.life_s = action.max_runtime_s
    port.action = action
    _hide(action.sensitive_input, claimed.input_json)
    if claimed.input_json and telemetry.logs_payloads():
        telemetry.log_payload("worker", "input", json.loads(claimed.input_json), action.sensitive_input)
    bridge = Bridge()
    context = Context(
        claimed.job_id, claimed.attempt, claimed.tenant, port, connectors, _bridge=bridge, _reads_only=action.reads_only
    )
    try:
        given = action.input_model.model_validate_json(claimed.input_json or "null")
        answer = await _run(action, context, given, bridge, held)
        if isinstance(answer, Abstain):
            return Outcome(held, action, abstained=_said(answer.reason), journal=port.journal)
        output = action.output_model.model_validate(answer)
        stored = storable(output.model_dump(mode="json"))
    except asyncio.CancelledError:
        failure = _canceled(held)
        if failure is None:
            raise
    except ValidationError as error:
        failure = _invalid(action, error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- whatever a handler raises has a class; the job ends
        failure = classify(error)
        if failure.failure_class == "bug":
            telemetry.log("worker").exception("handler_error", action=action.name, job_id=str(claimed.job_id))
    else:
        return Outcome(held, action, output=stored, plans=tuple(context.plans), journal=port.journal)
    finally:
        bridge.close()
    return await _failed(action, port, failure)


def _hide(paths: Sequence[Path], text: str | None) -> None:
    """From here on no sentence and no line of the log of this attempt holds what is sensitive in its input."""
    HIDDEN.set(texts_at(json.loads(text), paths) if paths and text else ())


async def _run(action: Action, context: Context, given: BaseModel, bridge: Bridge, held: Held) -> Any:
    if not action.threaded:
        return await action.handler(context, given)
    return await in_thread(
        partial(action.handler, context, given),
        bridge,
        name=f"attempt-{held.claimed.attempt_id}",
        # A process that is going away gives the job back at once.
        waits=lambda: held.reason in {"canceled", "lost", "overran"},
    )


async def _failed(action: Action, port: Port, failure: Failure) -> Outcome:
    """What a failure comes to, before the job is touched."""
    failure = replace(failure, message=_said(failure.message))
    repeated = False
    if action.on_failure.get(failure.failure_class) == "retry_once":
        try:
            repeated = await port.retried_before(failure.failure_class)
        except ActionFailure as away:
            failure = classify(away)
    outcome = Outcome(port.held, action, failure=failure, journal=port.journal, repeated=repeated)
    if outcome.decision.job == "hold":
        return Outcome(port.held, action, abstained=failure.message, journal=port.journal)
    return outcome


def _canceled(held: Held) -> Failure | None:
    """What a cancellation means that nobody outside asked for; None where it was asked for."""
    if held.reason == "overran":
        return Failure("lost", "max_runtime", "The attempt ran longer than its action allows.")
    task = asyncio.current_task()
    if held.reason is None and (task is None or not task.cancelling()):
        return Failure("bug", "handler_canceled_itself", "The action's code let a cancellation of its own escape.")
    return None


def _invalid(action: Action, error: ValidationError) -> Failure:
    fields = ", ".join(".".join(str(part) for part in item["loc"]) or "value" for item in error.errors(include_input=False)[:5])
    if error.title == action.input_model.__name__:
        return Failure("caller_error", "input_unreadable", f"The stored input no longer fits the action's schema: {fields}.")
    return Failure("bug", "invalid_output", f"The handler's output does not fit its schema: {fields}.")
