"""Whom to tell of what: approvals that wait, approvals that go further, alerts, and what nobody has seen to for too long."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from deedbox.store.loader import statement
from deedbox.store.pool import Connection
from deedbox.store.rows import rows


@dataclass(frozen=True, slots=True)
class Seen:
    """Which kinds of telling have something to do."""

    approvals: bool
    escalations: bool
    alerts: bool


@dataclass(frozen=True, slots=True)
class Escalation:
    """The role that may decide what an action's approvers have left undecided for `after_s` seconds."""

    action: str
    role: str
    after_s: float


@dataclass(frozen=True, slots=True)
class DueApproval:
    """An approval of which people are to be told, locked. `age_s` and `life_s` are seconds since the request, and in all."""

    approval_id: UUID
    job_id: UUID
    tenant: str
    action: str
    purpose: str
    audience: list[str]
    quorum: int
    expires_at: datetime
    escalated_to: str | None
    age_s: float
    life_s: float
    stages: list[str]
    subject: UUID | None
    asked_by: str | None


@dataclass(frozen=True, slots=True)
class Reachable:
    """A living person of an approval's audience, with all its roles."""

    approval_id: UUID
    principal_id: UUID
    name: str
    email: str
    roles: list[str]


@dataclass(frozen=True, slots=True)
class Escalated:
    """An approval that a further role may decide from now on."""

    approval_id: UUID
    job_id: UUID
    tenant: str
    role: str


@dataclass(frozen=True, slots=True)
class DueAlert:
    """An open alert that is to be told, locked; `told` is how often it has been. `age_s` is in seconds."""

    alert_id: UUID
    tenant: str
    cause: str
    job_id: UUID | None
    effect_id: UUID | None
    message: str
    opened_at: datetime
    age_s: float
    told: int


async def look(connection: Connection, escalations: Sequence[Escalation], *, mail: bool, alerts: bool) -> Seen:
    """What a round would find."""
    given = {"mail": mail, "alerts": alerts, "escalations": _listed(escalations)}
    cursor = await connection.execute(statement("notify", "look"), given)
    row = await cursor.fetchone()
    if row is None:
        raise RuntimeError("a statement without FROM gave no row")
    return Seen(*row)


def _listed(escalations: Sequence[Escalation]) -> str:
    return rows([{"action": one.action, "role": one.role, "after_s": one.after_s} for one in escalations])


async def wake_unasked(connection: Connection) -> int:
    """Let people be told of pending approvals of which nothing has been said; returns how many."""
    return (await connection.execute(statement("notify", "wake_unasked"))).rowcount


async def due_approvals(connection: Connection, limit: int) -> list[DueApproval]:
    """Lock approvals of which people are to be told now."""
    cursor = await connection.execute(statement("notify", "due_approvals"), {"limit": limit})
    return [DueApproval(*row) for row in await cursor.fetchall()]


async def audience(connection: Connection, approvals: Sequence[UUID]) -> list[Reachable]:
    """The people of these approvals' audiences who can be written to and have not voted."""
    cursor = await connection.execute(statement("notify", "audience"), {"approvals": list(approvals)})
    return [Reachable(*row) for row in await cursor.fetchall()]


async def mark_stages(connection: Connection, approval_id: UUID, stages: Sequence[str]) -> list[str]:
    """Keep what is being said of an approval; returns what had not been said before."""
    cursor = await connection.execute(statement("notify", "mark_stages"), {"approval_id": approval_id, "stages": list(stages)})
    return [row[0] for row in await cursor.fetchall()]


async def notify_next(connection: Connection, approval_id: UUID, next_s: float | None) -> None:
    """Say when people are to be told next, in seconds after the request; None for never."""
    await connection.execute(statement("notify", "notify_next"), {"approval_id": approval_id, "next_s": next_s})


async def escalate(connection: Connection, escalations: Sequence[Escalation], limit: int) -> list[Escalated]:
    """Let further roles decide what nobody has decided in time."""
    given = {"escalations": _listed(escalations), "limit": limit}
    cursor = await connection.execute(statement("notify", "escalate"), given)
    return [Escalated(*row) for row in await cursor.fetchall()]


async def due_alerts(connection: Connection, causes: Sequence[str] | None, limit: int) -> list[DueAlert]:
    """Lock open alerts of these causes, or of any where None is given, that are to be told now."""
    given = {"causes": None if causes is None else list(causes), "limit": limit}
    cursor = await connection.execute(statement("notify", "due_alerts"), given)
    return [DueAlert(*row) for row in await cursor.fetchall()]


async def alert_told(connection: Connection, alert_id: UUID, owner: str, next_s: float | None) -> None:
    """Keep whose an alert is and that it was told; it is told again in `next_s` seconds, or never."""
    await connection.execute(statement("notify", "alert_told"), {"alert_id": alert_id, "owner": owner, "next_s": next_s})


async def long_queued(connection: Connection, older_s: float) -> list[tuple[str, str, float]]:
    """Tenants whose jobs have been due for longer than so many seconds: tenant, an action, and the age in seconds."""
    cursor = await connection.execute(statement("notify", "long_queued"), {"older_s": older_s})
    return [(row[0], row[1], row[2]) for row in await cursor.fetchall()]
