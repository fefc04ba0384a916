"""The outbox: leasing effects, every move of an effect, the end of a job whose effects have ended, and repairs.

Locks are taken in one order everywhere: switch, queue (by job_id), approval, effect, audit. Whoever moves an effect locks
its job's queue row first, because an effect's events are numbered there. Notices belong to no job's history and lock none.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, LiteralString
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from deedbox.model.backoff import Retry
from deedbox.model.lifecycle import EFFECT
from deedbox.store.decision import add_event, lock_job
from deedbox.store.ids import IdSource
from deedbox.store.loader import statement
from deedbox.store.pool import Connection, Pool
from deedbox.store.switch import lock_roots
from deedbox.store.transaction import autocommit, transaction
from deedbox.telemetry import EFFECTS, log

ATTEMPTS = 20
RETRY = Retry(attempts=ATTEMPTS)
_PAGES = 20
_FIRST = UUID(int=0)
_log = log("outbox")

Move = Literal[
    "deliver",
    "late_receipt",
    "confirm",
    "retry",
    "give_back",
    "resend_same_key",
    "refuse",
    "lose_track",
    "close_notice",
    "disprove",
    "expire",
    "abandon",
    "cancel",
]


@dataclass(frozen=True, slots=True)
class Leased:
    """An effect that may be sent now by whoever holds its fence; `body` is what was approved, byte for byte.

    `capability` and `native_key_ttl_s` (seconds) are what the database knows of the target, None where it knows nothing.
    """

    effect_id: UUID
    job_id: UUID
    tenant: str
    action: str
    kind: str
    connector: str
    target: str
    slot: str
    attempt: int
    fence: int
    body: bytes
    capability: str | None
    native_key_ttl_s: float | None


@dataclass(frozen=True, slots=True)
class LockedEffect:
    """An effect, locked for this transaction. Booleans and ages (seconds) are by the database's clock."""

    effect_id: UUID
    job_id: UUID
    tenant: str
    kind: str
    connector: str
    target: str
    slot: str
    state: str
    attempt: int
    fence: int | None
    sender_closed: bool
    capability: str
    native_key_lives: bool
    lease_lapsed: bool
    expired: bool
    age_s: float
    visibility_lag_s: float
    phase: str | None


@dataclass(frozen=True, slots=True)
class Why:
    """What an effect's row keeps of its last sending. `wait_s` is the time in seconds before it is due again."""

    phase: str | None = None
    failure_class: str | None = None
    code: str | None = None
    message: str | None = None
    closed: bool = False
    wait_s: float = 0.0


async def lease(
    connection: Connection,
    *,
    environment_on: bool,
    connectors: Sequence[str],
    sender: str,
    lease_s: float,
    event_ids: Sequence[UUID],
) -> list[Leased]:
    """Lease at most as many effects as there are `event_ids`. Needs a transaction, which holds the switch until it ends."""
    await lock_roots(connection)
    cursor = await connection.execute(
        statement("outbox", "lease"),
        {
            "environment_on": environment_on,
            "connectors": list(connectors),
            "sender": sender,
            "lease_s": lease_s,
            "event_id": list(event_ids),
            "limit": len(event_ids),
        },
    )
    return [Leased(*row) for row in await cursor.fetchall()]


async def lock_effect(connection: Connection, effect_id: UUID, job_id: UUID) -> LockedEffect | None:
    """Lock the job's queue row where there is one, and then the effect; None for an effect that is not there."""
    await lock_job(connection, job_id)
    cursor = await connection.execute(statement("outbox", "lock_effect"), {"effect_id": effect_id})
    row = await cursor.fetchone()
    return LockedEffect(*row) if row else None


async def move(connection: Connection, name: Move, effect: LockedEffect, why: Why | None = None, *, event_id: UUID) -> bool:
    """Make one move of a locked effect and, for an act, write its event; False where its state does not allow the move."""
    why = why or Why()
    parameters: dict[str, Any] = {
        "effect_id": effect.effect_id,
        "fence": effect.fence,
        "phase": why.phase,
        "class": why.failure_class,
        "code": why.code,
        "message": why.message,
        "closed": why.closed,
        "wait_s": why.wait_s,
    }
    cursor = await connection.execute(_move_statement(name), parameters)
    if await cursor.fetchone() is None:
        return False
    EFFECTS.labels(effect.connector, name).inc()
    target = "pending" if name == "give_back" else next(item.target for item in EFFECT.moves if item.name == name)
    if effect.kind == "act" and target != "pending":
        payload = {"effect_id": str(effect.effect_id), "connector": effect.connector, "slot": effect.slot, "code": why.code}
        await add_event(
            connection,
            effect.job_id,
            event_id=event_id,
            event_type=f"effect.{target}",
            payload_json=_json({key: value for key, value in payload.items() if value is not None}),
        )
    return True


def _move_statement(name: Move) -> LiteralString:
    return statement("outbox", name)


async def add_receipt(
    connection: Connection,
    effect: LockedEffect,
    *,
    receipt_id: UUID,
    provider_id: str,
    evidence: Mapping[str, Any],
    phase: str,
    source: Literal["sender", "late", "look_up", "human"],
    by_principal: UUID | None = None,
) -> None:
    """Keep a receipt; `evidence` must be JSON that PostgreSQL can keep."""
    await connection.execute(
        statement("outbox", "add_receipt"),
        {
            "job_id": effect.job_id,
            "receipt_id": receipt_id,
            "effect_id": effect.effect_id,
            "provider_id": provider_id,
            "evidence": Jsonb(dict(evidence)),
            "phase": phase,
            "source": source,
            "by_principal": by_principal,
        },
    )


