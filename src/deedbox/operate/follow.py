"""Waiting for a job: subscribe first, then read, then wait. A notification makes the next look earlier; the poll is the truth.

No connection is held while waiting, so any number of callers may wait at once.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, Self, TypeVar
from uuid import UUID

from deedbox.model.identity import Principal
from deedbox.operate.job_view import Outcome
from deedbox.operate.views import OVER, EventPage, JobView, Views

POLL_S = 1.0
LONGEST_POLL_S = 3.0

Seen = TypeVar("Seen")


class Signal(Protocol):
    """Something that may be woken."""

    async def wait(self, timeout_s: float) -> object:
        """Return when woken, or after `timeout_s` seconds."""
        ...


class Wakes(Protocol):
    """Gives out signals by job; deedbox.store.wakeup does."""

    def job(self, job_id: UUID) -> AbstractAsyncContextManager[Signal]:
        """A signal that is set when something of the job may be new."""
        ...


class NeverWakes:
    """Stands in where nothing listens: waiters poll."""

    def job(self, job_id: UUID) -> AbstractAsyncContextManager[Signal]:
        """A signal that is never set."""
        del job_id
        return _Silent()


class _Silent:
    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def wait(self, timeout_s: float) -> object:
        return await asyncio.sleep(timeout_s)


class Follow:
    """Waits for jobs on behalf of principals; what they may see is decided at every look."""

    def __init__(self, views: Views, wakes: Wakes | None = None, *, poll_s: float = POLL_S) -> None:
        """`poll_s` is how long to wait for a wake before looking all the same; it grows a little while nothing happens."""
        self._views = views
        self._wakes: Wakes = wakes or NeverWakes()
        self._poll_s = poll_s

    async def job(
        self,
        principal: Principal,
        job_id: UUID,
        wait_s: float,
        *,
        known: str | None = None,
        stuck: Callable[[], Awaitable[bool]] | None = None,
    ) -> JobView | None:
        """The job as soon as it is over or has begun to wait for a person, at the latest after `wait_s` seconds.

        `known` is the state the caller has seen, by default the one found now: a job that waits for a person in that state
        is waited for until it is decided. `stuck` says of a job that is being sent whether nothing will come of it until
        somebody acts; then it is not waited for either. None where the job is not this principal's to see. Raises
        DeedboxError unavailable.
        """
        deadline = time.monotonic() + wait_s
        if known is None or wait_s <= 0:
            first = await self._views.job(principal, job_id)
            if first is None or first.is_over or wait_s <= 0:
                return first
            known = first.state
        held = known == "awaiting_human"
        await self._rest(job_id, deadline, lambda: self._views.pulse(principal, job_id), held=held, stuck=stuck)
        return await self._views.job(principal, job_id)

    async def outcome(
        self,
        principal: Principal,
        job_id: UUID,
        wait_s: float,
        *,
        fresh: bool,
        stuck: Callable[[], Awaitable[bool]] | None = None,
    ) -> Outcome | JobView | None:
        """The same for a job that this process has just accepted, or found by its key; `fresh` says that it is a new one.

        A job that completes for whoever asked for it comes as its outcome, which costs a fraction of the view.
        """
        deadline = time.monotonic() + wait_s
        found = await self._rest(
            job_id, deadline, lambda: self._views.outcome(principal, job_id), held=False, fresh=fresh, stuck=stuck
        )
        return (found and found[1]) or await self._views.job(principal, job_id)

    async def _rest(
        self,
        job_id: UUID,
        deadline: float,
        look: Callable[[], Awaitable[tuple[str, Seen] | None]],
        *,
        held: bool,
        fresh: bool = False,
        stuck: Callable[[], Awaitable[bool]] | None = None,
    ) -> tuple[str, Seen] | None:
        """What was seen last, once the job rests or the deadline has passed."""
        async with self._wakes.job(job_id) as signal:
            poll, sending = self._poll_s, False
            if fresh:
                # The signal is set where a telling has come already; nothing else can have happened to it before.
                await signal.wait(min(max(0.0, deadline - time.monotonic()), _jittered(poll)))
            while True:
                # Read before the first wait: what happened before the subscription is seen here.
                seen = await look()
                if seen is None or _rests(seen[0], held=held):
                    return seen
                held = held and seen[0] == "awaiting_human"
                left = deadline - time.monotonic()
                # Not at the first look: most are sent by the second.
                if left <= 0 or (sending and stuck is not None and await stuck()):
                    return seen
                sending = seen[0] == "dispatching"
                await signal.wait(min(left, _jittered(poll)))
                poll = min(poll * 1.3, LONGEST_POLL_S)

    async def page(self, principal: Principal, job_id: UUID, after: int, wait_s: float) -> EventPage | None:
        """Events after a number, waiting up to `wait_s` seconds for the first of them. None and errors as for `job`."""
        page = await self._views.events(principal, job_id, after)
        deadline = time.monotonic() + wait_s
        if page is None or page.events or page.complete or wait_s <= 0:
            return page
        async with self._wakes.job(job_id) as signal:
            while True:
                page = await self._views.events(principal, job_id, after)
                left = deadline - time.monotonic()
                if page is None or page.events or page.complete or left <= 0:
                    return page
                await signal.wait(min(left, _jittered(self._poll_s)))

    async def events(
        self, principal: Principal, job_id: UUID, after: int, *, quiet_s: float, until: Callable[[], bool]
    ) -> AsyncGenerator[EventPage, None]:
        """Pages of events after a number until the round is over; an empty page when `quiet_s` seconds passed without any.

        Ends without a word when the job is not to be seen any longer, and soon after `until` says so. Raises DeedboxError
        unavailable.
        """
        async with self._wakes.job(job_id) as signal:
            poll, spoken = self._poll_s, time.monotonic()
            while not until():
                page = await self._views.events(principal, job_id, after)
                if page is None:
                    return
                if page.events or time.monotonic() - spoken >= quiet_s:
                    yield page
                    after, poll, spoken = page.next_after, self._poll_s, time.monotonic()
                if page.complete:
                    return
                if after >= page.last_seq:
                    await signal.wait(min(_jittered(poll), max(0.0, spoken + quiet_s - time.monotonic())))
                    poll = min(poll * 1.3, LONGEST_POLL_S)


def _rests(state: str, *, held: bool) -> bool:
    """Whether a waiting caller is answered: the job is over, or has come to wait for a person meanwhile."""
    return state in OVER or (state == "awaiting_human" and not held)


def _jittered(seconds: float) -> float:
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311 -- jitter
