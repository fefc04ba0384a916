"""Accepting jobs: the claim on a key and everything that comes with it, in one statement."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple
from uuid import UUID

from deedbox.model.fingerprint import sha256
from deedbox.model.identity import Through, Verb, known_verbs
from deedbox.store import packed
from deedbox.store.loader import statement
from deedbox.store.pool import LOCK_TIMEOUT_MS, Connection
from deedbox.store.rows import rows
from deedbox.store.run import run
from deedbox.store.wire import Wire

_ROW_TYPE = "new_job"
_HEAD = packed.head(27)
_NOTHING = (None,) * 7


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


@dataclass(frozen=True, slots=True)
class Terms:
    """What the jobs of one action and one caller have in common. Durations are in seconds."""

    tenant: str
    action: str
    version: int
    key_source: str
    subject: UUID
    role: str
    source: str
    lane_id: int
    attempts: int
    priority: int = 100
    deadline_s: float | None = None
    expires_s: float | None = None
    through: UUID | None = None
    callback: str | None = None
    held_for: HeldFor | None = None
    packed: bytes = field(init=False, repr=False, compare=False)
    """The start of each row of `deedbox.new_job`, in the order of its members."""

    def __post_init__(self) -> None:
        """Pack them."""
        members = (
            packed.text(self.tenant),
            packed.text(self.action),
            packed.integer(self.version),
            packed.text(self.key_source),
            packed.uuid(self.subject),
            packed.text(self.role),
            packed.text(self.source),
            packed.bigint(self.lane_id),
            packed.integer(self.attempts),
            packed.smallint(self.priority),
            packed.real(self.deadline_s),
            packed.real(self.expires_s),
            packed.uuid(self.through),
            packed.text(self.callback),
        )
        object.__setattr__(self, "packed", _HEAD + b"".join(members) + packed.UUID_HEAD)


class NewJob(NamedTuple):
    """One validated request, ready to be stored."""

    terms: Terms
    job_id: UUID
    key: str | None
    key_sha256: bytes
    payload_sha256: bytes
    input_json: str
    caller_run: str | None = None
    trace: str | None = None
    run_at: str | None = None
    deadline: str | None = None
    replaces: UUID | None = None
    parent_job_id: UUID | None = None
    data_subject: str | None = None
    documents: tuple[StoredDocument, ...] = ()

    @property
    def alone(self) -> bool:
        """Whether it is stored by itself: megabytes hold up nobody else, and an approval comes in the same transaction."""
        return bool(self.documents) or self.terms.held_for is not None

    @property
    def identity(self) -> tuple[str, str, bytes]:
        """The primary key of the claim."""
        return (self.terms.tenant, self.terms.action, self.key_sha256)


def own_job(job_id: UUID, action: str, tenant: str, lane_id: int) -> NewJob:
    """A job of Deedbox itself, for a trial in a transaction that is rolled back."""
    terms = Terms(tenant, action, 1, "new", UUID(int=0), "system", "job", lane_id, attempts=1)
    digest = sha256(job_id.bytes)
    return NewJob(terms, job_id, str(job_id), digest, digest, "{}")


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
    event_ids: Sequence[UUID | bytes],
    *,
    lock_timeout_ms: int = LOCK_TIMEOUT_MS,
    tells: bool = False,
    start: Start = _QUEUED,
) -> list[bool]:
    """Store those jobs whose key is new, and say of each in its order whether it was.

    `jobs` must be sorted by identity and free of equal keys.

    The commit tells the workers where `tells` says so. On a wire, where it is committed at once, no job has documents.
    Raises psycopg.errors.LockNotAvailable where a rival's open transaction holds one of the keys for `lock_timeout_ms`.
    """
    stored = [_row(job, event_id) for job, event_id in zip(jobs, event_ids, strict=True)]
    values = {
        "lock_timeout": str(lock_timeout_ms),
        "jobs": packed.array(await packed.row_type(on, _ROW_TYPE), stored),
        "state": start.state,
        "event_type": start.event_type,
        "event": start.event_json,
        "tells": "true" if tells else "false",
    }
    count, ids, _ = (await run(on, "accept", "accept", values))[0]
    new = packed.answered(count, ids, [job.job_id for job in jobs])
    if not isinstance(on, Wire):
        for job, is_new in zip(jobs, new, strict=True):
            if is_new:
                for document in job.documents:
                    await keep_document(on, job, document)
    return new


def _row(job: NewJob, event_id: UUID | bytes) -> bytes:
    # The seven members that most jobs have not stand beside each other.
    seldom = job[6:13]
    return b"".join(
        (
            job.terms.packed,
            job.job_id.bytes,
            packed.UUID_HEAD,
            event_id if isinstance(event_id, bytes) else event_id.bytes,
            packed.DIGEST_HEAD,
            job.key_sha256,
            packed.DIGEST_HEAD,
            job.payload_sha256,
            packed.text(job.key),
            packed.json(job.input_json),
            _NO_SELDOM if seldom == _NOTHING else _seldom(job),
        )
    )


def _seldom(job: NewJob) -> bytes:
    members = (
        packed.text(job.caller_run),
        packed.text(job.trace),
        packed.text(job.run_at),
        packed.text(job.deadline),
        packed.uuid(job.replaces),
        packed.uuid(job.parent_job_id),
        packed.text(job.data_subject),
    )
    return b"".join(members)


_NO_SELDOM = packed.NULL_TEXT * 4 + packed.NULL_UUID * 2 + packed.NULL_TEXT


async def keep_document(connection: Connection, job: NewJob, document: StoredDocument) -> None:
    """Store one document of a new job and the link that lets the job show it."""
    await connection.execute(
        statement("accept", "keep_document"),
        {"tenant": job.terms.tenant, "sha256": document.sha256, "size": len(document.content), "content": document.content},
    )
    await connection.execute(
        statement("accept", "link_document"),
        {
            "document_id": document.document_id,
            "job_id": job.job_id,
            "tenant": job.terms.tenant,
            "sha256": document.sha256,
            "name": document.name,
            "media_type": document.media_type,
        },
    )


async def existing(connection: Connection, jobs: Sequence[NewJob]) -> dict[tuple[str, str, bytes], Bound]:
    """What the keys of these jobs are bound to, by identity; a key that vanished is not in the answer."""
    cursor = await connection.execute(
        statement("accept", "existing"),
        {"keys": rows([dict(zip(("tenant", "action", "key_sha256"), job.identity, strict=True)) for job in jobs])},
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
