"""What an agent has said and done, as its job keeps it: later attempts read on from there.

Each answer of the model is a checkpoint, and so is each outcome of a tool that will not change any more. A later attempt runs
the same agent over them: it asks the model only for what it has not said, and calls only tools whose outcome is not known.
Calls of tools are jobs of their own below this one, whose key is made of this job, the action and its arguments: one that had
begun when the attempt was lost is found again, never begun again.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from deedbox import telemetry
from deedbox.extend.action import Action
from deedbox.extend.agents import AgentAsk
from deedbox.model.failure import ActionFailure
from deedbox.model.fingerprint import jcs, sha256
from deedbox.model.values import storable
from deedbox.store import model_calls, queue
from deedbox.store.model_calls import SpentRow
from deedbox.store.pool import Connection
from deedbox.worker.held import lease_lost
from deedbox.worker.model_result import Spent

if TYPE_CHECKING:
    from deedbox.worker.asking import Asking

PREFIX = "agent/"
"""How the names of an agent's checkpoints begin; a handler's own steps do not."""
_BUSY_SHUTDOWN_S = 5.0


class Calls(Protocol):
    """Calls actions for agents."""

    async def call(
        self,
        parent_job_id: UUID,
        tenant: str,
        action: str,
        arguments: Mapping[str, Any],
        *,
        wait_s: float,
        begun: str | None = None,
    ) -> Mapping[str, Any]:
        """The envelope of the call: a job below the parent, found again where it is there already; `begun` is its id if known.

        It runs for whoever the parent runs for, with that one's roles of today; refusals are envelopes. Waits up to `wait_s`
        seconds for an outcome. Raises ActionFailure where the store is away.
        """
        ...

    async def cancel(self, parent_job_id: UUID, tenant: str) -> None:
        """Cancel the jobs below the parent that have not ended, as far as nothing of them has left."""
        ...


@dataclass(frozen=True, slots=True)
class AgentRun:
    """One run of an agent: what was asked, the actions it may call, and what is kept of it."""

    ask: AgentAsk
    tools: Sequence[Action]
    story: "Story"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a call of a tool; `final` says that it will not change any more, so that it may be kept."""

    envelope: dict[str, Any]

    @property
    def final(self) -> bool:
        """Whether it succeeded or failed, and is not waited for."""
        return self.envelope.get("status") in {"success", "error"}


