"""Logging in at a provider: the form that leaves for it, and the address it sends people back to.

A form may lead to our own pages alone (`form-action 'self'`), so what answers it is a page of ours that goes on by itself.
"""

from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from deedbox.access.provider_login import Providers
from deedbox.model.errors import DeedboxError
from deedbox.web.forms import Site, read_form
from deedbox.web.pages import Pages, Shown
from deedbox.web.visits import Visits, own_path

_MOST_PARAMETERS = 20


class Leaving:
    """The handlers of logins at providers."""

    def __init__(self, providers: Providers, site: Site, pages: Pages, visits: Visits) -> None:
        """Only providers that settings name are known here."""
        self._providers = providers
        self._site = site
        self._pages = pages
        self._visits = visits

    async def leave(self, request: Request) -> Response:
        """POST /login/{provider}: remember the login and send the browser there."""
        self._site.require_own_form(request)
        form = await read_form(request)
        if not self._site.owns_login_form(request, form.get("csrf", "")):
            raise DeedboxError("csrf_failed", "This form was too old, or cookies are off. Please try again.")
        name = str(request.path_params["provider"])
        url = await self._providers.begin(
            name,
            browser=self._site.login_secret(request),
            goes_to=own_path(form.get("next")),
            fresh=form.get("fresh") == "1",
        )
        context = {"url": url, "host": urlsplit(url).netloc, "out": False}
        return self._pages.render("leaving.html", Shown(), context, headers={"Refresh": f"0; url={url}"})

    async def return_(self, request: Request) -> Response:
        """GET /login/{provider}/callback: open a session for whom the provider sent back to the browser that left."""
        name = str(request.path_params["provider"])
        if request.method == "HEAD":
            # Whatever looks ahead must not use up the login.
            return Response(status_code=204)
        try:
            params = parse_qs(
                request.url.query, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS, encoding="utf-8", errors="strict"
            )
        except (ValueError, UnicodeError):
            params = {}
        finished = await self._providers.finish(
            name,
            params,
            browser=self._site.login_secret(request),
            peer=request.client.host if request.client else "",
            replaces=self._site.session_of(request) or None,
        )
        response = self._visits.go(finished.goes_to)
        self._site.set_cookie(response, self._site.session_cookie, finished.opened.token)
        self._site.drop_cookie(response, self._site.login_cookie)
        return response
