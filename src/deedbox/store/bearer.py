"""Who the subjects of access tokens are: one function per statement of bearer.sql."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from deedbox.model.identity import Verb, known_verbs
from deedbox.store.keys import Acting
from deedbox.store.loader import statement
from deedbox.store.pool import Connection


@dataclass(frozen=True, slots=True)
class Holder:
    """A principal with its roles and what they may do; `roles_at` is since when its issuer's groups say so (seconds, 1970)."""

    principal_id: UUID
    name: str
    disabled: bool
    roles_at: float | None
    roles: frozenset[str]
    verbs: frozenset[Verb]


async def person(connection: Connection, tenant: str, issuer: str, subject: str) -> tuple[float, Holder | None]:
    """The database's time in seconds since 1970, and the person whom the issuer calls so."""
    given = {"tenant": tenant, "issuer": issuer, "subject": subject}
    return await _holder(connection, "person", given)


async def service(connection: Connection, tenant: str, name: str) -> tuple[float, Holder | None]:
    """The database's time in seconds since 1970, and the service of this name."""
    return await _holder(connection, "service", {"tenant": tenant, "name": name})


async def acting(connection: Connection, tenant: str, *, service: str, person: str) -> Acting | None:
    """The person of that name for whom the service speaks."""
    given = {"tenant": tenant, "service": service, "person": person}
    cursor = await connection.execute(statement("bearer", "acting"), given)
    row = await cursor.fetchone()
    if row is None:
        return None
    return Acting(row[0], row[1], row[2], frozenset(row[3]), known_verbs(row[4]), row[5], row[6])


async def newer(connection: Connection, tenant: str, issuer: str, subject: str, issued_at: float) -> bool:
    """Whether nothing later than this has said which groups the person is in; it is then noted."""
    given = {"tenant": tenant, "issuer": issuer, "subject": subject, "issued_at": issued_at}
    cursor = await connection.execute(statement("bearer", "newer"), given)
    return await cursor.fetchone() is not None


async def services(connection: Connection, tenant: str, names: Sequence[str]) -> frozenset[str]:
    """Those of the names that are services of the tenant."""
    cursor = await connection.execute(statement("bearer", "services"), {"tenant": tenant, "names": list(names)})
    return frozenset(row[0] for row in await cursor.fetchall())


async def _holder(connection: Connection, name: str, given: dict[str, Any]) -> tuple[float, Holder | None]:
    cursor = await connection.execute(statement("bearer", name), given)
    row = await cursor.fetchone()
    if row is None:
        raise RuntimeError(f"bearer.{name} returned no row")
    if row[1] is None:
        return row[0], None
    return row[0], Holder(row[1], row[2], row[3], row[4], frozenset(row[5]), known_verbs(row[6]))
