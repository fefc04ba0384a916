"""What a person is told about a job, once per cause while it is open, and what is asked before it is tried again."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from psycopg.types.json import Json

from deedbox.store.loader import statement
from deedbox.store.pool import Connection


@dataclass(frozen=True, slots=True)
class Alert:
    """Why somebody should look at a job, in a word and in a sentence that can be said aloud."""

    alert_id: UUID
    job_id: UUID
    cause: str
    message: str


async def open_alerts(connection: Connection, alerts: Sequence[Alert]) -> None:
    """Open alerts; one that is open for the same job and cause stays as it is."""
    given = [
        {"alert_id": str(item.alert_id), "job_id": str(item.job_id), "cause": item.cause, "message": item.message}
        for item in alerts
    ]
    await connection.execute(statement("alert", "open_alerts"), {"alerts": Json(given)})


async def retried_before(connection: Connection, job_id: UUID, round_number: int, failure_class: str) -> bool:
    """Whether an earlier attempt of this round was tried again for the same class of failure."""
    cursor = await connection.execute(
        statement("alert", "retried_before"), {"job_id": job_id, "round": round_number, "class": failure_class}
    )
    row = await cursor.fetchone()
    return bool(row and row[0])
