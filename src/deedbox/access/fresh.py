"""Whether the person at a session proved who it is within the last minutes: what something grave asks before it is approved."""

from deedbox.access.entries import failed_login_entry
from deedbox.access.sessions import LoginGuard
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.store import access as store
from deedbox.store.audit import append
from deedbox.store.pool import Pool
from deedbox.store.transaction import autocommit, transaction


async def proved_lately(
    pool: Pool, principal: Principal, password: str, *, guard: LoginGuard, peer: str, door: str = "page"
) -> bool:
    """Whether this person logged in within the last five minutes, or the person's own password was given with the form.

    A wrong password counts as a failed login, towards the same limit and with the same audit entry. Raises
    DeedboxError too_many_logins.
    """
    return principal.is_fresh_session or (
        bool(password) and await _fits(pool, principal, password, guard=guard, peer=peer, door=door)
    )


async def _fits(pool: Pool, principal: Principal, password: str, *, guard: LoginGuard, peer: str, door: str) -> bool:
    try:
        mark = guard.limit.begin(principal.name, peer)
    except DeedboxError:
        guard.failures.pass_over()
        raise
    try:
        async with autocommit(pool) as connection:
            found = await store.named(connection, principal.tenant, principal.name)
        matched = await guard.passwords.verify(None if found is None else found.password_hash, password)
    except BaseException:
        guard.limit.withdraw(principal.name, peer, mark)
        raise
    if matched and found is not None and str(found.principal_id) == principal.principal_id:
        guard.limit.succeeded(principal.name, peer)
        return True
    owed = guard.failures.take(peer)
    if owed is not None:
        async with transaction(pool) as connection:
            entry = failed_login_entry(principal.tenant, principal.name, door=door, source=peer, owed=owed)
            await append(connection, entry)
    return False
