"""Logging in with a password, and logging out: here, and at the provider through which somebody came."""

from math import ceil
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from deedbox.access import LoginGuard, Pool, login, logout
from deedbox.model.errors import DeedboxError
from deedbox.web.forms import Site, read_form
from deedbox.web.pages import Shown
from deedbox.web.visits import Visits, own_path, require_csrf

if TYPE_CHECKING:
    from deedbox.access.provider_login import Providers


class Coming:
    """The handlers of coming and going."""

    def __init__(
        self,
        pool: Pool,
        tenant: str,
        guard: LoginGuard,
        site: Site,
        visits: Visits,
        *,
        providers: "Providers | None",
        local: bool,
    ) -> None:
        """Local accounts log in to `tenant`, where `local` says that passwords are taken."""
        self._pool = pool
        self._tenant = tenant
        self._guard = guard
        self._site = site
        self._visits = visits
        self._providers = providers
        self._local = local

    async def login_page(self, request: Request) -> Response:
        """GET /login."""
        wanted = own_path(request.query_params.get("next"))
        # Asked for where a decision wants a person who has just proved who it is.
        fresh = request.query_params.get("fresh") == "1"
        if not fresh and await self._visits.session(request) is not None:
            return self._visits.go(wanted)
        return self._login_form(request, wanted, fresh=fresh)

    async def log_in(self, request: Request) -> Response:
        """POST /login."""
        self._site.require_own_form(request)
        form = await read_form(request)
        wanted = own_path(form.get("next"))
        if not self._local:
            raise DeedboxError("permission_denied", "Passwords are not taken here; log in with the provider.")
        name, password = form.get("name", ""), form.get("password", "")
        if not self._site.owns_login_form(request, form.get("csrf", "")):
            return self._login_form(
                request, wanted, name=name, error="This form was too old, or cookies are off. Please try again.", status=403
            )
        peer = request.client.host if request.client else ""
        try:
            opened = await login(
                self._pool,
                self._tenant,
                name,
                password,
                guard=self._guard,
                peer=peer,
                replaces=self._site.session_of(request) or None,
                door="page",
            )
        except DeedboxError as error:
            if error.code != "too_many_logins":
                raise
            response = self._login_form(request, wanted, name=name, error=error.detail, status=error.status)
            response.headers["Retry-After"] = str(ceil(error.retry_after or 1))
            return response
        if opened is None:
            return self._login_form(
                request, wanted, name=name, error="The name and the password do not fit together.", status=401
            )
        response = self._visits.go(wanted)
        self._site.set_cookie(response, self._site.session_cookie, opened.token)
        self._site.drop_cookie(response, self._site.login_cookie)
        return response

    async def log_out(self, request: Request) -> Response:
        """POST /logout."""
        self._site.require_own_form(request)
        session = await self._visits.session(request)
        url: str | None = None
        if session is not None:
            form = await read_form(request)
            require_csrf(session, form)
            # Ours ends first, whatever becomes of theirs.
            await logout(self._pool, self._site.session_of(request))
            if session.how == "oidc" and self._providers is not None:
                url = await self._providers.goodbye(session.principal)
        response = self._visits.go("/login") if url is None else self._goodbye(url)
        self._site.drop_cookie(response, self._site.session_cookie)
        return response

    def _goodbye(self, url: str) -> Response:
        """The page that goes on to the provider, to log out there as well."""
        context = {"url": url, "host": urlsplit(url).netloc, "out": True}
        return self._visits.pages.render("leaving.html", Shown(), context, headers={"Refresh": f"0; url={url}"})

    def _login_form(
        self,
        request: Request,
        wanted: str,
        *,
        name: str = "",
        error: str | None = None,
        status: int = 200,
        fresh: bool = False,
    ) -> Response:
        value, csrf = self._site.login_form(request)
        providers = self._providers.shown if self._providers else []
        context = {"next": wanted, "csrf": csrf, "name": name, "error": error, "fresh": fresh}
        context |= {"providers": providers, "local": self._local}
        response = self._visits.pages.render("login.html", Shown(), context, status=status)
        if request.cookies.get(self._site.login_cookie) != value:
            self._site.set_cookie(response, self._site.login_cookie, value)
        return response
