"""The page of alerts: what a person should look at, and a form that closes one with a reason."""

from collections.abc import Mapping
from uuid import UUID

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from deedbox.access import Pool, SessionInfo, csrf_of, resolve_session
from deedbox.model.alarms import CAUSES
from deedbox.model.errors import CODES, DeedboxError
from deedbox.operate.alerts import AlertDesk
from deedbox.web.forms import Site, read_form
from deedbox.web.pages import HEADERS, Pages, Shown

_MOST = 200


class AlertPages:
    """The handlers of the page, over one desk."""

    def __init__(self, pool: Pool, tenant: str, site: Site, pages: Pages, desk: AlertDesk) -> None:
        """Who asks is found by the session that the browser sends."""
        self._pool = pool
        self._tenant = tenant
        self._site = site
        self._pages = pages
        self._desk = desk

    async def listed(self, request: Request) -> Response:
        """GET /alerts: what is open, newest first. Changes nothing."""
        session = await self._session(request)
        return self._go("/login") if session is None else await self._page(request, session)

    async def close(self, request: Request) -> Response:
        """POST /alerts/{id}: close one, with a reason."""
        self._site.require_own_form(request)
        session = await self._session(request)
        if session is None:
            return self._pages.message(
                Shown(),
                status=401,
                heading="You are not logged in",
                sentences=("Your session is over, so nothing was closed.",),
                way_on=("/login", "Log in"),
            )
        form = await read_form(request)
        if not session.owns(form.get("csrf", "")):
            raise DeedboxError("csrf_failed", "The form does not belong to your session, so nothing was done.")
        try:
            alert_id = UUID(str(request.path_params["alert_id"]))
        except ValueError as error:
            raise DeedboxError("not_found", "The address is wrong, or what it names is not yours to see.") from error
        try:
            await self._desk.close(session.principal, alert_id, form.get("reason"), door="page")
        except DeedboxError as refused:
            if refused.code == "not_found":
                raise
            return await self._page(request, session, refused=refused, typed={alert_id: form.get("reason", "")})
        return self._go("/alerts")

    async def _page(
        self,
        request: Request,
        session: SessionInfo,
        *,
        refused: DeedboxError | None = None,
        typed: Mapping[UUID, str] | None = None,
    ) -> Response:
        principal = session.principal
        lines = await self._desk.listed(principal, is_open=True, limit=_MOST)
        notice = None if refused is None else (CODES[refused.code].title, refused.detail)
        context = {
            "lines": lines,
            "causes": CAUSES,
            "may_close": principal.may("reconcile"),
            "notice": notice,
            "typed": typed or {},
        }
        shown = Shown(principal.name, csrf_of(self._site.session_of(request)))
        return self._pages.render("alerts.html", shown, context, status=200 if refused is None else refused.status)

    async def _session(self, request: Request) -> SessionInfo | None:
        session = await resolve_session(self._pool, self._site.session_of(request))
        return session if session is not None and session.principal.tenant == self._tenant else None

    def _go(self, path: str) -> Response:
        return RedirectResponse(self._site.path(path), status_code=303, headers=HEADERS)
