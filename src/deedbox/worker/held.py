"""The attempts this process holds, shared between the event loop and the heartbeat's thread."""

import asyncio
import math
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from deedbox.model.failure import ActionFailure
from deedbox.store.queue import Claimed

Reason = Literal["canceled", "lost", "overran", "drained"]
SHARE_OF_LIFE = 0.1
"""Of an attempt's total life, what at most is given up to end it in time."""


def lease_lost() -> ActionFailure:
    """What every write of an attempt raises once its lease is gone."""
    return ActionFailure("lost", "lease_lost", "The lease of this attempt was lost.")


@dataclass(slots=True)
class Held:
    """One leased attempt; `trusted_until` is on the monotonic clock, `reason` says why its handler was stopped.

    `life_s` is the cap on the lease's total life, in seconds from `since`: no renewal goes beyond it.
    """

    claimed: Claimed
    trusted_until: float
    task: "asyncio.Task[Any] | None" = None
    reason: Reason | None = None
    settling: bool = False
    life_s: float = math.inf
    since: float = field(default_factory=time.monotonic)

    @property
    def fence(self) -> tuple[UUID, UUID, int]:
        """What every fenced statement asks for."""
        return (self.claimed.job_id, self.claimed.attempt_id, self.claimed.fence)


class HeldAttempts:
    """The set of leases of one process. Safe to use from both threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """`loop` is where the handlers run."""
        self._loop = loop
        self._held: dict[UUID, Held] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many attempts are held."""
        return len(self._held)

    def add(self, held: Held) -> None:
        """Start to hold."""
        with self._lock:
            self._held[held.claimed.attempt_id] = held

    def remove(self, attempt_id: UUID) -> None:
        """Hold no longer."""
        with self._lock:
            self._held.pop(attempt_id, None)

    def all(self) -> list[Held]:
        """A copy of what is held now."""
        with self._lock:
            return list(self._held.values())

    def renewed(self, attempt_ids: set[UUID], trusted_until: float) -> None:
        """The database confirmed these leases."""
        with self._lock:
            for attempt_id in attempt_ids:
                if attempt_id in self._held:
                    self._held[attempt_id].trusted_until = trusted_until

    def stop(self, attempt_id: UUID, reason: Reason) -> None:
        """Cancel one handler, once; an attempt that is settling is left alone: its transaction decides."""
        with self._lock:
            held = self._held.get(attempt_id)
            if held is None or held.reason is not None or held.settling:
                return
            held.reason = reason
        with suppress(RuntimeError):  # the loop is closed: the process ends, and what ran on it has ended
            self._loop.call_soon_threadsafe(_cancel, held)

    def stop_untrusted(self, margin_s: float) -> float:
        """Self-fence: give up every lease whose confirmation is too old to be believed, or whose total life ends.

        The latter `margin_s` seconds before its time. Returns when, on the monotonic clock, the next one is to be given up.
        """
        now = time.monotonic()
        following = math.inf
        for held in self.all():
            if held.reason is not None or held.settling:
                continue
            last = held.since + held.life_s - min(margin_s, held.life_s * SHARE_OF_LIFE)
            if held.trusted_until <= now:
                self.stop(held.claimed.attempt_id, "lost")
            elif last <= now:
                self.stop(held.claimed.attempt_id, "overran")
            else:
                following = min(following, held.trusted_until, last)
        return following


def _cancel(held: Held) -> None:
    """On the event loop, where nothing comes between the look and the cancellation: not once it settles."""
    if held.task is not None and not held.settling:
        held.task.cancel()
