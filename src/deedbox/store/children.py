"""Jobs that other jobs have called: how deep they stand, and which of them have not ended."""

from uuid import UUID

from deedbox.store.loader import statement
from deedbox.store.pool import Connection


async def depth(connection: Connection, job_id: UUID) -> int:
    """How many jobs stand above this one, 20 at most."""
    cursor = await connection.execute(statement("children", "depth"), {"job_id": job_id})
    row = await cursor.fetchone()
    return int(row[0]) if row else 0


async def open_children(connection: Connection, job_id: UUID) -> list[UUID]:
    """The jobs that this one has called and that have not ended, by id."""
    cursor = await connection.execute(statement("children", "open_children"), {"job_id": job_id})
    return [row[0] for row in await cursor.fetchall()]
