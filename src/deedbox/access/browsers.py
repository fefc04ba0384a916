"""Browsers hold no API key: a form key is public and submits one action, and a status token shows one job."""

import secrets
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit
from uuid import UUID

from deedbox.access.entries import AT_TERMINAL, By
from deedbox.access.keys import Bounds, digest, make_key
from deedbox.model.errors import DeedboxError, Problem
from deedbox.model.identity import FormKey, Principal
from deedbox.model.values import storable_text
from deedbox.store import keys
from deedbox.store.ids import IdSource
from deedbox.store.pool import Pool
from deedbox.store.transaction import autocommit

STATUS_S = 7 * 86400.0
"""How long a status token shows its job, in seconds."""
MOST_ORIGINS = 20
MOST_RATE = 100_000
_LONGEST_TOKEN = 200
_LONGEST_ORIGIN = 300


def checked_origin(text: str) -> str:
    """An origin as browsers send it: scheme, host and a port that is not the scheme's own.

    Raises DeedboxError("invalid_input") for a path, user information, a wildcard, or http beyond loopback.
    """
    try:
        parts = urlsplit(text.strip())
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError as error:
        raise _no_origin(text) from error
    plain = not (parts.path or parts.query or parts.fragment or "@" in parts.netloc) and host.isascii() and "*" not in host
    if parts.scheme not in ("http", "https") or not host or not plain:
        raise _no_origin(text)
    if parts.scheme == "http" and not _is_loopback(host):
        raise _no_origin(text)
    shown = f"[{host}]" if ":" in host else host
    own = {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.scheme}://{shown}" + ("" if port in (None, own) else f":{port}")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _no_origin(text: str) -> DeedboxError:
    problem = Problem(
        "/origins", "origin", "is an origin such as https://www.example.com, without a path; http on loopback alone"
    )
    return DeedboxError("invalid_input", f"{text!r} is not an origin.", problems=(problem,))


async def add_form_key(
    pool: Pool,
    ids: IdSource,
    tenant: str,
    name: str,
    roles: Iterable[str],
    label: str,
    *,
    action: str,
    origins: Iterable[str],
    rate_per_minute: int,
    expires_s: float | None = None,
    by: By = AT_TERMINAL,
) -> str:
    """Make a public key that submits one action from pages of these origins, so often a minute, and can do nothing else.

    The service it belongs to is made where it is new, as for `add_key`. Raises DeedboxError("invalid_input").
    """
    wanted = sorted({checked_origin(one) for one in origins})
    if not 1 <= len(wanted) <= MOST_ORIGINS:
        raise DeedboxError("invalid_input", f"A form key has 1 to {MOST_ORIGINS} origins.")
    if not 1 <= rate_per_minute <= MOST_RATE:
        raise DeedboxError("invalid_input", f"The rate is from 1 to {MOST_RATE} calls a minute.")
    if not action or len(action) > _LONGEST_ORIGIN or not action.isascii():
        raise DeedboxError("invalid_input", "A form key names the one action that it submits.")
    bounds: Bounds = {"action": action, "origins": wanted, "rate_per_minute": rate_per_minute}
    return await make_key(pool, ids, tenant, name, roles, label, expires_s, kind="form", bounds=bounds, by=by)


async def spend(pool: Pool, form: FormKey) -> None:
    """Count a call of a form key, over all processes. Raises DeedboxError("too_many_calls") beyond its rate."""
    async with autocommit(pool) as connection:
        if not await keys.spend(connection, UUID(form.key_id)):
            raise DeedboxError("too_many_calls", "Too many calls came with this key; try again in a minute.", retry_after=60)


async def allows_origin(pool: Pool, origin: str, action: str | None) -> bool:
    """Whether some living form key, for this action where one is named, may be sent from pages of the origin."""
    if len(origin) > _LONGEST_ORIGIN or storable_text(origin) != origin:
        return False
    async with autocommit(pool) as connection:
        return await keys.allows_origin(connection, origin, action)


async def give_status_token(pool: Pool, form: FormKey, job_id: UUID) -> str:
    """A token of 256 random bits that shows this one job for a week; only its hash is kept."""
    token = secrets.token_urlsafe(32)
    async with autocommit(pool) as connection:
        await keys.keep_status_token(
            connection, token_sha256=digest(token), job_id=job_id, key_id=UUID(form.key_id), expires_s=STATUS_S
        )
    return token


async def resolve_status_token(pool: Pool, token: str, job_id: UUID) -> Principal | None:
    """Who may read this one job with this token; None for a token that is unknown, over, or of another job."""
    if not token or len(token) > _LONGEST_TOKEN:
        return None
    async with autocommit(pool) as connection:
        found = await keys.status_token(connection, digest(token), job_id)
    if found is None:
        return None
    form = FormKey(str(found.key_id or ""), found.action, found.origins)
    return Principal(
        str(found.principal_id),
        found.tenant,
        found.name,
        "service",
        frozenset(),
        "status_token",
        verbs=frozenset(),
        form=form,
        job_id=str(job_id),
    )
