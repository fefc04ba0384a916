"""The journal of calls of tools: one line for each, refused ones too, under the id that its answer carried."""

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from uuid import UUID

from deedbox import __version__, telemetry
from deedbox.extend.action import Action
from deedbox.intake.terms import through
from deedbox.model.fingerprint import sha256
from deedbox.model.identity import Principal
from deedbox.model.secrets import masked
from deedbox.model.values import storable_text
from deedbox.operate.tools.envelope import Envelope
from deedbox.store import tools as store
from deedbox.store.batch import Gatherer
from deedbox.store.pg_errors import UNREACHABLE, StoreError
from deedbox.store.pool import Pool

if TYPE_CHECKING:
    from deedbox.operate.tools.calling import ToolCall

_ROLES = ("role", "roles", "user_role", "actor_role", "acting_role", "caller_role", "acting_as")
"""Members of arguments that claim a role. What they say is written down and decides nothing."""
_LONGEST = 200
_ODD = re.compile(r"[^\x20-\x7e]")

_Line: TypeAlias = tuple[store.ToolRow, bool]
"""A line, and whether its job had just been queued."""


@dataclass(slots=True)
class Noted:
    """What is known of a call while it goes on; `began` is of the monotonic clock.

    `begun` says that it is answered as soon as its job is queued; `key_sha256` is then the digest of the job's key.
    """

    call_id: UUID
    began: float
    parent: UUID | None = None
    budget: int = 0
    job_id: UUID | None = None
    input_sha256: bytes | None = None
    validation: str | None = None
    replayed: bool = False
    begun: bool = False
    key_sha256: bytes | None = None


class Journal:
    """Writes the lines; those of many calls share a statement."""

    def __init__(self, pool: Pool) -> None:
        """Nothing is opened until the first line."""
        self._wire = pool.wire("tools")
        self._lines = Gatherer(self._flush, self._one, most=64)
        self._under_way: set[asyncio.Task[None]] = set()

    async def put(
        self, who: Principal, call: "ToolCall", action: Action | None, noted: Noted, envelope: Envelope | None
    ) -> None:
        """Keep one call; never raises: what was answered stays answered when the store is away, and the log says so."""
        try:
            await self._lines.put((_row(who, call, action, noted, envelope), noted.begun))
        except (StoreError, *UNREACHABLE) as error:
            telemetry.log("tools").warning("call_not_journalled", audit_id=str(noted.call_id), error=type(error).__name__)

    def later(self, who: Principal, call: "ToolCall", action: Action | None, noted: Noted, envelope: Envelope | None) -> None:
        """Keep one call whose caller waits no longer."""
        task = asyncio.create_task(self.put(who, call, action, noted, envelope))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def drain(self) -> None:
        """Wait until every line is kept."""
        await asyncio.gather(*self._under_way)
        await self._lines.drain()

    async def _flush(self, lines: Sequence[_Line]) -> list[None]:
        await store.journal(self._wire, [row for row, _ in lines], begun=all(begun for _, begun in lines))
        return [None] * len(lines)

    async def _one(self, line: _Line) -> None:
        await self._flush([line])


def _row(who: Principal, call: "ToolCall", action: Action | None, noted: Noted, envelope: Envelope | None) -> store.ToolRow:
    held = [] if action is None else sorted(who.roles & action.roles)
    status = "refused" if noted.job_id is None else "replayed" if noted.replayed else "answered"
    return store.ToolRow(
        call_id=noted.call_id,
        tenant=who.tenant,
        subject=UUID(who.principal_id),
        source=call.source,
        action=_short(call.action),
        status=status,
        answer="hung_up" if envelope is None else envelope.status,
        build=__version__,
        validation=noted.validation or "not_reached",
        duration_ms=round((time.monotonic() - noted.began) * 1000, 1),
        role=held[0] if held else None,
        claimed_role=_claimed(call),
        job_id=noted.job_id,
        parent_job_id=noted.parent,
        key_sha256=sha256(call.key.encode("utf-8", "surrogatepass")) if call.key else noted.key_sha256,
        input_sha256=noted.input_sha256,
        trace=None if call.traceparent is None else _short(call.traceparent),
        caller_run=None if call.caller_run is None else _short(call.caller_run),
        error_code=None if envelope is None else envelope.error_code,
        state=None if envelope is None else envelope.state,
        object_id=None if envelope is None else envelope.object_id,
        through=through(who),
    )


def _claimed(call: "ToolCall") -> str | None:
    """A role that the call claims, in its arguments or beside them."""
    if call.claimed_role is not None:
        return _short(call.claimed_role)
    if not isinstance(call.arguments, dict):
        return None
    given = cast("dict[str, Any]", call.arguments)
    for name in _ROLES:
        found = given.get(name)
        if isinstance(found, list):
            found = ",".join(str(one) for one in cast("list[Any]", found)[:20])
        if isinstance(found, str) and found.strip():
            return _short(found)
    return None


def _short(text: str) -> str:
    """A text of the caller's as it may be kept: short, printable, and without what looks like a secret."""
    return storable_text(masked(_ODD.sub("?", text[:_LONGEST])))
