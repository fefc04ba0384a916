"""Running Deedbox: everything in one process, or one part of the road, until told to stop; and bringing the schema up to date.

SIGTERM or SIGINT stops in order: nothing new is accepted, claimed or leased, attempts under way get `DEEDBOX_DRAIN_S` seconds,
and the process ends with exit code 0. A handler that ignores its cancellation is left behind then. Where the event loop itself
does not turn any more, the process ends where it stands, with exit code 130: `AFTER_DRAIN_S` after the drain, and no earlier
than a sending under way may need.

A second signal does not wait for attempts: what ran is left to its lease, which another process takes over, connections and the
embedded database are let go of, and the exit code is 130. Where even that takes longer than `HURRY_S`, or a third signal comes,
the process ends where it stands, with the same code.
"""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import FrameType
from typing import Annotated, Any, cast

import typer
from rich.text import Text

from deedbox import __version__, telemetry, wiring
from deedbox.access import list_keys
from deedbox.cli.output import CommandError, Exit, console, plain, say, show_pairs
from deedbox.cli.session import in_database, read_app, read_settings, shown_path
from deedbox.cli.switch import halves
from deedbox.operate.doctor import people, undecidable
from deedbox.settings import Settings
from deedbox.wiring import ALL_ROLES, Database, Installation, Role

HURRY_S = 5.0
"""Seconds after the second signal for letting go in order; code that does not let itself be stopped gets no longer."""

AFTER_DRAIN_S = 15.0
"""Seconds after the drain for attempts that were told to stop (ten), and for letting go in order."""
LEFT_BEHIND_S = 1.0
"""Seconds for what still runs when everything is closed."""

AppArgument = Annotated[str, typer.Argument(metavar="APP", help="module:attribute, or a .py file with an App called app.")]


def serve(app: AppArgument) -> None:
    """Run everything in one process: API, console, worker, dispatch and sweep; brings the schema up to date first."""
    _run(app, ALL_ROLES, migrate=True)


def api(app: AppArgument) -> None:
    """Run the API and the console alone."""
    _run(app, ("api",))


def worker(app: AppArgument) -> None:
    """Run a worker, and the sweep that repairs behind it."""
    _run(app, ("worker", "sweep"))


def dispatch(app: AppArgument) -> None:
    """Run a dispatcher, and the sweep that repairs behind it."""
    _run(app, ("dispatch", "sweep"))


def migrate() -> None:
    """Bring the schema up to date; makes the embedded database where none is named and none is there."""
    done = in_database(read_settings(), wiring.migrate_database)
    say(f"applied {', '.join(done)}" if done else "up to date")


def _run(place: str, roles: Sequence[Role], *, migrate: bool = False) -> None:
    settings = read_settings()
    telemetry.configure_logging(settings.log_level, settings.payload_log)
    app = read_app(place)
    listener = _listen(settings) if "api" in roles else None
    if listener is not None and "public_url" not in settings.model_fields_set and settings.host in {"127.0.0.1", "localhost"}:
        # Nobody said how others reach it, so it is reached where it listens: links then work on a port that was free.
        settings = settings.model_copy(update={"public_url": f"http://127.0.0.1:{listener.getsockname()[1]}"})

    # A sending that is under way ends within its lease, and is not torn apart.
    patience_s = AFTER_DRAIN_S + max(settings.drain_s, settings.send_lease_s if "dispatch" in roles else 0.0)

    async def work(database: Database) -> None:
        stop = _stop_on_signals(patience_s)
        if migrate:
            await wiring.migrate_database(database)
        async with wiring.opened(settings, app, database, roles=roles) as installation:
            await _serve(installation, roles, listener, stop)
        await _leave_behind()

    try:
        in_database(settings, work, fast=True)
    except asyncio.CancelledError:
        raise CommandError("stopped without waiting for what was under way", Exit.STOPPED) from None
    finally:
        if listener is not None:
            listener.close()
    say("stopped")


async def _leave_behind() -> None:
    """Stop what still runs when everything is closed; a handler that ignores it is left to its lease, not waited for."""
    running = asyncio.all_tasks() - {asyncio.current_task()}
    for task in running:
        task.cancel()
    if not running:
        return
    _, stubborn = await asyncio.wait(running, timeout=LEFT_BEHIND_S)
    if stubborn:
        telemetry.log("serve").warning("left_behind", tasks=sorted(task.get_name() for task in stubborn))
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    for task in stubborn:
        # The runner would wait for it for ever.
        asyncio._unregister_task(task)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] -- documented for those who extend asyncio


