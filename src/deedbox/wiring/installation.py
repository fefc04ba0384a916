"""What one process has open: the pool, the stations of the road, and what the faces call."""

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from deedbox import __version__
from deedbox.access.resolve import KeyCache
from deedbox.access.sessions import LoginGuard
from deedbox.connectors.read import TargetReader
from deedbox.egress import EgressPolicy
from deedbox.extend.connector import Connector
from deedbox.extend.registry import App
from deedbox.extend.sensitive import marked_fields
from deedbox.extend.submitter import TakesSubmitter
from deedbox.intake.child import ChildIntake
from deedbox.intake.submit import Intake
from deedbox.operate.alerts import Alerts
from deedbox.operate.approvals import Approvals
from deedbox.operate.callbacks import Callbacks
from deedbox.operate.child_tools import ChildTools
from deedbox.operate.follow import Follow
from deedbox.operate.lanes import Lanes
from deedbox.operate.policy import Policies
from deedbox.operate.readiness import Pulse
from deedbox.operate.report import Reports
from deedbox.operate.rounds import Rounds
from deedbox.operate.targets import Targets
from deedbox.operate.tools import Tools
from deedbox.operate.verbs import Verbs
from deedbox.operate.views import Views
from deedbox.settings import Settings
from deedbox.store import asked, sensitive
from deedbox.store.ids import IdSource
from deedbox.store.migrate import newest, require_current
from deedbox.store.pool import Pool
from deedbox.store.process import forget_process, keep_process
from deedbox.store.transaction import autocommit
from deedbox.store.wakeup import Wakeup, channels_for

if TYPE_CHECKING:
    from deedbox.access.bearer import Bearer
    from deedbox.access.provider_login import Providers
    from deedbox.connectors.callback import Callback
    from deedbox.worker.asking import Models

from deedbox.wiring.house import Voice, bound, check_owners, voice_of
from deedbox.wiring.issuers import bearer_of, providers_of
from deedbox.wiring.places import Database, StartError
from deedbox.wiring.schema import connected

Role = Literal["api", "worker", "dispatch", "sweep"]
ALL_ROLES: tuple[Role, ...] = ("api", "worker", "dispatch", "sweep")


@dataclass(frozen=True, slots=True)
class Installation:
    """Everything one process has open."""

    settings: Settings
    app: App
    database: Database
    pool: Pool
    ids: IdSource
    intake: Intake
    views: Views
    approvals: Approvals
    verbs: Verbs
    rounds: Rounds
    lanes: Lanes
    policies: Policies
    alerts: Alerts
    targets: Targets
    tools: Tools
    pulse: Pulse
    wakeup: Wakeup
    keys: KeyCache
    name: str
    reader: TargetReader
    models: "Models | None"
    reports: Reports
    calls: ChildTools
    """Calls tools for the agents of jobs."""
    voice: Voice
    callbacks: Callbacks
    callback: "Callback | None"
    """Delivers callbacks, where settings name receivers. It is none of the app's connectors: no action plans one."""
    guard: LoginGuard
    providers: "Providers | None"
    bearer: "Bearer | None"
    secrets: tuple[bytes, ...]
    """What all processes seal with what a client carries for them, the newest first; empty where nothing is served."""


