"""People, services and sessions: one function per statement of access.sql."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from deedbox.model.identity import Verb, known_verbs
from deedbox.store.loader import statement
from deedbox.store.pool import Connection


@dataclass(frozen=True, slots=True)
class Named:
    """A living principal as the login needs it."""

    principal_id: UUID
    kind: str
    password_hash: str | None
    roles: frozenset[str]
    verbs: frozenset[Verb]


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a key or a session, and what its roles may do."""

    principal_id: UUID
    tenant: str
    name: str
    roles: frozenset[str]
    verbs: frozenset[Verb] = frozenset()


@dataclass(frozen=True, slots=True)
class LivingSession:
    """A session that is alive: whose, the hash of its CSRF token, its name, how and how many seconds ago it was proven who."""

    holder: Holder
    csrf_sha256: bytes
    session_id: UUID
    method: str
    authenticated_s_ago: float | None


@dataclass(frozen=True, slots=True)
class SessionLine:
    """A session as a list shows it; nothing in it opens a door."""

    session_id: UUID
    method: str
    opened_at: datetime
    authenticated_at: datetime | None
    seen_at: datetime
    expires_at: datetime
    peer: str | None


@dataclass(frozen=True, slots=True)
class Changed:
    """A principal whose account was changed: the roles given or taken, or how many sessions ended."""

    principal_id: UUID
    kind: str
    roles: list[str] = field(default_factory=list[str])
    sessions: int = 0


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
    return None if row is None else Named(row[0], row[1], row[2], frozenset(row[3]), known_verbs(row[4]))


async def rehash(connection: Connection, principal_id: UUID, old_hash: str, new_hash: str) -> None:
    """Replace a password hash by one of the same password, unless the password was changed meanwhile."""
    await connection.execute(
        statement("access", "rehash"), {"principal_id": principal_id, "old_hash": old_hash, "new_hash": new_hash}
    )


async def open_session(
    connection: Connection,
    *,
    session_sha256: bytes,
    principal_id: UUID,
    method: str,
    csrf_sha256: bytes,
    absolute_s: float,
    replaces: bytes | None,
    authenticated_s_ago: float | None,
    peer: str,
) -> bool:
    """Open a session for `absolute_s` seconds at most and end the one whose hash is `replaces`; true where that was open.

    `authenticated_s_ago` is how long ago the person proved who it is, None where nobody knows.
    """
    cursor = await connection.execute(
        statement("access", "open_session"),
        {
            "session_sha256": session_sha256,
            "principal_id": principal_id,
            "method": method,
            "csrf_sha256": csrf_sha256,
            "absolute_s": absolute_s,
            "replaces": replaces,
            "authenticated_s_ago": authenticated_s_ago,
            "peer": peer,
        },
    )
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def session(connection: Connection, session_sha256: bytes, idle_s: float) -> LivingSession | None:
    """The session; None once it is idle for `idle_s` seconds or has ended."""
    cursor = await connection.execute(statement("access", "session"), {"session_sha256": session_sha256, "idle_s": idle_s})
    row = await cursor.fetchone()
    if row is None:
        return None
    holder = Holder(row[0], row[1], row[2], frozenset(row[3]), known_verbs(row[5]))
    return LivingSession(holder, bytes(row[4]), row[6], row[7], row[8])


async def sessions(connection: Connection, tenant: str, name: str, idle_s: float) -> list[SessionLine]:
    """The living sessions of a person, the newest first."""
    cursor = await connection.execute(statement("access", "sessions"), {"tenant": tenant, "name": name, "idle_s": idle_s})
    return [SessionLine(*row) for row in await cursor.fetchall()]


async def close_session(connection: Connection, session_sha256: bytes) -> Holder | None:
    """End a session and say whose it was; None when it was not open. Roles are not read."""
    cursor = await connection.execute(statement("access", "close_session"), {"session_sha256": session_sha256})
    row = await cursor.fetchone()
    return None if row is None else Holder(row[0], row[1], row[2], frozenset())


async def close_sessions(connection: Connection, tenant: str, name: str, session_id: UUID | None = None) -> list[UUID]:
    """End all sessions of a person, or the one named; one entry, the person's id, for each that was open."""
    cursor = await connection.execute(
        statement("access", "close_sessions"), {"tenant": tenant, "name": name, "session_id": session_id}
    )
    return [row[0] for row in await cursor.fetchall()]


async def link(connection: Connection, tenant: str, approval_id: UUID, token_sha256: bytes) -> LinkPreview | None:
    """What the holder of the link may know before login."""
    cursor = await connection.execute(
        statement("access", "link"), {"tenant": tenant, "approval_id": approval_id, "token_sha256": token_sha256}
    )
    row = await cursor.fetchone()
    return None if row is None else LinkPreview(row[0], row[1], row[2], row[3])
