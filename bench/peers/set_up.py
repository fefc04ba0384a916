"""Make each peer's virtual environment: `python -m bench.peers.set_up`, once per change of a lock file.

By the installer and in the way of tools/set_up.py: everything is pinned with a hash, and a stamp says what is there.
"""

import hashlib
import subprocess
import sys
from collections.abc import Iterable

from bench.peers.catalogue import ENVIRONMENTS, PEERS, Peer
from tools.set_up import SetUpError, run

_STAMP = "deedbox-stamp"


def ready() -> list[Peer]:
    """The peers whose environment is there and current."""
    return [peer for peer in PEERS if _is_current(peer)]


def missing(peers: Iterable[Peer]) -> str:
    """One line for a report that lacks peers; empty where none is lacking."""
    names = ", ".join(peer.name for peer in peers)
    return f"Not measured, for their environments are not there or not current (make bench-peers): {names}." if names else ""


def _wanted(peer: Peer) -> str:
    return hashlib.sha256(peer.lock.read_bytes() + b"\0" + sys.version.encode()).hexdigest()


def _is_current(peer: Peer) -> bool:
    stamp = peer.python.parent.parent / _STAMP
    if not stamp.is_file() or stamp.read_text(encoding="ascii").strip() != _wanted(peer):
        return False
    # An interpreter that was moved or upgraded away leaves a stamp behind.
    return subprocess.run([peer.python, "-c", "import uvloop"], capture_output=True, check=False).returncode == 0


def _make(peer: Peer) -> None:
    environment = ENVIRONMENTS / peer.name
    uv = (sys.executable, "-m", "uv")
    run(*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(environment))
    lock = str(peer.lock.relative_to(peer.lock.parent.parent.parent))
    run(*uv, "pip", "sync", "--quiet", "--compile-bytecode", "--require-hashes", "--python", str(peer.python), lock)
    (environment / _STAMP).write_text(_wanted(peer) + "\n", encoding="ascii")


def main() -> int:
    """Set up what is not current; the exit code is 1, with a line each, where one could not be."""
    failed = 0
    for peer in PEERS:
        if _is_current(peer):
            continue
        print(f"setting up {peer.name} {peer.version} in {ENVIRONMENTS.relative_to(ENVIRONMENTS.parent.parent)}", flush=True)
        try:
            _make(peer)
        except (SetUpError, OSError) as error:
            failed += 1
            print(f"{peer.name}: could not be set up, so the bench leaves it out: {error}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
