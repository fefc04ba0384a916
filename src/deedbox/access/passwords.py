"""Local passwords: argon2id off the event loop, few at a time, and a limit on guessing.

One verification costs about 64 MiB and tens of milliseconds, so a cap keeps a flood of logins from taking the machine.
"""

import unicodedata
from collections import deque
from time import monotonic

from anyio import CapacityLimiter, to_thread
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from deedbox.model.errors import DeedboxError

SHORTEST = 8
LONGEST_BYTES = 1024
AT_ONCE = 2
WAITING = 32
FAILURES = 5
WINDOW_S = 60.0
_REMEMBERED = 10_000


def _encode(password: str) -> bytes | None:
    """The bytes that are hashed, NFC so that all keyboards spell a letter alike; None for what cannot be hashed."""
    try:
        encoded = unicodedata.normalize("NFC", password).encode()
    except UnicodeEncodeError:
        return None
    return encoded if len(encoded) <= LONGEST_BYTES else None


class Passwords:
    """Hashes and verifies passwords in threads, `AT_ONCE` at a time; more than `WAITING` in line are turned away."""

    def __init__(self) -> None:
        """Nothing is computed yet."""
        self._hasher = PasswordHasher()
        self._limiter = CapacityLimiter(AT_ONCE)
        self._decoy: str | None = None

    async def hash(self, password: str) -> str:
        """The argon2id hash, with its parameters and a fresh salt in it.

        Raises DeedboxError("invalid_input") for a password shorter than `SHORTEST` characters or longer than can be hashed.
        """
        encoded = _encode(password)
        if encoded is None or len(password) < SHORTEST:
            raise DeedboxError(
                "invalid_input", f"A password needs at least {SHORTEST} characters and at most {LONGEST_BYTES} bytes."
            )
        return await to_thread.run_sync(self._hasher.hash, encoded, limiter=self._limiter)

    async def verify(self, known: str | None, password: str) -> bool:
        """Whether the password belongs to the hash; the same work is done where there is no hash to compare with.

        Raises DeedboxError("too_many_logins") when the line is too long.
        """
        if self._limiter.statistics().tasks_waiting >= WAITING:
            raise DeedboxError("too_many_logins", "Too many people log in at this moment; wait a little.", retry_after=2)
        return await to_thread.run_sync(self._verify, known, _encode(password), limiter=self._limiter)

    def stale(self, known: str) -> bool:
        """Whether the hash was made with older parameters and should be made anew."""
        return self._hasher.check_needs_rehash(known)

    def _verify(self, known: str | None, encoded: bytes | None) -> bool:
        if self._decoy is None:
            # Made at the first verification whatever the name, so that it cannot tell a known name from an unknown one.
            self._decoy = self._hasher.hash(b"nobody's password")
        try:
            matched = self._hasher.verify(known or self._decoy, encoded or b"")
        except (VerificationError, InvalidHashError):
            return False
        return matched and known is not None and encoded is not None


class LoginLimit:
    """At most `FAILURES` failed logins per name and peer within `WINDOW_S` seconds, counted in this process.

    A try counts from its start, so that many sent at once do not slip through before the first has failed.
    """

    def __init__(self) -> None:
        """Nobody has failed yet."""
        self._tries: dict[tuple[str, str], deque[float]] = {}

    def begin(self, name: str, peer: str) -> float:
        """Count a try and return its mark. Raises DeedboxError("too_many_logins") with the seconds to wait."""
        now = monotonic()
        if len(self._tries) >= _REMEMBERED:
            self._forget(now)
        tries = self._tries.setdefault((name, peer), deque())
        while tries and tries[0] <= now - WINDOW_S:
            tries.popleft()
        if len(tries) >= FAILURES:
            raise DeedboxError(
                "too_many_logins",
                "There were too many failed logins for this name. Wait a minute and try again.",
                retry_after=max(1.0, tries[0] + WINDOW_S - now),
            )
        tries.append(now)
        return now

    def succeeded(self, name: str, peer: str) -> None:
        """Forget what this name and peer failed before."""
        self._tries.pop((name, peer), None)

    def withdraw(self, name: str, peer: str, mark: float) -> None:
        """Take back a try that was not the caller's fault."""
        tries = self._tries.get((name, peer))
        if tries is not None and mark in tries:
            tries.remove(mark)

    def _forget(self, now: float) -> None:
        for key in [key for key, tries in self._tries.items() if not tries or tries[-1] <= now - WINDOW_S]:
            del self._tries[key]
        while len(self._tries) >= _REMEMBERED:
            del self._tries[next(iter(self._tries))]
