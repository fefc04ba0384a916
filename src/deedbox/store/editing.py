"""Editing what was proposed: the former content, the next revision, and the approval that takes the former's place."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from deedbox.store.loader import statement
from deedbox.store.pool import Connection


@dataclass(frozen=True, slots=True)
class Content:
    """One effect of a proposal with its exact bytes."""

    connector: str
    target: str
    slot: str
    position: int
    summary: str
    body: bytes
    digest: bytes
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Former:
    """The approval that another one took the place of, and who edited what it holds now, first to last."""

    proposal_id: UUID
    group: str
    job_id: UUID
    approval_id: UUID
    edited_at: datetime
    editors: list[str]


async def effects(connection: Connection, job_id: UUID, proposal_id: UUID | None, group: str) -> list[Content]:
    """The effects of a group, in order; none where there is no proposal."""
    given = {"job_id": job_id, "proposal_id": proposal_id, "group_name": group}
    cursor = await connection.execute(statement("editing", "effects"), given)
    return [Content(*row) for row in await cursor.fetchall()]


async def basis(connection: Connection, job_id: UUID, proposal_id: UUID) -> tuple[dict[str, Any], Any, str | None]:
    """What a proposal was judged by: the facts of its attempt, its draft, and the caller's role."""
    cursor = await connection.execute(statement("editing", "basis"), {"job_id": job_id, "proposal_id": proposal_id})
    row = await cursor.fetchone()
    return (row[0], row[1], row[2]) if row else ({}, None, None)


async def revise(connection: Connection, job_id: UUID, former_id: UUID, proposal_id: UUID, policy_version: str) -> int:
    """Keep the next revision of a proposal whose job is locked, and return its number."""
    given = {"job_id": job_id, "former_id": former_id, "proposal_id": proposal_id, "policy_version": policy_version}
    cursor = await connection.execute(statement("editing", "revise"), given)
    row = await cursor.fetchone()
    if row is None:
        raise RuntimeError(f"the proposal {former_id} is gone")
    return int(row[0])


async def take_place(connection: Connection, approval_id: UUID, former_id: UUID, editor: UUID) -> None:
    """Bind a new approval to the one it takes the place of; the deadline stays, and so do those who edited before."""
    given = {"approval_id": approval_id, "former_id": former_id, "editor": editor}
    await connection.execute(statement("editing", "take_place"), given)


async def former(connection: Connection, approval_id: UUID) -> Former | None:
    """What an approval took the place of; None for one that nobody edited."""
    cursor = await connection.execute(statement("editing", "former"), {"approval_id": approval_id})
    row = await cursor.fetchone()
    return Former(*row) if row else None
