"""What a handler is given: ways to read, to report and to propose, and none to act."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast
from uuid import UUID

from pydantic import BaseModel, ValidationError

from deedbox.extend.agents import AGENT_NAME, AgentAsk, AgentLimits, Tool, tool_names
from deedbox.extend.connector import Connector
from deedbox.extend.document import Document
from deedbox.extend.sensitive import sensitive_names, sensitive_paths
from deedbox.extend.sync_context import Bridge, SyncContext
from deedbox.model.errors import InvalidValueError
from deedbox.model.facts import EffectKind, count_recipients, gravest, holds_any
from deedbox.model.failure import ActionFailure
from deedbox.model.fingerprint import effect_body, sha256
from deedbox.model.sensitive import HIDDEN, masked, scrubbed

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

MOST_SLOT = 100
"""The longest name of a slot, in characters; the schema says the same."""


class AttemptPort(Protocol):
    """What the worker lends to a context. Every call that writes is refused once the lease is lost."""

    @property
    def has_model(self) -> bool:
        """Whether a model endpoint is configured."""
        ...

    async def document(self, document_id: UUID) -> bytes:
        """The bytes of a document the job carries."""
        ...

    async def read(self, target: str, path: str) -> Any:
        """GET JSON from a configured target."""
        ...

    async def step(self, name: str, input_value: Any, run: Callable[[], Awaitable[Any]]) -> Any:
        """Run once, keep the result, and give it to later attempts."""
        ...

    async def progress(self, step: int, total_steps: int, message: str) -> None:
        """Report how far it is."""
        ...

    async def partial(self, value: Any) -> None:
        """Report a result in the making."""
        ...

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
        ...

    async def agent(self, ask: AgentAsk) -> BaseModel:
        """Let a model call tools until it has a validated value."""
        ...


@dataclass(frozen=True, slots=True)
class EffectPlan:
    """An effect as it was proposed. Nothing has happened: whether and when it does is for the gate and the outbox."""

    connector: str
    target: str
    slot: str
    group: str
    summary: str
    body: bytes
    digest: bytes
    after: str | None = None
    kind: EffectKind = "record"
    recipients: int = 1
    sensitive: bool = False


@dataclass(slots=True)
class Context:
    """One attempt at a job, as its handler sees it.

    `job_id` and `attempt` identify the attempt; `key` is the caller's idempotency key as far as known. No credential is
    reachable from here: reads and the model go through ports that hold them elsewhere.
    """

    job_id: UUID
    attempt: int
    tenant: str
    _port: AttemptPort
    _connectors: Mapping[str, Connector]
    plans: list[EffectPlan] = field(default_factory=list[EffectPlan])
    _bridge: Bridge = field(default_factory=Bridge, repr=False)
    _reads_only: bool = False

    @property
    def sync(self) -> SyncContext:
        """The calls below for a handler that is `def` or a thread of any handler: each waits for its answer."""
        return SyncContext(self, self._bridge)

    @property
    def has_model(self) -> bool:
        """Whether a model endpoint is configured; without one `model` raises ActionFailure."""
        return self._port.has_model

    async def document(self, document: Document) -> bytes:
        """The bytes of an uploaded document, whose digest is checked. Raises ActionFailure when it is not the job's."""
        content = await self._port.document(document.document_id)
        if sha256(content).hex() != document.sha256:
            raise ActionFailure("bug", "document_changed", f"The document {document.name!r} is not the one that was accepted.")
        return content

    async def read(self, target: str, path: str) -> Any:
        """GET JSON from a target named in the settings, which hold its address and credentials. Raises ActionFailure."""
        return await self._port.read(target, path)

    async def step(self, name: str, run: Callable[[], Awaitable[T] | T], *, given: Any = None) -> T:
        """Run a named piece of the attempt once: later attempts get the stored result and do not run it again.

        `given` is what the piece depends on; the same name with another `given` is a bug. The result must be a pydantic
        model or a JSON value.
        """

        async def call() -> Any:
            value = run()
            return await cast("Awaitable[Any]", value) if inspect.isawaitable(value) else value

        return cast("T", await self._port.step(name, given, call))

    async def progress(self, step: int, total_steps: int, message: str = "") -> None:
        """Tell whoever asked how far the attempt is; a step reported by an earlier attempt is not repeated."""
        if not 0 <= step <= total_steps:
            raise ActionFailure("bug", "bad_progress", f"progress {step} of {total_steps} makes no sense")
        await self._port.progress(step, total_steps, message)

    async def partial(self, value: Any) -> None:
        """Show a result in the making; it is marked as a draft everywhere."""
        await self._port.partial(value)

    async def model(
        self,
        output: type[M],
        prompt: str,
        *,
        instructions: str | None = None,
        endpoint: str | None = None,
        prompt_version: str | None = None,
        draft: bool = False,
    ) -> M:
        """A validated value from a configured model, after at most the configured repairs. Raises ActionFailure.

        `endpoint` is a name from the settings, `prompt_version` what the journal calls the prompt. With `draft` the answer is
        streamed, and shown as a draft while it comes, at most twice a second.
        """
        answer = await self._port.model(
            output, prompt, instructions, endpoint=endpoint, prompt_version=prompt_version, draft=draft
        )
        return cast("M", answer)

    async def agent(
        self,
        output: type[M],
        prompt: str,
        *,
        tools: Sequence[Tool],
        instructions: str | None = None,
        name: str = "agent",
        endpoint: str | None = None,
        limits: AgentLimits | None = None,
        draft: bool = False,
    ) -> M:
        """A validated value from a model that may call actions on its way, each as a job of its own below this one.

        `tools` are actions (names or handlers). Each call runs for whoever this job runs for, with that one's roles and through
        the action's own policy and gate; equal calls are one. What the model said and what tools answered is kept, so that a
        later attempt goes on where this one stopped; `name` tells the agents of one job apart. `limits` bound the whole job.
        Raises ToolPending where a tool has no outcome yet, ActionFailure (code budget_exhausted) beyond the limits.
        """
        if AGENT_NAME.fullmatch(name) is None:
            raise ActionFailure(
                "bug", "bad_agent_name", "An agent's name is a lower-case letter and up to 39 more, digits, - or _."
            )
        ask = AgentAsk(output, prompt, tool_names(tools), instructions, name, endpoint, limits or AgentLimits(), draft)
        return cast("M", await self._port.agent(ask))

    def effect(
        self,
        connector: str,
        *,
        target: str,
        slot: str,
        payload: BaseModel | Mapping[str, Any],
        group: str = "default",
        after: str | None = None,
        kind: EffectKind | None = None,
    ) -> EffectPlan:
        """Propose one external effect. Plans, does nothing: no I/O happens here and no receipt comes back.

        `slot` names the effect within its job and stays the same over attempts. `after` names a slot that was planned before:
        this effect leaves once that one is completed, and is canceled where that one is not done. `kind` says that it is graver
        than its connector and its action say. Raises ActionFailure (class bug) for an unknown connector, a payload that does
        not fit it, a slot planned twice, or an `after` that is not planned.
        """
        if self._reads_only:
            raise ActionFailure("bug", "reads_only", "An action whose consequence is `read` proposes no effect.")
        known = self._connectors.get(connector)
        if known is None:
            raise ActionFailure("bug", "unknown_connector", f"There is no connector {connector!r}.")
        if not slot.strip() or len(slot) > MOST_SLOT:
            raise ActionFailure("bug", "bad_slot", "A slot is a name of 1 to 100 characters.")
        if any(plan.slot == slot for plan in self.plans):
            raise ActionFailure("bug", "slot_planned_twice", f"The slot {slot!r} was planned twice.")
        if after is not None and all(plan.slot != after for plan in self.plans):
            raise ActionFailure("bug", "bad_after", f"The slot {slot!r} waits for {after!r}, which was not planned before it.")
        given = payload.model_dump(mode="json") if isinstance(payload, BaseModel) else dict(payload)
        try:
            checked = known.payload_model.model_validate(given).model_dump(mode="json")
            known.check_target(target)
            known.check_plan(target, checked)
            body = effect_body(connector, target, slot, checked)
            what = gravest(kind, cast("EffectKind | None", getattr(known, "kind", None)))
        except ValidationError as error:
            fields = ", ".join(".".join(str(part) for part in item["loc"]) or "payload" for item in error.errors())
            raise ActionFailure("bug", "bad_effect", f"The payload of {slot!r} does not fit {connector}: {fields}.") from error
        except (InvalidValueError, ValueError) as error:
            raise ActionFailure("bug", "bad_effect", f"The effect {slot!r} cannot be planned: {error}.") from error
        summary = _sentence(known, target, checked)
        plan = EffectPlan(
            connector,
            target,
            slot,
            group,
            summary,
            body,
            sha256(body),
            after,
            what,
            *reach(known, target, checked),
        )
        self.plans.append(plan)
        return plan


def reach(connector: Connector, target: str, payload: Mapping[str, Any]) -> tuple[int, bool]:
    """How many recipients a checked payload reaches, and whether one of its sensitive fields is there."""
    return recipients_of(connector, target, payload), holds_any(payload, sensitive_names(connector.payload_model))


def recipients_of(connector: Connector | None, target: str, payload: Mapping[str, Any]) -> int:
    """How many the connector says it reaches, where it can say so; else how many the payload names."""
    count = cast("Callable[[str, Mapping[str, Any]], int] | None", getattr(connector, "recipients", None))
    return count_recipients(payload) if count is None else count(target, payload)


def _sentence(connector: Connector, target: str, payload: dict[str, Any]) -> str:
    """The connector's sentence about an effect, made without what is sensitive: it stands in lists, mails and logs."""
    paths = sensitive_paths(connector.payload_model)
    try:
        said = connector.describe(target, masked(payload, paths))
    except Exception:
        # A mask is a text, and the connector may want to reckon with what it stands for; without one it is its own fault.
        if not paths:
            raise
        said = f"Sends something sensitive to {target}."
    return scrubbed(said, HIDDEN.get())
