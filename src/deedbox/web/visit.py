"""What every page that takes a form asks first: that it is ours, that somebody is logged in, and that it is that one's form."""

from dataclasses import dataclass
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from deedbox.access import Pool, SessionInfo, csrf_of, resolve_session
from deedbox.model.errors import DeedboxError
from deedbox.web.forms import Site, read_form
from deedbox.web.pages import HEADERS, Pages, Shown


@dataclass(frozen=True, slots=True)
class Visits:
    """The sessions of one site's visitors; `tenant` is the only one whose people come in here."""

    pool: Pool
    tenant: str
    site: Site
    pages: Pages

    async def session(self, request: Request) -> SessionInfo | None:
        """Whoever is logged in, or None."""
        session = await resolve_session(self.pool, self.site.session_of(request))
        return session if session is not None and session.principal.tenant == self.tenant else None

    def shown(self, request: Request, session: SessionInfo) -> Shown:
        """What a page of theirs needs."""
        return Shown(session.principal.name, csrf_of(self.site.session_of(request)))

    def go(self, path: str) -> Response:
        """Off to another page of this site."""
        return RedirectResponse(self.site.path(path), status_code=303, headers=HEADERS)

    def logged_out(self, where: str) -> Response:
        """The page for whoever sends a form without a session: nothing was done, and how to come back."""
        return self.pages.message(
            Shown(),
            status=401,
            heading="You are not logged in",
            sentences=("Your session is over, so nothing was decided.", "Log in and read it once more."),
            way_on=(f"/login?next={quote(where)}", "Log in"),
        )

    async def form(self, request: Request, session: SessionInfo, *, large: bool = False) -> dict[str, str]:
        """The fields of a form of this session, from this site. Raises DeedboxError csrf_failed, or as `read_form` does."""
        self.site.require_own_form(request)
        fields = await read_form(request, large=large)
        self.require_csrf(session, fields)
        return fields

    def require_csrf(self, session: SessionInfo, form: dict[str, str]) -> None:
        """Raise DeedboxError csrf_failed unless the form belongs to this session."""
        if not session.owns(form.get("csrf", "")):
            raise DeedboxError("csrf_failed", "The form does not belong to your session, so nothing was done.")
