"""People, services, their keys and sessions: one function per statement of access.sql."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from deedbox.store.loader import statement
from deedbox.store.pool import Connection


@dataclass(frozen=True, slots=True)
class Named:
    """A living principal as the login needs it."""

    principal_id: UUID
    kind: str
    password_hash: str | None
    roles: frozenset[str]


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a key or a session."""

    principal_id: UUID
    tenant: str
    name: str
    roles: frozenset[str]


@dataclass(frozen=True, slots=True)
class Changed:
    """A principal whose account was changed: the roles given or taken, or how many sessions ended."""

    principal_id: UUID
    kind: str
    roles: list[str] = field(default_factory=list[str])
    sessions: int = 0


@dataclass(frozen=True, slots=True)
class RevokedKey:
    """A key that was ended: the service's name and the key's label."""

    name: str
    label: str


@dataclass(frozen=True, slots=True)
class KeyLine:
    """A key as a list shows it; the key itself is not kept anywhere."""

    key_id: UUID
    name: str
    label: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class LinkPreview:
    """What the holder of an approval link may know before login."""

    action: str
    asked_by: str
    deadline: datetime
    state: str


async def add_person(
    connection: Connection,
    *,
    principal_id: UUID,
    tenant: str,
    name: str,
    roles: Sequence[str],
    password_hash: str,
    email: str | None = None,
) -> bool:
    """Make a person; false when the name is taken or the tenant is unknown."""
    cursor = await connection.execute(
        statement("access", "add_person"),
        {
            "principal_id": principal_id,
            "tenant": tenant,
            "name": name,
            "roles": list(roles),
            "password_hash": password_hash,
            "email": email,
        },
    )
    return await cursor.fetchone() is not None


async def add_service(connection: Connection, *, principal_id: UUID, tenant: str, name: str, roles: Sequence[str]) -> bool:
    """Make a service; false when the name is taken or the tenant is unknown."""
    cursor = await connection.execute(
        statement("access", "add_service"),
        {"principal_id": principal_id, "tenant": tenant, "name": name, "roles": list(roles)},
    )
    return await cursor.fetchone() is not None


async def disable(connection: Connection, tenant: str, name: str) -> Changed | None:
    """Disable the active principal of that name and end its sessions; None when there is none."""
    cursor = await connection.execute(statement("access", "disable"), {"tenant": tenant, "name": name})
    row = await cursor.fetchone()
    return None if row is None else Changed(row[0], row[1], sessions=row[2])


async def enable(connection: Connection, tenant: str, name: str) -> Changed | None:
    """Enable the disabled principal of that name; None when there is none."""
    cursor = await connection.execute(statement("access", "enable"), {"tenant": tenant, "name": name})
    row = await cursor.fetchone()
    return None if row is None else Changed(row[0], row[1])


async def grant_roles(connection: Connection, tenant: str, name: str, roles: Sequence[str]) -> Changed | None:
    """Give roles; those it had already are not in the answer. None when nobody has that name."""
    return await _change_roles(connection, "grant_roles", tenant, name, roles)


async def withdraw_roles(connection: Connection, tenant: str, name: str, roles: Sequence[str]) -> Changed | None:
    """Take roles; those it did not have are not in the answer. None when nobody has that name."""
    return await _change_roles(connection, "withdraw_roles", tenant, name, roles)


async def set_email(connection: Connection, tenant: str, name: str, email: str | None) -> Changed | None:
    """Keep where a person is written to, or that it is nowhere; None when no person has that name."""
    cursor = await connection.execute(statement("access", "set_email"), {"tenant": tenant, "name": name, "email": email})
    row = await cursor.fetchone()
    return None if row is None else Changed(row[0], row[1])


async def _change_roles(connection: Connection, how: str, tenant: str, name: str, roles: Sequence[str]) -> Changed | None:
    cursor = await connection.execute(statement("access", how), {"tenant": tenant, "name": name, "roles": list(roles)})
    row = await cursor.fetchone()
    return None if row is None else Changed(row[0], row[1], list(row[2]))


async def named(connection: Connection, tenant: str, name: str) -> Named | None:
    """The living principal of that name."""
    cursor = await connection.execute(statement("access", "named"), {"tenant": tenant, "name": name})
    row = await cursor.fetchone()
    return None if row is None else Named(row[0], row[1], row[2], frozenset(row[3]))