async def add_probe(
    connection: Connection,
    effect: LockedEffect,
    *,
    probe_id: UUID,
    verdict: str,
    evidence: Mapping[str, Any],
    by_principal: UUID | None,
) -> None:
    """Keep what was said when somebody asked; `evidence` must be JSON that PostgreSQL can keep."""
    await connection.execute(
        statement("outbox", "add_probe"),
        {
            "probe_id": probe_id,
            "job_id": effect.job_id,
            "effect_id": effect.effect_id,
            "verdict": verdict,
            "evidence": Jsonb(dict(evidence)),
            "by_principal": by_principal,
        },
    )


async def raise_alert(connection: Connection, effect: LockedEffect, *, alert_id: UUID, cause: str, message: str) -> None:
    """Open an alert about an effect, unless the same is open."""
    await connection.execute(
        statement("outbox", "raise_alert"),
        {
            "alert_id": alert_id,
            "tenant": effect.tenant,
            "cause": cause,
            "job_id": effect.job_id,
            "effect_id": effect.effect_id,
            "message": message,
        },
    )


async def declare_target(
    connection: Connection, *, tenant: str, connector: str, target: str, capability: str, ttl_s: float | None
) -> None:
    """Keep what a connector declares of a target; `ttl_s` is how long it remembers a native key, in seconds."""
    await connection.execute(
        statement("outbox", "declare_target"),
        {"tenant": tenant, "connector": connector, "target": target, "capability": capability, "ttl_s": ttl_s},
    )


async def slow_target(connection: Connection, *, tenant: str, connector: str, target: str, wait_s: float) -> None:
    """Lease nothing for a target during the next `wait_s` seconds, where the target has a row."""
    await connection.execute(
        statement("outbox", "slow_target"), {"tenant": tenant, "connector": connector, "target": target, "wait_s": wait_s}
    )


async def notify_events(pool: Pool, job_ids: Sequence[UUID]) -> None:
    """Wake those who follow the events of these jobs. Call it after the commit; a lost wake-up only makes them later."""
    if not job_ids:
        return
    async with autocommit(pool) as connection:
        await connection.execute(statement("outbox", "notify"), {"job_id": list(job_ids)})


# The end of a job ------------------------------------------------------------------------------------------------------


async def finish_job(connection: Connection, job_id: UUID, event_id: UUID) -> str | None:
    """End a dispatching job all of whose acts have ended, under its queue row's lock; returns the final state, else None.

    All completed: completed. All canceled: canceled. Else failed_terminal, with what was done and what was not.
    """
    job = await lock_job(connection, job_id)
    if job is None or job.state != "dispatching":
        return None
    cursor = await connection.execute(statement("outbox", "effects_of_job"), {"job_id": job_id})
    done: list[dict[str, Any]] = []
    not_done: list[dict[str, Any]] = []
    for effect_id, connector, target, slot, state, failure_class, code, message, provider_id in await cursor.fetchall():
        if state not in EFFECT.ended:
            return None
        about = {"effect_id": str(effect_id), "connector": connector, "target": target, "slot": slot}
        if state == "completed":
            done.append({**about, "provider_id": provider_id})
        else:
            not_done.append({**about, "state": state, "class": failure_class, "code": code, "message": message})
    cursor = await connection.execute(statement("outbox", "declined_groups"), {"job_id": job_id})
    declined = [{"group": row[0], "state": row[1], "reason": row[2]} for row in await cursor.fetchall()]
    ending = _ending(done, not_done, declined)
    await end_job(connection, job_id, ending, event_id=event_id, done=done, not_done=not_done, declined=declined)
    return ending.state


@dataclass(frozen=True, slots=True)
class JobEnding:
    """How a job ends and what its last event says."""

    state: str
    event_type: str
    event: Mapping[str, Any]
    failure_class: str | None = None
    code: str | None = None
    message: str | None = None


def _ending(done: list[dict[str, Any]], not_done: list[dict[str, Any]], declined: list[dict[str, Any]]) -> JobEnding:
    if not not_done:
        summary = f"{len(done)} done" + (f", {len(declined)} declined" if declined else "")
        return JobEnding("completed", "job.completed", {"summary": summary})
    if not done and all(item["state"] == "canceled" for item in not_done):
        return canceled("Every effect was canceled before it was sent.")
    code = "partially_done" if done else "undelivered"
    message = f"{len(done)} of {len(done) + len(not_done)} effects were done."
    failure_class = next((item["class"] for item in not_done if item["class"]), "canceled")
    return JobEnding(
        "failed_terminal",
        "job.failed",
        {"code": code, "message": message, "retryable": False},
        failure_class,
        code,
        message,
    )


def canceled(message: str) -> JobEnding:
    """The ending of a job that was canceled."""
    return JobEnding("canceled", "job.canceled", {"code": "canceled", "message": message}, "canceled", "canceled", message)


async def end_job(
    connection: Connection,
    job_id: UUID,
    ending: JobEnding,
    *,
    event_id: UUID,
    done: Sequence[Mapping[str, Any]] = (),
    not_done: Sequence[Mapping[str, Any]] = (),
    declined: Sequence[Mapping[str, Any]] = (),
) -> None:
    """End a job whose queue row is locked."""
    await connection.execute(
        statement("outbox", "end_job"),
        {
            "job_id": job_id,
            "state": ending.state,
            "class": ending.failure_class,
            "code": ending.code,
            "message": ending.message,
            "done": Jsonb(list(done)),
            "not_done": Jsonb(list(not_done)),
            "declined": Jsonb(list(declined)),
            "event_id": event_id,
            "event_type": ending.event_type,
            "event": Jsonb(dict(ending.event)),
        },
    )
