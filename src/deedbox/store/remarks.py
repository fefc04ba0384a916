"""What people say of an approval before it is decided, and until when one of them looks away from it."""

from datetime import datetime
from uuid import UUID

from deedbox.store.loader import statement
from deedbox.store.pool import Connection


async def comment(
    connection: Connection, *, comment_id: UUID, approval_id: UUID, principal_id: UUID, text: str, how: str
) -> datetime:
    """Keep what a person says, and return when it was said."""
    given = {"comment_id": comment_id, "approval_id": approval_id, "principal_id": principal_id, "text": text, "how": how}
    cursor = await connection.execute(statement("remarks", "comment"), given)
    row = await cursor.fetchone()
    if row is None:
        raise RuntimeError("a comment was not kept")
    return row[0]


async def comments(connection: Connection, approval_id: UUID, limit: int) -> list[tuple[str, str, datetime]]:
    """Who said what, and when, first to last."""
    cursor = await connection.execute(statement("remarks", "comments"), {"approval_id": approval_id, "limit": limit})
    return [(row[0], row[1], row[2]) for row in await cursor.fetchall()]


async def snooze(
    connection: Connection, *, approval_id: UUID, principal_id: UUID, until: datetime | None, for_s: float | None
) -> datetime | None:
    """Look away until a moment, or for so many seconds; until when, or None where that has passed or the deadline is sooner."""
    given = {"approval_id": approval_id, "principal_id": principal_id, "until": until, "for_s": for_s}
    cursor = await connection.execute(statement("remarks", "snooze"), given)
    row = await cursor.fetchone()
    return None if row is None else row[0]


async def wake(connection: Connection, *, approval_id: UUID, principal_id: UUID) -> bool:
    """Look at it again; False where nobody looked away."""
    given = {"approval_id": approval_id, "principal_id": principal_id}
    cursor = await connection.execute(statement("remarks", "wake"), given)
    return await cursor.fetchone() is not None


async def snoozed(connection: Connection, tenant: str, principal_id: UUID, limit: int) -> dict[UUID, datetime]:
    """From which approvals a person looks away, and until when."""
    given = {"tenant": tenant, "principal_id": principal_id, "limit": limit}
    cursor = await connection.execute(statement("remarks", "snoozed"), given)
    return {row[0]: row[1] for row in await cursor.fetchall()}
