"""The HTTP application: its routes, what becomes of what they do not take, and its description."""

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from deedbox import __version__
from deedbox.http.alerts import AlertRoutes
from deedbox.http.approvals import Approving
from deedbox.http.audit import AuditRoutes
from deedbox.http.browsers import Browsers
from deedbox.http.callbacks import CallbackRoutes
from deedbox.http.deps import HttpDeps
from deedbox.http.entry import Face
from deedbox.http.events import Events
from deedbox.http.health import Health
from deedbox.http.jobs import Jobs
from deedbox.http.lanes import LaneRoutes
from deedbox.http.openapi import document
from deedbox.http.operators import Operators
from deedbox.http.own import Own
from deedbox.http.policy import PolicyRoutes
from deedbox.http.report import ReportRoutes
from deedbox.http.rounds import RoundRoutes
from deedbox.http.routing import route
from deedbox.http.targets import TargetRoutes
from deedbox.http.tools import ToolRoutes
from deedbox.operate.follow import Follow

if TYPE_CHECKING:
    from deedbox.access.bearer import Bearer


def _resource_routes(bearer: "Bearer") -> list[BaseRoute]:
    # Imported late: it brings the libraries of the protocol, which only who uses them waits for.
    from deedbox.http.well_known import resource_routes  # noqa: PLC0415

    return resource_routes(bearer)


def make_app(deps: HttpDeps, beside: Callable[[HttpDeps], Sequence[BaseRoute]] | None = None) -> ASGIApp:
    """The application over its dependencies; `beside` makes routes of another face that is served with it.

    To be served by uvicorn with `access_log=False`: its lines would hold paths and queries. Wire `deps.stopping` to the
    server's end, so that streams and waits let go.
    """
    follow = Follow(deps.views, deps.wakeup)
    browsers = Browsers(deps)
    described = json.dumps(
        document(
            deps.app.actions.values(),
            version=__version__,
            base_url=deps.base_url,
            login=deps.login is not None,
            own=deps.identity is not None,
            auditing=deps.auditing is not None,
            tools=deps.tools is not None,
        )
    ).encode()

    async def openapi(_request: Request) -> Response:
        return Response(described, media_type="application/json")

    routes = [
        *Jobs(deps, follow, browsers).routes(),
        *Events(deps, follow, browsers).routes(),
        *Approving(deps).routes(),
        *Operators(deps).routes(),
        *RoundRoutes(deps).routes(),
        *LaneRoutes(deps).routes(),
        *PolicyRoutes(deps).routes(),
        *AlertRoutes(deps).routes(),
        *CallbackRoutes(deps).routes(),
        *TargetRoutes(deps).routes(),
        *([] if deps.reports is None else ReportRoutes(deps, deps.reports).routes()),
        *([] if deps.tools is None else ToolRoutes(deps, deps.tools).routes()),
        *([] if deps.identity is None else Own(deps, deps.identity).routes()),
        *(AuditRoutes(deps, deps.auditing).routes() if deps.auditing is not None else ()),
        *([] if deps.bearer is None else _resource_routes(deps.bearer)),
        *Health(deps).routes(),
        route("/api/openapi.json", GET=openapi),
        *(beside(deps) if beside is not None else ()),
        *deps.extra_routes,
    ]
    return Face(routes)
