"""The HTTP face with its pages, over what a process has open."""

import asyncio
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from deedbox.access.sessions import ABSOLUTE_S, login
from deedbox.model.identity import Principal
from deedbox.operate.auditing import Auditing
from deedbox.operate.readiness import Readiness

if TYPE_CHECKING:
    from starlette.types import ASGIApp

from deedbox.wiring.callers import resolver
from deedbox.wiring.installation import Installation
from deedbox.wiring.mcp_face import mcp_routes


def make_asgi(installation: Installation, stopping: asyncio.Event) -> "ASGIApp":
    """The HTTP face with its pages, over what this process has open; `stopping` makes its waits and streams let go."""
    # Imported late: a command that only asks must not wait for the web framework.
    from deedbox.http.app import make_app  # noqa: PLC0415
    from deedbox.http.deps import HttpDeps, Identity, Limits, LoggedIn  # noqa: PLC0415
    from deedbox.web import WebDeps  # noqa: PLC0415
    from deedbox.web import routes as web_routes  # noqa: PLC0415

    settings, pool = installation.settings, installation.pool
    guard = installation.guard

    async def log_in(name: str, password: str, peer: str) -> LoggedIn | None:
        opened_session = await login(pool, settings.tenant, name, password, guard=guard, peer=peer)
        if opened_session is None:
            return None
        return LoggedIn(opened_session.token, ABSOLUTE_S, opened_session.principal)

    async def cancel_effect(principal: Principal, effect_id: UUID, reason: str) -> None:
        await installation.verbs.effect_verb(principal, effect_id, "cancel", reason=reason, door="page")

    pages = WebDeps(
        ids=installation.ids,
        providers=installation.providers,
        local=settings.local_accounts,
        pool=pool,
        public_url=settings.public_url,
        tenant=settings.tenant,
        card=installation.approvals.card,
        decide=installation.approvals.decide,
        inbox=installation.approvals.inbox,
        document=installation.views.document_file,
        announced=installation.approvals.announced,
        cancel_effect=cancel_effect,
        approvals=installation.approvals,
        remarks=installation.approvals,
        guard=guard,
        alerts=installation.alerts,
        targets=installation.targets,
        verbs=installation.verbs,
    )
    return make_app(
        HttpDeps(
            app=installation.app,
            intake=installation.intake,
            views=installation.views,
            resolve_key=resolver(installation, "api"),
            verbs=installation.verbs,
            approvals=installation.approvals,
            rounds=installation.rounds,
            lanes=installation.lanes,
            policies=installation.policies,
            alerts=installation.alerts,
            callbacks=installation.callbacks,
            targets=installation.targets,
            tools=installation.tools,
            reports=installation.reports,
            public_url=settings.public_url,
            login=log_in if settings.local_accounts else None,
            bearer=installation.bearer,
            identity=Identity(pool, installation.ids, installation.keys),
            auditing=Auditing(pool),
            wakeup=installation.wakeup,
            limits=Limits(json_bytes=settings.max_json_bytes, upload_bytes=settings.max_upload_bytes),
            extra_routes=tuple(web_routes(pages)),
            ready=Readiness(pool, installation.ids, installation.name, installation.pulse),
            refused=installation.intake.journal_refusal,
            stopping=stopping,
        ),
        beside=partial(mcp_routes, installation, stopping),
    )
