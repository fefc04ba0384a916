"""Accepting jobs: the claim on a key and everything that comes with it, in one statement."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from deedbox.model.identity import Through, Verb, known_verbs
from deedbox.store.loader import statement
from deedbox.store.pool import LOCK_TIMEOUT_MS, Connection
from deedbox.store.rows import digits, encode, rows
from deedbox.store.run import run
from deedbox.store.wire import Wire

_COMMON = ("tenant", "action", "version", "key_source", "subject", "role", "source", "lane_id", "priority", "attempts")
_AND_TELL = " CROSS JOIN (SELECT pg_notify('deedbox_queue', '')) AS told"
_SELDOM = (
    "caller_run",
    "trace",
    "callback",
    "run_at",
    "deadline",
    "deadline_s",
    "replaces",
    "parent_job_id",
    "through",
    "expires_s",
    "data_subject",
)


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """An upload as it is kept: its own id, the bytes and their digest, and what the caller called it."""

    document_id: UUID
    name: str
    media_type: str
    sha256: bytes
    content: bytes


class HeldFor(NamedTuple):
    """By whom a job's arguments are approved before it runs; `expires_s` is in seconds."""

    audience: tuple[str, ...]
    quorum: int
    expires_s: float
    policy_version: str


class Start(NamedTuple):
    """The state in which jobs begin, and what their first event is and says (JSON)."""

    state: str = "queued"
    event_type: str = "job.queued"
    event_json: str = "{}"


class NewJob(NamedTuple):
    """One validated request, ready to be stored. Durations are in seconds."""

    job_id: UUID
    tenant: str
    action: str
    version: int
    key: str | None
    key_sha256: bytes
    key_source: str
    payload_sha256: bytes
    subject: UUID
    role: str
    source: str
    input_json: str
    lane_id: int
    attempts: int
    priority: int = 100
    caller_run: str | None = None
    trace: str | None = None
    callback: str | None = None
    run_at: str | None = None
    deadline: str | None = None
    deadline_s: float | None = None
    replaces: UUID | None = None
    parent_job_id: UUID | None = None
    through: UUID | None = None
    expires_s: float | None = None
    documents: tuple[StoredDocument, ...] = ()
    held_for: HeldFor | None = None
    data_subject: str | None = None

    @property
    def alone(self) -> bool:
        """Whether it is stored by itself: megabytes hold up nobody else, and an approval comes in the same transaction."""
        return bool(self.documents) or self.held_for is not None

    @property
    def identity(self) -> tuple[str, str, bytes]:
        """The primary key of the claim."""
        return (self.tenant, self.action, self.key_sha256)


@dataclass(frozen=True, slots=True)
class Bound:
    """What a key is bound to."""

    job_id: UUID
    payload_sha256: bytes | None
    erased: bool
    subject: UUID | None
    state: str | None
    pruned: bool


@dataclass(frozen=True, slots=True)
class Call:
    """One line of the journal of calls, for a call that stored no job."""

    call_id: UUID
    tenant: str
    source: str
    status: str
    subject: UUID | None = None
    role: str | None = None
    action: str | None = None
    job_id: UUID | None = None
    key_sha256: bytes | None = None
    input_sha256: bytes | None = None
    trace: str | None = None
    caller_run: str | None = None
    error_code: str | None = None
    through: UUID | None = None


_QUEUED = Start()


async def accept(
    on: Connection | Wire,
    jobs: Sequence[NewJob],
    event_ids: Sequence[UUID | str],
    *,
    lock_timeout_ms: int = LOCK_TIMEOUT_MS,
    tells: bool = False,
    start: Start = _QUEUED,
) -> set[UUID]:
    """Store those jobs whose key is new and return their ids. `jobs` must be sorted by identity and free of equal keys.

    The commit tells the workers where `tells` says so. On a wire, where it is committed at once, no job has documents.
    Raises psycopg.errors.LockNotAvailable where a rival's open transaction holds one of the keys for `lock_timeout_ms`.
    """
    values = _values(jobs, event_ids, lock_timeout_ms, start)
    new = {row[0] for row in await run(on, "accept", "accept", values, _AND_TELL if tells else "")}
    if not isinstance(on, Wire):
        for job in jobs:
            if job.job_id in new:
                for document in job.documents:
                    await keep_document(on, job, document)
    return new


def _values(jobs: Sequence[NewJob], event_ids: Sequence[UUID | str], lock_timeout_ms: int, start: Start) -> dict[str, str]:
    # Put together as text: asked for each of two dozen names, the encoder took three times as long.
    stored = [_row(job, event_id) for job, event_id in zip(jobs, event_ids, strict=True)]
    return {
        "lock_timeout": str(lock_timeout_ms),
        "jobs": f"[{','.join(stored)}]",
        "state": start.state,
        "event_type": start.event_type,
        "event": start.event_json,
    }


