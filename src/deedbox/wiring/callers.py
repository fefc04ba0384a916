"""Who holds what a caller came with: an API key, an access token or a session, for each face alike."""

from typing import TYPE_CHECKING

from deedbox.access.resolve import looks_signed, resolve_key
from deedbox.access.sessions import resolve_session
from deedbox.model.identity import Principal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from deedbox.access.bearer import Face

from deedbox.wiring.installation import Installation


def resolver(installation: Installation, face: "Face") -> "Callable[[str], Awaitable[Principal | None]]":
    """Who holds a bearer, for one face: a key, an access token for this face, or a session."""
    pool, tokens = installation.pool, installation.bearer

    async def who(bearer: str) -> Principal | None:
        if tokens is not None and looks_signed(bearer):
            return await tokens.resolve(bearer, face)
        principal = await resolve_key(pool, bearer, installation.keys)
        if principal is None and not bearer.startswith("dbx_"):
            session = await resolve_session(pool, bearer)
            principal = session.principal if session else None
        return principal

    return who
