"""How long ago a person proved who it is."""

from deedbox.store.loader import statement
from deedbox.store.pool import Connection


async def opened_s(connection: Connection, session_sha256: bytes) -> float | None:
    """How many seconds ago this session was opened; None for one that is not alive."""
    cursor = await connection.execute(statement("fresh", "opened_s"), {"session_sha256": session_sha256})
    row = await cursor.fetchone()
    return None if row is None else float(row[0])
