"""One sending: the call outside any transaction, and the transaction that keeps what came of it."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

from deedbox.dispatch.watch import Watch
from deedbox.extend.connector import TARGET_GONE, Ambiguous, Connector, EffectOrder, Outcome, Receipt, Refused, Transient
from deedbox.extend.sensitive import sensitive_paths
from deedbox.gate.masking import mask_of
from deedbox.model.backoff import Retry
from deedbox.model.sensitive import HIDDEN, scrubbed, texts_at
from deedbox.model.values import short_message, storable, storable_text
from deedbox.store import callbacks, outbox, targets
from deedbox.store.alert import Alert, open_alerts
from deedbox.store.ending import finish_job
from deedbox.store.ids import IdSource
from deedbox.store.outbox import Leased, LockedEffect, Move, Why
from deedbox.store.pool import Connection, Pool
from deedbox.store.targets import Place
from deedbox.store.tell import tell
from deedbox.store.transaction import transaction
from deedbox.telemetry import log

GRACE_S = 0.5
"""How long past its deadline a connector may go on before it is cancelled, in seconds."""

_log = log("dispatch")


def order_of(body: bytes, *, effect_id: UUID, job_id: UUID, tenant: str, attempt: int, deadline_s: float) -> EffectOrder:
    """What a connector is given: values parsed from the approved bytes, and nothing else."""
    value: dict[str, Any] = json.loads(body)
    return EffectOrder(
        effect_id=str(effect_id),
        job_id=str(job_id),
        tenant=tenant,
        connector=value["connector"],
        target=value["target"],
        slot=value["slot"],
        payload=value["payload"],
        attempt=attempt,
        deadline_s=deadline_s,
    )


async def perform(connector: Connector, order: EffectOrder) -> Outcome:
    """Call the connector once. Never raises but for cancellation: what a connector raises is ambiguous.

    What is sensitive in the payload is in no sentence and no evidence of the outcome, and in no line of the log.
    """
    hidden = texts_at(order.payload, sensitive_paths(connector.payload_model))
    HIDDEN.set(hidden)
    outcome = await _performed(connector, order)
    return _scrubbed(outcome, hidden) if hidden else outcome


def _scrubbed(outcome: Outcome, hidden: Sequence[str]) -> Outcome:
    if isinstance(outcome, Receipt):
        return replace(outcome, evidence=json.loads(scrubbed(kept_json(outcome.evidence), [_in_json(one) for one in hidden])))
    return replace(outcome, message=scrubbed(outcome.message, hidden))


def _in_json(text: str) -> str:
    return json.dumps(text)[1:-1]


async def _performed(connector: Connector, order: EffectOrder) -> Outcome:
    try:
        async with asyncio.timeout(order.deadline_s + GRACE_S):
            outcome = cast("object", await connector.send(order))
    except TimeoutError:
        return Ambiguous("connector_overran", "The connector did not answer within its deadline.", "unknown", closed=False)
    except Exception as error:  # noqa: BLE001 -- whatever it raises, it may have acted
        _log.exception("connector_raised", effect_id=order.effect_id, error=type(error).__name__)
        said = f"The connector raised {type(error).__name__}; the details are in the log."
        return Ambiguous("connector_error", said, "unknown", closed=False)
    if isinstance(outcome, (Receipt, Transient, Refused, Ambiguous)):
        return outcome
    return Ambiguous("connector_error", "The connector answered something that is no outcome.", "unknown", closed=False)


async def keep(
    pool: Pool, ids: IdSource, leased: Leased, outcome: Outcome, *, receipt_id: UUID, retry: Retry, watch: Watch
) -> Move | None:
    """Keep receipt, state and event of one sending under its effect's lock; returns the move, None where nothing was added.

    Raises what the database raises. Who calls again after that, because a commit may or may not have arrived, gives the
    same `receipt_id` again.
    """
    async with transaction(pool) as connection:
        effect = await outbox.lock_effect(connection, leased.effect_id, leased.job_id)
        if effect is None:
            return None
        if not isinstance(outcome, Receipt):
            # What the action calls sensitive may stand in a payload that marks nothing, and a provider may repeat it.
            mask = await mask_of(connection, leased.job_id)
            outcome = replace(outcome, message=str(mask.texts(outcome.message)))
        if effect.state == "sending" and effect.fence == leased.fence:
            name = await _settle_held(connection, ids, leased, effect, outcome, receipt_id, retry)
            await watch.keep(connection, ids, leased, outcome, retry)
            return name
        return await _settle_late(connection, ids, leased, effect, outcome, receipt_id)


async def give_back(pool: Pool, ids: IdSource, leased: Leased, code: str) -> bool:
    """Return a lease before anything was dialled; it does not count as an attempt. False when it was lost already."""
    async with transaction(pool) as connection:
        effect = await outbox.lock_effect(connection, leased.effect_id, leased.job_id)
        if effect is None or effect.fence != leased.fence:
            return False
        if leased.troubled:
            await targets.let_another(connection, Place(leased.tenant, leased.connector, leased.target), leased.effect_id)
        return await outbox.move(connection, "give_back", effect, Why(code=code), event_id=ids.new())


async def withdraw(pool: Pool, ids: IdSource, leased: Leased) -> bool:
    """Cancel a leased notice before anything was dialled, because what it asks for has been decided. False when it was lost."""
    async with transaction(pool) as connection:
        effect = await outbox.lock_effect(connection, leased.effect_id, leased.job_id)
        if effect is None or effect.fence != leased.fence:
            return False
        await outbox.move(connection, "give_back", effect, event_id=ids.new())
        why = Why(code="approval_decided", message="The approval has ended.")
        return await outbox.move(connection, "cancel", effect, why, event_id=ids.new())


async def finish(pool: Pool, ids: IdSource, job_id: UUID) -> None:
    """End the job if its effects have ended, and wake those who follow it. Sweep repeats what fails here."""
    async with transaction(pool) as connection:
        await finish_job(connection, ids, job_id)
    await tell(pool, jobs=[job_id])


async def _settle_held(
    connection: Connection,
    ids: IdSource,
    leased: Leased,
    effect: LockedEffect,
    outcome: Outcome,
    receipt_id: UUID,
    retry: Retry,
) -> Move:
    if isinstance(outcome, Receipt):
        await _keep_receipt(connection, effect, outcome, receipt_id, late=False)
        name, why = "deliver", Why(phase=short_message(outcome.phase))
    else:
        name, why = _verdict(effect, outcome, retry)
    await outbox.move(connection, name, effect, why, event_id=ids.new())
    if name == "lose_track":
        message = f"It is not known whether {effect.slot} was accepted: {why.message}"
        await open_alerts(connection, [Alert(ids.new(), effect.job_id, "effect_unknown", message, effect.effect_id)])
    elif name == "refuse" and why.failure_class == "denied":
        message = f"The target {leased.target} refused the credentials or the right to do {effect.slot}: {why.message}"
        await open_alerts(connection, [Alert(ids.new(), effect.job_id, "effect_denied", message, effect.effect_id)])
    if name == "refuse" and why.code == TARGET_GONE:
        await _disable(connection, ids, leased, effect, why.message or "")
    return name


async def _disable(connection: Connection, ids: IdSource, leased: Leased, effect: LockedEffect, reason: str) -> None:
    """Send nothing more to a target that said so, and tell somebody once."""
    given = {"tenant": leased.tenant, "connector": leased.connector, "target": leased.target}
    if await callbacks.disable(connection, **given, reason=reason):
        message = f"Nothing more is sent to {leased.connector}/{leased.target} until somebody enables it again: {reason}"
        await open_alerts(connection, [Alert(ids.new(), effect.job_id, "target_disabled", message, effect.effect_id)])


def _verdict(effect: LockedEffect, outcome: Transient | Refused | Ambiguous, retry: Retry) -> tuple[Move, Why]:
    """Which move an end without a receipt is, and what is kept of it."""
    phase, code, message = short_message(outcome.phase), short_message(outcome.code), short_message(outcome.message)
    name: Move = "refuse"
    if isinstance(outcome, Ambiguous):
        why = Why(phase, "ambiguous", code, message, outcome.closed, retry.delay(effect.attempt))
        again = effect.native_key_lives and effect.attempt < retry.attempts
        if effect.kind == "notice":
            # Where the receiver knows the key, twice is once; and nobody looks up what we said ourselves.
            name = "retry" if again else "close_notice"
        else:
            name = "resend_same_key" if again else "lose_track"
    elif isinstance(outcome, Refused):
        why = Why(phase, outcome.failure_class, code, message)
    elif effect.attempt >= retry.attempts:
        said = f"It was tried {effect.attempt} times and never accepted: {message}"
        why = Why(phase, outcome.failure_class, "attempts_exhausted", short_message(said))
    else:
        wait_s = retry.delay(effect.attempt, retry_after=outcome.retry_after)
        name, why = "retry", Why(phase, outcome.failure_class, code, message, wait_s=wait_s)
    if name == "refuse" and effect.doubtful:
        # This sending was surely not accepted; one before it may have been.
        name, why = "lose_track", Why(phase, "ambiguous", code, message, closed=True)
    return name, why


async def _settle_late(
    connection: Connection, ids: IdSource, leased: Leased, effect: LockedEffect, outcome: Outcome, receipt_id: UUID
) -> Move | None:
    """A sender that was replaced: only a receipt counts, and that is kept in any case."""
    if not isinstance(outcome, Receipt):
        _log.info("late_outcome_dropped", effect_id=str(leased.effect_id), code=outcome.code)
        return None
    await _keep_receipt(connection, effect, outcome, receipt_id, late=True)
    why = Why(phase=short_message(outcome.phase))
    if await outbox.move(connection, "late_receipt", effect, why, event_id=ids.new()):
        return "late_receipt"
    if effect.state != "completed":
        message = f"A receipt for {effect.slot} came after it had ended as {effect.state}."
        await open_alerts(connection, [Alert(ids.new(), effect.job_id, "receipt_after_end", message, effect.effect_id)])
    return None


async def _keep_receipt(
    connection: Connection, effect: LockedEffect, receipt: Receipt, receipt_id: UUID, *, late: bool
) -> None:
    await outbox.add_receipt(
        connection,
        effect,
        receipt_id=receipt_id,
        provider_id=storable_text(receipt.provider_id),
        evidence=kept(receipt.evidence),
        phase=short_message(receipt.phase),
        source="late" if late else "sender",
    )


def kept(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Evidence in a form the store can keep: what is no JSON is written as text, what is no character as its escape."""
    return cast("dict[str, Any]", json.loads(kept_json(evidence)))


def kept_json(evidence: Mapping[str, Any]) -> str:
    """The same, as JSON."""
    return json.dumps(storable(dict(evidence)), default=repr, allow_nan=False)
