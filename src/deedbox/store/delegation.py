"""Says that were handed on: kept, withdrawn and listed."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from deedbox.store.loader import statement
from deedbox.store.pool import Connection

LONGEST_S = 90 * 86400.0
"""How far ahead a say in everything may be handed on, in seconds."""


@dataclass(frozen=True, slots=True)
class Somebody:
    """A principal of the tenant, by name."""

    principal_id: UUID
    name: str
    kind: str
    disabled: bool
    roles: list[str]


@dataclass(frozen=True, slots=True)
class Delegation:
    """A say that was handed on; `counts` while it was neither withdrawn nor is over."""

    delegation_id: UUID
    holder: str
    to: str
    approval_id: UUID | None
    reason: str | None
    made_at: datetime
    until: datetime | None
    withdrawn_at: datetime | None
    counts: bool


async def person(connection: Connection, tenant: str, name: str) -> Somebody | None:
    """Somebody of the tenant."""
    cursor = await connection.execute(statement("delegation", "person"), {"tenant": tenant, "name": name})
    row = await cursor.fetchone()
    return Somebody(*row) if row else None


async def hand_over(
    connection: Connection,
    *,
    delegation_id: UUID,
    tenant: str,
    holder: UUID,
    to: UUID,
    approval_id: UUID | None,
    reason: str | None,
    how: str,
    until: datetime | None,
) -> datetime | None:
    """Keep a delegation, and when it was made; None where `until` has passed or is more than LONGEST_S away."""
    given = {
        "delegation_id": delegation_id,
        "tenant": tenant,
        "holder": holder,
        "to": to,
        "approval_id": approval_id,
        "reason": reason,
        "how": how,
        "until": until,
        "most_s": LONGEST_S,
    }
    cursor = await connection.execute(statement("delegation", "hand_over"), given)
    row = await cursor.fetchone()
    return row[1] if row else None


async def withdraw(connection: Connection, tenant: str, delegation_id: UUID, principal_id: UUID) -> tuple[UUID, UUID] | None:
    """End a delegation that this person gave or was given: from whom and to whom; None where there is none that counts."""
    given = {"tenant": tenant, "delegation_id": delegation_id, "principal_id": principal_id}
    cursor = await connection.execute(statement("delegation", "withdraw"), given)
    row = await cursor.fetchone()
    return (row[0], row[1]) if row else None


async def mine(connection: Connection, tenant: str, principal_id: UUID, limit: int) -> list[Delegation]:
    """What a person handed on and was handed, the newest first."""
    given = {"tenant": tenant, "principal_id": principal_id, "limit": limit}
    cursor = await connection.execute(statement("delegation", "mine"), given)
    return [Delegation(*row) for row in await cursor.fetchall()]
