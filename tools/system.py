"""See that the programs which some tests drive are there, and install them where that can be done.

Debian's Chromium (pages looked at in a real browser) and a PostgreSQL of the distribution (the second engine) are no
Python packages. `python -m tools.system` installs what is absent through apt when run as root; elsewhere it says what is
missing, and the tests that need it skip with the same reason. It never fails: the exit code is 0.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_BROWSERS = ("chromium", "chromium-browser")
_SERVERS = Path("/usr/lib/postgresql")


@dataclass(frozen=True, slots=True)
class Program:
    """A program that tests drive: what it is for, the package that brings it, and how it is found."""

    package: str
    purpose: str
    find: Callable[[], str | None]


def chromium() -> str | None:
    """The path of the system's Chromium."""
    return next((path for name in _BROWSERS if (path := shutil.which(name))), None)


def postgres() -> str | None:
    """The directory with the binaries of the distribution's newest PostgreSQL server."""
    found = [path.parent for path in _SERVERS.glob("*/bin/postgres")]
    return str(max(found, key=lambda path: int(path.parent.name))) if found else None


PROGRAMS = (
    Program("chromium", "tests that look at pages in a browser", chromium),
    Program("postgresql", "tests on a PostgreSQL that is not the embedded one", postgres),
)


def install(packages: list[str]) -> bool:
    """Install packages through apt; whether that worked."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    commands = (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages])
    return all(
        subprocess.run(command, env=environment, check=False, stdout=subprocess.DEVNULL).returncode == 0 for command in commands
    )


def main() -> int:
    """Install or report; the exit code is always 0."""
    missing = [program for program in PROGRAMS if program.find() is None]
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        print("installing with apt:", ", ".join(program.package for program in missing), flush=True)
        install([program.package for program in missing])
        missing = [program for program in missing if program.find() is None]
    for program in missing:
        print(f"not found: {program.package}; {program.purpose} will be skipped (as root: apt install {program.package})")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
