"""The command `deedbox`: every command of every part, and what an exit code means.

0: done. 1: refused or failed. 2: the command was not understood. 3: what was asked for is not there, or the database cannot
be reached. Errors that can be expected are one line on standard error.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from deedbox import __version__
from deedbox.cli import serve
from deedbox.cli.approvals import approvals
from deedbox.cli.audit import audit
from deedbox.cli.doctor import doctor
from deedbox.cli.effects import effects
from deedbox.cli.jobs import jobs
from deedbox.cli.output import CommandError, Exit, complain
from deedbox.cli.people import keys, users
from deedbox.cli.switch import switch

app = typer.Typer(
    name="deedbox",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Runs actions that an AI may propose but must not simply perform.",
    epilog="Exit codes: 0 done, 1 refused or failed, 2 not understood, 3 not there or out of reach.",
)

app.command("serve")(serve.serve)
app.command("api")(serve.api)
app.command("worker")(serve.worker)
app.command("dispatch")(serve.dispatch)
app.command("migrate")(serve.migrate)
app.command("doctor")(doctor)
for name, group in (
    ("jobs", jobs),
    ("approvals", approvals),
    ("effects", effects),
    ("switch", switch),
    ("users", users),
    ("keys", keys),
    ("audit", audit),
):
    app.add_typer(group, name=name)


@app.command("demo")
def demo() -> None:
    """Run the support desk from request to receipt, as `make demo` does, from a checkout of Deedbox."""
    script = Path("examples", "support_desk", "demo.py")
    roots = [root for root in (Path.cwd(), Path(__file__).resolve().parents[3]) if (root / script).is_file()]
    if not roots:
        raise CommandError("the demo lies in the examples folder of a checkout of Deedbox; there is none here", Exit.NOT_THERE)
    environment = {**os.environ, "AI_ACTIONS_ENABLED": "true"}
    command = [sys.executable, "-m", "examples.support_desk.demo"]
    raise typer.Exit(subprocess.run(command, cwd=roots[0], env=environment, check=False).returncode)


def _version(*, asked: bool) -> None:
    if asked:
        print(f"deedbox {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *, version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False
) -> None:
    """The options before any command."""


def main() -> None:
    """Run the command line and leave the process with its exit code."""
    try:
        app(prog_name="deedbox")
    except CommandError as error:
        complain(str(error))
        sys.exit(int(error.code))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
