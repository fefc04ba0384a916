"""What callers are asked while a call is under way: the secret that seals it, their answers, and the way back to who asked."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from deedbox.store.loader import statement
from deedbox.store.pool import Connection


async def secret(connection: Connection, name: str) -> bytes:
    """The secret of this name that all processes share. Raises KeyError where there is none."""
    cursor = await connection.execute(statement("asked", "secret"), {"name": name})
    row = await cursor.fetchone()
    if row is None:
        raise KeyError(name)
    return bytes(row[0])


async def shown(connection: Connection, job_id: UUID) -> frozenset[UUID]:
    """The approvals of a job about whose page its caller's client has answered."""
    cursor = await connection.execute(statement("asked", "shown"), {"job_id": job_id})
    return frozenset(row[0] for row in await cursor.fetchall())


async def note_shown(connection: Connection, job_id: UUID, answers: Mapping[UUID, str]) -> list[UUID]:
    """Keep the answers, once for each open approval of the job; returns those that were kept."""
    cursor = await connection.execute(
        statement("asked", "note_shown"),
        {"job_id": job_id, "approvals": list(answers), "answers": list(answers.values())},
    )
    return [row[0] for row in await cursor.fetchall()]


async def reply(connection: Connection, pieces: Sequence[str]) -> None:
    """Hand an answer to whichever process asked for it."""
    await connection.execute(statement("asked", "reply"), {"pieces": list(pieces)})
