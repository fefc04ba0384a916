"""Reading jobs: one as it stands, its events, its documents, its whole story.

Who may see a job is decided in the statements: the same tenant, and the job's own subject or a reader of the tenant.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self
from uuid import UUID

from deedbox.model.identity import Principal
from deedbox.store.loader import statement
from deedbox.store.pool import Connection
from deedbox.store.run import run
from deedbox.store.wire import Wire

MOST_COUNTED = 10_000
"""How far `measure` counts one by one."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads: `sees_all` is for those who may read every job of the tenant, not only their own."""

    tenant: str
    subject: UUID
    sees_all: bool
    through: UUID | None = None

    @classmethod
    def of(cls, principal: Principal) -> Self:
        """A service sees its own jobs, or those it asked for in a person's name; a person who may read sees the tenant's."""
        sees_all = principal.kind == "person" and principal.may("read")
        through = UUID(principal.through.principal_id) if principal.through else None
        return cls(principal.tenant, UUID(principal.principal_id), sees_all, through)

    @property
    def texts(self) -> dict[str, str | None]:
        """The same as texts, which a wire takes."""
        through = None if self.through is None else str(self.through)
        return {"tenant": self.tenant, "subject": str(self.subject), "sees_all": str(self.sees_all), "through": through}

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters every statement of visibility takes."""
        return {"tenant": self.tenant, "subject": self.subject, "sees_all": self.sees_all, "through": self.through}


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job with all that is shown of it; the lists hold JSON objects whose times are text."""

    job_id: UUID
    action: str
    version: int
    state: str
    round: int
    attempt: int
    attempts_allowed: int
    last_seq: int
    cancel_requested: bool
    created_at: datetime
    updated_at: datetime
    next_attempt_at: datetime | None
    progress: dict[str, Any] | None
    partial: dict[str, Any] | None
    last_error: dict[str, Any] | None
    failure: dict[str, Any] | None
    output: Any
    done: list[dict[str, Any]]
    not_done: list[dict[str, Any]]
    declined: list[dict[str, Any]]
    approvals: list[dict[str, Any]]
    effects: list[dict[str, Any]]
    documents: list[dict[str, Any]]
    replaces: UUID | None
    replaced_by: list[UUID]
    parent_job_id: UUID | None
    deadline: datetime | None
    contents_pruned_at: datetime | None
    subject: UUID
    models: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """How a job stands, and what it came to; the output is there once it has completed."""

    state: str
    action: str
    version: int
    subject: UUID
    output: Any
    done: list[dict[str, Any]]
    declined: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event as it is stored."""

    seq: int
    event_id: UUID
    type: str
    round: int
    attempt_id: UUID | None
    at: datetime
    payload: dict[str, Any]


@dataclass(frozen=True, slots=True)
class EventsRead:
    """Events after a number, and the job as it was when they were read."""

    action: str
    state: str
    last_seq: int
    events: tuple[EventRow, ...]


@dataclass(frozen=True, slots=True)
class JobLine:
    """One job in a list."""

    job_id: UUID
    action: str
    state: str
    round: int
    attempts: int
    created_at: datetime
    updated_at: datetime
    asked_by: str | None
    source: str
    caller_run: str | None


async def job(on: Connection | Wire, reader: Reader, job_id: UUID) -> JobRow | None:
    """The job, or None for one that is unknown, foreign or pruned."""
    found = await run(on, "views", "job", {**reader.texts, "job_id": str(job_id)})
    return JobRow(*found[0]) if found else None


async def pulse(on: Connection | Wire, reader: Reader, job_id: UUID) -> tuple[str, int] | None:
    """The job's state and the number of its last event, or None where `job` would answer None."""
    found = await run(on, "views", "pulse", {**reader.texts, "job_id": str(job_id)})
    return (str(found[0][0]), int(found[0][1])) if found else None


async def outcome(on: Connection | Wire, reader: Reader, job_id: UUID) -> OutcomeRow | None:
    """How the job stands, or None where `job` would answer None."""
    found = await run(on, "views", "outcome", {**reader.texts, "job_id": str(job_id)})
    return OutcomeRow(*found[0]) if found else None


async def events(on: Connection | Wire, reader: Reader, job_id: UUID, *, after: int, limit: int) -> EventsRead | None:
    """At most `limit` events after a number, in order, or None where `job` would answer None."""
    asked = {"job_id": str(job_id), "after": str(after), "limit": str(limit)}
    rows = await run(on, "views", "events", {**reader.texts, **asked})
    if not rows:
        return None
    found = tuple(EventRow(*row[3:]) for row in rows if row[3] is not None)
    return EventsRead(rows[0][0], rows[0][1], rows[0][2], found)


async def document(connection: Connection, reader: Reader, document_id: UUID) -> tuple[str, str, bytes, bytes] | None:
    """Name, media type, SHA-256 and content of an upload, or None for one that is unknown or of a job not to be seen."""
    cursor = await connection.execute(statement("views", "document"), {**reader.parameters, "document_id": document_id})
    row = await cursor.fetchone()
    return (str(row[0]), str(row[1]), bytes(row[2]), bytes(row[3])) if row else None


async def jobs(
    connection: Connection,
    reader: Reader,
    *,
    action: str | None,
    state: str | None,
    key_sha256: bytes | None,
    caller_run: str | None,
    before: UUID | None,
    limit: int,
) -> list[JobLine]:
    """Jobs the reader may see, newest first, below `before`."""
    cursor = await connection.execute(
        statement("views", "jobs") if reader.sees_all else statement("views", "own_jobs"),
        {
            "tenant": reader.tenant,
            "subject": reader.subject,
            "through": reader.through,
            "action": action,
            "state": state,
            "key_sha256": key_sha256,
            "caller_run": caller_run,
            "before": before,
            "limit": limit,
        },
    )
    return [JobLine(*row) for row in await cursor.fetchall()]


async def timeline(connection: Connection, reader: Reader, job_id: UUID) -> list[tuple[datetime, str, str, dict[str, Any]]]:
    """When, what kind, what, and the detail of everything kept about a job, first to last; empty where it is not to be seen."""
    cursor = await connection.execute(statement("views", "timeline"), {**reader.parameters, "job_id": job_id})
    return [(row[0], str(row[1]), str(row[2]), row[3]) for row in await cursor.fetchall()]


async def measure(connection: Connection) -> tuple[dict[str, int], float, dict[str, int]]:
    """Live jobs by state, the age in seconds of the oldest that is due, and open effects by state.

    Counted as far as MOST_COUNTED of a kind and estimated beyond: it costs no more with a million than with ten thousand.
    """
    bound = {"most": MOST_COUNTED}
    cursor = await connection.execute(statement("views", "measure"), bound)
    jobs = {str(row[0]): int(row[1]) for row in await cursor.fetchall()}
    cursor = await connection.execute(statement("views", "oldest"), bound)
    row = await cursor.fetchone()
    cursor = await connection.execute(statement("views", "measure_effects"), bound)
    effects = {str(row[0]): int(row[1]) for row in await cursor.fetchall()}
    return jobs, float(row[0]) if row and row[0] is not None else 0.0, effects
