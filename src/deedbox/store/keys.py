"""API keys of services, forms and people, and the tokens that show one job: one function per statement of keys.sql."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from deedbox.model.identity import Verb, known_verbs
from deedbox.store.loader import statement
from deedbox.store.pool import Connection


@dataclass(frozen=True, slots=True)
class RevokedKey:
    """A key that was ended: its holder's name and its label."""

    name: str
    label: str


@dataclass(frozen=True, slots=True)
class KeyLine:
    """A key as a list shows it; the key itself is not kept anywhere. `replaced_by` is the key that took its place."""

    key_id: UUID
    name: str
    label: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    kind: str
    action: str | None
    origins: list[str] | None
    acts_for_others: bool
    replaced_by: UUID | None


@dataclass(frozen=True, slots=True)
class Rotated:
    """A key that is to be rotated, with everything its successor takes over; `lifetime_s` is what it was given."""

    key_id: UUID
    principal_id: UUID
    name: str
    label: str
    kind: str
    action: str | None
    origins: list[str] | None
    rate_per_minute: int | None
    acts_for_others: bool
    lifetime_s: float | None


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """Who holds a key, what its roles may do, and what the key is bound to."""

    principal_id: UUID
    tenant: str
    name: str
    roles: frozenset[str]
    verbs: frozenset[Verb]
    kind: str
    key_id: UUID
    action: str | None
    origins: frozenset[str]


@dataclass(frozen=True, slots=True)
class Acting:
    """A person for whom a service speaks, with the roles and verbs that both hold."""

    principal_id: UUID
    tenant: str
    name: str
    roles: frozenset[str]
    verbs: frozenset[Verb]
    service_id: UUID
    service: str


@dataclass(frozen=True, slots=True)
class ShownJob:
    """For whom the job runs that a status token shows, and the origins of the form that it came from."""

    principal_id: UUID
    tenant: str
    name: str
    origins: frozenset[str]
    key_id: UUID | None
    action: str


async def add(
    connection: Connection,
    *,
    key_sha256: bytes,
    key_id: UUID,
    tenant: str,
    principal_id: UUID,
    kind: str,
    label: str,
    expires_s: float | None,
    action: str | None = None,
    origins: Sequence[str] | None = None,
    rate_per_minute: int | None = None,
    acts_for_others: bool = False,
) -> datetime | None:
    """Keep the hash of a new key and say when it expires: `expires_s` seconds from now, never when None."""
    cursor = await connection.execute(
        statement("keys", "add"),
        {
            "key_sha256": key_sha256,
            "key_id": key_id,
            "tenant": tenant,
            "principal_id": principal_id,
            "kind": kind,
            "label": label,
            "expires_s": expires_s,
            "action": action,
            "origins": None if origins is None else list(origins),
            "rate_per_minute": rate_per_minute,
            "acts_for_others": acts_for_others,
        },
    )
    row = await cursor.fetchone()
    return row[0] if row else None


async def listed(connection: Connection, tenant: str, principal_id: UUID | None = None) -> list[KeyLine]:
    """The keys of a tenant, or of one principal of it, newest first."""
    cursor = await connection.execute(statement("keys", "listed"), {"tenant": tenant, "principal_id": principal_id})
    return [KeyLine(*row) for row in await cursor.fetchall()]


async def living_personal(connection: Connection, principal_id: UUID) -> int:
    """How many living personal keys a person has."""
    cursor = await connection.execute(statement("keys", "living_personal"), {"principal_id": principal_id})
    row = await cursor.fetchone()
    return int(row[0]) if row else 0


async def revoke(connection: Connection, tenant: str, key_id: UUID, principal_id: UUID | None = None) -> RevokedKey | None:
    """End a key; None when it was not alive, not of this tenant, or not of the principal that is named."""
    cursor = await connection.execute(
        statement("keys", "revoke"), {"tenant": tenant, "key_id": key_id, "principal_id": principal_id}
    )
    row = await cursor.fetchone()
    return None if row is None else RevokedKey(*row)


async def to_rotate(connection: Connection, tenant: str, label: str, key_id: UUID | None) -> list[Rotated]:
    """The living keys that have this label or this id, locked."""
    cursor = await connection.execute(statement("keys", "to_rotate"), {"tenant": tenant, "label": label, "key_id": key_id})
    return [Rotated(*row) for row in await cursor.fetchall()]


async def replaced(connection: Connection, key_id: UUID, *, by: UUID, overlap_s: float) -> datetime | None:
    """Let a rotated key live on for the overlap, and say until when."""
    cursor = await connection.execute(
        statement("keys", "replaced"), {"key_id": key_id, "replaced_by": by, "overlap_s": overlap_s}
    )
    row = await cursor.fetchone()
    return row[0] if row else None


async def resolve(connection: Connection, key_sha256: bytes) -> KeyHolder | None:
    """Who holds the key with this hash."""
    cursor = await connection.execute(statement("keys", "resolve"), {"key_sha256": key_sha256})
    row = await cursor.fetchone()
    if row is None:
        return None
    origins = frozenset(row[8] or ())
    return KeyHolder(row[0], row[1], row[2], frozenset(row[3]), known_verbs(row[4]), row[5], row[6], row[7], origins)


async def acting(connection: Connection, key_sha256: bytes, name: str) -> Acting | None:
    """The person of that name for whom the holder of the key may speak."""
    cursor = await connection.execute(statement("keys", "acting"), {"key_sha256": key_sha256, "name": name})
    row = await cursor.fetchone()
    if row is None:
        return None
    return Acting(row[0], row[1], row[2], frozenset(row[3]), known_verbs(row[4]), row[5], row[6])


async def spend(connection: Connection, key_id: UUID) -> bool:
    """Count a call of a form key; False where it has had as many as it may."""
    cursor = await connection.execute(statement("keys", "spend"), {"key_id": key_id})
    return await cursor.fetchone() is not None


async def allows_origin(connection: Connection, origin: str, action: str | None) -> bool:
    """Whether a living form key may be sent from pages of this origin."""
    cursor = await connection.execute(statement("keys", "allows_origin"), {"origin": origin, "action": action})
    row = await cursor.fetchone()
    return bool(row and row[0])


async def keep_status_token(
    connection: Connection, *, token_sha256: bytes, job_id: UUID, key_id: UUID, expires_s: float
) -> None:
    """Keep the hash of a token that shows one job for `expires_s` seconds."""
    await connection.execute(
        statement("keys", "keep_status_token"),
        {"token_sha256": token_sha256, "job_id": job_id, "key_id": key_id, "expires_s": expires_s},
    )


async def status_token(connection: Connection, token_sha256: bytes, job_id: UUID) -> ShownJob | None:
    """For whom the job runs that this very token shows."""
    cursor = await connection.execute(statement("keys", "status_token"), {"token_sha256": token_sha256, "job_id": job_id})
    row = await cursor.fetchone()
    return None if row is None else ShownJob(row[0], row[1], row[2], frozenset(row[3]), row[4], row[5])
