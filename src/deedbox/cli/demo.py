"""`deedbox demo`: the support desk from request to receipt, where its files are."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from deedbox.cli.output import CommandError, Exit

MODULE = "examples.support_desk.demo"
PLACE = Path("examples", "support_desk", "demo.py")


def demo(*, stay: Annotated[bool, typer.Option("--stay", help="Leave it running to play with, until Ctrl-C.")] = False) -> None:
    """Run the support desk from request to receipt, and end with what was really seen; the exit code is 0 if it was all.

    Its files are in the source of Deedbox, not in the package: run this in a checkout, where `make demo` does the same. It has
    a database, a mail server and a CRM of its own.
    """
    # Not resolved: a package that is a link to a checkout is a package all the same.
    places = (Path.cwd(), Path(__file__).absolute().parents[3])
    root = next((one for one in places if (one / PLACE).is_file()), None)
    if root is None:
        raise CommandError(
            "the demo is not in the package: get the source of Deedbox, and run `deedbox demo` or `make demo` in its folder",
            Exit.NOT_THERE,
        )
    os.chdir(root)
    environment = {**os.environ, "AI_ACTIONS_ENABLED": "true"}
    # In place of this process, so that signals and the exit code are the demo's own.
    os.execve(sys.executable, [sys.executable, "-m", MODULE, *(["--stay"] if stay else [])], environment)  # noqa: S606 -- no shell is the point
