"""The outbox: leasing effects, every move of an effect, and the repairs of what a lost sender or the clock left behind.

Locks are taken in one order everywhere: switch, queue (by job_id), approval, effect, audit. Whoever moves an effect locks
its job's queue row first, because an effect's events are numbered there. A notice is no part of
a job's history: it writes no event.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, LiteralString
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from deedbox.model.backoff import Retry
from deedbox.model.lifecycle import EFFECT
from deedbox.store.alert import Alert, open_alerts
from deedbox.store.decision import add_event, lock_job
from deedbox.store.ending import finish_job
from deedbox.store.ids import IdSource
from deedbox.store.loader import statement
from deedbox.store.pool import Connection
from deedbox.telemetry import EFFECTS, log

ATTEMPTS = 20
RETRY = Retry(attempts=ATTEMPTS)
_PAGES = 20
_KEY = ("tenant", "connector", "target")
_KEYED = 1000
"""Effects whose place in a target's order is written down at once."""
_FIRST = UUID(int=0)
_log = log("outbox")

Move = Literal[
    "deliver",
    "late_receipt",
    "confirm",
    "retry",
    "give_back",
    "resend_same_key",
    "doubt",
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
    troubled: bool = False
    """The target has failed before: that it answers now is worth keeping."""


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
    doubtful: bool
    """Sent before under its native key, and perhaps accepted then."""


@dataclass(frozen=True, slots=True)
class Why:
    """What an effect's row keeps of its last sending. `wait_s` is the time in seconds before it is due again."""

    phase: str | None = None
    failure_class: str | None = None
    code: str | None = None
    message: str | None = None
    closed: bool = False
    wait_s: float = 0.0


async def next_due(connection: Connection) -> tuple[float, float | None] | None:
    """Seconds until some effect may go out, zero where one may now, and until a target that holds back may let one through.

    None where none is pending; the second is None where no target waits for its time.
    """
    cursor = await connection.execute(statement("outbox", "next_due"))
    row = await cursor.fetchone()
    return (float(row[0]), None if row[1] is None else float(row[1])) if row else None


async def lease(
    connection: Connection,
    *,
    environment_on: bool,
    connectors: Sequence[str],
    sender: str,
    lease_s: float,
    event_ids: Sequence[UUID],
) -> list[Leased]:
    """Lease at most as many effects as there are `event_ids`.

    Needs a transaction, which holds the switch, and the gated targets that may let something through, until it ends.
    """
    cursor = await connection.execute(statement("outbox", "hold"))
    held: list[tuple[str, str, str, str | None]] = await cursor.fetchall()
    for tenant, connector, target, order_by in held:
        if order_by is not None and order_by.startswith("/"):
            path = [part.replace("~1", "/").replace("~0", "~") for part in order_by.split("/")[1:]]
            await connection.execute(
                statement("outbox", "key_effects"),
                {"tenant": tenant, "connector": connector, "target": target, "path": path, "limit": _KEYED},
            )
    cursor = await connection.execute(
        statement("outbox", "lease_gated" if held else "lease"),
        {
            "environment_on": environment_on,
            "connectors": list(connectors),
            "sender": sender,
            "lease_s": lease_s,
            "event_id": list(event_ids),
            "limit": len(event_ids),
            **({f"held_{name}": [one[place] for one in held] for place, name in enumerate(_KEY)} if held else {}),
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
            payload_json=json.dumps({key: value for key, value in payload.items() if value is not None}),
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


# Repairs ---------------------------------------------------------------------------------------------------------------


async def rescue_sendings(connection: Connection, ids: IdSource, *, limit: int = 500) -> list[UUID]:
    """Take back sendings whose lease ran out; returns their jobs. Needs a transaction.

    Nobody knows what the lost sender did: the effect is `unknown`, or `pending` again where the target still knows the key.
    One that cannot be moved is left for the next round and holds up no other.
    """
    return await _repair(connection, ids, "lapsed_sendings", _rescue, limit)


async def expire_unsent(connection: Connection, ids: IdSource, *, limit: int = 500) -> list[UUID]:
    """Fail pending effects whose time passed, cancel those whose predecessor was not done, and end the jobs that this ends.

    Returns their jobs. Needs a transaction.
    """
    return await _repair(connection, ids, "unsendable", _expire, limit)


async def _repair(
    connection: Connection,
    ids: IdSource,
    page: Literal["lapsed_sendings", "unsendable"],
    one: Callable[[Connection, IdSource, LockedEffect], Awaitable[bool]],
    limit: int,
) -> list[UUID]:
    touched: list[UUID] = []
    after = _FIRST
    for _ in range(_PAGES):
        cursor = await connection.execute(_page_statement(page), {"after": after, "limit": limit})
        found = await cursor.fetchall()
        # Queue rows are locked in the order of their ids, as everywhere.
        for effect_id, job_id in sorted(found, key=lambda row: (row[1], row[0])):
            try:
                async with connection.transaction():
                    effect = await lock_effect(connection, effect_id, job_id)
                    if effect is not None and await one(connection, ids, effect):
                        touched.append(job_id)
            except psycopg.Error as error:
                _log.warning("repair_failed", effect_id=str(effect_id), kind=page, error=type(error).__name__)
        if len(found) < limit:
            break
        after = found[-1][0]
    return touched


def _page_statement(page: Literal["lapsed_sendings", "unsendable"]) -> LiteralString:
    return statement("outbox", page)


async def _rescue(connection: Connection, ids: IdSource, effect: LockedEffect) -> bool:
    if effect.state != "sending" or not effect.lease_lapsed:
        return False
    why = Why(
        failure_class="lost",
        code="sender_lost",
        message="The sender was lost before it could say how it ended.",
        wait_s=RETRY.delay(effect.attempt),
    )
    name: Move = "lose_track"
    again = effect.native_key_lives and effect.attempt < ATTEMPTS
    if effect.kind == "notice":
        name = "retry" if again else "close_notice"
    elif again:
        name = "resend_same_key"
    return await move(connection, name, effect, why, event_id=ids.new())


async def _expire(connection: Connection, ids: IdSource, effect: LockedEffect) -> bool:
    if effect.state != "pending":
        return False
    if effect.doubtful:
        if not effect.expired and effect.native_key_lives:
            return False
        said = "It may have been accepted, and the provider does not know its key any more: it is not sent again."
        if not await move(connection, "doubt", effect, Why(code="key_died", message=said), event_id=ids.new()):
            return False
        await open_alerts(connection, [Alert(ids.new(), effect.job_id, "effect_unknown", said, effect.effect_id)])
        return True
    if effect.expired:
        why = Why(code="expired_unsent", message="Its time passed before it could be sent.")
        moved = await move(connection, "expire", effect, why, event_id=ids.new())
    else:
        why = Why(code="predecessor_failed", message="What it was to follow was not done.")
        moved = await move(connection, "cancel", effect, why, event_id=ids.new())
    if moved:
        await finish_job(connection, ids, effect.job_id)
    return moved
