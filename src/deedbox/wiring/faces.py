"""The HTTP face with its pages, over what a process has open."""

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

from deedbox.access.resolve import resolve_key
from deedbox.access.sessions import ABSOLUTE_S, login, resolve_session
from deedbox.model.identity import Principal
from deedbox.operate.auditing import Auditing
from deedbox.operate.readiness import Readiness

if TYPE_CHECKING:
    from starlette.types import ASGIApp


from deedbox.wiring.installation import Installation


def make_asgi(installation: Installation, stopping: asyncio.Event) -> "ASGIApp":
    """The HTTP face with its pages, over what this process has open; `stopping` makes its waits and streams let go."""
    # Imported late: a command that only asks must not wait for the web framework.
    from deedbox.http.app import make_app  # noqa: PLC0415
    from deedbox.http.deps import HttpDeps, Identity, Limits, LoggedIn  # noqa: PLC0415
    from deedbox.web import WebDeps  # noqa: PLC0415
    from deedbox.web import routes as web_routes  # noqa: PLC0415

    settings, pool = installation.settings, installation.pool
    guard = installation.guard

    async def who(bearer: str) -> Principal | None:
        principal = await resolve_key(pool, bearer, installation.keys)
        if principal is None and not bearer.startswith("dbx_"):
            session = await resolve_session(pool, bearer)
            principal = session.principal if session else None
        return principal

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
            resolve_key=who,
            verbs=installation.verbs,
            approvals=installation.approvals,
            rounds=installation.rounds,
            lanes=installation.lanes,
            policies=installation.policies,
            alerts=installation.alerts,
            callbacks=installation.callbacks,
            targets=installation.targets,
            public_url=settings.public_url,
            login=log_in if settings.local_accounts else None,
            identity=Identity(pool, installation.ids, installation.keys),
            auditing=Auditing(pool),
            wakeup=installation.wakeup,
            limits=Limits(json_bytes=settings.max_json_bytes, upload_bytes=settings.max_upload_bytes),
            extra_routes=tuple(web_routes(pages)),
            ready=Readiness(pool, installation.ids, installation.name, installation.pulse),
            refused=installation.intake.journal_refusal,
            stopping=stopping,
        )
    )