async def rehash(connection: Connection, principal_id: UUID, old_hash: str, new_hash: str) -> None:
    """Replace a password hash by one of the same password, unless the password was changed meanwhile."""
    await connection.execute(
        statement("access", "rehash"), {"principal_id": principal_id, "old_hash": old_hash, "new_hash": new_hash}
    )


async def add_key(
    connection: Connection,
    *,
    key_sha256: bytes,
    key_id: UUID,
    tenant: str,
    principal_id: UUID,
    label: str,
    expires_s: float | None,
) -> None:
    """Keep the hash of a new key; `expires_s` seconds from now by the database's clock, never when None."""
    await connection.execute(
        statement("access", "add_key"),
        {
            "key_sha256": key_sha256,
            "key_id": key_id,
            "tenant": tenant,
            "principal_id": principal_id,
            "label": label,
            "expires_s": expires_s,
        },
    )


async def keys(connection: Connection, tenant: str) -> list[KeyLine]:
    """The keys of a tenant, newest first."""
    cursor = await connection.execute(statement("access", "keys"), {"tenant": tenant})
    return [KeyLine(*row) for row in await cursor.fetchall()]


async def revoke_key(connection: Connection, tenant: str, key_id: UUID) -> RevokedKey | None:
    """End a key; None when it was not alive or not of this tenant."""
    cursor = await connection.execute(statement("access", "revoke_key"), {"tenant": tenant, "key_id": key_id})
    row = await cursor.fetchone()
    return None if row is None else RevokedKey(*row)


async def resolve_key(connection: Connection, key_sha256: bytes) -> Holder | None:
    """Who holds the key with this hash."""
    cursor = await connection.execute(statement("access", "resolve_key"), {"key_sha256": key_sha256})
    row = await cursor.fetchone()
    return None if row is None else Holder(row[0], row[1], row[2], frozenset(row[3]))


async def open_session(
    connection: Connection,
    *,
    session_sha256: bytes,
    principal_id: UUID,
    method: str,
    csrf_sha256: bytes,
    absolute_s: float,
    replaces: bytes | None,
) -> bool:
    """Open a session for `absolute_s` seconds at most and end the one whose hash is `replaces`; true where that was open."""
    cursor = await connection.execute(
        statement("access", "open_session"),
        {
            "session_sha256": session_sha256,
            "principal_id": principal_id,
            "method": method,
            "csrf_sha256": csrf_sha256,
            "absolute_s": absolute_s,
            "replaces": replaces,
        },
    )
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def session(connection: Connection, session_sha256: bytes, idle_s: float) -> tuple[Holder, bytes] | None:
    """Who the session belongs to and the hash of its CSRF token; None once it is idle for `idle_s` seconds or has ended."""
    cursor = await connection.execute(statement("access", "session"), {"session_sha256": session_sha256, "idle_s": idle_s})
    row = await cursor.fetchone()
    return None if row is None else (Holder(row[0], row[1], row[2], frozenset(row[3])), bytes(row[4]))


async def close_session(connection: Connection, session_sha256: bytes) -> Holder | None:
    """End a session and say whose it was; None when it was not open. Roles are not read."""
    cursor = await connection.execute(statement("access", "close_session"), {"session_sha256": session_sha256})
    row = await cursor.fetchone()
    return None if row is None else Holder(row[0], row[1], row[2], frozenset())


async def close_sessions(connection: Connection, tenant: str, name: str) -> list[UUID]:
    """End all sessions of a person; one entry, the person's id, for each that was open."""
    cursor = await connection.execute(statement("access", "close_sessions"), {"tenant": tenant, "name": name})
    return [row[0] for row in await cursor.fetchall()]


async def link(connection: Connection, tenant: str, approval_id: UUID, token_sha256: bytes) -> LinkPreview | None:
    """What the holder of the link may know before login."""
    cursor = await connection.execute(
        statement("access", "link"), {"tenant": tenant, "approval_id": approval_id, "token_sha256": token_sha256}
    )
    row = await cursor.fetchone()
    return None if row is None else LinkPreview(row[0], row[1], row[2], row[3])
