"""Putting callbacks on the outbox: each event that somebody is to be told of becomes a notice, once, after it was committed.

What is told is read from the events themselves, which are committed with the change they tell of. So there is no place in the
code that could forget to tell, and nothing is told of a change that was rolled back (ADR 18). A mark for each job says how far
it has been told; mark and notices are one transaction, so a crash between them is none.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from pydantic_core import to_jsonable_python

from deedbox.gate.notices import Notice, enqueue
from deedbox.model.fingerprint import InvalidValueError, effect_body
from deedbox.store import callbacks
from deedbox.store.callbacks import News
from deedbox.store.ids import IdSource
from deedbox.store.pg_errors import UNREACHABLE, StoreError
from deedbox.store.pool import Pool
from deedbox.store.tell import tell
from deedbox.store.transaction import autocommit, transaction
from deedbox.telemetry import log

CONNECTOR = "callback"
"""The name of the connector that delivers them, in the ledger and for the switch."""
POLL_S = 2.0
LEAST_PAUSE_S = 0.1
REST = 4.0
"""So many times as long as a round took, the next one waits: however many jobs are followed, it is a fifth of the time."""
PAGE = 2000
_TAKEN = 200

_log = log("callbacks")


class Callbacks:
    """The loop that puts callbacks on the outbox; any number of them may run at once."""

    def __init__(
        self, pool: Pool, ids: IdSource, wanted: Mapping[str, frozenset[str]], *, wake: asyncio.Event | None = None
    ) -> None:
        """`wanted` is what each receiver is told, by its name; `wake` is set when some job has something new."""
        self._pool = pool
        self._ids = ids
        self._wanted = dict(wanted)
        # asyncio's own wait is called, whatever kind of event it is: the poll is ours.
        self._wake = wake or asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Look until told to stop. A database that is away is waited out."""
        while not stop.is_set():
            self._wake.clear()
            began = time.monotonic()
            try:
                await self.once()
            except (StoreError, *UNREACHABLE) as error:
                _log.warning("round_failed", error=type(error).__name__)
            await self._pause(stop, max(LEAST_PAUSE_S, REST * (time.monotonic() - began)))

    async def _pause(self, stop: asyncio.Event, least_s: float) -> None:
        """The least pause, and then until something is new or the poll is due."""
        ending = asyncio.ensure_future(stop.wait())
        waking = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait({ending}, timeout=least_s)
            if not ending.done():
                await asyncio.wait({ending, waking}, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
            waking.cancel()

    async def once(self) -> int:
        """Look at every job that somebody is to be told about; returns how many notices were made."""
        made, after = 0, callbacks.FIRST
        while True:
            async with autocommit(self._pool) as connection:
                last, jobs = await callbacks.page(connection, after, PAGE)
            for start in range(0, len(jobs), _TAKEN):
                made += await self._tell(jobs[start : start + _TAKEN])
            if last is None:
                return made
            after = last

    async def _tell(self, jobs: list[UUID]) -> int:
        async with transaction(self._pool) as connection:
            news = await callbacks.take(connection, jobs, list(self._wanted))
            notices = [_notice(one) for one in news if one.seq is not None and one.type in self._wanted[one.target]]
            made = await enqueue(connection, self._ids, notices)
            marks = {one.job_id: one.seq for one in news if one.seq is not None}
            await callbacks.mark(connection, marks, list({one.job_id for one in news}))
        await tell(self._pool, outbox=bool(made))
        return len(made)


def _notice(one: News) -> Notice:
    event_id = str(one.event_id)
    payload: dict[str, Any] = {
        "event_id": event_id,
        "type": one.type,
        "job_id": str(one.job_id),
        "action": one.action,
        "seq": one.seq,
        "round": one.round,
        "attempt_id": None if one.attempt_id is None else str(one.attempt_id),
        "timestamp": to_jsonable_python(one.at),
        "payload": dict(one.payload),
    }
    try:
        effect_body(CONNECTOR, one.target, CONNECTOR, payload)
    except InvalidValueError:
        # A number that not every reader would read alike: the event can still be asked for, and holds up no other.
        payload["payload"] = {"omitted": "ask for the job's events"}
    return Notice(
        template="callback",
        tenant=one.tenant,
        connector=CONNECTOR,
        target=one.target,
        payload=payload,
        summary=f"Tells {one.target} of {one.type}.",
        action=one.action,
        once=f"callback:{one.target}:{event_id}",
        job_id=one.job_id,
    )
