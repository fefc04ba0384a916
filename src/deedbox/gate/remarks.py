"""Beside deciding: saying something of an approval that waits, and looking away from it for a while.

Neither decides anything. Whoever may read an approval may say something of it, and everybody who opens it reads that. Looking
away is one person's own: it ends by itself, and always before the deadline, so that nobody sleeps through it.
"""

import json
from datetime import datetime
from math import isfinite
from uuid import UUID

from deedbox.gate.rules import require_open, require_person
from deedbox.model.errors import DeedboxError, Problem
from deedbox.model.identity import Principal
from deedbox.model.values import storable_text
from deedbox.store import decision, remarks
from deedbox.store.audit import append, entry_by
from deedbox.store.decision import Standing
from deedbox.store.ids import IdSource
from deedbox.store.pool import Connection, Pool
from deedbox.store.tell import tell
from deedbox.store.transaction import transaction

LONGEST = 2000
MOST_COMMENTS = 200


async def comment(pool: Pool, ids: IdSource, principal: Principal, approval_id: UUID, text: str, *, how: str) -> datetime:
    """Say something of an approval that waits, and return when that was. It is an event of the job, without the words.

    Raises DeedboxError: person_required, invalid_input (nothing said, or too much), not_found, and what `decide` raises for an
    approval that is not open.
    """
    require_person(principal)
    said = storable_text(text).strip()
    if not said or len(said) > LONGEST:
        problem = Problem("/text", "length", f"is from 1 to {LONGEST} characters")
        raise DeedboxError("invalid_input", "A comment says something, in at most 2,000 characters.", problems=(problem,))
    comment_id = ids.new()
    async with transaction(pool) as connection:
        standing = await _open(connection, principal, approval_id)
        if len(await remarks.comments(connection, approval_id, MOST_COMMENTS)) == MOST_COMMENTS:
            raise DeedboxError("invalid_input", f"This approval has {MOST_COMMENTS} comments, and takes no more.")
        at = await remarks.comment(
            connection,
            comment_id=comment_id,
            approval_id=approval_id,
            principal_id=UUID(principal.principal_id),
            text=said,
            how=how,
        )
        about = {"approval_id": str(approval_id), "comment_id": str(comment_id)}
        await _tell(connection, ids, standing, "job.commented", {**about, "by": principal.name})
        detail = {"job_id": str(standing.job_id), "comment_id": str(comment_id)}
        await append(connection, entry_by(principal, how, "comment", ("approval", str(approval_id)), detail=detail))
    await tell(pool, jobs=[standing.job_id])
    return at


async def snooze(
    pool: Pool,
    ids: IdSource,
    principal: Principal,
    approval_id: UUID,
    *,
    until: datetime | None = None,
    for_s: float | None = None,
    how: str,
) -> datetime | None:
    """Look away from an approval until a moment, or for so many seconds; without either, look at it again. Returns until when.

    It is left out of this person's inbox, and this person is not reminded of it. Raises DeedboxError: person_required,
    invalid_input (a moment without a zone, one that has passed, or one that is not before the deadline), not_found, and what
    `decide` raises for an approval that is not open.
    """
    require_person(principal)
    if until is not None and (until.tzinfo is None or for_s is not None):
        problem = Problem("/until", "timezone", "is a moment with its zone, or there is a number of seconds and no moment")
        raise DeedboxError("invalid_input", "Say one moment, with its zone, or for how long.", problems=(problem,))
    if for_s is not None and not (isfinite(for_s) and 0 < for_s <= 366 * 86400):
        raise DeedboxError("invalid_input", "Say for how many seconds, more than none.")
    person = UUID(principal.principal_id)
    async with transaction(pool) as connection:
        standing = await _open(connection, principal, approval_id)
        ends: datetime | None = None
        if until is None and for_s is None:
            if not await remarks.wake(connection, approval_id=approval_id, principal_id=person):
                raise DeedboxError("invalid_input", "You are not looking away from it.")
        else:
            ends = await remarks.snooze(connection, approval_id=approval_id, principal_id=person, until=until, for_s=for_s)
            if ends is None:
                problem = Problem("/until", "range", "is a moment from now on, and before the deadline")
                said = "Nobody looks away past a deadline: choose a moment from now on, and before it."
                raise DeedboxError("invalid_input", said, problems=(problem,))
        moment = None if ends is None else ends.isoformat()
        event = {"approval_id": str(approval_id), "by": principal.name, "until": moment}
        await _tell(connection, ids, standing, "job.snoozed", event)
        detail = {"job_id": str(standing.job_id), "until": moment}
        await append(connection, entry_by(principal, how, "snooze", ("approval", str(approval_id)), detail=detail))
    await tell(pool, jobs=[standing.job_id])
    return ends


async def _open(connection: Connection, principal: Principal, approval_id: UUID) -> Standing:
    """The approval, under the locks of a decision. Raises DeedboxError where it is not this person's to read, or not open."""
    await decision.lock_job_of(connection, approval_id, principal.tenant)
    standing = await decision.lock_standing(connection, approval_id, principal.tenant, UUID(principal.principal_id))
    if standing is None or not (principal.may("read") or str(standing.subject) == principal.principal_id):
        raise DeedboxError("not_found", "There is no such approval, or it is not yours.")
    require_open(standing)
    return standing


async def _tell(
    connection: Connection, ids: IdSource, standing: Standing, event_type: str, event: dict[str, str | None]
) -> None:
    payload = json.dumps(event)
    await decision.add_event(connection, standing.job_id, event_id=ids.new(), event_type=event_type, payload_json=payload)
