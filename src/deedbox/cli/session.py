"""One command's use of an installation: settings, database, the person who is asking, and the end of all of it."""

import asyncio
import getpass
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from pydantic import ValidationError

from deedbox import embedded, telemetry, wiring
from deedbox.access import LoginGuard, login, logout, resolve_key
from deedbox.access.keys import clean_name
from deedbox.cli.output import CommandError, Exit
from deedbox.extend.action import RegistrationError
from deedbox.extend.registry import App
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.settings import Settings
from deedbox.wiring import Database, Installation, StartError, UnreachableError

T = TypeVar("T")
Work = Callable[[Installation], Awaitable[T]]

# Who sits at the terminal can read the database anyway; nothing is decided or changed in this name.
_NOBODY = "00000000-0000-0000-0000-000000000000"
_NOT_THERE = frozenset({"not_found", "pruned", "unavailable"})

JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
AsOption = Annotated[str, typer.Option("--as", metavar="NAME", help="The person who does this; the password is asked for.")]
AppOption = Annotated[str | None, typer.Option("--app", metavar="APP", help="The app, where it has connectors of its own.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most so many.")]


def read_settings() -> Settings:
    """The settings of the environment. Raises CommandError naming each field that is wrong, without its value."""
    try:
        return Settings()
    except ValidationError as error:
        wrong: list[str] = []
        for item in error.errors(include_input=False, include_url=False):
            name = "_".join(str(part) for part in item["loc"]).upper()
            said = item["msg"].removeprefix("Value error, ")
            wrong.append(f"{'DEEDBOX_' if name and not name.startswith('AI_') else ''}{name}{': ' if name else ''}{said}")
        raise CommandError("; ".join(wrong), Exit.USAGE) from error


def read_app(place: str) -> App:
    """The app that a command names. Raises CommandError."""
    try:
        return wiring.load_app(place)
    except StartError as error:
        raise CommandError(str(error), Exit.NOT_THERE) from error
    except RegistrationError as error:
        raise CommandError(f"{place}: {error}") from error


def run(work: Work[T], *, make: bool = False, asks_out: bool = False, app: str | None = None) -> T:
    """Open the installation, do the work, close it; becomes one more user of the embedded server and lets go at the end.

    `make` says that an embedded database may be made where there is none; without it that is an error, so that a list in the
    wrong directory leaves nothing behind. `asks_out` says that the work asks providers: the built-in connectors are there
    then, or those of the app that `app` names; else there are none, and nobody waits for their libraries.
    Raises CommandError for whatever is expected to go wrong.
    """
    settings = read_settings()
    # Standard output belongs to the answer, and what the loops say at the side does not concern a list.
    telemetry.configure_logging("error")
    connectors = read_app(app) if app is not None else _built_in() if asks_out else App()
    if not make and settings.database_url is None and not embedded.status(settings.state).made:
        raise CommandError(
            f"there is no Deedbox in {settings.state}: start one with `deedbox serve APP`, or name another place in "
            "DEEDBOX_STATE or DEEDBOX_DATABASE_URL",
            Exit.NOT_THERE,
        )
    return in_database(settings, lambda database: _opened(settings, connectors, database, work))


def _built_in() -> App:
    # Imported late: they bring an HTTP and a mail client.
    from deedbox.connectors import Http, Smtp

    return App(connectors=[Smtp(), Http()])


def in_database(settings: Settings, work: Callable[[Database], Awaitable[T]], *, fast: bool = False) -> T:
    """Run work over the database, and let go of it whatever happens; `fast` takes the event loop that servers run on.

    Raises CommandError.
    """
    try:
        database = wiring.find_database(settings)
        try:
            with asyncio.Runner(loop_factory=_fast_loop() if fast else None) as runner:
                return runner.run(_told(work, database))
        finally:
            if database.running is not None:
                database.running.stop()
    except DeedboxError as error:
        raise CommandError(error.sentence, Exit.NOT_THERE if error.code in _NOT_THERE else Exit.REFUSED) from error
    except (UnreachableError, embedded.EmbeddedError, StartError) as error:
        raise CommandError(str(error), Exit.NOT_THERE) from error


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _told(work: Callable[[Database], Awaitable[T]], database: Database) -> T:
    with wiring.told_plainly():
        return await work(database)


async def _opened(settings: Settings, app: App, database: Database, work: Work[T]) -> T:
    if database.running is not None and (await wiring.probe(database)).schema == 0:
        # Nobody else can have made this one's schema: it is ours and empty.
        await wiring.migrate_database(database)
    async with wiring.opened(settings, app, database) as installation:
        return await work(installation)


def reader(settings: Settings) -> Principal:
    """Who reads at a terminal: somebody with the rights to look, and none to change or decide."""
    return Principal(_NOBODY, settings.tenant, "terminal", "person", frozenset({"viewer"}), "terminal")


async def person(installation: Installation, name: str, password: str) -> Principal:
    """Log a person in for this command alone; no session is left. A personal key of theirs is as good as the password.

    Raises CommandError where name and password or key do not fit, or passwords are not taken.
    """
    pool, tenant = installation.pool, installation.settings.tenant
    if password.startswith("dbx_"):
        holder = await resolve_key(pool, password)
        if holder is None or holder.kind != "person" or (holder.name, holder.tenant) != (clean_name(name), tenant):
            raise CommandError("the name and the key do not fit together")
        return holder
    if not installation.settings.local_accounts:
        raise CommandError("passwords are not taken here; make a personal key on your account's page and give that")
    opened = await login(pool, tenant, name, password, guard=LoginGuard(), peer="terminal", door="cli")
    if opened is None:
        raise CommandError("the name and the password do not fit together")
    await logout(pool, opened.token, door="cli")
    return opened.principal


def ask_password(name: str, *, twice: bool = False) -> str:
    """A password from the terminal, unseen, or one line of standard input where that is none. Never an argument.

    Raises CommandError where nothing came, or the two did not agree.
    """
    if not sys.stdin.isatty():
        line = sys.stdin.readline().rstrip("\r\n")
        if not line:
            raise CommandError("the password is read from the terminal or from standard input, and nothing came", Exit.USAGE)
        return line
    given = getpass.getpass(f"Password of {name}: ")
    if twice and getpass.getpass("The same again: ") != given:
        raise CommandError("the two passwords differ; nothing was changed")
    return given


def shown_path(path: Path) -> str:
    """A path relative to where the user is, where it lies below."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
