"""Callbacks for whoever looks after them: what was told, telling it again, and receivers that are told nothing more."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from deedbox.gate.notices import Notice, enqueue
from deedbox.model.errors import DeedboxError, Problem
from deedbox.model.identity import Principal, Verb
from deedbox.operate.evidence import checked_reason
from deedbox.store import audit, callbacks
from deedbox.store.callbacks import Disabled, Told, Which
from deedbox.store.ids import IdSource
from deedbox.store.pool import Pool
from deedbox.store.tell import tell
from deedbox.store.transaction import autocommit, transaction

CONNECTOR = "callback"
MOST = 1000
"""Callbacks in one page, or told again at once."""

FIRST = callbacks.FIRST
"""What comes before the first page."""

__all__ = ["FIRST", "Callbacks", "Disabled", "Line", "Page", "Replayed"]


@dataclass(frozen=True, slots=True)
class Line:
    """One callback as it stands. `event_id` is what the receiver knows it by, None where its content has been removed."""

    effect_id: UUID
    target: str
    state: str
    attempts: int
    event_id: str | None
    type: str | None
    job_id: UUID | None
    made_at: datetime
    code: str | None
    message: str | None
    event: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Page:
    """Callbacks, oldest first; `cursor` is what the next page comes after, None at the end."""

    callbacks: list[Line]
    cursor: UUID | None


@dataclass(frozen=True, slots=True)
class Replayed:
    """How many are told again, and the last of them where there may be more."""

    replayed: int
    cursor: UUID | None


class Callbacks:
    """The callbacks of a tenant; a program sees those of its own jobs. Changes leave an entry in the audit."""

    def __init__(self, pool: Pool, ids: IdSource) -> None:
        """Reads and changes through `pool`."""
        self._pool = pool
        self._ids = ids

    async def listed(
        self,
        principal: Principal,
        *,
        since: datetime | None = None,
        job_id: UUID | None = None,
        target: str | None = None,
        state: str | None = None,
        after: UUID = callbacks.FIRST,
        limit: int = 100,
    ) -> Page:
        """What was put on the outbox since a moment, oldest first. Raises DeedboxError permission_denied, invalid_input."""
        _may(principal)
        _check_limit(limit)
        async with autocommit(self._pool) as connection:
            which = Which(principal.tenant, CONNECTOR, since, job_id, target, _own(principal), after)
            found = await callbacks.told(connection, which, state=state, limit=limit)
        return Page([_line(one) for one in found], found[-1].effect_id if len(found) == limit else None)

    async def replay(
        self,
        principal: Principal,
        *,
        since: datetime | None = None,
        job_id: UUID | None = None,
        target: str | None = None,
        after: UUID = callbacks.FIRST,
        door: str = "api",
    ) -> Replayed:
        """Tell again what was told since a moment or of a job, under the same ids, at most a thousand at once.

        Raises DeedboxError: permission_denied, invalid_input where neither a moment nor a job is named.
        """
        _may(principal, "retry")
        if since is None and job_id is None:
            problem = Problem("/since", "required", "name a moment, or a job")
            raise DeedboxError("invalid_input", "Say since when, or of which job.", problems=(problem,))
        async with transaction(self._pool) as connection:
            which = Which(principal.tenant, CONNECTOR, since, job_id, target, _own(principal), after)
            found = await callbacks.again(connection, which, limit=MOST)
            notices = [
                Notice(
                    template="callback",
                    tenant=principal.tenant,
                    connector=CONNECTOR,
                    target=one.target,
                    payload=json.loads(one.body)["payload"],
                    summary=f"Tells {one.target} again.",
                    action=one.action,
                    job_id=one.job_id,
                )
                for one in found
            ]
            made = await enqueue(connection, self._ids, notices)
            detail = {
                "count": len(made),
                "since": since.isoformat() if since else None,
                "job_id": str(job_id) if job_id else None,
            }
            about = ("callback", target or "every receiver")
            await audit.append(connection, audit.entry_by(principal, door, "replay_callbacks", about, detail=detail))
        await tell(self._pool, outbox=bool(made))
        return Replayed(len(made), found[-1].effect_id if len(found) == MOST else None)

    async def disabled(self, principal: Principal) -> list[Disabled]:
        """The receivers that are told nothing more. Raises DeedboxError permission_denied."""
        _may(principal)
        async with autocommit(self._pool) as connection:
            return [one for one in await callbacks.disabled(connection, principal.tenant) if one.connector == CONNECTOR]

    async def enable(self, principal: Principal, target: str, reason: str, *, door: str = "api") -> None:
        """Tell a receiver again that had answered 410. What lapsed meanwhile is told by `replay`.

        Raises DeedboxError: permission_denied, invalid_input, not_found where it is not disabled.
        """
        _may(principal, "switch")
        reason = checked_reason(reason)
        async with transaction(self._pool) as connection:
            if not await callbacks.enable(connection, tenant=principal.tenant, connector=CONNECTOR, target=target):
                raise DeedboxError("not_found", f"There is no disabled receiver {target[:100]!r}.")
            entry = audit.entry_by(principal, door, "enable_callbacks", ("target", f"{CONNECTOR}/{target}"), reason=reason)
            await audit.append(connection, entry)
        await tell(self._pool, outbox=True)


def _own(principal: Principal) -> UUID | None:
    """Programs are told about their own jobs alone; None for people who may read them all."""
    return None if principal.kind == "person" else UUID(principal.principal_id)


def _may(principal: Principal, verb: Verb = "read") -> None:
    if not principal.may(verb):
        raise DeedboxError("permission_denied", f"Callbacks need a role that may {verb}.")


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= MOST:
        problem = Problem("/limit", "range", f"is from 1 to {MOST}")
        raise DeedboxError("invalid_input", "The limit is out of range.", problems=(problem,))


def _line(one: Told) -> Line:
    event: dict[str, Any] | None = json.loads(one.body)["payload"] if one.body is not None else None
    return Line(
        effect_id=one.effect_id,
        target=one.target,
        state=one.state,
        attempts=one.attempts,
        event_id=event["event_id"] if event else None,
        type=event["type"] if event else None,
        job_id=one.job_id,
        made_at=one.made_at,
        code=one.code,
        message=one.message,
        event=event,
    )
