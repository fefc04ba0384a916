"""Logins at a provider, and the people it knows: one function per statement of provider.sql."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from deedbox.model.identity import Verb, known_verbs
from deedbox.store.loader import statement
from deedbox.store.pool import Connection


@dataclass(frozen=True, slots=True)
class Returned:
    """A login that came back; `now` is the database's clock in seconds since 1970."""

    nonce_sha256: bytes
    goes_to: str
    fresh: bool
    in_time: bool
    now: float


@dataclass(frozen=True, slots=True)
class Known:
    """A person whom a provider has named before."""

    principal_id: UUID
    name: str
    disabled: bool


async def begin(
    connection: Connection,
    *,
    state_sha256: bytes,
    browser_sha256: bytes,
    nonce_sha256: bytes,
    provider: str,
    goes_to: str,
    fresh: bool,
    expires_s: float,
    most: int,
) -> bool:
    """Remember a login for `expires_s` seconds; False where `most` are under way already."""
    cursor = await connection.execute(
        statement("provider", "begin"),
        {
            "state_sha256": state_sha256,
            "browser_sha256": browser_sha256,
            "nonce_sha256": nonce_sha256,
            "provider": provider,
            "goes_to": goes_to,
            "fresh": fresh,
            "expires_s": expires_s,
            "most": most,
        },
    )
    return await cursor.fetchone() is not None


async def take(connection: Connection, *, state_sha256: bytes, browser_sha256: bytes, provider: str) -> Returned | None:
    """Use up the login that this browser began at this provider."""
    cursor = await connection.execute(
        statement("provider", "take"),
        {"state_sha256": state_sha256, "browser_sha256": browser_sha256, "provider": provider},
    )
    row = await cursor.fetchone()
    return None if row is None else Returned(bytes(row[0]), row[1], row[2], row[3], row[4])


async def known(connection: Connection, tenant: str, issuer: str, subject: str) -> Known | None:
    """The person whom a provider calls so; others who log in as the same wait until this transaction is over."""
    given = {"tenant": tenant, "issuer": issuer, "subject": subject}
    await connection.execute(statement("provider", "lock"), given)
    cursor = await connection.execute(statement("provider", "person"), given)
    row = await cursor.fetchone()
    return None if row is None else Known(*row)


async def make(connection: Connection, *, principal_id: UUID, tenant: str, name: str, issuer: str, subject: str) -> bool:
    """Make the person; False where the name is taken, or there is no such tenant."""
    cursor = await connection.execute(
        statement("provider", "make"),
        {"principal_id": principal_id, "tenant": tenant, "name": name, "issuer": issuer, "subject": subject},
    )
    return await cursor.fetchone() is not None


async def set_roles(connection: Connection, principal_id: UUID, roles: Sequence[str]) -> tuple[list[str], list[str]]:
    """Make the roles from groups exactly these; returns those that came and those that went."""
    cursor = await connection.execute(statement("provider", "set_roles"), {"principal_id": principal_id, "roles": list(roles)})
    row = await cursor.fetchone()
    return (list(row[0]), list(row[1])) if row else ([], [])


async def roles(connection: Connection, principal_id: UUID) -> tuple[frozenset[str], frozenset[Verb]]:
    """The roles of a principal, and what they may do."""
    cursor = await connection.execute(statement("provider", "roles"), {"principal_id": principal_id})
    row = await cursor.fetchone()
    return (frozenset(row[0]), known_verbs(row[1])) if row else (frozenset(), frozenset())


async def issuers(connection: Connection, principal_id: UUID) -> list[str]:
    """The issuers that know a person, the first to know it first."""
    cursor = await connection.execute(statement("provider", "issuers"), {"principal_id": principal_id})
    return [str(row[0]) for row in await cursor.fetchall()]
