"""Roles and tenants: one function per statement of roles.sql."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from deedbox.store.loader import statement
from deedbox.store.pool import Connection


@dataclass(frozen=True, slots=True)
class RoleLine:
    """A role: what it may do, whether it is built in, and how many hold it."""

    role: str
    verbs: list[str]
    built_in: bool
    holders: int


@dataclass(frozen=True, slots=True)
class TenantLine:
    """A tenant, with how many people and services may come in."""

    tenant: str
    created_at: datetime
    people: int
    services: int


async def listed(connection: Connection) -> list[RoleLine]:
    """Every role, the built-in ones first."""
    cursor = await connection.execute(statement("roles", "listed"))
    return [RoleLine(row[0], list(row[1]), row[2], row[3]) for row in await cursor.fetchall()]


async def put(connection: Connection, role: str, verbs: Sequence[str]) -> tuple[bool, list[str] | None]:
    """Make or change a role of one's own. Whether that was possible, and what it could do before; None where it is new."""
    cursor = await connection.execute(statement("roles", "put"), {"role": role, "verbs": list(verbs)})
    row = await cursor.fetchone()
    return (row is not None, None if row is None or row[0] is None else list(row[0]))


async def remove(connection: Connection, role: str) -> bool:
    """Remove a role of one's own that nobody holds; False where it is none."""
    cursor = await connection.execute(statement("roles", "remove"), {"role": role})
    return await cursor.fetchone() is not None


async def unknown(connection: Connection, roles: Sequence[str]) -> list[str]:
    """Those of the names that are no role."""
    cursor = await connection.execute(statement("roles", "unknown"), {"roles": list(roles)})
    return [str(row[0]) for row in await cursor.fetchall()]


async def add_tenant(connection: Connection, tenant: str) -> bool:
    """Make a tenant; False where it is there."""
    cursor = await connection.execute(statement("roles", "add_tenant"), {"tenant": tenant})
    return await cursor.fetchone() is not None


async def tenants(connection: Connection) -> list[TenantLine]:
    """Every tenant."""
    cursor = await connection.execute(statement("roles", "tenants"))
    return [TenantLine(*row) for row in await cursor.fetchall()]
