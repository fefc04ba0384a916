"""Changing who may come in and as what. It happens at a terminal, never over HTTP, and each change has an audit entry."""

from collections.abc import Iterable

from deedbox.access.entries import AT_TERMINAL, By
from deedbox.access.keys import checked_email, clean_name
from deedbox.access.roles import checked_roles, require_roles
from deedbox.model.errors import DeedboxError
from deedbox.store import access as store
from deedbox.store.audit import append
from deedbox.store.pool import Pool
from deedbox.store.transaction import transaction


async def disable_user(pool: Pool, tenant: str, name: str, *, by: By = AT_TERMINAL) -> bool:
    """Shut out a person or a service: sessions end, and neither password nor key opens anything until it is enabled again.

    False where nobody of that name was active. Other processes believe a service's key for at most the cache's two seconds.
    """
    name = clean_name(name)
    async with transaction(pool) as connection:
        found = await store.disable(connection, tenant, name)
        if found is not None:
            subject = (found.kind, str(found.principal_id))
            await append(connection, by.entry(tenant, "disable", subject, {"name": name, "sessions_ended": found.sessions}))
    return found is not None


async def enable_user(pool: Pool, tenant: str, name: str, *, by: By = AT_TERMINAL) -> bool:
    """Let in again who was disabled, with roles and keys as they were and no session; false where nobody of that name was."""
    name = clean_name(name)
    async with transaction(pool) as connection:
        found = await store.enable(connection, tenant, name)
        if found is not None:
            await append(connection, by.entry(tenant, "enable", (found.kind, str(found.principal_id)), {"name": name}))
    return found is not None


async def grant_roles(pool: Pool, tenant: str, name: str, roles: Iterable[str], *, by: By = AT_TERMINAL) -> list[str]:
    """Give roles to a person or a service and return those it did not have; they count from the next request on.

    Raises DeedboxError("invalid_input") for no role or one that cannot be, ("not_found") for a name that nobody has.
    """
    return await _change(pool, tenant, name, roles, grants=True, by=by)


async def withdraw_roles(pool: Pool, tenant: str, name: str, roles: Iterable[str], *, by: By = AT_TERMINAL) -> list[str]:
    """Take roles from a person or a service and return those it had; raises as `grant_roles` does."""
    return await _change(pool, tenant, name, roles, grants=False, by=by)


async def set_email(pool: Pool, tenant: str, name: str, email: str | None, *, by: By = AT_TERMINAL) -> bool:
    """Keep where a person is written to, None for nowhere; false where no person of that name is there.

    The audit has that it was changed, and not the address. Raises DeedboxError("invalid_input") for an address that is none.
    """
    name, email = clean_name(name), checked_email(email)
    async with transaction(pool) as connection:
        found = await store.set_email(connection, tenant, name, email)
        if found is not None:
            detail = {"name": name, "has_email": email is not None}
            await append(connection, by.entry(tenant, "set_email", (found.kind, str(found.principal_id)), detail))
    return found is not None


async def _change(pool: Pool, tenant: str, name: str, roles: Iterable[str], *, grants: bool, by: By) -> list[str]:
    name, wanted = clean_name(name), checked_roles(roles)
    change, verb = (store.grant_roles, "grant") if grants else (store.withdraw_roles, "withdraw")
    async with transaction(pool) as connection:
        if grants:
            await require_roles(connection, wanted)
        found = await change(connection, tenant, name, wanted)
        if found is None:
            raise DeedboxError("not_found", f"Nobody in {tenant!r} is called {name!r}.")
        if found.roles:
            detail = {"name": name, "roles": found.roles}
            await append(connection, by.entry(tenant, verb, (found.kind, str(found.principal_id)), detail))
    return found.roles
