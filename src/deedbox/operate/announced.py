"""What will leave by itself when its window has passed, told to people while they can still cancel it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from deedbox.model.identity import Principal
from deedbox.store import cards
from deedbox.store.pool import Pool
from deedbox.store.transaction import autocommit

MOST_LINES = 200
ZONE = "UTC"


@dataclass(frozen=True, slots=True)
class AnnouncedLine:
    """One delayed effect; it leaves at `opens_at`, in `remaining_s` seconds by the database's clock, unless it is canceled."""

    effect_id: UUID
    job_id: UUID
    action: str
    sentence: str
    connector: str
    target: str
    slot: str
    opens_at: datetime
    zone: str
    remaining_s: float
    rule: str
    asked_by: str
    may_cancel: bool


class ListAnnounced(Protocol):
    """Lists what is announced to a principal."""

    async def __call__(self, tenant: str, principal: Principal) -> list[AnnouncedLine]:
        """What leaves by itself unless it is canceled, the next to leave first. Changes nothing."""
        ...


class CancelEffect(Protocol):
    """Cancels an effect that waits for its window to pass."""

    async def __call__(self, principal: Principal, effect_id: UUID, reason: str) -> None:
        """Cancel it, or raise DeedboxError: not_found, permission_denied, invalid_input, illegal_move (it has left)."""
        ...


async def announced(pool: Pool, tenant: str, principal: Principal) -> list[AnnouncedLine]:
    """What of a tenant leaves by itself unless it is canceled, as far as this principal may see it; the next first."""
    async with autocommit(pool) as connection:
        rows = await cards.announced(connection, tenant, MOST_LINES)
    person = principal.kind == "person"
    return [
        AnnouncedLine(
            effect_id=row[0],
            job_id=row[1],
            action=row[2],
            sentence=row[3],
            connector=row[4],
            target=row[5],
            slot=row[6],
            opens_at=row[7],
            zone=ZONE,
            remaining_s=row[8],
            rule=row[9],
            asked_by=row[10] or "someone who is gone",
            may_cancel=person and principal.may("reconcile"),
        )
        for row in rows
        if str(row[11]) == principal.principal_id or (person and principal.may("read"))
    ]