def _stop_on_signals(patience_s: float) -> asyncio.Event:
    """An event that the first SIGTERM or SIGINT sets; the second cancels the task that called this; see the module's text.

    `patience_s` seconds after the first the process ends where it stands.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    hurry = threading.Timer(HURRY_S, _end_here)
    last = threading.Timer(patience_s, _end_here)
    hurry.daemon = last.daemon = True
    told = 0

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        # The interpreter calls this, not the loop: it works while a handler keeps the loop from turning.
        nonlocal told
        told += 1
        with suppress(RuntimeError):  # the loop is closed, and what it ran has ended
            if told == 1:
                _write("stopping: finishing what is under way; once more to stop at once")
                last.start()
                loop.call_soon_threadsafe(stop.set)
            elif task is not None and told == 2:  # noqa: PLR2004 -- the second time
                _write("stopping at once")
                hurry.start()
                loop.call_soon_threadsafe(_cancel, loop, task)
            else:
                _end_here()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    return stop


def _cancel(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[Any]") -> None:
    # What is torn apart fails, as was asked for; the parts say so in the log, and the loop need not say it again.
    loop.set_exception_handler(lambda _loop, _context: None)
    task.cancel()


def _end_here() -> None:
    _write("stopped where it stood", 2)
    os._exit(Exit.STOPPED)


def _write(text: str, descriptor: int = 1) -> None:
    """A line past the interpreter's buffers, which may be in use where a signal came in between."""
    with suppress(OSError):
        os.write(descriptor, f"{text}\n".encode())


def _listen(settings: Settings) -> socket.socket:
    """A bound socket; bound before anything else is opened, so that a taken port is told at once."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        said = f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}; DEEDBOX_PORT names another"
        raise CommandError(said, Exit.NOT_THERE) from error
    listener.setblocking(False)
    return listener


async def _serve(
    installation: Installation, roles: Sequence[Role], listener: socket.socket | None, stop: asyncio.Event
) -> None:
    """The loops and, where there is a listener, the server, until `stop`. A part that dies takes the rest down with it."""
    server = None
    if listener is not None:
        # Imported late: a command that only asks must not wait for the web server.
        from deedbox.cli.listening import ApiServer

        server = ApiServer(wiring.make_asgi(installation, stop))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(wiring.run_roles(installation, roles, stop), name="loops")
            if server is not None and listener is not None:
                group.create_task(server.serve([listener]), name="api")
                await server.ready.wait()
            try:
                with wiring.told_plainly():
                    await _introduce(installation, roles, listener)
            except wiring.StartError as error:
                # What runs runs on: the loops wait for the database, and what is only said may stay unsaid.
                telemetry.log("serve").warning("not_introduced", message=str(error))
            await stop.wait()
            if server is not None:
                server.should_exit = True
    except BaseExceptionGroup as group:
        for error in _leaves(group):
            telemetry.log("serve").error("part_died", error=type(error).__name__, message=str(error), exc_info=error)
        raise CommandError("a part of the process died; the log above says which and why") from group


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(cast("BaseExceptionGroup[BaseException]", error))
        else:
            yield error


async def _introduce(installation: Installation, roles: Sequence[Role], listener: socket.socket | None) -> None:
    """Say what runs, where it is, what may leave, and what is missing."""
    settings = installation.settings
    database = installation.database
    state = await installation.verbs.switch_state(settings.tenant)
    leaves, environment, half = halves(state)
    console().print(Text(f"Deedbox {__version__} is ready", style="bold"))
    pairs: list[tuple[str, object]] = []
    if listener is not None:
        host, port = listener.getsockname()[:2]
        pairs += [
            ("listens on", f"http://{f'[{host}]' if ':' in host else host}:{port}"),
            ("links lead to", settings.public_url),
        ]
    else:
        pairs.append(("runs", f"{' and '.join(roles)} as {installation.name}"))
    where = f"embedded PostgreSQL {database.running.info.server_version}, state in " if database.running else "PostgreSQL at "
    pairs += [
        ("database", where + (shown_path(settings.state) if database.running else database.place)),
        ("actions", ", ".join(sorted(installation.app.actions)) or "none"),
        ("switch", f"{leaves}: environment {environment}; database {half}"),
    ]
    missing = await _missing(installation)
    pairs += [("missing" if number == 0 else "", line) for number, line in enumerate(missing)]
    pairs.append(("to stop", "Ctrl-C or SIGTERM; what is under way is finished"))
    show_pairs(pairs)


async def _missing(installation: Installation) -> list[str]:
    tenant = installation.settings.tenant
    lines = await people(installation.pool, tenant)
    missing: list[str] = []
    if not any(line.kind == "person" for line in lines):
        missing.append("nobody can log in yet: deedbox users add NAME --role manager")
    else:
        gaps = undecidable(installation.app.actions.values(), lines)
        missing += [f"nobody decides {name}: {plain(said)}" for name, said in gaps.items()]
    if not any(key.revoked_at is None for key in await list_keys(installation.pool, tenant)):
        missing.append("no program can call yet: deedbox keys add NAME --role operator")
    return missing
