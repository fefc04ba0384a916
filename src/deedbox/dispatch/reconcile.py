"""Finding out what became of an effect nobody knows about, by asking the provider. Nothing is sent here."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from deedbox.dispatch.declared import Declared, declared
from deedbox.dispatch.send import GRACE_S, finish, kept, order_of
from deedbox.extend.connector import Connector, EffectOrder, LookUp
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.model.values import storable_text
from deedbox.store import audit, ledger, outbox
from deedbox.store.ids import IdSource
from deedbox.store.outbox import LockedEffect
from deedbox.store.pool import Connection, Pool
from deedbox.store.transaction import autocommit, transaction
from deedbox.telemetry import log

DEADLINE_S = 20.0
"""How long a look-up may take, in seconds."""

RECONCILER = Principal("system:reconciler", "default", "system:reconciler", "service", frozenset(), "system")

_log = log("reconcile")


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What a look-up said, the state of the effect afterwards, and a sentence that says why.

    `again_in_s`: asking again after so many seconds can say more, where that is known.
    """

    effect_id: UUID
    verdict: str
    state: str
    message: str
    provider_id: str | None = None
    again_in_s: float | None = None


async def look_up(
    pool: Pool,
    ids: IdSource,
    connectors: Mapping[str, Connector],
    *,
    tenant: str,
    effect_id: UUID,
    by: Principal | None = None,
    door: str = "dispatch",
) -> Reconciled:
    """Ask the provider about an unknown effect and keep what it said; `by` is the person who asked, none for the schedule.

    Accepted completes the effect. Not accepted makes it pending again only when the sender had closed the connection itself,
    the target can tell, and its visibility lag had passed before it was asked. Else it stays unknown.
    Raises DeedboxError: not_found, illegal_move.
    """
    async with autocommit(pool) as connection:
        found = await ledger.list_effects(connection, tenant, effect_id=effect_id, limit=1)
    if not found:
        raise DeedboxError("not_found", "There is no such effect, or it is not yours.")
    row = found[0]
    if row["state"] != "unknown":
        raise DeedboxError("illegal_move", f"Only an unknown effect is looked up; this one is {row['state']}.")
    connector = connectors.get(row["connector"])
    order = order_of(
        bytes(row["body"]),
        effect_id=effect_id,
        job_id=row["job_id"],
        tenant=tenant,
        attempt=row["attempt"],
        deadline_s=DEADLINE_S,
    )
    said = await ask(connector, order)
    asked_at_age_s = float(row["age_s"])
    async with transaction(pool) as connection:
        effect = await outbox.lock_effect(connection, effect_id, row["job_id"])
        if effect is None:
            raise DeedboxError("not_found", "There is no such effect, or it is not yours.")
        await outbox.add_probe(
            connection,
            effect,
            probe_id=ids.new(),
            verdict=said.verdict,
            evidence=kept(said.evidence),
            by_principal=person_id(by),
        )
        target = declared(connector, effect.target)
        same = effect.state == "unknown" and effect.attempt == row["attempt"]
        answer = await _apply(connection, ids, effect, said, target, asked_at_age_s if same else None, by)
        principal = by or replace(RECONCILER, tenant=tenant)
        detail = {"verdict": said.verdict, "state": answer.state, "job_id": str(effect.job_id)}
        await audit.append(connection, audit.entry_by(principal, door, "look_up", ("effect", str(effect_id)), detail=detail))
    await finish(pool, ids, row["job_id"])
    return answer


async def ask(connector: Connector | None, order: EffectOrder) -> LookUp:
    """Ask the provider. Never raises but for cancellation: who cannot be asked has said nothing."""
    if connector is None:
        return LookUp("still_unknown", evidence={"reason": "unknown_connector"})
    try:
        async with asyncio.timeout(order.deadline_s + GRACE_S):
            return await connector.look_up(order)
    except TimeoutError:
        return LookUp("still_unknown", evidence={"reason": "look_up_overran"})
    except Exception as error:  # noqa: BLE001 -- whatever it raises, it has not said
        _log.exception("look_up_raised", effect_id=order.effect_id, error=type(error).__name__)
        return LookUp("still_unknown", evidence={"reason": "look_up_failed", "error": type(error).__name__})


def person_id(principal: Principal | None) -> UUID | None:
    """The id to keep beside evidence; None for the schedule and for whoever has no row."""
    try:
        return UUID(principal.principal_id) if principal else None
    except ValueError:
        return None


async def _apply(
    connection: Connection,
    ids: IdSource,
    effect: LockedEffect,
    said: LookUp,
    target: Declared,
    age_s: float | None,
    by: Principal | None,
) -> Reconciled:
    """What the answer changes. `age_s` is how long the effect had been unknown when asked, None if it has moved since."""
    known: dict[str, Any] = {"effect_id": effect.effect_id, "verdict": said.verdict, "provider_id": said.provider_id}
    if said.verdict == "accepted":
        await outbox.add_receipt(
            connection,
            effect,
            receipt_id=ids.new(),
            provider_id=storable_text(said.provider_id or str(effect.effect_id)),
            evidence=kept(said.evidence),
            phase="looked_up",
            source="look_up",
            by_principal=person_id(by),
        )
        if await outbox.move(connection, "confirm", effect, event_id=ids.new()):
            return Reconciled(state="completed", message="The provider has it.", **known)
        return Reconciled(state=effect.state, message="The provider has it; the effect had moved meanwhile.", **known)
    lag_s = max(effect.visibility_lag_s, target.visibility_lag_s)
    stays = why_it_stays(said.verdict, target.capability, closed=effect.sender_closed, age_s=age_s, lag_s=lag_s)
    if stays is not None:
        # What the provider shows late it may show once that time is over.
        soon = effect.sender_closed and age_s is not None and age_s < lag_s
        return Reconciled(state=effect.state, message=stays, again_in_s=lag_s - (age_s or 0) + 1 if soon else None, **known)
    await outbox.move(connection, "disprove", effect, event_id=ids.new())
    return Reconciled(state="pending", message="The provider does not have it; it is sent again.", **known)


def why_it_stays(verdict: str, capability: str, *, closed: bool, age_s: float | None, lag_s: float) -> str | None:
    """Why an answer that is not `accepted` does not disprove an effect; None where it does.

    `closed`: the sender ended its connection itself. `age_s` is how long the effect had been unknown when the provider was
    asked, None if it has moved since; `lag_s` how late the provider shows things.
    """
    if age_s is None:
        return "The effect moved while the provider was asked."
    if verdict != "not_accepted":
        return "The provider could not tell."
    if capability == "blind":
        return "This target's word that it has nothing is not conclusive."
    if not closed:
        return "The provider has nothing yet, but the sender was lost and its request may still arrive; a person decides."
    if age_s < lag_s:
        return f"The provider shows things only after {lag_s:g} s; ask again later."
    return None
