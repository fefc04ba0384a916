"""Reading why a pending effect does not go out: each thing that its lease asks, for itself."""

from typing import Any
from uuid import UUID

from psycopg.rows import dict_row

from deedbox.store.loader import statement
from deedbox.store.pool import Connection


async def facts(connection: Connection, tenant: str, effect_id: UUID) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
    """What a lease reads of an effect, and the rows of its target; None for one that is not pending or of another tenant."""
    given = {"tenant": tenant, "effect_id": effect_id}
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement("waits", "facts"), given)
        row = await cursor.fetchone()
        if row is None:
            return None
        await cursor.execute(statement("waits", "gates"), given)
        return row, await cursor.fetchall()


async def first(connection: Connection, tenant: str, connector: str, target: str) -> UUID | None:
    """The effect that waits first for a target; None where none does."""
    given = {"tenant": tenant, "connector": connector, "target": target}
    cursor = await connection.execute(statement("waits", "first"), given)
    row = await cursor.fetchone()
    return None if row is None else UUID(str(row[0]))
