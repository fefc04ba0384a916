"""The page of alerts: what a person should look at, and a form that closes one with a reason."""

from collections.abc import Mapping
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from deedbox.access import SessionInfo
from deedbox.model.alarms import CAUSES
from deedbox.model.errors import CODES, DeedboxError
from deedbox.operate.alerts import AlertDesk
from deedbox.web.visits import Visits

_MOST = 200


class AlertPages:
    """The handlers of the page, over one desk."""

    def __init__(self, visits: Visits, desk: AlertDesk) -> None:
        """Who asks is found by the session that the browser sends."""
        self._visits = visits
        self._desk = desk

    async def listed(self, request: Request) -> Response:
        """GET /alerts: what is open, newest first. Changes nothing."""
        session = await self._visits.session(request)
        return self._visits.go("/login?next=/alerts") if session is None else await self._page(request, session)

    async def close(self, request: Request) -> Response:
        """POST /alerts/{id}: close one, with a reason."""
        found = await self._visits.own_form(request)
        if found is None:
            return self._visits.logged_out("/alerts", kept="nothing was closed")
        session, form = found
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
        return self._visits.go("/alerts")

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
        status = 200 if refused is None else refused.status
        return self._visits.pages.render("alerts.html", self._visits.shown(request, session), context, status=status)
