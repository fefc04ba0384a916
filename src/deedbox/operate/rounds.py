"""Running again, by its three rules: parked jobs are taken up, ended ones never, and a correction is a job of its own."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from deedbox.extend.action import Action
from deedbox.intake.request import Accepted, Request
from deedbox.intake.submit import Intake
from deedbox.model.again import RULES, instead
from deedbox.model.errors import DeedboxError, Problem
from deedbox.model.identity import Principal, Verb
from deedbox.model.lifecycle import JOB
from deedbox.operate.evidence import checked_reason
from deedbox.store import audit, decision, rounds
from deedbox.store.ending import JobEnding, end_job
from deedbox.store.ids import IdSource
from deedbox.store.pool import Connection, Pool
from deedbox.store.tell import tell
from deedbox.store.transaction import transaction
from deedbox.store.views import Reader, pulse


class Rounds:
    """The verbs by which something runs again. Each leaves an audit entry with its reason."""

    def __init__(self, pool: Pool, ids: IdSource, actions: Mapping[str, Action], intake: Intake) -> None:
        """`intake` accepts replacements, as it accepts everything."""
        self._pool = pool
        self._ids = ids
        self._actions = actions
        self._intake = intake

    async def take_up(self, principal: Principal, job_id: UUID, reason: str, *, door: str = "api") -> int:
        """Queue a parked job for a new round and return the round's number.

        Raises DeedboxError: permission_denied, not_found, invalid_input, illegal_move saying in which state it is.
        """
        reason = checked_reason(reason)
        async with transaction(self._pool) as connection:
            action, _ = await self._known(connection, principal, job_id, "take_up")
            attempts = action.retry.attempts if action else None
            number = await rounds.take_up(connection, job_id, event_id=self._ids.new(), attempts=attempts, by=principal.name)
            if number is None:
                raise await _refused(connection, job_id, "take_up")
            await self._note(connection, principal, door, "take_up", job_id, reason, {"round": number})
        await tell(self._pool, jobs=[job_id], queue=True)
        return number

    async def close(self, principal: Principal, job_id: UUID, reason: str, *, door: str = "api") -> None:
        """End a parked job as failed for good.

        Raises DeedboxError: permission_denied, not_found, invalid_input, illegal_move saying in which state it is.
        """
        reason = checked_reason(reason)
        async with transaction(self._pool) as connection:
            await self._known(connection, principal, job_id, "take_up")
            job = await decision.lock_job(connection, job_id)
            if job is None or job.state not in JOB.sources("close"):
                raise await _refused(connection, job_id, "close")
            event = {"code": "closed", "message": reason, "retryable": False}
            ending = JobEnding("failed_terminal", "job.failed", event, "canceled", "closed", reason)
            await end_job(connection, job_id, ending, event_id=self._ids.new())
            await self._note(connection, principal, door, "close", job_id, reason, {})
        await tell(self._pool, jobs=[job_id])

    async def replace(
        self, principal: Principal, job_id: UUID, body: Any, key: str, reason: str, *, door: str = "api", source: str = "http"
    ) -> Accepted:
        """Accept a correction of an ended job as a job of its own, linked to it; the same key again replays.

        Raises DeedboxError: permission_denied, not_found, invalid_input, key_invalid for the old key or one made from it,
        illegal_move for a job that has not ended, and all that intake raises.
        """
        reason = checked_reason(reason)
        async with transaction(self._pool) as connection:
            action, old = await self._known(connection, principal, job_id, "replace")
            if action is None:
                raise DeedboxError("not_found", "The action of this job is not served any more.")
            if old.state not in JOB.ended:
                raise await _refused(connection, job_id, "replaced")
            if old.key is not None and key.startswith(old.key):
                problem = Problem("/key", "key", "is the old key, or begins with it; a correction has a key of its own")
                raise DeedboxError("key_invalid", "A key made from the old one is refused.", problems=(problem,))
        # In the transaction that stores the job: there is no correction of which the audit does not know who wanted it and why.
        entry = audit.entry_by(principal, door, "replace", ("job", str(job_id)), reason=reason)
        return await self._intake.submit(Request(principal, action.name, body, key, source, replaces=job_id, entry=entry))

    async def _known(
        self, connection: Connection, principal: Principal, job_id: UUID, verb: Verb
    ) -> tuple[Action | None, rounds.Original]:
        if not principal.may(verb):
            raise DeedboxError("permission_denied", f"This needs a role that may {verb.replace('_', ' ')}.")
        # Who may not see a job is told nothing of it, whatever else he may.
        old = await rounds.original(connection, job_id) if await pulse(connection, Reader.of(principal), job_id) else None
        if old is None:
            raise DeedboxError("not_found", "There is no such job, or it is not yours.")
        action = self._actions.get(old.action)
        if action is not None and action.again and not principal.has_role(action.again):
            wanted = ", ".join(sorted(action.again))
            raise DeedboxError("permission_denied", f"Running {action.name} again needs one of these roles: {wanted}.")
        return action, old

    async def _note(
        self,
        connection: Connection,
        principal: Principal,
        door: str,
        verb: str,
        job_id: UUID,
        reason: str,
        detail: dict[str, Any],
    ) -> None:
        entry = audit.entry_by(principal, door, verb, ("job", str(job_id)), reason=reason, detail=detail)
        await audit.append(connection, entry)


async def _refused(connection: Connection, job_id: UUID, what: str) -> DeedboxError:
    old = await rounds.original(connection, job_id)
    state = old.state if old and old.state else "gone"
    said = f"The job is {state}, so it cannot be {_DONE[what]}. {instead(state)} {' '.join(RULES)}"
    return DeedboxError("illegal_move", said)


_DONE = {"take_up": "taken up", "close": "closed", "replaced": "replaced"}
