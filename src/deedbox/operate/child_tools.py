"""Calls of tools by the agent of a job: the contract of tools, for whoever that job runs for."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from deedbox.gate.cancel import cancel_children
from deedbox.intake.child import runs_for
from deedbox.model.errors import DeedboxError
from deedbox.model.failure import ActionFailure
from deedbox.model.identity import Principal
from deedbox.operate.tools import LONGEST_WAIT_S, Envelope, ToolCall, Tools, refusal
from deedbox.store import children
from deedbox.store.ids import IdSource
from deedbox.store.pg_errors import AWAY
from deedbox.store.pool import Pool
from deedbox.store.transaction import autocommit, transaction

DEEPEST = 5
"""How many jobs may stand above one that an agent calls: agents that call agents are finite as well."""
_UNDER_WAY = frozenset({"queued", "scheduled", "running", "retrying", "sending"})
"""Why a call is pending that may end by itself soon. For a person, the switch, or what nobody knows, an agent does not wait."""


class ChildTools:
    """What `deedbox.worker.agent_story.Calls` promises, over the tools of this process."""

    def __init__(self, pool: Pool, ids: IdSource, tools: Tools) -> None:
        """`tools` accept, wait, answer and journal; equal calls within one parent are theirs to find."""
        self._pool = pool
        self._ids = ids
        self._tools = tools

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
        """The envelope of a call within a job. Raises ActionFailure (lost) where the store is away, so that nothing is told."""
        until = time.monotonic() + wait_s
        try:
            who, trace = await runs_for(self._pool, parent_job_id, tenant)
            if begun is None:
                envelope = await self._begin(who, trace, parent_job_id, action, arguments, wait_s)
            else:
                envelope = await self._tools.outcome(who, begun, wait_s=min(wait_s, LONGEST_WAIT_S))
            while _goes_on(envelope) and (left := until - time.monotonic()) > 0:
                began = time.monotonic()
                envelope = await self._tools.outcome(who, str(envelope.job_id), wait_s=min(left, LONGEST_WAIT_S))
                # An answer that came at once and says the same is not asked for in a circle.
                await asyncio.sleep(0 if time.monotonic() - began > 1 else min(1.0, left))
        except DeedboxError as error:
            if error.code == "unavailable":
                raise _away() from error
            envelope = refusal(action, "", error.code.upper(), error.detail)
        except AWAY as error:
            raise _away() from error
        if envelope.error_code == "UNAVAILABLE":
            raise _away()
        return envelope.shown()

    async def cancel(self, parent_job_id: UUID, tenant: str) -> None:  # noqa: ARG002 -- as the protocol has it
        """Cancel what the job has called and what has not ended. Raises ActionFailure (lost) where the store is away."""
        try:
            async with transaction(self._pool) as connection:
                await cancel_children(connection, self._ids, parent_job_id)
        except AWAY as error:
            raise _away() from error

    async def _begin(
        self, who: Principal, trace: str | None, parent: UUID, action: str, arguments: Mapping[str, Any], wait_s: float
    ) -> Envelope:
        async with autocommit(self._pool) as connection:
            above = await children.depth(connection, parent)
        if above >= DEEPEST:
            said = f"Jobs that call jobs go {DEEPEST} deep, and no deeper."
            raise DeedboxError("budget_exhausted", said)
        call = ToolCall(
            action,
            dict(arguments),
            source="job",
            wait_s=min(wait_s, LONGEST_WAIT_S),
            traceparent=trace,
            parent_job_id=str(parent),
        )
        return await self._tools.call(who, call)


def _goes_on(envelope: Envelope) -> bool:
    return envelope.status == "pending" and (envelope.data or {}).get("reason") in _UNDER_WAY


def _away() -> ActionFailure:
    return ActionFailure("lost", "store_away", "The database was away while the attempt ran.")
