"""The database half of the switch: two roots, and rows that narrow what an open root lets through.

A lease holds both roots shared; a change holds its root exclusively. So a switch-off waits for the leases that read "on",
and none that reads "on" starts after it returned.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from deedbox.model.fingerprint import jcs, sha256
from deedbox.store.loader import statement
from deedbox.store.pool import Connection

Root = Literal["acts", "notices"]


@dataclass(frozen=True, slots=True)
class SwitchRow:
    """One row of the switch; a None among tenant, action, connector and target stands for any."""

    switch_id: str
    kind: str
    tenant: str | None
    action: str | None
    connector: str | None
    target: str | None
    is_on: bool
    owner: str | None
    changed_by: str
    reason: str
    changed_at: datetime
    tested_at: datetime | None
    tested_by: str | None

    @property
    def opens(self) -> bool:
        """Whether this is a root that lets things out: on, of its kind, and for all. Any other row is no root."""
        kind = {"acts": "act", "notices": "notice"}.get(self.switch_id)
        return self.is_on and self.kind == kind and (self.tenant, self.action, self.connector, self.target) == (None,) * 4


@dataclass(frozen=True, slots=True)
class Narrow:
    """The part of all acts that a narrowing row is about; a None stands for any."""

    tenant: str | None = None
    action: str | None = None
    connector: str | None = None
    target: str | None = None

    @property
    def switch_id(self) -> str:
        """The same part has the same row."""
        return "acts:" + sha256(jcs([self.tenant, self.action, self.connector, self.target])).hex()[:32]


async def take_root(connection: Connection, root: Root = "acts") -> bool | None:
    """Wait for every lease in progress and hold later ones back until the transaction ends; returns what the root is.

    None where there is no such root, and then nothing is held.
    """
    cursor = await connection.execute(statement("switch", "take_root"), {"switch_id": root})
    row = await cursor.fetchone()
    return bool(row[0]) if row else None


async def turn_root(
    connection: Connection, root: Root, *, is_on: bool, changed_by: str, reason: str, owner: str | None = None
) -> bool | None:
    """Turn a root after the leases in progress have ended; returns what it was, or None where there is no such root."""
    before = await take_root(connection, root)
    await connection.execute(
        statement("switch", "turn_root"),
        {"switch_id": root, "is_on": is_on, "changed_by": changed_by, "reason": reason, "owner": owner},
    )
    return before


async def turn_narrow(connection: Connection, narrow: Narrow, *, is_on: bool, changed_by: str, reason: str) -> None:
    """Turn a part of all acts after the leases in progress have ended."""
    await take_root(connection)
    await connection.execute(
        statement("switch", "turn_narrow"),
        {
            "switch_id": narrow.switch_id,
            "tenant": narrow.tenant,
            "action": narrow.action,
            "connector": narrow.connector,
            "target": narrow.target,
            "is_on": is_on,
            "changed_by": changed_by,
            "reason": reason,
        },
    )


async def rows(connection: Connection, tenant: str) -> list[SwitchRow]:
    """The roots and what narrows them for a tenant."""
    cursor = await connection.execute(statement("switch", "rows"), {"tenant": tenant})
    return [SwitchRow(*row) for row in await cursor.fetchall()]


async def lets_through(connection: Connection, effect_id: UUID, fence: int) -> tuple[bool, bool]:
    """Whether the lease with this fence still holds, and whether the database half lets the effect out at this moment.

    Neither, for an effect that is not there.
    """
    cursor = await connection.execute(statement("switch", "lets_through"), {"effect_id": effect_id, "fence": fence})
    row = await cursor.fetchone()
    return (bool(row[0]), bool(row[1])) if row else (False, False)


async def in_flight(connection: Connection, part: Narrow | None = None) -> int:
    """How many acts are on the wire, of all or of a part."""
    part = part or Narrow()
    given = {"tenant": part.tenant, "action": part.action, "connector": part.connector, "target": part.target}
    cursor = await connection.execute(statement("switch", "in_flight"), given)
    row = await cursor.fetchone()
    return int(row[0]) if row else 0


async def all_on(connection: Connection) -> None:
    """Turn every row of acts on. Only for a transaction that is rolled back."""
    await connection.execute(statement("switch", "all_on"))


async def keep_test(connection: Connection, by: str) -> None:
    """Keep that the switch was tested just now, and by whom."""
    await connection.execute(statement("switch", "tested"), {"by": by})


async def environment(connection: Connection) -> dict[str, bool]:
    """The environment half by living process with a dispatcher, as each published it at its start."""
    cursor = await connection.execute(statement("switch", "environment"))
    return {str(row[0]): bool(row[1]) for row in await cursor.fetchall()}
