"""Canceling a job: at once where nothing has left, by a flag where an attempt runs, not at all where something has left."""

from contextlib import suppress
from uuid import UUID

from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.model.lifecycle import JOB
from deedbox.store import children, decision, ending, outbox
from deedbox.store.ids import IdSource
from deedbox.store.outbox import Why
from deedbox.store.pool import Connection


async def cancel_locked(connection: Connection, ids: IdSource, job_id: UUID, reason: str, by: Principal | None = None) -> str:
    """Cancel a job within a transaction that holds no later lock; returns `canceled` or `cancel_requested`.

    Its open approvals are withdrawn and its pending effects canceled with it, and so are the jobs that it has called and that
    have not ended, as far as nothing of them has left. `by` is who canceled it, None where a deadline did: it is kept with each
    approval, and told with the job's end. Raises DeedboxError illegal_move.
    """
    job = await decision.lock_job(connection, job_id)
    if job is None:
        raise DeedboxError("illegal_move", "The job has ended; there is nothing left to cancel.")
    if job.state in JOB.sources("cancel_attempt"):
        await ending.ask_to_stop(connection, job_id)
        await cancel_children(connection, ids, job_id)
        return "cancel_requested"
    approvals = await ending.open_approvals(connection, job_id)
    effects = await ending.lock_effects(connection, job_id)
    left = [f"{slot} is {state}" for _, slot, state in effects if state not in {"pending", "canceled"}]
    if left:
        raise DeedboxError("illegal_move", f"Something has left already, so the job is not canceled: {', '.join(left)}.")
    who = None if by is None else UUID(by.principal_id)
    for approval_id in approvals:
        await decision.end_approval(
            connection, approval_id=approval_id, state="withdrawn", decided_by=who, how=None, reason=reason
        )
    why = Why(code="job_canceled", message=reason)
    for effect_id, _, state in effects:
        effect = await outbox.lock_effect(connection, effect_id, job_id) if state == "pending" else None
        if effect is not None:
            await outbox.move(connection, "cancel", effect, why, event_id=ids.new())
    not_done = [{"effect_id": str(effect_id), "slot": slot, "state": "canceled"} for effect_id, slot, _ in effects]
    await ending.end_job(
        connection, job_id, ending.canceled(reason, by=by.name if by else None), event_id=ids.new(), not_done=not_done
    )
    await cancel_children(connection, ids, job_id)
    return "canceled"


async def cancel_children(connection: Connection, ids: IdSource, job_id: UUID) -> None:
    """Cancel what a job has called, which nobody waits for any more; what has left of it stays (n8n#19865)."""
    for child in await children.open_children(connection, job_id):
        with suppress(DeedboxError):
            await cancel_locked(connection, ids, child, "The job that called it was canceled.")
