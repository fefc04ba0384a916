"""Reading what the questions of an audit are answered from: one job, its request, its effects, its decisions, its attempts."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from psycopg.rows import dict_row

from deedbox.store.loader import statement
from deedbox.store.pool import Connection
from deedbox.store.views import Reader

Part = Literal["effects", "approvals", "verdicts", "attempts", "parents", "children"]


@dataclass(frozen=True, slots=True)
class Found:
    """A job that a word means, what the word is, and the effect where it names one."""

    job_id: UUID
    found_as: str
    effect_id: UUID | None


@dataclass(frozen=True, slots=True)
class BoundKey:
    """What a key is bound to; `visible` is None where the records of the job are gone."""

    job_id: UUID
    erased: bool
    final_state: str | None
    created_at: datetime
    expires_at: datetime | None
    visible: bool | None


async def find(
    connection: Connection, reader: Reader, what: str, *, id_: UUID | None, key_sha256: bytes, limit: int
) -> list[Found]:
    """The jobs that somebody may see and means by a word, newest first."""
    cursor = await connection.execute(
        statement("answers", "find"),
        {**reader.parameters, "what": what, "id": id_, "key_sha256": key_sha256, "limit": limit},
    )
    return [Found(*row) for row in await cursor.fetchall()]


async def key(connection: Connection, reader: Reader, action: str, key_sha256: bytes) -> BoundKey | None:
    """What a key is bound to, or None where it is free."""
    cursor = await connection.execute(
        statement("answers", "key"), {**reader.parameters, "action": action, "key_sha256": key_sha256}
    )
    row = await cursor.fetchone()
    return BoundKey(*row) if row else None


async def request(connection: Connection, job_id: UUID) -> dict[str, Any]:
    """Who asked for a job, by which call, and where it stands, by names."""
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement("answers", "request"), {"job_id": job_id})
        return await cursor.fetchone() or {}


async def calls(
    connection: Connection, reader: Reader, *, id_: UUID | None, jobs: Sequence[UUID], limit: int
) -> list[dict[str, Any]]:
    """The calls that the reader may see, by the id of one or of their jobs, newest first."""
    async with connection.cursor(row_factory=dict_row) as cursor:
        given = {**reader.parameters, "id": id_, "jobs": list(jobs), "limit": limit}
        await cursor.execute(statement("answers", "calls"), given)
        return await cursor.fetchall()


async def part(connection: Connection, name: Part, job_id: UUID, effect_id: UUID | None) -> list[dict[str, Any]]:
    """One part of a job's story by names; with `effect_id` what belongs to that effect, where the part can tell."""
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement("answers", name), {"job_id": job_id, "effect_id": effect_id})
        return await cursor.fetchall()
