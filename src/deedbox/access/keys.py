"""Making users and API keys. Both happen at a terminal, never over HTTP, and leave an audit entry in the same transaction."""

import hashlib
import re
import secrets
import unicodedata
from collections.abc import Iterable
from math import isfinite
from uuid import UUID

from deedbox.access.entries import AT_TERMINAL, By
from deedbox.access.passwords import Passwords
from deedbox.model.addresses import check_mail_address
from deedbox.model.errors import DeedboxError
from deedbox.store import access as store
from deedbox.store.access import KeyLine
from deedbox.store.audit import append
from deedbox.store.ids import IdSource
from deedbox.store.pool import Pool
from deedbox.store.transaction import autocommit, transaction

PREFIX = "dbx_"
_ROLE = re.compile(r"[a-z][a-z0-9_]{0,62}")
_LONGEST_NAME = 200


def digest(secret: str) -> bytes:
    """SHA-256 of a key, session or link: the only form that is stored or looked up."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def clean_name(name: str) -> str:
    """The name as it is stored and looked up: NFC, without space at the ends."""
    return unicodedata.normalize("NFC", name).strip()


def checked_roles(roles: Iterable[str]) -> list[str]:
    """The roles sorted, each once. Raises DeedboxError("invalid_input") for none, or for one that cannot be a role."""
    wanted = sorted(set(roles))
    if not wanted:
        raise DeedboxError("invalid_input", "At least one role is needed.")
    for role in wanted:
        if not _ROLE.fullmatch(role):
            raise DeedboxError("invalid_input", f"{role!r} is not a role: lower-case letters, digits and underscores.")
    return wanted


def checked_email(email: str | None) -> str | None:
    """The address unchanged, None for none. Raises DeedboxError("invalid_input") for one that is not plain `name@domain`."""
    if email is None:
        return None
    try:
        return check_mail_address(email)
    except ValueError as error:
        raise DeedboxError("invalid_input", f"The mail address cannot be used: {error}.") from error


def _checked(name: str, roles: Iterable[str]) -> tuple[str, list[str]]:
    name = clean_name(name)
    if not name or len(name) > _LONGEST_NAME or not name.isprintable():
        raise DeedboxError("invalid_input", f"A name has 1 to {_LONGEST_NAME} printable characters.")
    return name, checked_roles(roles)


async def add_user(
    pool: Pool,
    ids: IdSource,
    tenant: str,
    name: str,
    roles: Iterable[str],
    password: str,
    *,
    passwords: Passwords | None = None,
    by: By = AT_TERMINAL,
    email: str | None = None,
) -> str:
    """Make a person with a local account and return the principal's id; `email` is where approvals are asked for.

    Raises DeedboxError("invalid_input") for a bad name, role, password or address, a name that is taken, or an unknown tenant.
    """
    name, wanted = _checked(name, roles)
    email = checked_email(email)
    hashed = await (passwords or Passwords()).hash(password)
    principal_id = ids.new()
    async with transaction(pool) as connection:
        made = await store.add_person(
            connection, principal_id=principal_id, tenant=tenant, name=name, roles=wanted, password_hash=hashed, email=email
        )
        if not made:
            raise DeedboxError("invalid_input", f"The name {name!r} is taken in {tenant!r}, or there is no such tenant.")
        detail = {"name": name, "roles": wanted, "has_email": email is not None}
        await append(connection, by.entry(tenant, "add_user", ("person", str(principal_id)), detail))
    return str(principal_id)


async def add_key(
    pool: Pool,
    ids: IdSource,
    tenant: str,
    name: str,
    roles: Iterable[str],
    label: str,
    expires_s: float | None = None,
    *,
    by: By = AT_TERMINAL,
) -> str:
    """Make a key of a service and return it: 256 random bits, this once; only its SHA-256 is kept.

    The service is made where it is new. Where it exists with the same roles it gets a further key, so that keys can be
    rotated with an overlap. `expires_s` is in seconds from now, None for never. Raises DeedboxError("invalid_input") for a
    bad name, role or duration, an unknown tenant, a name that belongs to a person, or a service with other roles.
    """
    name, wanted = _checked(name, roles)
    if expires_s is not None and not (isfinite(expires_s) and expires_s > 0):
        raise DeedboxError("invalid_input", "A key expires after a positive number of seconds.")
    key = PREFIX + secrets.token_urlsafe(32)
    principal_id, key_id = ids.new(), ids.new()
    async with transaction(pool) as connection:
        new = await store.add_service(connection, principal_id=principal_id, tenant=tenant, name=name, roles=wanted)
        if not new:
            found = await store.named(connection, tenant, name)
            if found is None or found.kind != "service" or found.roles != frozenset(wanted):
                raise DeedboxError(
                    "invalid_input", f"The name {name!r} belongs to someone else or has other roles in {tenant!r}."
                )
            principal_id = found.principal_id
        await store.add_key(
            connection,
            key_sha256=digest(key),
            key_id=key_id,
            tenant=tenant,
            principal_id=principal_id,
            label=label,
            expires_s=expires_s,
        )
        detail = {"name": name, "roles": wanted, "label": label, "expires_s": expires_s, "service_made": new}
        await append(connection, by.entry(tenant, "add_key", ("key", str(key_id)), detail))
    return key


async def list_keys(pool: Pool, tenant: str) -> list[KeyLine]:
    """The keys of a tenant, newest first, without the keys themselves."""
    async with autocommit(pool) as connection:
        return await store.keys(connection, tenant)


async def revoke_key(pool: Pool, tenant: str, key_id: UUID, *, by: By = AT_TERMINAL) -> bool:
    """End a key; false when it was not alive. Other processes believe it for at most the cache's two seconds."""
    async with transaction(pool) as connection:
        revoked = await store.revoke_key(connection, tenant, key_id)
        if revoked is not None:
            detail = {"name": revoked.name, "label": revoked.label}
            await append(connection, by.entry(tenant, "revoke_key", ("key", str(key_id)), detail))
    return revoked is not None
