"""What a person is told about a job or an effect, once per cause while it is open; and what is asked before a retry."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID

from deedbox.store.loader import statement
from deedbox.store.pool import Connection
from deedbox.store.rows import rows


@dataclass(frozen=True, slots=True)
class Alert:
    """Why somebody should look at a job, at one of its effects or at the house, in a word and in a sentence.

    The word is one of deedbox.model.alarms.CAUSES; the sentence can be said aloud. `tenant` is needed only where there is no
    job and no effect whose tenant it would be.
    """

    alert_id: UUID
    job_id: UUID | None
    cause: str
    message: str
    effect_id: UUID | None = None
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class AlertLine:
    """An alert as people see it; `age_s` is in seconds since it was opened, `told` how often its owner was told."""

    alert_id: UUID
    cause: str
    message: str
    job_id: UUID | None
    effect_id: UUID | None
    owner: str | None
    opened_at: datetime
    age_s: float
    told: int
    closed_at: datetime | None
    closed_by: str | None
    closed_reason: str | None


async def open_alerts(connection: Connection, alerts: Sequence[Alert]) -> None:
    """Open alerts; one that is open for the same tenant, job, effect and cause stays as it is."""
    await connection.execute(statement("alert", "open_alerts"), {"alerts": rows([asdict(item) for item in alerts])})


async def open_once(connection: Connection, item: Alert) -> None:
    """Open an alert unless one with the same cause and the same words is open in the job's tenant."""
    await connection.execute(statement("alert", "open_once"), asdict(item))


async def living(connection: Connection, tenant: str, *, audience: Iterable[str], deciding: Iterable[str]) -> int:
    """How many people of a tenant are there, not disabled, with a role of the audience and one that may decide."""
    cursor = await connection.execute(
        statement("alert", "living"), {"tenant": tenant, "audience": list(audience), "deciding": list(deciding)}
    )
    row = await cursor.fetchone()
    return int(row[0]) if row else 0


async def retried_before(connection: Connection, job_id: UUID, round_number: int, failure_class: str) -> bool:
    """Whether an earlier attempt of this round was tried again for the same class of failure."""
    cursor = await connection.execute(
        statement("alert", "retried_before"), {"job_id": job_id, "round": round_number, "class": failure_class}
    )
    row = await cursor.fetchone()
    return bool(row and row[0])


async def listed(
    connection: Connection,
    tenant: str,
    *,
    is_open: bool | None,
    limit: int,
    before: UUID | None = None,
    alert_id: UUID | None = None,
) -> list[AlertLine]:
    """Alerts of a tenant, newest first: open ones, closed ones, or both where None is given."""
    cursor = await connection.execute(
        statement("alert", "listed"),
        {"tenant": tenant, "open": is_open, "limit": limit, "before": before, "alert_id": alert_id},
    )
    return [AlertLine(*row) for row in await cursor.fetchall()]


async def close(connection: Connection, tenant: str, alert_id: UUID, *, closed_by: UUID, reason: str) -> str | None:
    """Close an open alert; returns its cause, None where there is none that is open."""
    cursor = await connection.execute(
        statement("alert", "close"), {"tenant": tenant, "alert_id": alert_id, "closed_by": closed_by, "reason": reason}
    )
    row = await cursor.fetchone()
    return None if row is None else str(row[0])


async def open_causes(connection: Connection) -> dict[str, int]:
    """How many alerts are open, by cause."""
    cursor = await connection.execute(statement("alert", "open_causes"))
    return {row[0]: row[1] for row in await cursor.fetchall()}
