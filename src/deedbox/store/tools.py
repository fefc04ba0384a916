"""Calls of tools: the key of one that brings none, the budget of the job that makes them, and the journal."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any
from uuid import UUID

from deedbox.store.loader import statement
from deedbox.store.pool import Connection
from deedbox.store.rows import rows
from deedbox.store.run import run
from deedbox.store.views import Reader
from deedbox.store.wire import Wire


@dataclass(frozen=True, slots=True)
class Parent:
    """The job within which tools are called; `state` is None where it has ended."""

    action: str
    state: str | None


@dataclass(frozen=True, slots=True)
class Turn:
    """The key of a call, the state of the key's job where it has one, and whether this call was the first to take it."""

    key: str
    state: str | None
    first: bool


@dataclass(frozen=True, slots=True)
class ToolRow:
    """One call of a tool as it was answered; `duration_ms` is from its arrival to its answer."""

    call_id: UUID
    tenant: str
    subject: UUID
    source: str
    action: str
    status: str
    answer: str
    build: str
    validation: str
    duration_ms: float
    role: str | None = None
    claimed_role: str | None = None
    job_id: UUID | None = None
    parent_job_id: UUID | None = None
    key_sha256: bytes | None = None
    input_sha256: bytes | None = None
    trace: str | None = None
    caller_run: str | None = None
    error_code: str | None = None
    state: str | None = None
    object_id: str | None = None
    through: UUID | None = None

    @property
    def row(self) -> dict[str, Any]:
        """The members by name; a member that is not there is null in the statement."""
        return {name: value for name in _MEMBERS if (value := getattr(self, name)) is not None}


_MEMBERS = tuple(member.name for member in fields(ToolRow))


async def parent(connection: Connection, reader: Reader, job_id: UUID) -> Parent | None:
    """The job within which a tool is called, or None for one that is unknown or not the reader's to see."""
    cursor = await connection.execute(statement("tools", "parent"), {**reader.parameters, "job_id": job_id})
    row = await cursor.fetchone()
    return Parent(str(row[0]), row[1]) if row else None


async def turn(
    connection: Connection, tenant: str, action: str, call_sha256: bytes, *, key: str, call_id: UUID, window_s: float
) -> Turn:
    """The key of a call that brings none: `key`, or the one that an equal call has had within the window (seconds)."""
    given = {"tenant": tenant, "action": action, "call_sha256": call_sha256, "key": key, "window_s": window_s}
    cursor = await connection.execute(statement("tools", "turn"), {**given, "call_id": call_id})
    row = await cursor.fetchone()
    if row is None:
        raise RuntimeError("the statement returns the row that it writes")
    return Turn(str(row[0]), row[1], bool(row[2]))


async def spend(connection: Connection, parent_job_id: UUID, most: int) -> bool:
    """Count one more call of a job; False where it has made `most` already, and then nothing is counted."""
    if most < 1:
        return False
    cursor = await connection.execute(statement("tools", "spend"), {"parent_job_id": parent_job_id, "most": most})
    return await cursor.fetchone() is not None


async def journal(on: Connection | Wire, calls: Sequence[ToolRow], *, begun: bool = False) -> None:
    """Keep calls of tools as they were answered; `begun` says that the jobs of all had just been queued by then."""
    await run(on, "tools", "journal_begun" if begun else "journal", {"calls": rows([call.row for call in calls])})
