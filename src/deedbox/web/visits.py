"""What every page of a logged-in person rests on: the session, its CSRF token, and the ways back to our own paths."""

import re
from urllib.parse import quote
from uuid import UUID

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from deedbox.access import Pool, SessionInfo, csrf_of, resolve_session
from deedbox.model.errors import DeedboxError
from deedbox.web.forms import Site, read_form
from deedbox.web.pages import HEADERS, Pages, Shown

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NEXT = re.compile(rf"/approvals/{_UUID.pattern}|/account|/alerts|/targets|/switch")


def own_path(wanted: str | None) -> str:
    """Where to go after a login: a page of ours that is named, or the inbox, never another site."""
    return wanted if wanted is not None and _NEXT.fullmatch(wanted) else "/"


def own_id(text: str) -> UUID | None:
    """An id from a path or a form; None for what is not one, which is answered as an unknown one."""
    return UUID(text) if _UUID.fullmatch(text) else None


class Visits:
    """The sessions of one console, which people of `tenants` may log in to."""

    def __init__(self, pool: Pool, site: Site, pages: Pages, tenants: frozenset[str]) -> None:
        """Sessions of other tenants are none here."""
        self.pages = pages
        self._pool = pool
        self._site = site
        self._tenants = tenants

    async def session(self, request: Request) -> SessionInfo | None:
        """The session that the browser's cookie opens, if there is one."""
        session = await resolve_session(self._pool, self._site.session_of(request))
        return session if session is not None and session.principal.tenant in self._tenants else None

    def shown(self, request: Request, session: SessionInfo) -> Shown:
        """What pages say of the session."""
        return Shown(session.principal.name, csrf_of(self._site.session_of(request)), request.url.path)

    def go(self, path: str) -> Response:
        """See another page of ours."""
        return RedirectResponse(self._site.path(path), status_code=303, headers=HEADERS)

    def logged_out(self, where: str, *, kept: str = "nothing was decided") -> Response:
        """The page for whoever sends a form without a session: what was not done, and how to come back."""
        return self.pages.message(
            Shown(),
            status=401,
            heading="You are not logged in",
            sentences=(f"Your session is over, so {kept}.", "Log in and read it once more."),
            way_on=(f"/login?next={quote(where)}", "Log in"),
        )

    async def form(self, request: Request, session: SessionInfo, *, large: bool = False) -> dict[str, str]:
        """The fields of a form of this session, from this site. Raises DeedboxError csrf_failed, or as `read_form` does."""
        self._site.require_own_form(request)
        fields = await read_form(request, large=large)
        require_csrf(session, fields)
        return fields

    async def own_form(self, request: Request) -> tuple[SessionInfo, dict[str, str]] | None:
        """The session and the fields of a form that was shown in it; None where nobody is logged in.

        Raises DeedboxError("csrf_failed") for a form that another site sent, or that was not shown in this session.
        """
        self._site.require_own_form(request)
        session = await self.session(request)
        if session is None:
            return None
        form = await read_form(request)
        require_csrf(session, form)
        return session, form


def require_csrf(session: SessionInfo, form: dict[str, str]) -> None:
    """Raise DeedboxError("csrf_failed") unless the form carries the token of this session."""
    if not session.owns(form.get("csrf", "")):
        raise DeedboxError("csrf_failed", "The form does not belong to your session, so nothing was done.")
