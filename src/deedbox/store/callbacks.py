"""Which events are still to be told by callback, receivers that want to hear no more, and what was told."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from deedbox.store.loader import statement
from deedbox.store.pool import Connection

FIRST = UUID(int=0)
EVENTS_AT_ONCE = 200
"""Of one job in one transaction; the rest comes with the next."""


@dataclass(frozen=True, slots=True)
class News:
    """One event of a job that somebody is to be told about; what has no `seq` is a job of which nothing is new."""

    job_id: UUID
    tenant: str
    action: str
    target: str
    seq: int | None
    event_id: UUID
    type: str
    round: int
    attempt_id: UUID | None
    at: datetime
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Which:
    """Callbacks of a tenant: made since a time, of one job, to one receiver, of one caller's jobs, after one read before."""

    tenant: str
    connector: str
    since: datetime | None = None
    job_id: UUID | None = None
    target: str | None = None
    subject: UUID | None = None
    after: UUID = FIRST


@dataclass(frozen=True, slots=True)
class Told:
    """One callback: which effect it is, to whom, how it stands. `body` is None where its retention has passed."""

    effect_id: UUID
    job_id: UUID | None
    target: str
    state: str
    attempts: int
    code: str | None
    message: str | None
    made_at: datetime
    body: bytes | None


@dataclass(frozen=True, slots=True)
class Again:
    """One callback that is to be made once more."""

    effect_id: UUID
    job_id: UUID | None
    target: str
    action: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Disabled:
    """A target that nothing is sent to."""

    connector: str
    target: str
    disabled_at: datetime
    reason: str


async def page(connection: Connection, after: UUID, limit: int) -> tuple[UUID | None, list[UUID]]:
    """The last job of the next page, None where this is the end, and the jobs of it that are to be looked at."""
    cursor = await connection.execute(statement("callbacks", "page"), {"after": after, "limit": limit})
    row = await cursor.fetchone()
    if row is None:
        return None, []
    return (row[0] if row[1] == limit else None), list(row[2] or [])


async def take(connection: Connection, jobs: Sequence[UUID], targets: Sequence[str]) -> list[News]:
    """Lock the marks of these jobs, as far as they are for these receivers, and read what is new. Needs a transaction."""
    given = {"jobs": list(jobs), "targets": list(targets), "limit": EVENTS_AT_ONCE}
    cursor = await connection.execute(statement("callbacks", "take"), given)
    return [News(*row) for row in await cursor.fetchall()]


async def mark(connection: Connection, told: Mapping[UUID, int], looked_at: Sequence[UUID]) -> None:
    """Keep how far these jobs have been told, and forget those that have ended, in the transaction that took them."""
    given = {"jobs": list(told), "seqs": list(told.values())}
    if told:
        await connection.execute(statement("callbacks", "mark"), given)
    await connection.execute(statement("callbacks", "done"), {"jobs": list(looked_at)})


async def disable(connection: Connection, *, tenant: str, connector: str, target: str, reason: str) -> bool:
    """Send nothing more to a target; False where that was so already."""
    given = {"tenant": tenant, "connector": connector, "target": target, "reason": reason}
    cursor = await connection.execute(statement("callbacks", "disable"), given)
    return await cursor.fetchone() is not None


async def enable(connection: Connection, *, tenant: str, connector: str, target: str) -> bool:
    """Send to a disabled target again; False where it was not disabled."""
    given = {"tenant": tenant, "connector": connector, "target": target}
    cursor = await connection.execute(statement("callbacks", "enable"), given)
    return await cursor.fetchone() is not None


async def disabled(connection: Connection, tenant: str) -> list[Disabled]:
    """The targets of a tenant that nothing is sent to."""
    cursor = await connection.execute(statement("callbacks", "disabled"), {"tenant": tenant})
    return [Disabled(*row) for row in await cursor.fetchall()]


async def told(connection: Connection, which: Which, *, state: str | None = None, limit: int) -> list[Told]:
    """What was told, or is to be, oldest first."""
    cursor = await connection.execute(statement("callbacks", "told"), {**asdict(which), "state": state, "limit": limit})
    return [Told(*row) for row in await cursor.fetchall()]


async def again(connection: Connection, which: Which, *, limit: int) -> list[Again]:
    """What is to be told once more, oldest first."""
    cursor = await connection.execute(statement("callbacks", "again"), {**asdict(which), "limit": limit})
    return [Again(*row) for row in await cursor.fetchall()]
