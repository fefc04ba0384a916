"""Three file locks that say who starts, who uses, and whether any process of the server lives.

All are flock locks: the kernel drops them when their last holder ends, however it ends, so a killed process leaves
nothing to tidy up.

- `start.lock`, exclusive: held by whoever starts or stops; one at a time.
- `users.lock`, shared: held by every process that uses the server; who can turn its own into an exclusive one was the last.
- `server.lock`, exclusive: inherited by the server and by each of its children. A number in a pid file may be someone else's
  by now; this lock cannot be.
"""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Locks:
    """The lock files of one state directory."""

    start: Path
    users: Path
    server: Path

    @classmethod
    def within(cls, control: Path) -> "Locks":
        """The locks that lie in the control directory of a state."""
        return cls(control / "start.lock", control / "users.lock", control / "server.lock")


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


@contextmanager
def exclusive(path: Path) -> Generator[None]:
    """Waits for the lock and holds it for the block. Raises OSError where the file cannot be opened."""
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def share(path: Path) -> int:
    """Takes a shared lock and returns the descriptor that holds it until it is closed."""
    descriptor = _open(path)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def try_exclusive(path: Path) -> int | None:
    """The descriptor that holds the exclusive lock, or None where someone else holds any."""
    descriptor = _open(path)
    if become_exclusive(descriptor):
        return descriptor
    os.close(descriptor)
    return None


def become_exclusive(descriptor: int) -> bool:
    """Whether this descriptor now holds its file's lock alone.

    The kernel may give up a shared lock before it refuses the exclusive one, so a user asks only when it leaves.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_held(path: Path, *, shared_too: bool = False) -> bool:
    """Whether anyone holds the lock alone, or with `shared_too` at all; a file that is not there is held by nobody.

    To ask is to hold for an instant: ask for shared holders only under the start lock, or a user that leaves at that instant
    would take the question for another user.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if shared_too else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
