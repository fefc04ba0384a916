"""Notices on the outbox as the dispatcher and the pruning see them; only the gate makes them (`store/admission.py`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from deedbox.store.loader import statement
from deedbox.store.pool import Connection

# Children before parents.
_FORGET = ("forget_receipts", "forget_effects", "forget_bodies", "forget_verdicts", "forget_notices")


@dataclass(frozen=True, slots=True)
class About:
    """What a notice is about: an approval and whether it still waits, or none."""

    approval_id: UUID | None = None
    waits: bool = False


async def about(connection: Connection, effect_id: UUID) -> About:
    """What a notice is about."""
    cursor = await connection.execute(statement("notices", "about"), {"effect_id": effect_id})
    row = await cursor.fetchone()
    return About() if row is None else About(row[0], bool(row[1]))


async def cancel_of_approval(
    connection: Connection, approval_id: UUID, code: str = "approval_decided", message: str = "The approval has ended."
) -> int:
    """Withdraw what has not been sent about an approval that this transaction has locked; returns how many."""
    given = {"approval_id": approval_id, "code": code, "message": message}
    return (await connection.execute(statement("notices", "cancel_of_approval"), given)).rowcount


async def cancel_of_alert(connection: Connection, alert_id: UUID) -> int:
    """Withdraw what has not been sent about an alert that this transaction closes; returns how many."""
    return (await connection.execute(statement("notices", "cancel_of_alert"), {"alert_id": alert_id})).rowcount


async def forget_old(connection: Connection, keep_s: float, after: UUID, limit: int) -> UUID | None:
    """Remove the next notices that were made more than `keep_s` seconds ago and have ended, with all that belongs to them.

    Returns the last of them, None at the end.
    """
    cursor = await connection.execute(statement("notices", "old"), {"keep_s": keep_s, "after": after, "limit": limit})
    effects = [row[0] for row in await cursor.fetchall()]
    if not effects:
        return None
    given = {"effects": effects, "first": effects[0], "last": effects[-1]}
    for name in _FORGET:
        await connection.execute(statement("notices", name), given)
    return effects[-1]


async def prune_of_jobs(connection: Connection, jobs: Sequence[UUID]) -> None:
    """Remove the bodies of what was said about these jobs."""
    await connection.execute(statement("notices", "prune_of_jobs"), {"jobs": list(jobs)})