@lru_cache(maxsize=1024)
def _common(*columns: str | int | UUID) -> str:
    """The start of a row: what most jobs of an action and a caller have in common."""
    return encode(dict(zip(_COMMON, columns, strict=True)))[:-1]


def _row(job: NewJob, event_id: UUID | str) -> str:
    start = _common(
        job.tenant,
        job.action,
        job.version,
        job.key_source,
        job.subject,
        job.role,
        job.source,
        job.lane_id,
        job.priority,
        job.attempts,
    )
    # What is seldom there is left out where it is not: absent is NULL.
    seldom = {name: value for name in _SELDOM if (value := getattr(job, name)) is not None}
    end = f",{encode(seldom)[1:-1]}" if seldom else ""
    return (
        f'{start},"key_sha256":"\\\\x{job.key_sha256.hex()}","payload_sha256":"\\\\x{job.payload_sha256.hex()}",'
        f'"job_id":"{job.job_id.hex}","event_id":"{digits(event_id)}","key":{encode(job.key)},"input":{job.input_json}{end}}}'
    )


async def keep_document(connection: Connection, job: NewJob, document: StoredDocument) -> None:
    """Store one document of a new job and the link that lets the job show it."""
    await connection.execute(
        statement("accept", "keep_document"),
        {"tenant": job.tenant, "sha256": document.sha256, "size": len(document.content), "content": document.content},
    )
    await connection.execute(
        statement("accept", "link_document"),
        {
            "document_id": document.document_id,
            "job_id": job.job_id,
            "tenant": job.tenant,
            "sha256": document.sha256,
            "name": document.name,
            "media_type": document.media_type,
        },
    )


async def existing(connection: Connection, jobs: Sequence[NewJob]) -> dict[tuple[str, str, bytes], Bound]:
    """What the keys of these jobs are bound to, by identity; a key that vanished is not in the answer."""
    cursor = await connection.execute(
        statement("accept", "existing"),
        {"keys": rows([{"tenant": job.tenant, "action": job.action, "key_sha256": job.key_sha256} for job in jobs])},
    )
    return {
        (row[0], row[1], bytes(row[2])): Bound(row[3], row[4], row[5], row[6], row[7], row[8])
        for row in await cursor.fetchall()
    }


async def lane(connection: Connection, queue: str, action: str, tenant: str) -> int:
    """The id of the lane, made when it is new."""
    parameters = {"queue": queue, "action": action, "tenant": tenant}
    for _ in range(2):
        # A rival's uncommitted lane can hide from both halves of the statement once; it has committed by the second look.
        cursor = await connection.execute(statement("accept", "lane"), parameters)
        row = await cursor.fetchone()
        if row is not None:
            return int(row[0])
    raise RuntimeError(f"the lane of {action} could not be made")


async def waiting(connection: Connection, lane_id: int, limit: int) -> int:
    """How many jobs wait in the lane, at most `limit`."""
    cursor = await connection.execute(statement("accept", "waiting"), {"lane_id": lane_id, "limit": limit})
    row = await cursor.fetchone()
    return int(row[0]) if row else 0


async def held(connection: Connection, tenant: str, action: str, limit: int) -> int:
    """How many jobs of the action wait for a yes to their arguments, at most `limit`."""
    cursor = await connection.execute(statement("accept", "held"), {"tenant": tenant, "action": action, "limit": limit})
    row = await cursor.fetchone()
    return int(row[0]) if row else 0


async def journal_calls(connection: Connection, calls: Sequence[Call]) -> None:
    """Keep calls that stored no job."""
    await connection.execute(statement("accept", "journal_call"), {"calls": rows([asdict(call) for call in calls])})


@dataclass(frozen=True, slots=True)
class Parent:
    """Whom a job runs for, and through which service it came, where it came so."""

    subject: UUID
    name: str
    kind: str
    disabled: bool
    trace: str | None
    roles: frozenset[str]
    verbs: frozenset[Verb]
    through: Through | None


async def parent(connection: Connection, job_id: UUID, tenant: str) -> Parent | None:
    """Whom a job runs for, with the roles and rights of today."""
    cursor = await connection.execute(statement("accept", "parent"), {"job_id": job_id, "tenant": tenant})
    row = await cursor.fetchone()
    if row is None:
        return None
    through = None if row[7] is None else Through(str(row[7]), row[8])
    return Parent(row[0], row[1], row[2], row[3], row[4], frozenset(row[5]), known_verbs(row[6]), through)


async def bound_to(connection: Connection, tenant: str, action: str, key_sha256: bytes) -> UUID | None:
    """The job a key is bound to."""
    cursor = await connection.execute(
        statement("accept", "bound_to"), {"tenant": tenant, "action": action, "key_sha256": key_sha256}
    )
    row = await cursor.fetchone()
    return row[0] if row else None
