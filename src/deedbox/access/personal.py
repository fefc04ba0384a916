"""Personal keys: a person mints one from a session, for at most eight hours, with the scope `decide`."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from deedbox.access.keys import checked_label, digest, new_key
from deedbox.model.errors import DeedboxError, Problem
from deedbox.model.identity import Principal
from deedbox.store import keys
from deedbox.store.audit import append, entry_by
from deedbox.store.ids import IdSource
from deedbox.store.keys import KeyLine
from deedbox.store.pool import Pool
from deedbox.store.transaction import autocommit, transaction

LONGEST_S = 8 * 3600.0
SHORTEST_S = 60.0
MOST = 10


@dataclass(frozen=True, slots=True)
class MintedKey:
    """A personal key, this once; only its hash is kept."""

    key: str
    key_id: UUID
    expires_at: datetime | None


def require_session(principal: Principal) -> None:
    """Raise DeedboxError("person_required") unless this is a person in a session: neither a key nor a service mints keys."""
    if principal.kind != "person" or principal.method != "session":
        raise DeedboxError("person_required", "Personal keys belong to a person who is logged in; a key cannot make another.")


async def mint_personal_key(
    pool: Pool, ids: IdSource, principal: Principal, label: str, expires_s: float = LONGEST_S, *, door: str
) -> MintedKey:
    """Make a key with which the person of this session may read, decide, switch and reconcile, and nothing else.

    `expires_s` is from one minute to eight hours. Raises DeedboxError: person_required for anybody but a person in a session,
    invalid_input for a bad label or duration or where `MOST` keys live.
    """
    require_session(principal)
    checked_label(label)
    if not SHORTEST_S <= expires_s <= LONGEST_S:
        problem = Problem("/expires_s", "range", f"is from {SHORTEST_S:g} to {LONGEST_S:g} seconds")
        raise DeedboxError("invalid_input", "A personal key lives from one minute to eight hours.", problems=(problem,))
    key, key_id, holder = new_key(), ids.new(), UUID(principal.principal_id)
    async with transaction(pool) as connection:
        if await keys.living_personal(connection, holder) >= MOST:
            raise DeedboxError("invalid_input", f"{MOST} personal keys live already; end one of them first.")
        until = await keys.add(
            connection,
            key_sha256=digest(key),
            key_id=key_id,
            tenant=principal.tenant,
            principal_id=holder,
            kind="personal",
            label=label,
            expires_s=expires_s,
        )
        detail = {"label": label, "expires_s": expires_s, "scope": "decide"}
        await append(connection, entry_by(principal, door, "mint_key", ("key", str(key_id)), detail=detail))
    return MintedKey(key, key_id, until)


async def own_keys(pool: Pool, principal: Principal) -> list[KeyLine]:
    """The keys of this principal, newest first, without the keys themselves."""
    async with autocommit(pool) as connection:
        return await keys.listed(connection, principal.tenant, UUID(principal.principal_id))


async def revoke_own_key(pool: Pool, principal: Principal, key_id: UUID, *, door: str) -> bool:
    """End a key of one's own; false for one that is not alive or not one's own. Raises DeedboxError("person_required")."""
    require_session(principal)
    async with transaction(pool) as connection:
        revoked = await keys.revoke(connection, principal.tenant, key_id, UUID(principal.principal_id))
        if revoked is not None:
            detail = {"name": revoked.name, "label": revoked.label}
            await append(connection, entry_by(principal, door, "revoke_key", ("key", str(key_id)), detail=detail))
    return revoked is not None
