"""Make the virtual environment and install what the lock files name, once per change of them.

Run by `make setup` with whatever Python the user has, so this file uses the standard library alone and stays readable by
old interpreters until the version is checked. Everything that is fetched is pinned with a hash; the project itself is
installed in place, built by the pinned setuptools without build isolation, so that nothing else is fetched. Two set-ups of
one checkout at once are safe: the second waits for the first and finds its stamp.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

try:
    import fcntl
except ImportError:  # not a POSIX system: set-up still works, two at once are not kept apart
    fcntl = None

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "deedbox-stamp"
OLDEST = (3, 11)
# Found, not imported: every target asks this first.
FINDS_US = "import importlib.util; raise SystemExit(importlib.util.find_spec('deedbox') is None)"
# What a change of must bring a new set-up. The root is hashed too: an in-place install holds its absolute path.
INPUTS = ("requirements/installer.txt", "requirements/dev.txt", "tools/set_up.py")


class SetUpError(Exception):
    """Set-up cannot go on; the text says what is missing and what to do."""


def wanted() -> str:
    """The stamp that an up-to-date environment carries."""
    digest = hashlib.sha256(os.fsencode(str(ROOT)))
    for name in INPUTS:
        digest.update(b"\0" + (ROOT / name).read_bytes())
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    # Only the parts that reach the installed metadata: settings of the linters come after the first [tool.
    digest.update(b"\0" + project.split("\n[tool.", 1)[0].encode())
    return digest.hexdigest()


def is_current(stamp: str) -> bool:
    """Whether the environment carries the stamp and its interpreter still starts."""
    return STAMP.is_file() and STAMP.read_text(encoding="ascii").strip() == stamp and starts(FINDS_US)


def starts(code: str) -> bool:
    """Whether the environment's own interpreter runs `code`."""
    if not PYTHON.exists():
        return False
    return subprocess.run([str(PYTHON), "-c", code], capture_output=True, check=False, cwd=VENV).returncode == 0


def run(*command: str) -> None:
    """Run a step of the set-up from the root. Raises SetUpError when it fails."""
    # pip and uv must not look at a virtual environment that happens to be active, nor fetch an interpreter.
    environment = {name: value for name, value in os.environ.items() if name not in {"VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME"}}
    # UTF-8 whatever the locale: the builder writes the path of the checkout into a file.
    environment.update(UV_PYTHON_DOWNLOADS="never", PIP_DISABLE_PIP_VERSION_CHECK="1", LC_ALL="C.UTF-8")
    if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode != 0:
        raise SetUpError("this step failed: " + " ".join(command))


def make_environment() -> None:
    """Make `.venv` when there is none that starts; one that starts is kept."""
    if starts("import sys; raise SystemExit(sys.version_info < (3, 11))"):
        return
    if subprocess.run([sys.executable, "-c", "import venv, ensurepip"], capture_output=True, check=False).returncode != 0:
        version = "{}.{}".format(*sys.version_info[:2])
        raise SetUpError(
            "this Python has no venv module; on Debian and Ubuntu: apt install python" + version + "-venv, then run make again"
        )
    run(sys.executable, "-m", "venv", "--clear", str(VENV))


def install() -> None:
    """Install the lock files and the project into the environment."""
    if not starts("import uv"):
        if not starts("import pip"):
            run(str(PYTHON), "-m", "ensurepip")
        run(str(PYTHON), "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "-r", "requirements/installer.txt")
    uv = (str(PYTHON), "-m", "uv", "pip")
    # Compiled here once: where the environment forbids writing bytecode, every process would compile all it imports anew.
    run(*uv, "sync", "--quiet", "--compile-bytecode", "--require-hashes", "--python", str(PYTHON), "requirements/dev.txt")
    run(*uv, "install", "--quiet", "--no-deps", "--no-build-isolation", "--offline", "--python", str(PYTHON), "--editable", ".")
    point_at_sources()


def point_at_sources() -> None:
    """Make the in-place install's path relative.

    An absolute one with a letter beyond ASCII stops every start of the interpreter under a plain C locale, because Python
    before 3.13 reads these files in the locale's encoding.
    """
    for path in VENV.glob("lib/python3*/site-packages/__editable__.deedbox-*.pth"):
        path.write_text(os.path.relpath(str(ROOT / "src"), str(path.parent)) + "\n", encoding="ascii")


def main() -> int:
    """Set up; the exit code is 1, with one line on standard error, when it cannot be done."""
    if sys.version_info < OLDEST:
        message = "Deedbox needs Python 3.11 or newer, and {} is {}.{}; name another: make PYTHON=python3.12"
        print(message.format(sys.executable, *sys.version_info[:2]), file=sys.stderr)
        return 1
    stamp = wanted()
    if is_current(stamp):
        return 0
    try:
        (ROOT / ".make").mkdir(exist_ok=True)
        with (ROOT / ".make" / "set_up.lock").open("w") as lock:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX)
            if is_current(stamp):
                return 0
            print("setting up .venv", file=sys.stderr)
            make_environment()
            install()
            STAMP.write_text(stamp + "\n", encoding="ascii")
    except (SetUpError, OSError) as error:
        print("set-up: {}".format(error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
