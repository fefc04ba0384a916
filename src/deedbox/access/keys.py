"""Users and the API keys of services, made at a terminal. Each change leaves an audit entry in the same transaction."""

import hashlib
import secrets
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from typing import Literal, TypedDict
from uuid import UUID

from deedbox.access.entries import AT_TERMINAL, By
from deedbox.access.passwords import Passwords
from deedbox.access.roles import checked_roles, require_roles
from deedbox.model.addresses import check_mail_address
from deedbox.model.errors import DeedboxError
from deedbox.store import access as store
from deedbox.store import keys
from deedbox.store.audit import append
from deedbox.store.ids import IdSource
from deedbox.store.keys import KeyLine
from deedbox.store.pool import Connection, Pool
from deedbox.store.transaction import autocommit, transaction

PREFIX = "dbx_"
_LONGEST_NAME = 200
_LONGEST_LABEL = 200


def new_key() -> str:
    """A key: 256 random bits behind the prefix that all keys have."""
    return PREFIX + secrets.token_urlsafe(32)


def digest(secret: str) -> bytes:
    """SHA-256 of a key, session or link: the only form that is stored or looked up."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def clean_name(name: str) -> str:
    """The name as it is stored and looked up: NFC, without space at the ends."""
    return unicodedata.normalize("NFC", name).strip()


def usable_name(name: str) -> bool:
    """Whether a cleaned name can be one: 1 to 200 characters, all of them printable."""
    return bool(name) and len(name) <= _LONGEST_NAME and name.isprintable()


def checked_expiry(expires_s: float | None) -> float | None:
    """The seconds, or None for never. Raises DeedboxError("invalid_input") for what is no duration."""
    if expires_s is not None and not (isfinite(expires_s) and expires_s > 0):
        raise DeedboxError("invalid_input", "A key expires after a positive number of seconds.")
    return expires_s


def checked_label(label: str) -> str:
    """The label. Raises DeedboxError("invalid_input") for one that is too long or cannot be shown."""
    if len(label) > _LONGEST_LABEL or (label and not label.isprintable()):
        raise DeedboxError("invalid_input", f"A label has at most {_LONGEST_LABEL} printable characters.")
    return label


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
    if not usable_name(name):
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
        await require_roles(connection, wanted)
        made = await store.add_person(
            connection, principal_id=principal_id, tenant=tenant, name=name, roles=wanted, password_hash=hashed, email=email
        )
        if not made:
            raise DeedboxError("invalid_input", f"The name {name!r} is taken in {tenant!r}, or there is no such tenant.")
        detail = {"name": name, "roles": wanted, **({"has_email": True} if email is not None else {})}
        await append(connection, by.entry(tenant, "add_user", ("person", str(principal_id)), detail))
    return str(principal_id)


@dataclass(frozen=True, slots=True)
class Service:
    """A service that a key is made for, new or not, and what is told about it."""

    principal_id: UUID
    name: str
    roles: list[str]
    new: bool


async def service_for(connection: Connection, ids: IdSource, tenant: str, name: str, roles: Iterable[str]) -> Service:
    """The service of that name with exactly these roles, made where it is new.

    Raises DeedboxError("invalid_input") for a bad name or role, an unknown tenant, a name that belongs to a person, or a
    service with other roles.
    """
    name, wanted = _checked(name, roles)
    await require_roles(connection, wanted)
    principal_id = ids.new()
    if await store.add_service(connection, principal_id=principal_id, tenant=tenant, name=name, roles=wanted):
        return Service(principal_id, name, wanted, new=True)
    found = await store.named(connection, tenant, name)
    if found is None or found.kind != "service" or found.roles != frozenset(wanted):
        raise DeedboxError("invalid_input", f"The name {name!r} belongs to someone else or has other roles in {tenant!r}.")
    return Service(found.principal_id, name, wanted, new=False)


async def add_key(
    pool: Pool,
    ids: IdSource,
    tenant: str,
    name: str,
    roles: Iterable[str],
    label: str,
    expires_s: float | None = None,
    *,
    acts_for_others: bool = False,
    by: By = AT_TERMINAL,
) -> str:
    """Make a key of a service and return it: 256 random bits, this once; only its SHA-256 is kept.

    The service is made where it is new. Where it exists with the same roles it gets a further key, so that keys can be
    rotated with an overlap. `expires_s` is in seconds from now, None for never. `acts_for_others` lets the key name a person
    for whom it calls. Raises DeedboxError("invalid_input") for a bad name, role, label or duration, an unknown tenant, a name
    that belongs to a person, or a service with other roles.
    """
    bounds: Bounds = {"acts_for_others": True} if acts_for_others else {}
    return await make_key(pool, ids, tenant, name, roles, label, expires_s, kind="service", bounds=bounds, by=by)


class Bounds(TypedDict, total=False):
    """What a key may besides what its service may, or all that it may."""

    acts_for_others: bool
    action: str
    origins: Sequence[str]
    rate_per_minute: int


_MADE = {"service": "add_key", "form": "add_form_key"}


async def make_key(
    pool: Pool,
    ids: IdSource,
    tenant: str,
    name: str,
    roles: Iterable[str],
    label: str,
    expires_s: float | None,
    *,
    kind: Literal["service", "form"],
    bounds: Bounds,
    by: By,
) -> str:
    """Make a key of a service of either kind, with its audit entry; what `add_key` says of service and errors holds."""
    checked_expiry(expires_s)
    checked_label(label)
    key, key_id = new_key(), ids.new()
    async with transaction(pool) as connection:
        service = await service_for(connection, ids, tenant, name, roles)
        await keys.add(
            connection,
            key_sha256=digest(key),
            key_id=key_id,
            tenant=tenant,
            principal_id=service.principal_id,
            kind=kind,
            label=label,
            expires_s=expires_s,
            **bounds,
        )
        detail = {
            "name": service.name,
            "roles": service.roles,
            "label": label,
            "expires_s": expires_s,
            "service_made": service.new,
            **bounds,
        }
        await append(connection, by.entry(tenant, _MADE[kind], ("key", str(key_id)), detail))
    return key


async def list_keys(pool: Pool, tenant: str) -> list[KeyLine]:
    """The keys of a tenant, newest first, without the keys themselves."""
    async with autocommit(pool) as connection:
        return await keys.listed(connection, tenant)


async def revoke_key(pool: Pool, tenant: str, key_id: UUID, *, by: By = AT_TERMINAL) -> bool:
    """End a key; false when it was not alive. Other processes believe it for at most the cache's two seconds."""
    async with transaction(pool) as connection:
        revoked = await keys.revoke(connection, tenant, key_id)
        if revoked is not None:
            detail = {"name": revoked.name, "label": revoked.label}
            await append(connection, by.entry(tenant, "revoke_key", ("key", str(key_id)), detail))
    return revoked is not None


