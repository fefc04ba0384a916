"""What is kept about where effects go: what a target can do, how fast and in what order it is sent to, and its breaker.

A row may be about one target, or with `EVERY` as its name about all targets of a connector together. Whoever changes what a
lease reads of it holds the switch's root first, as the switch itself does, so that no lease that read the old row begins after
the change returned. A row is locked after the effect, and by a lease before it looks; a lease waits for nothing after that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from deedbox.store.loader import statement
from deedbox.store.pool import Connection

EVERY = "*"
"""Stands for all targets of a connector together."""


@dataclass(frozen=True, slots=True)
class Place:
    """The row that something is about."""

    tenant: str
    connector: str
    target: str

    def named(self) -> dict[str, object]:
        """As parameters of a statement."""
        return {"tenant": self.tenant, "connector": self.connector, "target": self.target}


@dataclass(frozen=True, slots=True)
class Breaker:
    """When a target that fails is left alone. Times are in seconds.

    `failures` in a row, each within `window_s` of the one before, open it for `open_s`; each time that what it lets through
    then fails as well, for twice as long, up to `longest_s`.
    """

    failures: int = 5
    window_s: float = 60.0
    open_s: float = 30.0
    longest_s: float = 900.0


@dataclass(frozen=True, slots=True)
class TargetLine:
    """A target as it stands. `order_by` is `target`, a JSON pointer into the payload, or None; counts go up to ten thousand."""

    connector: str
    target: str
    capability: str
    paused: bool
    paused_by: str | None
    pause_reason: str | None
    paused_at: datetime | None
    slowed_until: datetime | None
    rate_per_s: float | None
    burst: int | None
    order_by: str | None
    limited_by: str | None
    breaker: str
    breaker_at: datetime | None
    breaker_until: datetime | None
    breaker_why: str | None
    probe_effect: UUID | None
    failures: int
    pending: int
    sending: int
    unknown: int


async def declare(connection: Connection, place: Place, *, capability: str, ttl_s: float | None, lag_s: float = 0.0) -> None:
    """Keep what a connector declares: how long a target remembers a native key, how late it shows things (seconds)."""
    await connection.execute(
        statement("targets", "declare"), {**place.named(), "capability": capability, "ttl_s": ttl_s, "lag_s": lag_s}
    )


async def slow(connection: Connection, place: Place, *, wait_s: float) -> None:
    """Lease nothing for a target during the next `wait_s` seconds."""
    await connection.execute(statement("targets", "slow"), {**place.named(), "wait_s": wait_s})


async def went_well(connection: Connection, place: Place, effect_id: UUID) -> None:
    """Keep that the target answered a sending of this effect."""
    await connection.execute(statement("targets", "went_well"), {**place.named(), "effect_id": effect_id})


async def went_badly(connection: Connection, place: Place, effect_id: UUID, breaker: Breaker, *, why: str) -> float | None:
    """Keep that the target failed; returns for how many seconds its breaker has opened now, None where it has not."""
    cursor = await connection.execute(
        statement("targets", "went_badly"),
        {
            **place.named(),
            "effect_id": effect_id,
            "why": why,
            "most": breaker.failures,
            "window_s": breaker.window_s,
            "open_s": breaker.open_s,
            "longest_s": breaker.longest_s,
        },
    )
    row = await cursor.fetchone()
    return float(row[1]) if row and row[0] else None


async def let_another(connection: Connection, place: Place, effect_id: UUID) -> None:
    """Keep that this effect told nothing about the target, which may be tried with another at once."""
    await connection.execute(statement("targets", "let_another"), {**place.named(), "effect_id": effect_id})


async def pause(connection: Connection, place: Place, *, by: str, reason: str) -> None:
    """Pause a target. The caller's transaction holds the switch's root."""
    await connection.execute(statement("targets", "pause"), {**place.named(), "by": by, "reason": reason})


async def resume(connection: Connection, place: Place) -> bool:
    """Let a target go on, with its breaker closed; False where nothing is known of it."""
    cursor = await connection.execute(statement("targets", "resume"), place.named())
    return await cursor.fetchone() is not None


async def limit(
    connection: Connection, place: Place, *, rate_per_s: float | None, burst: int | None, order_by: str | None, by: str
) -> bool:
    """Set rate (per second), burst and order of a target; None takes the limit away. False where nothing changed.

    What `settings` say changes nothing that a person has set. The caller's transaction holds the switch's root.
    """
    cursor = await connection.execute(
        statement("targets", "limit"),
        {**place.named(), "rate_per_s": rate_per_s, "burst": burst, "order_by": order_by, "by": by},
    )
    if await cursor.fetchone() is None:
        return False
    await connection.execute(statement("targets", "forget_keys"), place.named())
    return True


async def listed(
    connection: Connection,
    tenant: str,
    *,
    given: Sequence[tuple[str, str]] = (),
    connector: str | None = None,
    target: str | None = None,
    limit: int = 1000,
) -> list[TargetLine]:
    """The targets of a tenant, those in `given` (connector and name) as well although nothing is known of them."""
    cursor = await connection.execute(
        statement("targets", "listed"),
        {
            "tenant": tenant,
            "connectors": [one[0] for one in given],
            "targets": [one[1] for one in given],
            "connector": connector,
            "target": target,
            "limit": limit,
        },
    )
    return [TargetLine(*row) for row in await cursor.fetchall()]
