"""What can be asked about jobs: each as it stands, its events, its documents and its whole story.

One rule for every door: a job is seen by whoever asked for it and by people of the tenant who may read. To anybody else it
does not exist. Drafts of an action whose effects are held are for those people alone.
"""

import base64
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from deedbox import telemetry
from deedbox.extend.action import Action
from deedbox.gate.masking import NOTHING, Mask, mask_of
from deedbox.model.errors import DeedboxError
from deedbox.model.fingerprint import key_hash
from deedbox.model.identity import Principal
from deedbox.model.lifecycle import JOB
from deedbox.operate.cards import DocumentFile
from deedbox.operate.job_view import OVER, Event, EventPage, JobView, Outcome, TimelineEntry, job_view
from deedbox.store import views as store
from deedbox.store.alert import open_causes
from deedbox.store.pg_errors import AWAY
from deedbox.store.pool import Connection, Pool
from deedbox.store.transaction import autocommit
from deedbox.store.views import JobLine

__all__ = ["AWAY", "OVER", "Event", "EventPage", "JobLine", "JobPage", "JobView", "StoredFile", "TimelineEntry", "Views"]

PAGE = 200
_MEASURE_EVERY_S = 5.0
_WITHHELD = {"draft": True, "withheld": True}

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An upload with its bytes."""

    name: str
    media_type: str
    sha256: bytes
    content: bytes


@dataclass(frozen=True, slots=True)
class JobPage:
    """A page of jobs, newest first; `cursor` asks for the next one and is None at the end."""

    jobs: tuple[JobLine, ...]
    cursor: str | None


class Views:
    """Reads jobs as a principal may see them. Every method raises DeedboxError unavailable while the database is away."""

    def __init__(self, pool: Pool, actions: Mapping[str, Action] | None = None) -> None:
        """`actions` say whose drafts callers may see; where they are not given, callers see none."""
        self._pool = pool
        # What is asked most often goes on a wire: those who wait for jobs are many.
        self._wire = pool.wire("views")
        self._actions = actions or {}
        self._measured_at = -1e9

    async def job(self, principal: Principal, job_id: UUID) -> JobView | None:
        """The job, or None for one that is unknown, foreign or pruned."""
        row = await self._look(store.job(self._wire, store.Reader.of(principal), job_id))
        if row is None:
            return None
        mask = NOTHING
        if row.output is not None and str(row.subject) != principal.principal_id:
            # Whoever asked for the job gets all of its result.
            mask = await self._read(lambda connection: mask_of(connection, job_id))
        view = job_view(row)
        if view.models is not None and not principal.may("read"):
            view = replace(view, models=None)
        if view.result is not None:
            view = replace(view, result=mask.output(view.result))
        return view if view.partial is None or self._shows_drafts(principal, view.action) else replace(view, partial=None)

    async def outcome(self, principal: Principal, job_id: UUID) -> tuple[str, Outcome | None] | None:
        """The job's state, cheaply, and once it has completed what it came to, for whoever asked for it; others ask `job`.

        None where `job` would answer None.
        """
        row = await self._look(store.outcome(self._wire, store.Reader.of(principal), job_id))
        if row is None:
            return None
        if row.state != "completed" or str(row.subject) != principal.principal_id:
            return row.state, None
        said = Outcome(job_id, row.action, row.version, row.state, row.output, tuple(row.done), tuple(row.declined))
        return row.state, said

    async def pulse(self, principal: Principal, job_id: UUID) -> tuple[str, int] | None:
        """The job's state and the number of its last event, cheaply; None where `job` would answer None."""
        return await self._look(store.pulse(self._wire, store.Reader.of(principal), job_id))

    async def events(self, principal: Principal, job_id: UUID, after: int = 0, limit: int = PAGE) -> EventPage | None:
        """At most `limit` events after the number `after`, in order; None where `job` would answer None.

        Drafts that the principal may not see keep their place, with their content withheld, so that numbers have no gap.
        """
        read = await self._look(store.events(self._wire, store.Reader.of(principal), job_id, after=after, limit=limit))
        if read is None:
            return None
        shown = self._shows_drafts(principal, read.action)
        found = tuple(
            Event(
                event_id=row.event_id,
                seq=row.seq,
                type=row.type,
                job_id=job_id,
                round=row.round,
                attempt_id=row.attempt_id,
                timestamp=row.at,
                payload=row.payload if shown or row.type != "job.partial" else _WITHHELD,
            )
            for row in read.events
        )
        return EventPage(found, read.state, read.last_seq, found[-1].seq if found else after)

    async def document(self, principal: Principal, document_id: UUID) -> StoredFile | None:
        """An upload with its bytes, or None for one that is unknown or of a job that this principal may not see."""
        row = await self._read(lambda connection: store.document(connection, store.Reader.of(principal), document_id))
        return StoredFile(*row) if row else None

    async def document_file(self, tenant: str, document_id: UUID, principal: Principal) -> DocumentFile | None:
        """The same for the console, which names the tenant that people log in to."""
        found = await self.document(principal, document_id) if principal.tenant == tenant else None
        return DocumentFile(found.name, found.media_type, found.content) if found else None

    async def jobs(
        self,
        principal: Principal,
        *,
        action: str | None = None,
        state: str | None = None,
        key: str | None = None,
        caller_run: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> JobPage:
        """A page of the jobs this principal may see, newest first. Raises DeedboxError invalid_parameter."""
        if state is not None and state not in JOB.states:
            raise DeedboxError("invalid_parameter", f"A job is one of {', '.join(JOB.states)}.")
        before = _before(cursor)
        limit = min(max(limit, 1), PAGE)
        found = await self._read(
            lambda connection: store.jobs(
                connection,
                store.Reader.of(principal),
                action=action,
                state=state,
                key_sha256=None if key is None else key_hash(key),
                caller_run=caller_run,
                before=before,
                limit=limit + 1,
            )
        )
        page = tuple(found[:limit])
        more = len(found) > limit
        return JobPage(page, base64.urlsafe_b64encode(page[-1].job_id.bytes).rstrip(b"=").decode() if more else None)

    async def timeline(self, principal: Principal, job_id: UUID) -> list[TimelineEntry] | None:
        """Everything kept about a job in the order it happened; None where `job` would answer None."""
        rows, mask = await self._read(lambda connection: _timeline(connection, principal, job_id))
        return [TimelineEntry(at, kind, what, mask.texts(detail)) for at, kind, what, detail in rows] or None

    async def measure(self) -> None:
        """Set the gauges of what waits, at most once in five seconds."""
        now = time.monotonic()
        if now - self._measured_at < _MEASURE_EVERY_S:
            return
        self._measured_at = now
        jobs, oldest, effects = await self._read(store.measure)
        for state in JOB.states:
            if state not in JOB.ended:
                telemetry.JOBS.labels(state).set(jobs.get(state, 0))
        for state in ("pending", "sending", "unknown"):
            telemetry.EFFECTS_OPEN.labels(state).set(effects.get(state, 0))
        telemetry.OLDEST_QUEUED.set(oldest)
        telemetry.ALERTS_OPEN.clear()
        for cause, count in (await self._read(open_causes)).items():
            telemetry.ALERTS_OPEN.labels(cause).set(count)

    def _shows_drafts(self, principal: Principal, action: str) -> bool:
        if principal.kind == "person" and principal.may("read"):
            return True
        known = self._actions.get(action)
        return known is not None and known.policy.decision != "hold"

    async def _read(self, read: Callable[[Connection], Awaitable[Answer]]) -> Answer:
        async def on_a_connection() -> Answer:
            async with autocommit(self._pool) as connection:
                return await read(connection)

        return await self._look(on_a_connection())

    async def _look(self, asked: Awaitable[Answer]) -> Answer:
        try:
            return await asked
        except AWAY as error:
            raise DeedboxError("unavailable", "The store cannot be reached; try again shortly.", retry_after=1) from error


async def _timeline(
    connection: Connection, principal: Principal, job_id: UUID
) -> tuple[list[tuple[datetime, str, str, dict[str, Any]]], Mask]:
    rows = await store.timeline(connection, store.Reader.of(principal), job_id)
    return rows, await mask_of(connection, job_id) if rows else NOTHING


def _before(cursor: str | None) -> UUID | None:
    if cursor is None:
        return None
    try:
        return UUID(bytes=base64.b64decode(cursor + "==", altchars=b"-_", validate=True))
    except ValueError as error:
        raise DeedboxError("invalid_parameter", "The cursor is not one that a page gave out.") from error
