"""The one function by which anything is decided, whatever the door, and its counterpart for silence.

Locks are taken in the order queue, approval, effect, audit. Everything a decision changes is one transaction; what it
refuses changes nothing and says who was first.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from deedbox.gate.held_input import let_run
from deedbox.model.errors import DeedboxError, Problem
from deedbox.model.identity import Principal
from deedbox.model.values import short_message
from deedbox.store import admission, decision, rounds
from deedbox.store.audit import AuditEntry, append, entry_by
from deedbox.store.ending import finish_job
from deedbox.store.ids import IdSource
from deedbox.store.pool import Connection, Pool
from deedbox.store.tell import tell
from deedbox.store.transaction import autocommit, transaction

NOT_AFTER_S = 86400.0
"""How long an authorised effect may wait on the outbox before it lapses unsent, in seconds."""

DIGEST_BYTES = 32

Choice = Literal["approve", "reject"]
State = Literal["pending", "approved", "rejected", "expired"]


@dataclass(frozen=True, slots=True)
class Decided:
    """What became of a decision: the approval's state afterwards, by whom, when, and a sentence."""

    state: State
    by: str
    at: datetime
    message: str


async def decide(
    pool: Pool,
    ids: IdSource,
    principal: Principal,
    *,
    approval_id: UUID,
    digest_hex: str | None,
    choice: str,
    reason: str | None,
    how: str,
    repeat: Sequence[str] = (),
) -> Decided:
    """Decide one approval for one person, bound to the digest that was shown.

    Raises DeedboxError: invalid_input (no digest, an unknown choice, a rejection without a reason), person_required,
    not_found, permission_denied, already_decided, approval_expired, approval_changed, repeat_unconfirmed where an effect that
    the replaced job has done, or may have done, is not among the slots of `repeat`. A refusal changes nothing.
    """
    shown, checked = _check(digest_hex, choice, reason)
    if principal.kind != "person":
        raise DeedboxError("person_required", "Only a person decides; this key belongs to a service.")
    async with transaction(pool) as connection:
        job_id = await decision.job_of(connection, approval_id, principal.tenant)
        if job_id is None:
            raise DeedboxError("not_found", "There is no such approval, or it is not yours.")
        await decision.lock_job(connection, job_id)
        approval = await decision.lock_approval(connection, approval_id)
        if approval is None:
            raise DeedboxError("not_found", "There is no such approval, or it is not yours.")
        _authorise(principal, approval, shown, checked)
        if checked == "approve":
            await _refuse_repeats(connection, approval_id, repeat)
        voter = UUID(principal.principal_id)
        if not await decision.vote(
            connection, approval_id=approval_id, principal_id=voter, decision=checked, digest=shown, how=how
        ):
            raise DeedboxError("already_decided", "You have decided this already; another person's vote is needed.")
        why = short_message(reason) if reason else None
        answer = await _apply(connection, ids, approval, principal, checked, why, how)
        detail = {"digest": shown.hex(), "job_id": str(job_id), "state": answer.state}
        await append(connection, entry_by(principal, how, checked, ("approval", str(approval_id)), reason=why, detail=detail))
    await tell(pool, jobs=[job_id], outbox=True, queue=approval.purpose == "input")
    return answer


def _check(digest_hex: str | None, choice: str, reason: str | None) -> tuple[bytes, Choice]:
    if choice not in ("approve", "reject"):
        problem = Problem("/decision", "enum", "must be exactly `approve` or `reject`")
        raise DeedboxError("invalid_input", "The decision is `approve` or `reject`.", problems=(problem,))
    try:
        shown = bytes.fromhex(digest_hex or "")
    except ValueError:
        shown = b""
    if len(shown) != DIGEST_BYTES:
        problem = Problem("/digest", "digest", "must be the 64 hexadecimal digits that were shown")
        raise DeedboxError("invalid_input", "The digest of what was shown is missing.", problems=(problem,))
    if choice == "reject" and not (reason or "").strip():
        problem = Problem("/reason", "required", "a rejection needs a reason")
        raise DeedboxError("invalid_input", "A rejection needs a reason.", problems=(problem,))
    return shown, choice


def _authorise(principal: Principal, approval: decision.LockedApproval, shown: bytes, choice: Choice) -> None:
    audience = frozenset(approval.audience)
    if not principal.has_role(audience) or not principal.may("decide"):
        wanted = ", ".join(sorted(audience))
        raise DeedboxError("permission_denied", f"Deciding this needs one of these roles: {wanted}.")
    if UUID(principal.principal_id) == approval.subject:
        raise DeedboxError("permission_denied", "Whoever asked for it does not decide it; someone else must.")
    if approval.state != "pending":
        who = approval.decided_by or "the clock"
        when = f" at {approval.decided_at:%Y-%m-%d %H:%M:%S %Z}" if approval.decided_at else ""
        raise DeedboxError("already_decided", f"It is {approval.state} already, by {who}{when}.")
    if approval.lapsed:
        raise DeedboxError("approval_expired", "Its time is over; nothing was sent and nothing will be.")
    if shown != approval.digest:
        raise DeedboxError("approval_changed", "What was shown is not what waits here now; look again.")
    if choice not in approval.allowed:
        raise DeedboxError("permission_denied", f"`{choice}` is not one of the decisions allowed here.")


