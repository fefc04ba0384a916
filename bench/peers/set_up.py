"""Make each peer's virtual environment: `python -m bench.peers.set_up`, once per change of a lock file."""

import sys
from collections.abc import Iterable

from bench.peers.catalogue import ENVIRONMENTS, PEERS, Peer
from tools.set_up import SetUpError


def ready() -> list[Peer]:
    """The peers whose environment is there and current."""
    return [peer for peer in PEERS if peer.environment.is_current()]


def missing(peers: Iterable[Peer]) -> str:
    """One line for a report that lacks peers; empty where none is lacking."""
    names = ", ".join(peer.name for peer in peers)
    return f"Not measured, for their environments are not there or not current (make bench-peers): {names}." if names else ""


def main() -> int:
    """Set up what is not current; the exit code is 1, with a line each, where one could not be."""
    failed = 0
    for peer in PEERS:
        if peer.environment.is_current():
            continue
        print(f"setting up {peer.name} {peer.version} in {ENVIRONMENTS.relative_to(ENVIRONMENTS.parent.parent)}", flush=True)
        try:
            peer.environment.make()
        except (SetUpError, OSError) as error:
            failed += 1
            print(f"{peer.name}: could not be set up, so the bench leaves it out: {error}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
