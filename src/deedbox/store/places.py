"""What bounds rules: the days on which they let something out, what persons said of their samples, the secret of the draw."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple
from uuid import UUID

from deedbox.store.loader import statement
from deedbox.store.pool import Connection
from deedbox.store.rows import rows, uuids

MOST_COUNTED = 100
"""So many of the latest decisions on a sample make the agreement."""


class Key(NamedTuple):
    """Whose places are taken: a rule of an action of a tenant, by its name, so that a changed rule gets no second day."""

    tenant: str
    action: str
    rule: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """A rule whose day is to be locked; `identity` names its sample, `valid_until` is a time with a zone."""

    key: Key
    identity: str
    valid_until: str


@dataclass(frozen=True, slots=True)
class Day:
    """A rule today, locked: the places used, whether it is still valid, and with how many of the sample persons agreed."""

    day: date
    used: int
    valid: bool
    asked: int
    agreed: int
    rule: str


@dataclass(frozen=True, slots=True)
class Draw:
    """What a job is drawn with: the secret, and the version of the policy at its first draw."""

    secret: bytes
    policy_version: str


async def roles(connection: Connection, job_ids: Iterable[UUID]) -> dict[UUID, str]:
    """The role under which each job was asked for."""
    cursor = await connection.execute(statement("places", "roles"), {"jobs": uuids(job_ids)})
    return {row[0]: str(row[1]) for row in await cursor.fetchall()}


async def lock_days(connection: Connection, wanted: Sequence[Wanted]) -> dict[Key, Day]:
    """Lock the rules' rows of today, in the order of their keys, which is the order of `wanted`. Needs a transaction."""
    given = rows(
        [
            {
                "tenant": item.key.tenant,
                "action": item.key.action,
                "rule": item.key.rule,
                "identity": item.identity,
                "valid_until": item.valid_until,
            }
            for item in wanted
        ]
    )
    cursor = await connection.execute(statement("places", "open_days"), {"wanted": given})
    row = await cursor.fetchone()
    if row is None:
        raise RuntimeError("the database did not tell its day")
    cursor = await connection.execute(
        statement("places", "lock_days"), {"wanted": given, "day": row[0], "counted": MOST_COUNTED}
    )
    return {
        Key(str(found[0]), str(found[1]), str(found[2])): Day(row[0], found[3], found[4], found[5], found[6], str(found[7]))
        for found in await cursor.fetchall()
    }


async def take(connection: Connection, taken: Mapping[Key, tuple[date, int]]) -> None:
    """Take so many places of rules whose days are locked."""
    given = [
        {"tenant": key.tenant, "action": key.action, "rule": key.rule, "day": day.isoformat(), "count": count}
        for key, (day, count) in taken.items()
    ]
    await connection.execute(statement("places", "take"), {"taken": rows(given)})


async def draws(connection: Connection, versions: Mapping[UUID, str]) -> dict[UUID, Draw]:
    """What these jobs are drawn with; `versions` are those of their policies now, which count at a first draw."""
    given = rows([{"job_id": job_id, "version": version} for job_id, version in versions.items()])
    cursor = await connection.execute(statement("places", "draws"), {"jobs": given})
    return {row[0]: Draw(bytes(row[1]), str(row[2])) for row in await cursor.fetchall()}
