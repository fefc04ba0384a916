"""Roles of one's own and tenants: made at a terminal, never over HTTP, each change with an audit entry."""

import re
from collections.abc import Iterable, Sequence

from deedbox.access.entries import AT_TERMINAL, By
from deedbox.model.errors import DeedboxError, Problem
from deedbox.model.identity import PERMISSIONS, VERBS, known_verbs
from deedbox.store import roles as store
from deedbox.store.audit import append
from deedbox.store.pool import Connection, Pool
from deedbox.store.roles import RoleLine, TenantLine
from deedbox.store.transaction import autocommit, transaction

_ROLE = re.compile(r"[a-z][a-z0-9_]{0,62}")
_TENANT = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


def checked_roles(roles: Iterable[str]) -> list[str]:
    """The roles sorted, each once. Raises DeedboxError("invalid_input") for none, or for one that cannot be a role."""
    wanted = sorted(set(roles))
    if not wanted:
        raise DeedboxError("invalid_input", "At least one role is needed.")
    for role in wanted:
        if not _ROLE.fullmatch(role):
            raise DeedboxError("invalid_input", f"{role!r} is not a role: lower-case letters, digits and underscores.")
    return wanted


async def require_roles(connection: Connection, roles: Sequence[str]) -> None:
    """Raise DeedboxError("invalid_input") where a name is neither a built-in role nor one of your own."""
    unknown = await store.unknown(connection, roles)
    if unknown:
        problem = Problem("/roles", "role", f"{', '.join(unknown)} is neither built in nor one of your own")
        said = f"There is no role {', '.join(map(repr, unknown))}; `deedbox roles add` makes one."
        raise DeedboxError("invalid_input", said, problems=(problem,))


async def list_roles(pool: Pool) -> list[RoleLine]:
    """Every role with what it may do and how many hold it, the built-in ones first."""
    async with autocommit(pool) as connection:
        return await store.listed(connection)


async def put_role(pool: Pool, tenant: str, role: str, verbs: Iterable[str], *, by: By = AT_TERMINAL) -> bool:
    """Make a role of one's own, or change what it may do; true where it is new. It counts from the next request on.

    A role without verbs is a name alone, for groups of approvers. Roles are one table for all tenants; `tenant` is where the
    audit entry goes. Raises DeedboxError("invalid_input") for a name or a verb that is none, or for a built-in role.
    """
    (role,) = checked_roles([role])
    given = sorted(set(verbs))
    wrong = [verb for verb in given if verb not in VERBS]
    if wrong:
        raise DeedboxError("invalid_input", f"{', '.join(wrong)} is not a verb; they are {', '.join(VERBS)}.")
    if role in PERMISSIONS:
        raise DeedboxError("invalid_input", f"{role} is built in, and what it may do does not change.")
    ordered = [verb for verb in VERBS if verb in known_verbs(given)]
    async with transaction(pool) as connection:
        done, before = await store.put(connection, role, ordered)
        if not done:
            raise DeedboxError("invalid_input", f"{role} is built in, and what it may do does not change.")
        await append(connection, by.entry(tenant, "put_role", ("role", role), {"before": before, "after": ordered}))
    return before is None


async def remove_role(pool: Pool, tenant: str, role: str, *, by: By = AT_TERMINAL) -> bool:
    """Remove a role of one's own that nobody holds; false where it is none, or somebody does."""
    async with transaction(pool) as connection:
        gone = await store.remove(connection, role)
        if gone:
            await append(connection, by.entry(tenant, "remove_role", ("role", role), {}))
    return gone


async def list_tenants(pool: Pool) -> list[TenantLine]:
    """Every tenant, with how many people and services may come in."""
    async with autocommit(pool) as connection:
        return await store.tenants(connection)


async def add_tenant(pool: Pool, tenant: str, *, by: By = AT_TERMINAL) -> None:
    """Make a tenant. Raises DeedboxError("invalid_input") for a name that cannot be one, or is taken."""
    if not _TENANT.fullmatch(tenant):
        said = (
            "A tenant's name has 1 to 63 lower-case letters, digits, hyphens and underscores, and begins with none of the last."
        )
        raise DeedboxError("invalid_input", said)
    async with transaction(pool) as connection:
        if not await store.add_tenant(connection, tenant):
            raise DeedboxError("invalid_input", f"There is a tenant {tenant!r} already.")
        await append(connection, by.entry(tenant, "add_tenant", ("tenant", tenant), {}))
