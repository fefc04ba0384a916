"""Run every check of the house that is not a test, and say at the end which did not pass.

`python -m tools.check` runs all of them; names after it run only those. Each check is a function that returns the lines of
what is wrong, or a command whose exit code says so. The exit code is 1 when any failed.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_LINES = 400
_OURS = {
    ".git",
    ".venv",
    ".make",
    ".deedbox",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
    ".import_linter_cache",
    "build",
    "dist",
}
_NO_NAMES = {"utils", "helpers", "common", "base", "manager", "core"}

# One letter of each pattern is a class of its own, so that this file does not hold what it looks for.
_HOSTS = (
    r"py[p]i\.org",
    r"python[h]osted\.org",
    r"npm[j]s\.(?:org|com)",
    r"yarn[p]kg\.com",
    r"crates\.[i]o",
    r"ruby[g]ems\.org",
    r"ana[c]onda\.org",
    r"proxy\.[g]olang\.org",
)
FORBIDDEN: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("host of a package registry", re.compile(rf"\b(?:{'|'.join(_HOSTS)})\b")),
    ("absolute path of one machine", re.compile(r"(?<![\w.\-/{}$*~])/(?:(?:work|root)/|(?:home|Users)/\w)")),
    ("private key", re.compile(r"-----BEGIN [A-Z ]*PRIVATE[ ]KEY-----")),
    ("cloud key", re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")),
    ("token of a code host", re.compile(r"\bgh[pousr]_[A-Za-z0-9]{36}|\bglpat-[\w-]{20}")),
    ("key of a model provider", re.compile(r"\bsk-(?:proj-|ant-)?[A-Za-z0-9]{32}")),
    ("token of a chat", re.compile(r"\bxox[abprs]-[0-9A-Za-z-]{20}")),
    ("JSON web token", re.compile(r"\beyJ[\w-]{16,}\.eyJ[\w-]{16,}\.[\w-]{16,}")),
    ("note of unfinished work", re.compile(r"\b(?:TO[D]O|FIX[M]E)\b")),
)


def tracked(suffix: str = "") -> list[Path]:
    """The files of the repository, new ones included and ignored ones not, relative to the root.

    Where git does not answer (an unpacked archive, a checkout that belongs to another account) the tree is walked, without
    the directories that only set-up and tools write.
    """
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
        paths = {Path(os.fsdecode(name)) for name in listed.split(b"\0") if name}
    except (OSError, subprocess.CalledProcessError):
        paths = {path.relative_to(ROOT) for top in ROOT.iterdir() if top.name not in _OURS for path in (top, *top.rglob("*"))}
        paths = {path for path in paths if not path.parent.name.endswith(("__pycache__", ".egg-info"))}
    return sorted(path for path in paths if path.name.endswith(suffix) and (ROOT / path).is_file())


def sizes() -> Iterator[str]:
    """Python files that are too long to be read in one go; a migration is exempt, for it is written once."""
    for path in tracked(".py"):
        lines = len((ROOT / path).read_bytes().splitlines())
        if lines > MOST_LINES:
            yield f"{path}: {lines} lines, {MOST_LINES} at most"


def names() -> Iterator[str]:
    """Modules whose name says nothing about what they hold."""
    for path in tracked(".py"):
        if path.stem in _NO_NAMES or path.parent.name in _NO_NAMES:
            yield f"{path}: a name that says nothing"


def contents() -> Iterator[str]:
    """What no file of the repository may hold."""
    for path in tracked():
        try:
            text = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # an image, a PDF, a mail in another charset
        for number, line in enumerate(text.splitlines(), 1):
            for what, pattern in FORBIDDEN:
                if pattern.search(line):
                    yield f"{path}:{number}: {what}"


def _module(*arguments: str) -> Callable[[], int]:
    """A check that runs a module of the environment. Never by its console script, whose first line may be cut by a space."""
    return lambda: subprocess.run([sys.executable, *arguments], cwd=ROOT, check=False).returncode


def _lines(find: Callable[[], Iterator[str]]) -> Callable[[], int]:
    def check() -> int:
        found = list(find())
        for line in found:
            print(line)
        return 1 if found else 0

    return check


_LAYERS = "import sys; sys.argv[0] = 'lint-imports'; from importlinter.cli import lint_imports_command as run; run()"

CHECKS: dict[str, Callable[[], int]] = {
    "lint": _module("-m", "ruff", "check", "."),
    "format": _module("-m", "ruff", "format", "--check", "."),
    "types": _module("-m", "basedpyright"),
    "layers": _module("-c", _LAYERS, "--no-logo"),
    "derived": _module("-m", "tools.derive", "--check"),
    "sizes": _lines(sizes),
    "names": _lines(names),
    "contents": _lines(contents),
}


def main() -> int:
    """Run the checks named, or all."""
    chosen = sys.argv[1:] or list(CHECKS)
    unknown = [name for name in chosen if name not in CHECKS]
    if unknown:
        print(f"no such check: {', '.join(unknown)}; there are {', '.join(CHECKS)}", file=sys.stderr)
        return 2
    failed: list[str] = []
    for name in chosen:
        print(f"== {name}", flush=True)
        if CHECKS[name]() != 0:
            failed.append(name)
    print("failed: " + ", ".join(failed) if failed else "all checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
