"""Who one is here: one's roles, sessions and personal keys, and the ways to end them."""

from starlette.requests import Request
from starlette.responses import Response

from deedbox.access import (
    By,
    IdSource,
    Pool,
    SessionInfo,
    end_sessions,
    list_sessions,
    mint_personal_key,
    own_keys,
    revoke_own_key,
)
from deedbox.model.errors import DeedboxError
from deedbox.web.forms import Site
from deedbox.web.pages import Pages
from deedbox.web.visits import Visits, own_id

_HOURS = {"1": 3600.0, "4": 4 * 3600.0, "8": 8 * 3600.0}


class Account:
    """The handlers of the account's page."""

    def __init__(self, pool: Pool, ids: IdSource | None, site: Site, pages: Pages, visits: Visits) -> None:
        """Without `ids` no keys are made here."""
        self._pool = pool
        self._ids = ids
        self._site = site
        self._pages = pages
        self._visits = visits

    async def page(self, request: Request) -> Response:
        """GET /account."""
        session = await self._visits.session(request)
        if session is None:
            return self._visits.go("/login?next=/account")
        return await self._render(request, session)

    async def mint(self, request: Request) -> Response:
        """POST /account/keys: make a personal key and show it, this once."""
        found = await self._visits.own_form(request)
        if found is None:
            return self._visits.go("/login?next=/account")
        session, form = found
        hours = form.get("hours", "8")
        if self._ids is None or hours not in _HOURS:
            raise DeedboxError("invalid_input", "A personal key lives one, four or eight hours.")
        label = form.get("label", "").strip()
        try:
            minted = await mint_personal_key(self._pool, self._ids, session.principal, label, _HOURS[hours], door="page")
        except DeedboxError as error:
            return await self._render(request, session, error=error)
        return await self._render(request, session, key=minted.key)

    async def end_key(self, request: Request) -> Response:
        """POST /account/keys/{key_id}: end a key of one's own."""
        found = await self._visits.own_form(request)
        key_id = own_id(str(request.path_params["key_id"]))
        if found is not None and (
            key_id is None or not await revoke_own_key(self._pool, found[0].principal, key_id, door="page")
        ):
            raise DeedboxError("not_found", "There is no such key, or it has ended.")
        return self._visits.go("/account" if found is not None else "/login?next=/account")

    async def end_sessions(self, request: Request) -> Response:
        """POST /account/sessions: end one session, or all of them, this one too."""
        found = await self._visits.own_form(request)
        if found is None:
            return self._visits.go("/login?next=/account")
        session, form = found
        which = form.get("session", "")
        session_id = None if which == "all" else own_id(which)
        if which != "all" and session_id is None:
            raise DeedboxError("not_found", "There is no such session, or it has ended.")
        person = session.principal
        by = By(person.name, "page", person.method)
        await end_sessions(self._pool, person.tenant, person.name, session_id=session_id, by=by)
        over = session_id is None or session_id == session.session_id
        response = self._visits.go("/login" if over else "/account")
        if over:
            self._site.drop_cookie(response, self._site.session_cookie)
        return response

    async def _render(
        self, request: Request, session: SessionInfo, *, key: str | None = None, error: DeedboxError | None = None
    ) -> Response:
        person = session.principal
        keys = [line for line in await own_keys(self._pool, person) if line.revoked_at is None]
        context = {
            "roles": sorted(person.roles),
            "how": session.how,
            "mine": session.session_id,
            "sessions": await list_sessions(self._pool, person.tenant, person.name),
            "keys": keys[:20],
            "key": key,
            "error": None if error is None else error.sentence,
            "mints": self._ids is not None,
        }
        status = 200 if error is None else error.status
        return self._pages.render("account.html", self._visits.shown(request, session), context, status=status)
