"""Reading the ledger of effects as operators see it: each with its receipts and the look-ups made."""

from typing import Any
from uuid import UUID

from psycopg.rows import dict_row

from deedbox.store.loader import statement
from deedbox.store.pool import Connection


async def list_effects(
    connection: Connection,
    tenant: str,
    *,
    state: str | None = None,
    effect_id: UUID | None = None,
    before: UUID | None = None,
    limit: int = 100,
) -> list[dict[str, Any]]:
    """Effects of a tenant, newest first, each as a mapping of its columns; `age_s` is the time in its state."""
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            statement("ledger", "list_effects"),
            {"tenant": tenant, "state": state, "effect_id": effect_id, "before": before, "limit": limit},
        )
        return await cursor.fetchall()


async def receipts(connection: Connection, job_id: UUID, effect_id: UUID) -> list[dict[str, Any]]:
    """What providers, look-ups and people said of an effect, oldest first."""
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement("ledger", "receipts"), {"job_id": job_id, "effect_id": effect_id})
        return await cursor.fetchall()


async def probes(connection: Connection, effect_id: UUID) -> list[dict[str, Any]]:
    """Who asked about an effect and what was said, oldest first."""
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement("ledger", "probes"), {"effect_id": effect_id})
        return await cursor.fetchall()
