"""How long ago a person proved who it is."""

from deedbox.store.loader import statement
from deedbox.store.pool import Connection


async def proved_s(connection: Connection, session_sha256: bytes) -> float | None:
    """How many seconds ago the person of this session did so; None where that is not known, and for one that is not alive."""
    cursor = await connection.execute(statement("fresh", "proved_s"), {"session_sha256": session_sha256})
    row = await cursor.fetchone()
    return None if row is None or row[0] is None else float(row[0])