async def _refuse_repeats(connection: Connection, approval_id: UUID, confirmed: Sequence[str]) -> None:
    again = [item for item in await rounds.repeats(connection, approval_id) if item.slot not in confirmed]
    if again:
        named = ", ".join(f"{item.slot} ({item.state})" for item in again)
        problems = tuple(Problem("/repeat", "repeat", f"{item.slot} is {item.state} in the replaced job") for item in again)
        said = f"The job that this one replaces has done this, or may have: {named}. Name each slot that is to be done again."
        raise DeedboxError("repeat_unconfirmed", said, problems=problems)


async def _apply(
    connection: Connection,
    ids: IdSource,
    approval: decision.LockedApproval,
    principal: Principal,
    choice: Choice,
    reason: str | None,
    how: str,
) -> Decided:
    by = UUID(principal.principal_id)
    if choice == "approve" and await decision.count_votes(connection, approval.approval_id) < approval.quorum:
        at = await decision.now(connection)
        return Decided("pending", principal.name, at, "Your vote is kept; another person's is needed.")
    state: State = "approved" if choice == "approve" else "rejected"
    at = await decision.end_approval(
        connection, approval_id=approval.approval_id, state=state, decided_by=by, how=how, reason=reason
    )
    if at is None:
        raise DeedboxError("already_decided", "Someone else was first.")
    if state == "approved":
        await _enqueue(connection, ids, approval)
    event = {"approval_id": str(approval.approval_id), "group": approval.group, "decision": state, "by": principal.name}
    await _event(connection, ids, approval.job_id, "job.decided", event)
    await _job_after(connection, ids, approval, state, reason or "")
    goes = "it goes out now" if approval.purpose == "effects" else "it runs now"
    sentence = f"Approved: {goes}." if state == "approved" else "Rejected: nothing was sent and nothing will be."
    return Decided(state, principal.name, at, sentence)


async def _enqueue(connection: Connection, ids: IdSource, approval: decision.LockedApproval) -> None:
    if approval.proposal_id is None or approval.effects == 0:
        return
    enqueued = await admission.enqueue_approved(
        connection,
        job_id=approval.job_id,
        proposal_id=approval.proposal_id,
        approval_id=approval.approval_id,
        group=approval.group,
        effect_ids=ids.many(approval.effects),
        not_after_s=NOT_AFTER_S,
    )
    if len(enqueued) != approval.effects:
        raise RuntimeError(f"approval {approval.approval_id} names {approval.effects} effects, {len(enqueued)} were found")


async def _event(connection: Connection, ids: IdSource, job_id: UUID, event_type: str, payload: Mapping[str, object]) -> None:
    await decision.add_event(
        connection, job_id, event_id=ids.new(), event_type=event_type, payload_json=json.dumps(dict(payload))
    )


async def _job_after(
    connection: Connection, ids: IdSource, approval: decision.LockedApproval, state: State, reason: str
) -> None:
    """Move the job once its last open approval has ended: what a rule let out before counts as authorised."""
    job_id = approval.job_id
    if approval.purpose == "input":
        if state == "approved":
            await let_run(connection, ids, job_id)
            return
        states: list[str] = []
    else:
        states = await decision.approval_states(connection, job_id)
    if "pending" in states:
        return
    if "approved" in states or (approval.purpose == "effects" and await decision.has_acts(connection, job_id)):
        await decision.move_job(connection, job_id, "dispatching")
        await _event(connection, ids, job_id, "job.dispatching", {})
        await finish_job(connection, ids, job_id)
        return
    code = "rejected" if state == "rejected" else "approval_expired"
    sentence = f"A person rejected it: {reason}" if state == "rejected" else "Nobody decided in time; nothing was sent."
    await decision.decline_job(
        connection,
        job_id,
        event_id=ids.new(),
        code=code,
        message=sentence,
        event_json=json.dumps({"code": code, "message": sentence, "retryable": False}),
    )


async def expire_lapsed(pool: Pool, ids: IdSource, *, limit: int = 100) -> int:
    """End pending approvals whose time is over, one transaction each; returns how many. Silence never approves."""
    async with autocommit(pool) as connection:
        lapsed = await decision.lapsed(connection, limit)
    ended: list[UUID] = []
    for approval_id, tenant in lapsed:
        async with transaction(pool) as connection:
            job_id = await decision.job_of(connection, approval_id, tenant)
            if job_id is None:
                continue
            await decision.lock_job(connection, job_id)
            approval = await decision.lock_approval(connection, approval_id)
            if approval is None or approval.state != "pending" or not approval.lapsed:
                continue
            await decision.end_approval(
                connection, approval_id=approval_id, state="expired", decided_by=None, how="sweep", reason=None
            )
            event = {"approval_id": str(approval_id), "group": approval.group, "decision": "expired"}
            await _event(connection, ids, job_id, "job.decided", event)
            await _job_after(connection, ids, approval, "expired", "")
            entry = AuditEntry(
                tenant, "system:sweep", "sweep", "system", "expire", "approval", str(approval_id), None, {"job_id": str(job_id)}
            )
            await append(connection, entry)
            ended.append(job_id)
    await tell(pool, jobs=ended)
    return len(ended)