class Story:
    """The checkpoints of one agent of a job. Every write is fenced and raises ActionFailure once the lease is lost."""

    def __init__(self, asking: "Asking", ask: AgentAsk, calls: Calls) -> None:
        """Nothing is read before `open`."""
        self._asking = asking
        self._ask = ask
        self._calls = calls
        self._part = f"agent {ask.name}"
        self._prefix = f"{PREFIX}{ask.name}/"
        given = [ask.prompt, ask.instructions, list(ask.tools), ask.output.__qualname__]
        self._digest = sha256(jcs(storable(given)))
        self._kept: dict[str, str] = {}

    async def open(self) -> None:
        """Read what earlier attempts have kept. Raises ActionFailure (bug) where it was kept for another question."""
        async with self._asking.store() as connection:
            found = await model_calls.steps(connection, self._job_id, self._prefix)
        for digest, _ in found.values():
            if digest != self._digest:
                raise ActionFailure(
                    "bug", "step_input_changed", f"The agent {self._ask.name!r} has begun with another question."
                )
        self._kept = {name: text for name, (_, text) in found.items()}

    @property
    def _job_id(self) -> UUID:
        return self._asking.held.claimed.job_id

    def said(self, turn: int) -> str | None:
        """What the model said in this turn, as JSON; None where it has not been asked yet."""
        text = self._kept.get(f"{self._prefix}{turn}")
        return None if text is None else json.dumps(json.loads(text)["value"])

    async def keep_said(self, turn: int, said_json: str, spent: Spent) -> None:
        """Keep what the model said and what it took, in one commit; the latter even where the lease is lost meanwhile."""
        row = self._asking.row(self._part, turn, spent)
        async with self._asking.store(whole=True) as connection:
            kept = await self._write(connection, f"{self._prefix}{turn}", json.loads(said_json))
            await model_calls.journal(connection, row)
        self._checked(kept)

    async def tell_failed(self, turn: int, spent: Spent) -> None:
        """Keep what a request took that brought no answer."""
        await self._asking.told(self._part, turn, spent)

    async def spent(self, currency: str, *, before_turn: int | None = None) -> SpentRow:
        """What the job has spent; with `before_turn` without what this agent did from that turn on."""
        async with self._asking.store() as connection:
            if before_turn is None:
                return await model_calls.spent(connection, self._job_id, currency)
            return await model_calls.spent(connection, self._job_id, currency, except_part=self._part, from_turn=before_turn)

    def used(self, identity: Mapping[str, Any], usage: Mapping[str, int], *, repaired: bool) -> None:
        """Add a turn that was asked in this attempt to the attempt's journal."""
        self._asking.journal.used(identity, int(repaired), usage, "repaired" if repaired else "valid")

    def outcome(self, turn: int, digest: str) -> Outcome | None:
        """The kept outcome of a call; None where there is none yet."""
        text = self._kept.get(f"{self._prefix}{turn}/{digest}")
        return None if text is None else Outcome(json.loads(text)["value"])

    async def keep_outcome(self, turn: int, digest: str, outcome: Outcome) -> None:
        """Keep the outcome of a call."""
        async with self._asking.store() as connection:
            kept = await self._write(connection, f"{self._prefix}{turn}/{digest}", outcome.envelope)
        self._checked(kept)

    async def call(self, turn: int, digest: str, action: str, arguments: Mapping[str, Any]) -> Outcome:
        """Call an action and wait for it. While it waits the attempt takes no slot of its worker.

        The job of a call that is still pending is kept, so that a later attempt waits for that very job.
        """
        name = f"{self._prefix}{turn}/{digest}/begun"
        begun = self._kept.get(name)
        claimed = self._asking.held.claimed
        outside = self._asking.lent.outside or nullcontext
        try:
            with outside():
                envelope = await self._calls.call(
                    claimed.job_id,
                    claimed.tenant,
                    action,
                    arguments,
                    wait_s=self._ask.limits.tool_wait_s,
                    begun=None if begun is None else json.loads(begun)["value"],
                )
        except asyncio.CancelledError:
            if self._asking.held.reason == "canceled":
                await self._cancel_calls()
            raise
        telemetry.AGENT_CALLS.labels(action, str(envelope.get("status"))).inc()
        outcome = Outcome(dict(envelope))
        if not outcome.final and begun is None and envelope.get("job_id") is not None:
            async with self._asking.store() as connection:
                kept = await self._write(connection, name, envelope["job_id"])
            self._checked(kept)
        return outcome

    async def _cancel_calls(self) -> None:
        """What runs below a canceled job stops as well, and spends no more."""
        claimed = self._asking.held.claimed
        try:
            async with asyncio.timeout(_BUSY_SHUTDOWN_S):
                await self._calls.cancel(claimed.job_id, claimed.tenant)
        except (ActionFailure, TimeoutError) as error:
            telemetry.log("worker").warning("calls_not_canceled", error=type(error).__name__)

    def listener(self, turn: int) -> Callable[[str], Awaitable[None]] | None:
        """Shows the answer of a turn while it comes, where the handler asked for that."""
        return self._asking.drafts(f"{self._part} {turn}", self._ask.output) if self._ask.draft else None

    def key(self, turn: int) -> str:
        """A key for the question of a turn, the same in every attempt."""
        return sha256(f"{self._job_id}{self._part}{turn}".encode()).hex()[:32]

    async def _write(self, connection: Connection, name: str, value: Any) -> bool:
        return await queue.write_step(
            connection,
            self._asking.held.fence,
            name=name,
            input_sha256=self._digest,
            value_json=json.dumps({"value": storable(value)}),
        )

    def _checked(self, kept: bool) -> None:  # noqa: FBT001 -- what the write said
        if not kept:
            raise lease_lost()
