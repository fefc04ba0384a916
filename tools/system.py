"""See that the programs which some tests drive are there, and install them where that can be done.

Debian's Chromium (pages looked at in a real browser), its PostgreSQL 15 (the second engine) and its pgbouncer are no Python
packages. `python -m tools.system` installs what is absent through apt when run as root; elsewhere it says what is missing,
and the tests that need it skip with the same reason. It never fails: the exit code is 0.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_BROWSERS = ("chromium", "chromium-browser")
_SERVERS = Path("/usr/lib/postgresql")
# Where Debian keeps daemons; an ordinary account's PATH does not lead there.
_DAEMONS = "/usr/sbin"


@dataclass(frozen=True, slots=True)
class Program:
    """A program that tests drive: what it is for, the package that brings it, and how it is found."""

    package: str
    purpose: str
    find: Callable[[], str | None]

    def missing(self) -> str:
        """One line that says what is not there, what that costs, and what to do."""
        return f"not found: {self.package}; {self.purpose} will be skipped (as root: apt install {self.package})"


def chromium() -> str | None:
    """The path of the system's Chromium."""
    return next((path for name in _BROWSERS if (path := shutil.which(name))), None)


def postgres(major: int) -> str | None:
    """The directory with the programs of the distribution's PostgreSQL of this major version."""
    found = _SERVERS / str(major) / "bin"
    return str(found) if (found / "postgres").is_file() and (found / "initdb").is_file() else None


def pgbouncer() -> str | None:
    """The path of the system's pgbouncer."""
    return shutil.which("pgbouncer", path=os.pathsep.join((os.environ.get("PATH", os.defpath), _DAEMONS)))


def postgres_program(major: int) -> Program:
    """The distribution's PostgreSQL of one major version, as a program that tests drive."""
    return Program(
        f"postgresql-{major}", f"what runs on PostgreSQL {major} instead of the embedded one", lambda: postgres(major)
    )


CHROMIUM = Program("chromium", "tests that look at pages in a browser", chromium)
POSTGRES_15 = postgres_program(15)
PGBOUNCER = Program("pgbouncer", "what runs through pgbouncer", pgbouncer)
PROGRAMS = (CHROMIUM, POSTGRES_15, PGBOUNCER)


def install(packages: Sequence[str]) -> None:
    """Install packages through apt, one by one: a package that this distribution lacks keeps no other away."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install_one = ["apt-get", "install", "-y", "-qq", "--no-install-recommends"]
    for command in (["apt-get", "update", "-qq"], *([*install_one, package] for package in packages)):
        subprocess.run(command, env=environment, check=False, stdout=subprocess.DEVNULL)


def provide(programs: Sequence[Program]) -> list[Program]:
    """Install those that are absent where this may be done, and return those that are absent still."""
    missing = [program for program in programs if program.find() is None]
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        print("installing with apt:", ", ".join(program.package for program in missing), flush=True)
        install([program.package for program in missing])
        missing = [program for program in missing if program.find() is None]
    return missing


def main() -> int:
    """Install or report; the exit code is always 0."""
    for program in provide(PROGRAMS):
        print(program.missing())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
