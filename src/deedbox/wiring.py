"""The composition root: the one place where pools, loops and faces are put together."""

import asyncio
import importlib
import importlib.util
import os
import secrets
import socket
import sys
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from deedbox import __version__, embedded, telemetry
from deedbox.access.resolve import KeyCache, resolve_key
from deedbox.access.sessions import ABSOLUTE_S, LoginGuard, login, resolve_session
from deedbox.connectors.read import TargetReader
from deedbox.connectors.settings import Bindable
from deedbox.dispatch.loop import Dispatcher
from deedbox.egress import EgressPolicy, async_http_client
from deedbox.extend.registry import App
from deedbox.extend.submitter import TakesSubmitter
from deedbox.intake.child import ChildIntake
from deedbox.intake.submit import Intake
from deedbox.model.identity import Principal
from deedbox.operate.approvals import Approvals
from deedbox.operate.lanes import Lanes
from deedbox.operate.readiness import Pulse, Readiness
from deedbox.operate.rounds import Rounds
from deedbox.operate.verbs import Verbs
from deedbox.operate.views import Views
from deedbox.settings import Settings
from deedbox.store import doctor
from deedbox.store.address import describe_url, first_line
from deedbox.store.ids import IdSource
from deedbox.store.migrate import SchemaError, applied, migrate, newest, require_current
from deedbox.store.pg_errors import UNREACHABLE, StoreError
from deedbox.store.pool import Connection, Pool, connect
from deedbox.store.process import forget_process, keep_process
from deedbox.store.prune import Retention
from deedbox.store.transaction import autocommit
from deedbox.store.wakeup import Wakeup
from deedbox.sweep.prune import Pruning
from deedbox.sweep.service import Sweep

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from deedbox.worker.execute import Models

Role = Literal["api", "worker", "dispatch", "sweep"]
ALL_ROLES: tuple[Role, ...] = ("api", "worker", "dispatch", "sweep")


class StartError(RuntimeError):
    """Something that is missing for the start, in a sentence that says what to do."""


class UnreachableError(StartError):
    """The database cannot be reached."""


def load_app(place: str) -> App:
    """The App at `module:name`, or in a file (`path/to/app.py`, attribute `app`). Raises StartError."""
    module_name, _, attribute = place.partition(":")
    if not attribute and not module_name.endswith(".py"):
        raise StartError(f"{place}: name the app as module:attribute or as a .py file")
    sys.path.insert(0, str(Path.cwd()))
    try:
        if module_name.endswith(".py"):
            spec = importlib.util.spec_from_file_location("deedbox_user_app", module_name)
            if spec is None or spec.loader is None:
                raise StartError(f"{module_name}: is not a Python file")
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(module_name)
    except (ModuleNotFoundError, FileNotFoundError) as error:
        raise StartError(f"{place}: {error}") from error
    found: Any = getattr(module, attribute or "app", None)
    if not isinstance(found, App):
        raise StartError(f"{place}: there is no App called {attribute or 'app'!r}")
    return found


@dataclass(frozen=True, slots=True)
class Database:
    """Where the store is: the application's URL, the one that may change the schema, and one past a pooler, if there is one."""

    url: str
    owner_url: str
    running: embedded.Running | None = None
    direct: str | None = None

    @property
    def direct_url(self) -> str:
        """For connections that listen or must not queue behind others: past the pooler, or the application's URL."""
        return self.direct or self.url

    @property
    def place(self) -> str:
        """Where it is, for people: the state directory, or user, host and name without the password."""
        return str(self.running.info.state_dir) if self.running else describe_url(self.url)


def find_database(settings: Settings) -> Database:
    """The database that settings name, or the embedded one, started. Raises EmbeddedError, or StartError for a bad URL."""
    if settings.database_url is not None:
        url = settings.database_url.get_secret_value()
        direct = settings.direct_url.get_secret_value() if settings.direct_url else url
        owner = settings.migrate_url.get_secret_value() if settings.migrate_url else direct
        for name, text in (("DEEDBOX_DATABASE_URL", url), ("DEEDBOX_DIRECT_URL", direct), ("DEEDBOX_MIGRATE_URL", owner)):
            try:
                describe_url(text)
            except ValueError as error:
                raise StartError(f"{name}: {error}") from error
        return Database(url, owner, direct=direct)
    running = embedded.start(settings.state)
    return Database(running.info.app_url, running.info.owner_url, running)


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
    pulse: Pulse
    wakeup: Wakeup
    keys: KeyCache
    name: str
    reader: TargetReader
    models: "Models | None"


@asynccontextmanager
async def opened(
    settings: Settings, app: App, database: Database, *, roles: Sequence[Role] = ()
) -> AsyncGenerator[Installation]:
    """Open what a process needs, in order, and close it in the opposite one.

    Raises SchemaError for a foreign schema, UnreachableError where the database does not answer.
    """
    # Unique per start, so that two processes never share a name (dbos-transact-py#804).
    name = f"{socket.gethostname()[:40]}-{os.getpid()}-{secrets.token_hex(4)}"
    async with AsyncExitStack() as stack:
        # One connection first: it says at once why there is none, where a pool would try again for a while.
        async with _connected(database, database.url) as connection:
            await require_current(connection)
        pool = Pool(database.url, name, size=settings.pool_size, prepare=settings.prepare_statements)
        await pool.open(wait=True, timeout=30)
        stack.push_async_callback(pool.close)
        ids = await IdSource.read(pool)
        policy = EgressPolicy(settings.egress_allow)
        for connector in app.connectors.values():
            if isinstance(connector, Bindable):
                connector.bind(settings.connectors, policy)
                stack.push_async_callback(connector.aclose)
        reader = TargetReader(settings.connectors, policy)
        stack.push_async_callback(reader.aclose)
        models = await _models(settings, policy, stack)
        wakeup = Wakeup(database.direct_url)
        stack.push_async_callback(_cancel, asyncio.create_task(wakeup.run()))
        if roles:
            await _register(pool, settings, name, roles)
            stack.push_async_callback(_unregister, pool, name)
        intake = Intake(pool, ids, app.actions, public_url=settings.public_url, max_waiting=settings.max_waiting)
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
            pulse=Pulse(),
            verbs=Verbs(pool, ids, app.connectors, environment_on=settings.actions_enabled),
            wakeup=wakeup,
            keys=KeyCache(),
            name=name,
            reader=reader,
            models=models,
        )


