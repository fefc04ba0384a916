"""The command `deedbox`: every command of every part, and what an exit code means.

0: done. 1: refused or failed. 2: the command was not understood. 3: what was asked for is not there, or the database cannot
be reached. 130: stopped before it was done, by Ctrl-C or by a second stop signal. Errors that can be expected are one line on
standard error.

Only the module of the command that was called is imported: a list does not wait for the web server, nor help for a database.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from deedbox import __version__
from deedbox.cli.output import CommandError, Exit, complain

RUNNING, ACTING, MACHINE = "Running", "Asking and acting", "At the machine"


class Entry(NamedTuple):
    """A command, or a group of commands: where it is, as module:attribute below deedbox.cli, and what the list says of it."""

    panel: str
    place: str
    summary: str


COMMANDS = {
    "serve": Entry(RUNNING, "serve:serve", "Run everything in one process, and bring the schema up to date first."),
    "api": Entry(RUNNING, "serve:api", "Run the API and the console alone."),
    "worker": Entry(RUNNING, "serve:worker", "Run a worker, and the sweep that repairs behind it."),
    "dispatch": Entry(RUNNING, "serve:dispatch", "Run a dispatcher, and the sweep that repairs behind it."),
    "jobs": Entry(ACTING, "jobs:jobs", "Accepted requests, and what became of them."),
    "lanes": Entry(ACTING, "lanes:lanes", "What waits and runs for each action; paused and limited here."),
    "approvals": Entry(ACTING, "approvals:approvals", "What waits for a person. It is decided on its page or by the API."),
    "callbacks": Entry(ACTING, "callbacks:callbacks", "Who is told what becomes of jobs; told again here."),
    "effects": Entry(ACTING, "effects:effects", "The outbox: what was sent, what waits, and what is not known."),
    "targets": Entry(ACTING, "targets:targets", "Where effects go; paused, resumed and limited here."),
    "switch": Entry(ACTING, "switch:switch", "What may leave the house: nothing, unless both halves are on."),
    "report": Entry(ACTING, "report:report", "What actions have spent on models lately."),
    "tools": Entry(ACTING, "tools:tools", "What an app offers to agents, and why not the rest."),
    "policy": Entry(ACTING, "policy:policy", "The rules of an app, and what lately proposed would get under them."),
    "alerts": Entry(ACTING, "alerts:alerts", "What a person should look at, until one closes it."),
    "audit": Entry(ACTING, "audit:audit", "Who did what, when and why, in a chain that shows tampering."),
    "migrate": Entry(MACHINE, "serve:migrate", "Bring the schema up to date."),
    "doctor": Entry(MACHINE, "doctor:doctor", "Say what is there, what is missing and what to do."),
    "users": Entry(MACHINE, "people:users", "The people who decide and operate."),
    "keys": Entry(MACHINE, "keys:keys", "Keys of the services that call the API, of forms and of people."),
    "roles": Entry(MACHINE, "tenants:roles", "What a role may do: the built-in ones, and your own."),
    "tenants": Entry(MACHINE, "tenants:tenants", "Whose data it is."),
    "demo": Entry(MACHINE, "demo:demo", "Run the support desk from request to receipt."),
}
"""In the order of the list."""


def command_line(only: str | None = None) -> typer.Typer:
    """The whole command line; with `only`, that command and nothing but names and summaries of the others."""
    made = typer.Typer(
        name="deedbox",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help="Runs actions that an AI may propose but must not simply perform.",
        epilog="Exit codes: 0 done, 1 refused or failed, 2 not understood, 3 not there or out of reach, 130 stopped.",
    )
    made.callback()(_options)
    for name, entry in COMMANDS.items():
        found = _found(entry) if only in {None, name} else _elsewhere
        if isinstance(found, typer.Typer):
            made.add_typer(found, name=name, help=entry.summary, rich_help_panel=entry.panel)
        else:
            # The list has room for a line; a command's own help has all that its docstring says.
            short = None if found is not _elsewhere and only == name else entry.summary
            made.command(name, help=short, rich_help_panel=entry.panel)(found)
    return made


def _found(entry: Entry) -> Any:
    module, _, attribute = entry.place.partition(":")
    return getattr(import_module(f"deedbox.cli.{module}"), attribute)


def _elsewhere() -> None:
    """Stands for a command that was not called."""


def _version(*, asked: bool) -> None:
    if asked:
        print(f"deedbox {__version__}")
        raise typer.Exit


def _options(
    *, version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False
) -> None:
    """The options before any command; none of them takes a value."""


if TYPE_CHECKING:
    app: typer.Typer
    """All of it, for whoever wants to know which commands there are."""
else:

    def __getattr__(name: str) -> typer.Typer:
        """Make `app` when it is asked for. Raises AttributeError for any other name."""
        if name != "app":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return command_line()


def main() -> None:
    """Run the command line and leave the process with its exit code."""
    called = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), "")
    try:
        command_line(called)(prog_name="deedbox")
    except CommandError as error:
        complain(str(error))
        sys.exit(int(error.code))
    except KeyboardInterrupt:
        sys.exit(int(Exit.STOPPED))


if __name__ == "__main__":
    main()
