"""Links to approvals: minted one by one, known here by their hashes alone, and good for nothing but to show who asks.

A token is 256 bits from the system. Its SHA-256 is committed before the token leaves this process; whoever reads the database
finds none, and a notice's stored payload holds a placeholder (`notices.LINK`) where the link will stand. Every try at sending
mints another. What ends an approval voids all of its links.
"""

import secrets
from collections.abc import Mapping
from typing import Any, cast
from uuid import UUID

from deedbox.gate.notices import LINK
from deedbox.model.fingerprint import sha256
from deedbox.store import decision, notices
from deedbox.store.pool import Pool
from deedbox.store.transaction import autocommit


async def mint(pool: Pool, public_url: str, approval_id: UUID) -> str | None:
    """A fresh link to an approval that waits; None when it has ended. The token's hash is committed when this returns."""
    token = secrets.token_urlsafe(32)
    async with autocommit(pool) as connection:
        kept = await decision.mint_token(connection, approval_id, sha256(token.encode()))
    return f"{public_url.rstrip('/')}/approvals/{approval_id}?t={token}" if kept else None


async def links_of(pool: Pool, effect_id: UUID, public_url: str | None) -> Mapping[str, str] | None:
    """What is to stand in a leased notice in place of its placeholders; None when it asks for what has been decided.

    Raises LookupError where a link is needed and this process does not know where people reach the house.
    """
    async with autocommit(pool) as connection:
        about = await notices.about(connection, effect_id)
    if about.approval_id is None:
        return {}
    if not about.waits:
        return None
    if public_url is None:
        raise LookupError("a link is to be made, and no public URL is known")
    link = await mint(pool, public_url, about.approval_id)
    return None if link is None else {LINK: link}


def filled(payload: Mapping[str, Any], links: Mapping[str, str]) -> dict[str, Any]:
    """The payload with every placeholder in its texts replaced; names of fields stay as they are."""
    return {name: _filled(value, links) for name, value in payload.items()}


def _filled(value: Any, links: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for placeholder, link in links.items():
            value = value.replace(placeholder, link)
        return value
    if isinstance(value, Mapping):
        return filled(cast("Mapping[str, Any]", value), links)
    if isinstance(value, list):
        return [_filled(item, links) for item in cast("list[Any]", value)]
    return value
