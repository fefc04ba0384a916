"""When effects that nobody knows about are looked up, and when people are reminded of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from deedbox.store.loader import statement
from deedbox.store.pool import Connection


@dataclass(frozen=True, slots=True)
class LookUps:
    """When the schedule asks: `first_s` seconds after an effect became unknown, then after waits that double up to `longest_s`.

    After `tries` it asks no more, and the effect is left to people.
    """

    first_s: float = 30.0
    longest_s: float = 86400.0
    tries: int = 16


@dataclass(frozen=True, slots=True)
class Due:
    """An unknown effect to look up now; `number` counts its look-ups by the schedule, and `last` says that none follows."""

    effect_id: UUID
    job_id: UUID
    tenant: str
    connector: str
    target: str
    slot: str
    number: int
    last: bool


async def next_look_up(connection: Connection, plan: LookUps, connectors: Sequence[str]) -> float | None:
    """Seconds until the schedule has something to ask one of these connectors; None where nothing is unknown to them."""
    cursor = await connection.execute(
        statement("reconcile", "next_look_up"), {"first_s": plan.first_s, "connectors": list(connectors)}
    )
    row = await cursor.fetchone()
    return float(row[0]) if row and row[0] is not None else None


async def claim(connection: Connection, plan: LookUps, connectors: Sequence[str], *, limit: int) -> list[Due]:
    """Take at most so many effects whose look-up is due; nobody else gets them before their next one."""
    cursor = await connection.execute(
        statement("reconcile", "claim"),
        {
            "first_s": plan.first_s,
            "longest_s": plan.longest_s,
            "tries": plan.tries,
            "connectors": list(connectors),
            "limit": limit,
        },
    )
    return [Due(*row) for row in await cursor.fetchall()]


async def look_up_in(connection: Connection, effect_id: UUID, wait_s: float) -> None:
    """Look an unknown effect up again after so many seconds, unless that comes sooner anyway."""
    await connection.execute(statement("reconcile", "look_up_in"), {"effect_id": effect_id, "wait_s": wait_s})


async def leave_to_people(connection: Connection, effect_id: UUID) -> None:
    """Ask no more about an effect by itself."""
    await connection.execute(statement("reconcile", "leave_to_people"), {"effect_id": effect_id})


async def remind(connection: Connection, *, after_s: float, again_s: float, limit: int = 500) -> list[UUID]:
    """Open an alert for each effect that has been unknown for `after_s` seconds, once in `again_s`; returns these effects."""
    cursor = await connection.execute(
        statement("alert", "unknown_long"), {"after_s": after_s, "again_s": again_s, "limit": limit}
    )
    return [row[0] for row in await cursor.fetchall()]
