"""How a job ends once its effects have ended, and how it is canceled before: always under its queue row's lock."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from deedbox.model.lifecycle import EFFECT
from deedbox.store.decision import lock_job
from deedbox.store.ids import IdSource
from deedbox.store.loader import statement
from deedbox.store.pool import Connection


async def finish_job(connection: Connection, ids: IdSource, job_id: UUID) -> str | None:
    """End a dispatching job all of whose acts have ended, under its queue row's lock; returns the final state, else None.

    All completed: completed. All canceled: canceled. Else failed_terminal, with what was done and what was not.
    """
    job = await lock_job(connection, job_id)
    if job is None or job.state != "dispatching":
        return None
    cursor = await connection.execute(statement("ending", "effects_of_job"), {"job_id": job_id})
    done: list[dict[str, Any]] = []
    not_done: list[dict[str, Any]] = []
    for effect_id, connector, target, slot, state, failure_class, code, message, provider_id in await cursor.fetchall():
        if state not in EFFECT.ended:
            return None
        about = {"effect_id": str(effect_id), "connector": connector, "target": target, "slot": slot}
        if state == "completed":
            done.append({**about, "provider_id": provider_id})
        else:
            not_done.append({**about, "state": state, "class": failure_class, "code": code, "message": message})
    cursor = await connection.execute(statement("ending", "declined_groups"), {"job_id": job_id})
    declined = [{"group": row[0], "state": row[1], "reason": row[2]} for row in await cursor.fetchall()]
    ending = _ending(done, not_done, declined)
    await end_job(connection, job_id, ending, event_id=ids.new(), done=done, not_done=not_done, declined=declined)
    return ending.state


@dataclass(frozen=True, slots=True)
class JobEnding:
    """How a job ends and what its last event says."""

    state: str
    event_type: str
    event: Mapping[str, Any]
    failure_class: str | None = None
    code: str | None = None
    message: str | None = None


def _ending(done: list[dict[str, Any]], not_done: list[dict[str, Any]], declined: list[dict[str, Any]]) -> JobEnding:
    if not not_done:
        summary = f"{len(done)} done" + (f", {len(declined)} declined" if declined else "")
        return JobEnding("completed", "job.completed", {"summary": summary})
    if not done and all(item["state"] == "canceled" for item in not_done):
        return canceled("Every effect was canceled before it was sent.")
    code = "partially_done" if done else "undelivered"
    message = f"{len(done)} of {len(done) + len(not_done)} effects were done."
    failure_class = next((item["class"] for item in not_done if item["class"]), "canceled")
    return JobEnding(
        "failed_terminal",
        "job.failed",
        {"code": code, "message": message, "retryable": False},
        failure_class,
        code,
        message,
    )


def canceled(message: str, *, by: str | None = None) -> JobEnding:
    """The ending of a job that was canceled, by whom where somebody did."""
    event = {"code": "canceled", "message": message, **({} if by is None else {"by": by})}
    return JobEnding("canceled", "job.canceled", event, "canceled", "canceled", message)


async def end_job(
    connection: Connection,
    job_id: UUID,
    ending: JobEnding,
    *,
    event_id: UUID,
    done: Sequence[Mapping[str, Any]] = (),
    not_done: Sequence[Mapping[str, Any]] = (),
    declined: Sequence[Mapping[str, Any]] = (),
) -> None:
    """End a job whose queue row is locked."""
    await connection.execute(
        statement("ending", "end_job"),
        {
            "job_id": job_id,
            "state": ending.state,
            "class": ending.failure_class,
            "code": ending.code,
            "message": ending.message,
            "done": Jsonb(list(done)),
            "not_done": Jsonb(list(not_done)),
            "declined": Jsonb(list(declined)),
            "event_id": event_id,
            "event_type": ending.event_type,
            "event": Jsonb(dict(ending.event)),
        },
    )


async def lock_effects(connection: Connection, job_id: UUID) -> list[tuple[UUID, str, str]]:
    """Lock all acts of a job whose queue row is locked: id, slot and state of each."""
    cursor = await connection.execute(statement("ending", "lock_effects"), {"job_id": job_id})
    return [(row[0], str(row[1]), str(row[2])) for row in await cursor.fetchall()]


async def open_approvals(connection: Connection, job_id: UUID) -> list[UUID]:
    """Lock the approvals of a job that are still open."""
    cursor = await connection.execute(statement("ending", "open_approvals"), {"job_id": job_id})
    return [row[0] for row in await cursor.fetchall()]


async def ask_to_stop(connection: Connection, job_id: UUID) -> bool:
    """Raise the cancel flag of a running job; False when it does not run."""
    cursor = await connection.execute(statement("ending", "ask_to_stop"), {"job_id": job_id})
    return await cursor.fetchone() is not None