@asynccontextmanager
async def _connected(database: Database, url: str) -> AsyncGenerator[Connection]:
    try:
        connection = await connect(url, "check", prepare=False)
    except StoreError as error:
        raise UnreachableError(f"the database at {database.place} cannot be reached: {first_line(error)}") from error
    try:
        yield connection
    finally:
        await connection.close()


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


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


def make_asgi(installation: Installation, stopping: asyncio.Event) -> "ASGIApp":
    """The HTTP face with its pages, over what this process has open; `stopping` makes its waits and streams let go."""
    # Imported late: a command that only asks must not wait for the web framework.
    from deedbox.http.app import make_app  # noqa: PLC0415
    from deedbox.http.deps import HttpDeps, Limits, LoggedIn  # noqa: PLC0415
    from deedbox.web import WebDeps  # noqa: PLC0415
    from deedbox.web import routes as web_routes  # noqa: PLC0415

    settings, pool = installation.settings, installation.pool
    guard = LoginGuard()

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

    pages = WebDeps(
        pool=pool,
        public_url=settings.public_url,
        tenant=settings.tenant,
        card=installation.approvals.card,
        decide=installation.approvals.decide,
        inbox=installation.approvals.inbox,
        document=installation.views.document_file,
        guard=guard,
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
            public_url=settings.public_url,
            login=log_in,
            wakeup=installation.wakeup,
            limits=Limits(json_bytes=settings.max_json_bytes, upload_bytes=settings.max_upload_bytes),
            extra_routes=tuple(web_routes(pages)),
            ready=Readiness(pool, installation.ids, installation.name, installation.pulse),
            refused=installation.intake.journal_refusal,
            stopping=stopping,
        )
    )


async def run_roles(installation: Installation, roles: Sequence[Role], stop: asyncio.Event) -> None:
    """Run the loops until `stop` is set; a loop that dies takes the process down with it, never silently."""
    settings = installation.settings
    loops: dict[Role, Any] = {}
    if "worker" in roles:
        # Imported late, as in `_models`: a command that only asks must not wait for the model library.
        from deedbox.worker.loop import Worker, WorkerSettings  # noqa: PLC0415

        loops["worker"] = Worker(
            url=installation.database.direct_url,
            pool=installation.pool,
            ids=installation.ids,
            app=installation.app,
            lease=settings.lease,
            settings=WorkerSettings(
                name=installation.name,
                build=__version__,
                slots=settings.worker_slots,
                queues=settings.worker_queues,
                drain_s=settings.drain_s,
                prepare=settings.prepare_statements,
            ),
            wake=installation.wakeup.event("deedbox_queue"),
            came_through=installation.pulse.beat,
            reader=installation.reader,
            models=installation.models,
        )
    if "dispatch" in roles:
        loops["dispatch"] = Dispatcher(
            installation.pool,
            installation.ids,
            installation.app.connectors,
            environment_on=settings.actions_enabled,
            slots=settings.send_slots,
            lease_s=settings.send_lease_s,
            wake=installation.wakeup.event("deedbox_outbox"),
            told=installation.wakeup.listens,
        )
    if "sweep" in roles:
        keeps = {name: action.keep_s for name, action in installation.app.actions.items()}
        retention = Retention.in_days(settings.keep_days, settings.keep_records_days, keeps)
        pruning = Pruning(installation.pool, installation.ids, retention)
        loops["sweep"] = Sweep(installation.pool, installation.ids, settings.lease, pruning)
    async with asyncio.TaskGroup() as group:
        for role, loop in loops.items():
            group.create_task(loop.run(stop), name=role)
    telemetry.log("wiring").info("stopped", roles=list(roles))


async def migrate_database(database: Database) -> list[str]:
    """Bring the schema up to date; returns the migrations applied. Raises SchemaError, UnreachableError."""
    async with _connected(database, database.owner_url):
        pass
    return await migrate(database.owner_url)


@contextmanager
def told_plainly() -> Generator[None]:
    """Turns what the store raises into StartError (UnreachableError where nobody answers), for faces that do not know it."""
    try:
        yield
    except SchemaError as error:
        raise StartError(str(error)) from error
    except UNREACHABLE as error:
        raise UnreachableError(f"the database does not answer: {first_line(error)}") from error
    except StoreError as error:
        raise StartError(f"the database refused: {first_line(error)}") from error


@dataclass(frozen=True, slots=True)
class Probe:
    """What is at the other end of the database URL, schema or not: versions, and which of the two roles are there."""

    server: doctor.Server
    schema: int
    needed: int
    roles: frozenset[str]


async def probe(database: Database) -> Probe:
    """Look at the database without needing a schema and without changing anything. Raises UnreachableError."""
    async with _connected(database, database.url) as connection:
        return Probe(await doctor.server(connection), await applied(connection), newest(), await doctor.roles(connection))
