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
from deedbox.egress import EgressPolicy, async_http_client
from deedbox.extend.connector import Connector
from deedbox.extend.registry import App
from deedbox.extend.sensitive import marked_fields
from deedbox.extend.submitter import TakesSubmitter
from deedbox.intake.child import ChildIntake
from deedbox.intake.submit import Intake
from deedbox.operate.alerts import Alerts
from deedbox.operate.approvals import Approvals
from deedbox.operate.callbacks import Callbacks
from deedbox.operate.lanes import Lanes
from deedbox.operate.policy import Policies
from deedbox.operate.readiness import Pulse
from deedbox.operate.rounds import Rounds
from deedbox.operate.targets import Targets
from deedbox.operate.verbs import Verbs
from deedbox.operate.views import Views
from deedbox.settings import Settings
from deedbox.store import sensitive
from deedbox.store.ids import IdSource
from deedbox.store.migrate import newest, require_current
from deedbox.store.pool import Pool
from deedbox.store.process import forget_process, keep_process
from deedbox.store.transaction import autocommit
from deedbox.store.wakeup import Wakeup

if TYPE_CHECKING:
    from deedbox.access.provider_login import Providers
    from deedbox.connectors.callback import Callback
    from deedbox.worker.execute import Models

from deedbox.wiring.house import Voice, bound, check_owners, voice_of
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
    pulse: Pulse
    wakeup: Wakeup
    keys: KeyCache
    name: str
    reader: TargetReader
    models: "Models | None"
    voice: Voice
    callbacks: Callbacks
    callback: "Callback | None"
    """Delivers callbacks, where settings name receivers. It is none of the app's connectors: no action plans one."""
    guard: LoginGuard
    providers: "Providers | None"


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
        providers = await _providers(settings, pool, ids, policy, guard, stack) if "api" in roles else None
        wakeup = Wakeup(database.direct_url)
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
        yield Installation(
            settings=settings,
            app=app,
            database=database,
            pool=pool,
            ids=ids,
            intake=intake,
            views=Views(pool, app.actions),
            approvals=Approvals(pool, ids, public_url=settings.public_url, connectors=app.connectors, actions=app.actions),
            rounds=Rounds(pool, ids, app.actions, intake),
            lanes=Lanes(pool),
            policies=Policies(pool, app.actions, app.connectors),
            alerts=Alerts(pool),
            targets=Targets(pool, app.connectors, egress=policy, ours=_ours(voice, callback)),
            pulse=Pulse(),
            verbs=Verbs(pool, ids, app.connectors, environment_on=settings.actions_enabled),
            wakeup=wakeup,
            keys=KeyCache(),
            name=name,
            reader=reader,
            models=models,
            voice=voice,
            callbacks=Callbacks(pool, ids),
            callback=callback,
            guard=guard,
            providers=providers,
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
    if settings.model_base_url is None or settings.model_name is None:
        return None
    # Imported late: it brings the whole of the model library, which takes seconds and is needed only here.
    from deedbox.worker.model_call import ModelClient, ModelEndpoint  # noqa: PLC0415

    endpoint = ModelEndpoint(
        base_url=settings.model_base_url,
        api_key=settings.model_api_key,
        model=settings.model_name,
        timeout_s=settings.model_timeout_s,
        repairs=settings.model_repairs,
    )
    client = ModelClient(endpoint, async_http_client(policy, settings.model_timeout_s))
    stack.push_async_callback(client.aclose)
    return client


async def _providers(
    settings: Settings, pool: Pool, ids: IdSource, policy: EgressPolicy, guard: LoginGuard, stack: AsyncExitStack
) -> "Providers | None":
    """The providers that people log in at. Raises StartError naming the setting where one gives what is not there."""
    if not settings.oidc:
        return None
    # Imported late: it brings the libraries of the protocol, which only who uses them waits for.
    from deedbox.access.provider_login import Providers, check_providers  # noqa: PLC0415

    try:
        await check_providers(pool, settings.oidc, settings.tenant)
    except ValueError as error:
        raise StartError(str(error)) from error
    providers = Providers(
        pool,
        ids,
        settings.oidc,
        policy,
        public_url=settings.public_url,
        tenant=settings.tenant,
        failures=guard.failures,
    )
    stack.push_async_callback(providers.aclose)
    return providers


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