@asynccontextmanager
async def opened(
    settings: Settings, app: App, database: Database, *, roles: Sequence[Role] = ()
) -> AsyncGenerator[Installation]:
    """Open what a process needs, in order, and close it in the opposite one.

    Raises SchemaError for a foreign schema, UnreachableError where the database does not answer, StartError where settings name
    what is not there, and for an action whose callbacks would go to nobody.
    """
    # Unique per start, so that two processes never share a name (dbos-transact-py#804).
    name = f"{socket.gethostname()[:40]}-{os.getpid()}-{secrets.token_hex(4)}"
    async with AsyncExitStack() as stack:
        # One connection first: it says at once why there is none, where a pool would try again for a while.
        async with connected(database, database.url) as connection:
            await require_current(connection)
        pool = Pool(database.url, name, size=settings.pool_size, prepare=settings.prepare_statements)
        await pool.open(wait=True, timeout=30)
        stack.push_async_callback(pool.close)
        ids = await IdSource.read(pool)
        policy = EgressPolicy(settings.egress_allow)
        # A command that only asks says nothing of its own accord.
        voice = voice_of(settings, app) if roles else Voice()
        for connector in bound({**app.connectors, **voice.connectors}, settings, policy):
            stack.push_async_callback(connector.aclose)
        callback = await _callback(settings, app, policy, stack)
        check_owners(voice)
        reader = TargetReader(settings.connectors, policy)
        stack.push_async_callback(reader.aclose)
        models = await _models(settings, policy, stack)
        guard = LoginGuard()
        keys, serves = KeyCache(), "api" in roles
        providers = await providers_of(settings, pool, ids, policy, guard, stack) if serves else None
        bearer = await bearer_of(settings, pool, ids, policy, keys, stack) if serves else None
        secrets_shared = await _secrets(pool) if serves else ()
        wakeup = Wakeup(database.direct_url, channels_for(roles))
        stack.push_async_callback(_cancel, asyncio.create_task(wakeup.run()))
        if roles:
            await _register(pool, settings, name, roles)
            async with autocommit(pool) as connection:
                await sensitive.keep(connection, marked_fields(app.actions, app.connectors))
            stack.push_async_callback(_unregister, pool, name)
        receivers = [receiver.name for receiver in settings.callbacks]
        try:
            intake = Intake(
                pool,
                ids,
                app.actions,
                public_url=settings.public_url,
                max_waiting=settings.max_waiting,
                callbacks=receivers,
                scan_uploads=settings.scan_uploads,
            )
        except ValueError as error:
            raise StartError(str(error)) from error
        stack.push_async_callback(intake.drain)
        submitter = ChildIntake(pool, app.actions, intake)
        for connector in app.connectors.values():
            if isinstance(connector, TakesSubmitter):
                connector.take_submitter(submitter)
        views = Views(pool, app.actions)
        verbs = Verbs(pool, ids, app.connectors, environment_on=settings.actions_enabled)
        tools = Tools(
            pool,
            ids,
            app.actions,
            intake=intake,
            views=views,
            follow=Follow(views, wakeup),
            verbs=verbs,
            public_url=settings.public_url,
        )
        stack.push_async_callback(tools.drain)
        yield Installation(
            settings=settings,
            app=app,
            database=database,
            pool=pool,
            ids=ids,
            intake=intake,
            views=views,
            approvals=Approvals(pool, ids, public_url=settings.public_url, connectors=app.connectors, actions=app.actions),
            rounds=Rounds(pool, ids, app.actions, intake),
            lanes=Lanes(pool),
            policies=Policies(pool, app.actions, app.connectors),
            alerts=Alerts(pool),
            targets=Targets(pool, app.connectors, egress=policy, ours=_ours(voice, callback)),
            pulse=Pulse(),
            verbs=verbs,
            tools=tools,
            wakeup=wakeup,
            keys=keys,
            name=name,
            reader=reader,
            models=models,
            reports=Reports(pool),
            calls=ChildTools(pool, ids, tools),
            voice=voice,
            callbacks=Callbacks(pool, ids),
            callback=callback,
            guard=guard,
            providers=providers,
            bearer=bearer,
            secrets=secrets_shared,
        )


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _callback(settings: Settings, app: App, policy: EgressPolicy, stack: AsyncExitStack) -> "Callback | None":
    if not settings.callbacks:
        return None
    # Imported late: a command that only asks must not wait for the HTTP client.
    from deedbox.connectors.callback import Callback  # noqa: PLC0415

    connector = Callback()
    if connector.name in app.connectors:
        raise StartError(f"the app has a connector {connector.name!r}, which is the name of our own for callbacks")
    connector.bind(settings.connectors, policy)
    stack.push_async_callback(connector.aclose)
    return connector


def _ours(voice: Voice, callback: "Callback | None") -> dict[str, Connector]:
    """The connectors of the house."""
    return {**voice.connectors, **({} if callback is None else {callback.name: callback})}


async def _models(settings: Settings, policy: EgressPolicy, stack: AsyncExitStack) -> "Models | None":
    if not settings.endpoints:
        return None
    # Imported late: it brings the whole of the model library, which takes seconds and is needed only here.
    from deedbox.wiring.models import model_client  # noqa: PLC0415

    client = model_client(settings, policy)
    stack.push_async_callback(client.aclose)
    return client


async def _secrets(pool: Pool) -> tuple[bytes, ...]:
    async with autocommit(pool) as connection:
        return (await asked.secret(connection, "mcp"),)


async def _register(pool: Pool, settings: Settings, name: str, roles: Sequence[Role]) -> None:
    async with autocommit(pool) as connection:
        await keep_process(
            connection,
            process_id=name,
            roles=list(roles),
            version=__version__,
            schema_version=newest(),
            settings_sha256=settings.fingerprint(),
            environment_switch=settings.actions_enabled,
        )


async def _unregister(pool: Pool, name: str) -> None:
    async with autocommit(pool) as connection:
        await forget_process(connection, name)
