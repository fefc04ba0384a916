"""Reading approvals as people see them."""

from typing import Any
from uuid import UUID

from deedbox.store.decision import Handed, handed_of
from deedbox.store.loader import statement
from deedbox.store.pool import Connection


async def card(connection: Connection, tenant: str, approval_id: UUID) -> tuple[Any, ...] | None:
    """The columns of `cards.sql: card`, or None."""
    cursor = await connection.execute(statement("cards", "card"), {"tenant": tenant, "approval_id": approval_id})
    return await cursor.fetchone()


async def votes(connection: Connection, approval_id: UUID) -> list[tuple[Any, ...]]:
    """Name, decision and time of each vote, and the name of whose say it was."""
    cursor = await connection.execute(statement("cards", "votes"), {"approval_id": approval_id})
    return await cursor.fetchall()


async def documents(connection: Connection, job_id: UUID) -> list[tuple[UUID, str]]:
    """Ids and names of the uploads a job carries."""
    cursor = await connection.execute(statement("cards", "documents"), {"job_id": job_id})
    return [(row[0], row[1]) for row in await cursor.fetchall()]


async def held_input(connection: Connection, approval_id: UUID) -> tuple[str, str, Any] | None:
    """Purpose and rule of an approval, and where it is about a job's arguments, those."""
    cursor = await connection.execute(statement("cards", "held_input"), {"approval_id": approval_id})
    row = await cursor.fetchone()
    return (str(row[0]), str(row[1]), row[2]) if row else None


async def sent(connection: Connection, job_id: UUID, approval_id: UUID) -> list[tuple[Any, ...]]:
    """What became of what an approval let out: slot, connector, target, state, the provider's id, and since when."""
    cursor = await connection.execute(statement("cards", "sent"), {"job_id": job_id, "approval_id": approval_id})
    return await cursor.fetchall()


async def announced(connection: Connection, tenant: str, limit: int) -> list[tuple[Any, ...]]:
    """What of a tenant waits for its window to pass."""
    cursor = await connection.execute(statement("cards", "announced"), {"tenant": tenant, "limit": limit})
    return await cursor.fetchall()


async def inbox(connection: Connection, tenant: str, limit: int) -> list[tuple[Any, ...]]:
    """What waits for people of a tenant."""
    cursor = await connection.execute(statement("cards", "inbox"), {"tenant": tenant, "limit": limit})
    return await cursor.fetchall()


async def voted(connection: Connection, tenant: str, principal_id: UUID, limit: int) -> list[tuple[Any, ...]]:
    """What a person has decided or voted on, the newest first, in the columns of `inbox`."""
    given = {"tenant": tenant, "principal_id": principal_id, "limit": limit}
    cursor = await connection.execute(statement("cards", "voted"), given)
    return await cursor.fetchall()


async def handed(connection: Connection, tenant: str, principal_id: UUID, limit: int) -> list[tuple[UUID | None, Handed]]:
    """The says that are handed to a person now, each with the approval it is for (None: all)."""
    given = {"tenant": tenant, "principal_id": principal_id, "limit": limit}
    cursor = await connection.execute(statement("cards", "handed"), given)
    return [(row[0], handed_of([row[1]])[0]) for row in await cursor.fetchall()]
