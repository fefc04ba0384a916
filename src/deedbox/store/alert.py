"""What a person is told about a job or an effect, once per cause while it is open; and what is asked before a retry."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from uuid import UUID

from deedbox.store.loader import statement
from deedbox.store.pool import Connection
from deedbox.store.rows import rows


@dataclass(frozen=True, slots=True)
class Alert:
    """Why somebody should look at a job or at one of its effects, in a word and in a sentence that can be said aloud."""

    alert_id: UUID
    job_id: UUID
    cause: str
    message: str
    effect_id: UUID | None = None


async def open_alerts(connection: Connection, alerts: Sequence[Alert]) -> None:
    """Open alerts; one that is open for the same job, effect and cause stays as it is."""
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
