"""The worker's loop: claim what is due, run it, settle it, and drain when asked to stop."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from deedbox import telemetry
from deedbox.extend.registry import App
from deedbox.model.failure import Failure
from deedbox.model.lease import Lease
from deedbox.store import lanes, queue
from deedbox.store.ids import IdSource
from deedbox.store.pg_errors import UNREACHABLE, StoreError
from deedbox.store.pool import Connection, Pool
from deedbox.store.tell import Teller
from deedbox.store.transaction import autocommit, transaction
from deedbox.store.wire import Wire
from deedbox.worker.agent_story import Calls
from deedbox.worker.asking import Journal, Lending, Models
from deedbox.worker.execute import Outcome, Port, Reader, execute
from deedbox.worker.heartbeat import Heartbeat
from deedbox.worker.held import Held, HeldAttempts
from deedbox.worker.rota import MOST_LANES, Rota
from deedbox.worker.settle import LOST, STOPPED, Settler

MOST_PER_CLAIM = 200
LEAST_PER_CLAIM = 8
MOST_OUTSIDE = 4
"""How many attempts may wait for others outside of the slots, for each slot."""


class Wake(Protocol):
    """Something that may make the next look earlier; a missed wake costs a poll, never a job."""

    @property
    def live(self) -> bool:
        """Whether it can be relied on just now."""
        ...

    def wait(self, timeout_s: float) -> Coroutine[Any, Any, object]:
        """Return when woken or after `timeout_s` seconds."""
        ...


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """`slots` attempts at once; `drain_s` seconds for those under way when the worker is told to stop."""

    name: str
    build: str
    slots: int = 64
    drain_s: float = 20.0
    poll_s: float = 1.0
    calm_poll_s: float = 4.0
    """The poll while everything new is told."""
    prepare: bool = True
    queues: tuple[str, ...] = ()
    """The queues it serves; none named: those of its actions."""


class Worker:
    """Runs the actions of one app until it is told to stop."""

    def __init__(
        self,
        *,
        url: str,
        pool: Pool,
        ids: IdSource,
        app: App,
        lease: Lease,
        settings: WorkerSettings,
        wake: Wake,
        reader: Reader | None = None,
        models: Models | None = None,
        calls: Calls | None = None,
        came_through: Callable[[], None] | None = None,
    ) -> None:
        """The heartbeat opens a connection of its own to `url`; `came_through` is called after every claim that did."""
        self._came_through = came_through or (lambda: None)
        self._url = url
        self._pool = pool
        self._wire = pool.wire("claim")
        self._ids = ids
        self._app = app
        self._lease = lease
        self._settings = settings
        self._wake = wake
        self._reader = reader
        self._lent = Lending(models, app.actions, calls, self._outside)
        self._waiting = 0
        self._teller = Teller(pool)
        self._settler = Settler(pool, ids, self._teller, worker=settings.name, build=settings.build)
        self._tasks: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        self._rota = Rota()
        self._served_at = -1e9
        self._wants_room = False
        self._likely = LEAST_PER_CLAIM

    async def run(self, stop: asyncio.Event) -> None:
        """Claim and run until `stop` is set, then drain. Database outages are waited out."""
        held = HeldAttempts(asyncio.get_running_loop())
        heartbeat = Heartbeat(self._url, held, self._lease, prepare=self._settings.prepare)
        heartbeat.start()
        try:
            while not stop.is_set():
                try:
                    busy = await self._claim(held)
                except (StoreError, *UNREACHABLE) as error:
                    telemetry.log("worker").warning("claim_failed", error=type(error).__name__)
                    busy = False
                if not busy:
                    await self._pause(stop)
            await self._drain(held)
        finally:
            await asyncio.to_thread(heartbeat.stop)

    async def _claim(self, held: HeldAttempts) -> bool:
        """Claim once; True when there may be more right away."""
        room = min(MOST_PER_CLAIM, self._free)
        # While outcomes settle more slots are about to be free at once: a claim for a few costs as much as one for many.
        few = min(MOST_PER_CLAIM, self._settings.slots // 4)
        self._wants_room = room <= 0 or (room < few and self._settler.busy)
        if self._wants_room:
            self._came_through()
            return False
        # Each row asked for costs two ids: ask for what the last claim makes likely.
        room = min(room, self._likely)
        sent = time.monotonic()
        shares, claimed = await self._take(room, sent)
        self._came_through()
        loop = asyncio.get_running_loop()
        for item in claimed:
            one = Held(item, sent + self._lease.trust)
            one.task = loop.create_task(self._attempt(one, held))
            held.add(one)
            self._tasks.add(one.task)
            one.task.add_done_callback(self._ended)
        telemetry.RUNNING.set(len(self._tasks))
        # Once they run, not before: what is claimed and not started would wait for its lease to run out.
        self._teller.soon(jobs=[item.job_id for item in claimed])
        self._likely = 2 * len(claimed) + LEAST_PER_CLAIM
        return self._rota.learn(shares, claimed, room)

    async def _take(self, room: int, now: float) -> tuple[list[queue.Share], list[queue.Claimed]]:
        """Divide `room` among the lanes and claim; lanes with a limit are locked while their leases are counted."""
        if now - self._served_at > self._settings.poll_s or not self._rota.lane_ids:
            async with autocommit(self._pool) as connection:
                await self._look_for_lanes(connection)
            self._served_at = now
        lane_ids, ready = self._rota.lane_ids, None
        if len(lane_ids) > MOST_LANES:
            async with autocommit(self._pool) as connection:
                ready = await lanes.ready(connection, lane_ids)
        if not self._rota.limited:
            shares = self._rota.plan(room, ready=ready)
            return shares, await self._lease_shares(self._wire, shares, room)
        async with transaction(self._pool) as connection:
            limits = await lanes.room(connection, self._rota.limited)
            # A lane at its limit has room again when an attempt ends.
            self._wants_room = limits.full
            shares = self._rota.plan(room, ready=ready, limits=limits)
            return shares, await self._lease_shares(connection, shares, room)

    async def _lease_shares(self, on: Connection | Wire, shares: list[queue.Share], room: int) -> list[queue.Claimed]:
        if not shares:
            return []
        ids = self._ids.many_texts(2 * room)
        return await queue.claim(
            on,
            shares,
            worker=self._settings.name,
            lease_s=self._lease.length,
            attempt_ids=ids[:room],
            event_ids=ids[room:],
        )

    async def _look_for_lanes(self, connection: Connection) -> None:
        actions = self._app.actions
        queues = self._settings.queues or sorted({action.queue for action in actions.values()})
        found = await lanes.served(connection, queues, sorted(actions))
        self._rota.refresh(
            [
                (lane_id, sorted(actions[name].versions), actions[name].max_runtime_s, limit is not None)
                for lane_id, name, limit in found
            ]
        )

    @property
    def _free(self) -> int:
        """Slots that no attempt takes. One that waits for jobs below it takes none, or those jobs might find none."""
        return self._settings.slots - len(self._tasks) + min(self._waiting, MOST_OUTSIDE * self._settings.slots)

    @contextmanager
    def _outside(self) -> Generator[None]:
        """While an attempt waits for other jobs."""
        self._waiting += 1
        self._freed.set()
        try:
            yield
        finally:
            self._waiting -= 1

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._freed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            telemetry.log("worker").error("attempt_not_settled", error=f"{type(error).__name__}: {error}")

    async def _pause(self, stop: asyncio.Event) -> None:
        self._freed.clear()
        settings = self._settings
        poll_s = settings.calm_poll_s if self._wake.live and not self._wants_room else settings.poll_s
        timeout = poll_s * random.uniform(0.5, 1.0)  # noqa: S311 -- jitter
        waits: list[asyncio.Task[Any]] = [asyncio.create_task(self._wake.wait(timeout)), asyncio.create_task(stop.wait())]
        # A freed slot matters only where the lack of one was the reason to pause.
        if self._wants_room:
            waits.append(asyncio.create_task(self._freed.wait()))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _attempt(self, held: Held, all_held: HeldAttempts) -> None:
        claimed = held.claimed
        action = self._app.actions[claimed.action]
        telemetry.ATTEMPT.set((claimed.job_id, claimed.attempt_id))
        port = Port(self._pool, self._ids, held, self._reader, self._lent, Journal())
        try:
            try:
                outcome = await execute(action, self._app.connectors, port)
            except asyncio.CancelledError:
                outcome = self._stopped(held, port)
            # From here the transaction decides; a late cancel or a lost beat must not tear it apart.
            held.settling = True
            move = await self._settle(outcome)
            if move == LOST:
                telemetry.STALE.inc()
            # What went well is in the job's history; a line for each would cost more than the work at speed.
            if move != "complete":
                telemetry.log("worker").info("settled", action=claimed.action, move=move, attempt=claimed.attempt)
        finally:
            all_held.remove(claimed.attempt_id)

    async def _settle(self, outcome: Outcome) -> str:
        """Settle, and while the database is away try again: a lapsed lease that nobody took over still counts (ADR 5)."""
        until = time.monotonic() + 2 * self._lease.length
        while True:
            try:
                return await self._settler.put(outcome)
            except UNREACHABLE as error:
                if time.monotonic() > until:
                    raise
                telemetry.log("worker").warning("settle_waits", error=type(error).__name__)
                await asyncio.sleep(random.uniform(0.1, 0.5))  # noqa: S311 -- jitter

    def _stopped(self, held: Held, port: Port) -> Outcome:
        action = self._app.actions[held.claimed.action]
        match held.reason:
            case "canceled":
                failure, wait = Failure("canceled", "canceled", "The job was canceled while it ran."), None
            case "drained":
                failure, wait = Failure("lost", STOPPED, "The worker was stopped while the attempt ran."), 0.0
            case _:
                failure, wait = Failure("lost", LOST, "The lease of this attempt was lost."), None
        return Outcome(held, action, failure=failure, journal=port.journal, wait_s=wait)

    async def _drain(self, held: HeldAttempts) -> None:
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=self._settings.drain_s)
        for item in held.all():
            held.stop(item.claimed.attempt_id, "drained")
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=10)
        await self._settler.drain()
        await self._teller.drain()
