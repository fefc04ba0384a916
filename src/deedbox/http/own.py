"""What is one's own: who one is here, one's sessions and one's personal keys."""

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from deedbox.access import By, end_sessions, list_sessions, mint_personal_key, own_keys, revoke_own_key
from deedbox.access.personal import LONGEST_S, SHORTEST_S, require_session
from deedbox.http import headers
from deedbox.http.body import StrictBody, read_model
from deedbox.http.deps import HttpDeps, Identity
from deedbox.http.jobs import answer, plain
from deedbox.http.routing import known, route
from deedbox.model.identity import VERBS, Principal

_DOOR = "api"


class MintBody(StrictBody):
    """What a personal key is for, and how many seconds it lives: eight hours at most."""

    label: str = Field(default="", max_length=200)
    expires_s: float = Field(default=LONGEST_S, ge=SHORTEST_S, le=LONGEST_S)


class Own:
    """The handlers of what is one's own."""

    def __init__(self, deps: HttpDeps, identity: Identity) -> None:
        """`identity` is where keys and sessions are."""
        self._deps = deps
        self._identity = identity

    def routes(self) -> list[BaseRoute]:
        """The routes."""
        deps = self._deps
        return [
            route("/api/me", GET=known(deps, self.me)),
            route("/api/keys", GET=known(deps, self.keys), POST=known(deps, self.mint)),
            route("/api/keys/{key_id}", DELETE=known(deps, self.revoke)),
            route("/api/sessions", GET=known(deps, self.sessions), DELETE=known(deps, self.end_all)),
            route("/api/sessions/{session_id}", DELETE=known(deps, self.end)),
        ]

    async def me(self, _request: Request, principal: Principal) -> Response:
        """GET /api/me: who the bearer is, and what it may do."""
        return answer(
            {
                "name": principal.name,
                "kind": principal.kind,
                "tenant": principal.tenant,
                "roles": sorted(principal.roles),
                "verbs": [verb for verb in VERBS if principal.may(verb)],
                "method": principal.method,
                "through": principal.through.name if principal.through else None,
                "authenticated_s_ago": principal.authenticated_s_ago,
            }
        )

    async def keys(self, _request: Request, principal: Principal) -> Response:
        """GET /api/keys: the keys of the bearer's own, newest first, without what opens a door."""
        require_session(principal)
        return answer({"keys": plain(await own_keys(self._identity.pool, principal))})

    async def mint(self, request: Request, principal: Principal) -> Response:
        """POST /api/keys: a personal key, shown this once, for a person in a session."""
        body = await read_model(request, MintBody, self._deps.limits.json_bytes, optional=True)
        one = self._identity
        minted = await mint_personal_key(one.pool, one.ids, principal, body.label, body.expires_s, door=_DOOR)
        return answer(plain(minted), 201)

    async def revoke(self, request: Request, principal: Principal) -> Response:
        """DELETE /api/keys/{id}: end a key of one's own."""
        key_id = headers.path_id(request, "key_id", "key")
        if not await revoke_own_key(self._identity.pool, principal, key_id, door=_DOOR):
            raise headers.no_such("key")
        return answer({"key_id": str(key_id), "revoked": True})

    async def sessions(self, _request: Request, principal: Principal) -> Response:
        """GET /api/sessions: the living sessions of the person whose session this is."""
        require_session(principal)
        return answer({"sessions": plain(await list_sessions(self._identity.pool, principal.tenant, principal.name))})

    async def end(self, request: Request, principal: Principal) -> Response:
        """DELETE /api/sessions/{id}: end one of them."""
        require_session(principal)
        session_id = headers.path_id(request, "session_id", "session")
        by = By(principal.name, _DOOR, principal.method)
        ended = await end_sessions(self._identity.pool, principal.tenant, principal.name, session_id=session_id, by=by)
        if not ended:
            raise headers.no_such("session")
        return answer({"ended": ended})

    async def end_all(self, _request: Request, principal: Principal) -> Response:
        """DELETE /api/sessions: log out everywhere, here too."""
        require_session(principal)
        by = By(principal.name, _DOOR, principal.method)
        return answer({"ended": await end_sessions(self._identity.pool, principal.tenant, principal.name, by=by)})
