"""Resolve pyproject.toml into the lock files: every version pinned with its hashes, and no index address in them.

`python -m tools.lock` keeps the versions that are pinned and still fit; `python -m tools.lock --upgrade` looks for newer
ones, and further arguments go to uv as they are. The bench's peers and the toolkits of outside agents have lock files of
their own, one for each `.in` file under requirements: what they share with Deedbox is of the version that Deedbox has.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = "requirements/dev.txt"
INSTALLER = "requirements/installer.txt"
PEERS = "requirements/peers"
AGENTS = "requirements/agents"
_OPTIONS = ("--quiet", "--universal", "--python-version", "3.11", "--generate-hashes", "--no-emit-index-url", "--no-header")


def _compile(*arguments: str, given: str = "") -> None:
    command = [sys.executable, "-m", "uv", "pip", "compile", *_OPTIONS, *arguments]
    subprocess.run(command, cwd=ROOT, check=True, input=given, text=True, stdout=subprocess.DEVNULL)


def main() -> int:
    """Write all lock files; the installer is the uv that the first of them pins."""
    _compile("--group", "dev", "pyproject.toml", "--output-file", LOCK, *sys.argv[1:])
    pinned = next(line.split()[0] for line in (ROOT / LOCK).read_text().splitlines() if line.startswith("uv=="))
    _compile("--no-annotate", "-", "--output-file", INSTALLER, given=pinned)
    for name in (AGENTS, *(f"{PEERS}/{wanted.stem}" for wanted in sorted((ROOT / PEERS).glob("*.in")))):
        _compile("--no-annotate", "--constraint", LOCK, f"{name}.in", "--output-file", f"{name}.txt", *sys.argv[1:])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
