"""The one function by which anything is decided, whatever the door, and its counterpart for silence.

Locks are taken in the order queue, approval, effect, audit. Everything a decision changes is one transaction; what it
refuses changes nothing and says who was first. Who may is written down in deedbox.gate.rules.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from deedbox.gate.confirm import Confirmed, require_confirmed, stake_of
from deedbox.gate.rules import Say, completes, find_say, require_act, require_open, require_person
from deedbox.model.errors import DeedboxError, Problem
from deedbox.model.identity import Principal
from deedbox.model.values import short_message
from deedbox.store import admission, decision, editing, rounds
from deedbox.store.audit import AuditEntry, append, entry_by
from deedbox.store.decision import Settlement, Standing
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
    confirmed: Confirmed | None = None,
    batch: UUID | None = None,
) -> Decided:
    """Decide one approval for one person, bound to the digest that was shown; `how` is the door it came through.

    `confirmed` is what the page asked once more for something grave; `batch` is what was decided together. Raises
    DeedboxError: invalid_input (no digest, an unknown choice, a rejection without a reason), person_required, not_found,
    permission_denied, already_decided, approval_expired, approval_changed, session_required, confirmation_required,
    repeat_unconfirmed where an effect that the replaced job has done, or may have done, is not among the slots of `repeat`. A
    refusal changes nothing.
    """
    require_person(principal)
    shown, checked = _check(digest_hex, choice, reason)
    why = short_message(reason) if reason else None
    async with transaction(pool) as connection:
        # Whoever ends an approval locks its job's queue row first; where there is none, the approval has ended.
        await decision.lock_job_of(connection, approval_id, principal.tenant)
        approval = await decision.lock_standing(connection, approval_id, principal.tenant, UUID(principal.principal_id))
        if approval is None:
            raise DeedboxError("not_found", "There is no such approval, or it is not yours.")
        say = _authorise(principal, approval, shown, checked, how)
        if checked == "approve":
            await _require_seen(connection, approval, repeat, confirmed)
        answer = await _apply(connection, ids, approval, principal, say, checked, why, how)
        detail = {"digest": shown.hex(), "job_id": str(approval.job_id), "state": answer.state}
        detail |= {} if say.holder is None else {"for": str(say.holder), "for_name": say.name}
        detail |= {} if batch is None else {"batch": str(batch)}
        await append(connection, entry_by(principal, how, checked, ("approval", str(approval_id)), reason=why, detail=detail))
    await tell(pool, jobs=[approval.job_id], outbox=approval.effects > 0, queue=approval.purpose == "input")
    return answer


def _check(digest_hex: str | None, choice: str, reason: str | None) -> tuple[bytes, Choice]:
    if choice not in ("approve", "reject"):
        problem = Problem("/decision", "enum", "must be exactly `approve` or `reject`")
        raise DeedboxError("invalid_input", "The decision is `approve` or `reject`.", problems=(problem,))
    shown = digest_of(digest_hex)
    if choice == "reject" and not (reason or "").strip():
        problem = Problem("/reason", "required", "a rejection needs a reason")
        raise DeedboxError("invalid_input", "A rejection needs a reason.", problems=(problem,))
    return shown, choice


def digest_of(digest_hex: str | None) -> bytes:
    """The digest of what was shown. Raises DeedboxError invalid_input for none."""
    try:
        shown = bytes.fromhex(digest_hex or "")
    except ValueError:
        shown = b""
    if len(shown) != DIGEST_BYTES:
        problem = Problem("/digest", "digest", "must be the 64 hexadecimal digits that were shown")
        raise DeedboxError("invalid_input", "The digest of what was shown is missing.", problems=(problem,))
    return shown


def _authorise(principal: Principal, approval: Standing, shown: bytes, choice: Choice, door: str) -> Say:
    say = find_say(principal, approval)
    require_open(approval, shown, approval.digest)
    if choice not in approval.allowed:
        raise DeedboxError("permission_denied", f"`{choice}` is not one of the decisions allowed here.")
    require_act(principal, approval, say, choice, door)
    return say


async def _require_seen(connection: Connection, approval: Standing, repeat: Sequence[str], confirmed: Confirmed | None) -> None:
    """What an approval has to have been asked beside the digest: nothing, for most."""
    if approval.replaces is not None:
        await _refuse_repeats(connection, approval.approval_id, repeat)
    if approval.consequence == "grave":
        found = await editing.effects(connection, approval.job_id, approval.proposal_id, approval.group)
        require_confirmed(confirmed, stake_of(approval.action, [(one.target, one.body) for one in found]))


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
    approval: Standing,
    principal: Principal,
    say: Say,
    choice: Choice,
    reason: str | None,
    how: str,
) -> Decided:
    by = UUID(principal.principal_id)
    if choice == "approve" and not completes(principal, approval, say):
        at = await decision.vote(
            connection,
            approval_id=approval.approval_id,
            principal_id=by,
            decision=choice,
            digest=approval.digest,
            how=how,
            for_principal=say.holder,
        )
        return Decided("pending", principal.name, at, "Your vote is kept; another person's is needed.")
    state: State = "approved" if choice == "approve" else "rejected"
    event = {"approval_id": str(approval.approval_id), "group": approval.group, "decision": state, "by": principal.name}
    event |= {} if say.name is None else {"for": say.name}
    job_state = _job_state(approval, state)
    at = await decision.settle(
        connection,
        Settlement(
            approval.approval_id,
            state,
            how,
            ids.new(),
            json.dumps(event),
            decided_by=by,
            reason=reason,
            vote=choice,
            digest=approval.digest,
            for_principal=say.holder,
            job_state=job_state,
            next_event_id=ids.new(),
        ),
    )
    if at is None:
        raise DeedboxError("already_decided", "Someone else was first.")
    enqueued = await _enqueue(connection, ids, approval) if state == "approved" else 0
    if not enqueued:
        await _job_after(connection, ids, approval, job_state, "rejected", reason or "")
    return Decided(state, principal.name, at, _sentence(approval, state))


def _sentence(approval: Standing, state: State) -> str:
    if state == "rejected":
        return "Rejected: nothing was sent and nothing will be."
    return "Approved: it runs now." if approval.purpose == "input" else "Approved: it goes out now."


def _job_state(approval: Standing, state: str) -> str | None:
    """Where the job goes once this approval has ended so; None while others are open, or where nothing is authorised."""
    if "pending" in approval.others:
        return None
    if approval.purpose == "input":
        return "queued" if state == "approved" else None
    authorised = approval.acts or "approved" in (state, *approval.others)
    return "dispatching" if authorised else None


async def _enqueue(connection: Connection, ids: IdSource, approval: Standing) -> int:
    if approval.purpose != "effects" or approval.proposal_id is None or approval.effects == 0:
        return 0
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
    return len(enqueued)


async def _job_after(
    connection: Connection, ids: IdSource, approval: Standing, job_state: str | None, why: str, reason: str
) -> None:
    """End the job once its last open approval has ended and there is nothing to wait for."""
    if "pending" in approval.others or job_state == "queued":
        return
    if job_state == "dispatching":
        await finish_job(connection, ids, approval.job_id)
        return
    code = "rejected" if why == "rejected" else "approval_expired"
    sentence = f"A person rejected it: {reason}" if why == "rejected" else "Nobody decided in time; nothing was sent."
    event: Mapping[str, Any] = {"code": code, "message": sentence, "retryable": False}
    await decision.decline_job(
        connection, approval.job_id, event_id=ids.new(), code=code, message=sentence, event_json=json.dumps(event)
    )


async def expire_lapsed(pool: Pool, ids: IdSource, *, limit: int = 100) -> int:
    """End pending approvals whose time is over, one transaction each; returns how many. Silence never approves."""
    async with autocommit(pool) as connection:
        lapsed = await decision.lapsed(connection, limit)
    ended: list[UUID] = []
    for approval_id, tenant in lapsed:
        async with transaction(pool) as connection:
            await decision.lock_job_of(connection, approval_id, tenant)
            approval = await decision.lock_standing(connection, approval_id, tenant, None)
            if approval is None or approval.state != "pending" or not approval.lapsed:
                continue
            event = {"approval_id": str(approval_id), "group": approval.group, "decision": "expired"}
            job_state = _job_state(approval, "expired")
            settlement = Settlement(
                approval_id,
                "expired",
                "sweep",
                ids.new(),
                json.dumps(event),
                job_state=job_state,
                next_event_id=ids.new(),
            )
            await decision.settle(connection, settlement)
            await _job_after(connection, ids, approval, job_state, "expired", "")
            detail = {"job_id": str(approval.job_id)}
            entry = AuditEntry(tenant, "system:sweep", "sweep", "system", "expire", "approval", str(approval_id), None, detail)
            await append(connection, entry)
            ended.append(approval.job_id)
    await tell(pool, jobs=ended)
    return len(ended)