@dataclass(frozen=True, slots=True)
class RotatedKey:
    """A rotation: the new key, this once, its id and label, and the old key with the moment until which it is good."""

    key: str
    key_id: UUID
    label: str
    old_key_id: UUID
    old_until: datetime | None


async def rotate_key(
    pool: Pool, ids: IdSource, tenant: str, which: str, overlap_s: float, *, by: By = AT_TERMINAL
) -> RotatedKey:
    """Make a key that may do what the one of this label or id may, which lives on for `overlap_s` seconds and no longer.

    The new key has the lifetime that the old one was given, from now. Both are in the list under the same label. Personal keys
    are not rotated: a person mints another. Raises DeedboxError: not_found where no living key is called so, invalid_input
    where several are or the overlap is no duration.
    """
    if not (isfinite(overlap_s) and overlap_s >= 0):
        raise DeedboxError("invalid_input", "The overlap is a number of seconds, 0 or more.")
    key, key_id = new_key(), ids.new()
    try:
        named_id: UUID | None = UUID(which)
    except ValueError:
        named_id = None
    async with transaction(pool) as connection:
        found = await keys.to_rotate(connection, tenant, which, named_id)
        if not found:
            raise DeedboxError("not_found", f"No living key that was not rotated yet is called {which!r}.")
        if len(found) > 1:
            ids_of = ", ".join(str(one.key_id) for one in found)
            raise DeedboxError("invalid_input", f"{len(found)} living keys are called {which!r}; name the id of one: {ids_of}.")
        (old,) = found
        await keys.add(
            connection,
            key_sha256=digest(key),
            key_id=key_id,
            tenant=tenant,
            principal_id=old.principal_id,
            kind=old.kind,
            label=old.label,
            expires_s=old.lifetime_s,
            action=old.action,
            origins=old.origins,
            rate_per_minute=old.rate_per_minute,
            acts_for_others=old.acts_for_others,
        )
        until = await keys.replaced(connection, old.key_id, by=key_id, overlap_s=overlap_s)
        detail = {"name": old.name, "label": old.label, "replaces": str(old.key_id), "overlap_s": overlap_s}
        await append(connection, by.entry(tenant, "rotate_key", ("key", str(key_id)), detail))
    return RotatedKey(key, key_id, old.label, old.key_id, until)
