"""The page of the switch: whether anything leaves, who said so, what is still on the wire, and its verbs.

Off may say who may cancel or switch; on says a person who may switch. Its test plants acts, shows that each part keeps them
back, and sends nothing.
"""

from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from deedbox.access import SessionInfo
from deedbox.model.errors import DeedboxError
from deedbox.operate.switch_trial import Trial
from deedbox.operate.verbs import Narrow
from deedbox.web.sure import notice_of, require_sure
from deedbox.web.visits import Visits

if TYPE_CHECKING:
    from deedbox.operate.verbs import Verbs

_DOOR = "page"
_PART = ("tenant", "action", "connector", "target")


class SwitchPages:
    """The handlers of the page, over the same verbs as the API and the command line."""

    def __init__(self, visits: Visits, verbs: "Verbs") -> None:
        """Who asks is found by the session that the browser sends."""
        self._visits = visits
        self._verbs = verbs

    async def page(self, request: Request) -> Response:
        """GET /switch. Changes nothing."""
        session = await self._visits.session(request)
        return self._visits.go("/login?next=/switch") if session is None else await self._shown(request, session)

    async def change(self, request: Request) -> Response:
        """POST /switch: off, on, or its test; off and on with a reason, and a tick that says it is meant."""
        found = await self._visits.own_form(request)
        if found is None:
            return self._visits.logged_out("/switch", kept="nothing was changed")
        session, form = found
        try:
            if form.get("verb") == "test":
                return await self._shown(request, session, trials=await self._verbs.test_switch(session.principal, door=_DOOR))
            require_sure(form)
            await self._turn(session, form)
        except DeedboxError as refused:
            return await self._shown(request, session, refused=refused, typed=form)
        return self._visits.go("/switch")

    async def _turn(self, session: SessionInfo, form: dict[str, str]) -> None:
        if form.get("verb") not in {"on", "off"}:
            raise DeedboxError("invalid_input", "The form said none of the verbs there are.")
        given = {name: form.get(name, "").strip() or None for name in _PART}
        whole = form.get("part", "all") == "all"
        if whole and any(given.values()):
            raise DeedboxError("invalid_input", "Say that only a part is meant, or leave action, connector and target empty.")
        narrow = None if whole else Narrow(**given) if any(given.values()) else Narrow(tenant=session.principal.tenant)
        owner = form.get("owner", "").strip() or None
        if owner is not None and narrow is not None:
            raise DeedboxError("invalid_input", "Who answers for the switch is said of the whole, not of a part.")
        on = form["verb"] == "on"
        await self._verbs.set_switch(session.principal, on, form.get("reason", ""), _DOOR, narrow=narrow, owner=owner)

    async def _shown(
        self,
        request: Request,
        session: SessionInfo,
        *,
        refused: DeedboxError | None = None,
        typed: dict[str, str] | None = None,
        trials: list[Trial] | None = None,
    ) -> Response:
        person = session.principal
        if not person.may("read"):
            raise DeedboxError("permission_denied", "Reading the switch needs a role that may read.")
        state: dict[str, Any] = await self._verbs.switch_state(person.tenant)
        context = {
            "state": state,
            "may_on": person.may("switch"),
            "may_off": person.may("switch") or person.may("cancel"),
            "notice": notice_of(refused),
            "typed": typed or {},
            "trials": trials,
        }
        status = 200 if refused is None else refused.status
        return self._visits.pages.render("switch.html", self._visits.shown(request, session), context, status=status)
