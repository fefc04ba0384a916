"""The dispatcher's loop: leases what may go out, no more than it has free slots for, and sends it."""

import asyncio
import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from uuid import UUID

from deedbox.dispatch import send
from deedbox.dispatch.declared import declared
from deedbox.dispatch.settle import Settler
from deedbox.dispatch.switch import leave_to_dial
from deedbox.dispatch.watch import Watch
from deedbox.extend.connector import Connector, Outcome, Refused, SetsRetry
from deedbox.gate.links import filled, links_of
from deedbox.model.backoff import Retry, seconds
from deedbox.store import outbox, targets
from deedbox.store.ids import IdSource
from deedbox.store.outbox import Leased
from deedbox.store.pool import Pool
from deedbox.store.targets import Breaker, Place
from deedbox.store.transaction import autocommit, transaction
from deedbox.telemetry import log

POLL_S = 1.0
CALM_POLL_S = 4.0
"""The poll of a dispatcher that has nothing before it and is told of everything new."""
MIN_PAUSE_S = 0.02
GATHER_S = 0.01
"""Between two leases of a busy dispatcher: what becomes free or due meanwhile shares the second one."""
SETTLE_TRIES = 8
DEADLINE_PART = 0.8
"""The part of what is left of a lease that a connector may use; the rest is for settling."""

_log = log("dispatch")


class Dispatcher:
    """Sends what the outbox holds; any number of them, in any number of processes, share one outbox."""

    def __init__(
        self,
        pool: Pool,
        ids: IdSource,
        connectors: Mapping[str, Connector],
        *,
        environment_on: bool,
        slots: int = 16,
        lease_s: float = 60.0,
        wake: asyncio.Event | None = None,
        retry: Retry = outbox.RETRY,
        breaker: Breaker | None = None,
        told: Callable[[], bool] | None = None,
        public_url: str | None = None,
    ) -> None:
        """`environment_on` is the environment's half of the switch; `slots` sendings go on at once, each for `lease_s` seconds.

        `wake` ends the pause before the next look, and `told` says whether it can be relied on just now. `breaker` says when a
        target that fails is left alone. Links in notices are made from `public_url`; without one a notice that needs a link
        stays. Raises ValueError for numbers that cannot work.
        """
        if slots < 1:
            raise ValueError(f"slots: {slots} must be at least 1")
        self._pool = pool
        self._ids = ids
        self._connectors = dict(connectors)
        self._environment_on = environment_on
        self._slots = slots
        self._lease_s = seconds(lease_s, name="lease_s")
        self._wake = wake or asyncio.Event()
        retries = {name: one.retry for name, one in connectors.items() if isinstance(one, SetsRetry)}
        watch = Watch(self._connectors, breaker)
        self._settler = Settler(pool, ids, retry, follows=self._look_again, retries=retries, watch=watch)
        self._told = told or (lambda: False)
        self._public_url = public_url
        self._pause_s = POLL_S
        self._asked_at = 0.0
        # Whether something is probably due, so that it need not be asked first.
        self._likely = False
        # Unique per start, so that no two processes are ever taken for one another.
        self.name = f"dispatch-{os.getpid()}-{ids.new().hex[-8:]}"
        # What is being called takes a slot; what has answered is kept beside the next calls.
        self._calling = set[UUID]()
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def in_flight(self) -> int:
        """How many sendings this process has under way."""
        return len(self._sending)

    async def run(self, stop: asyncio.Event) -> None:
        """Lease and send until told to stop, then wait for what is under way. A database that is away is waited out."""
        stopping = asyncio.get_running_loop().create_task(stop.wait())
        try:
            while not stop.is_set():
                try:
                    leased = await self._take()
                except Exception as error:  # noqa: BLE001 -- the loop outlives whatever the database or the network does
                    _log.warning("lease_failed", worker=self.name, error=type(error).__name__)
                    leased = 0
                await self._pause(stopping, at_once=leased > 0)
        finally:
            stopping.cancel()
            await self._drain()

    async def once(self) -> int:
        """Lease what may go out now, at most as many as there are slots, and wait until it is settled; returns how many."""
        leased = await self._take()
        await self._drain()
        return leased

    async def _take(self) -> int:
        free = min(self._slots - len(self._calling), 2 * self._slots - len(self._sending))
        if free < 1:
            return 0
        # Locking the switch to find nothing, once a second in every process, would be most of what an idle fleet does.
        likely, self._likely = self._likely, False
        if not likely and not await self._due():
            return 0
        asked_at = self._asked_at = time.monotonic()
        async with transaction(self._pool) as connection:
            leased = await outbox.lease(
                connection,
                environment_on=self._environment_on,
                connectors=list(self._connectors),
                sender=self.name,
                lease_s=self._lease_s,
                event_ids=self._ids.many(free),
            )
        for one in leased:
            self._calling.add(one.effect_id)
            task = asyncio.get_running_loop().create_task(self._send(one, asked_at))
            self._sending.add(task)
            task.add_done_callback(self._sent)
        self._likely = len(leased) == free
        if likely and not leased:
            await self._due()
        return len(leased)

    async def _due(self) -> bool:
        """Whether something is due now; sets the pause until the next look."""
        async with autocommit(self._pool) as connection:
            due = await outbox.next_due(connection)
        due_s, gate_s = due or (None, None)
        if due_s == 0:
            # What is due and does not go waits for a slot or for somebody, or its target says when it will let one through.
            self._pause_s = POLL_S if gate_s is None else min(POLL_S, max(MIN_PAUSE_S, gate_s))
            return True
        longest = CALM_POLL_S if self._told() else POLL_S
        self._pause_s = longest if due_s is None else min(longest, max(MIN_PAUSE_S, due_s))
        return False

    async def _pause(self, stopping: "asyncio.Task[bool]", *, at_once: bool) -> None:
        """Wait for the poll, the wake-up, the stop, or a free slot; not at all while there is more to take."""
        if at_once and not self._full:
            return
        waking = asyncio.get_running_loop().create_task(self._wake.wait())
        pause_s = self._pause_s * random.uniform(0.5, 1.0)  # noqa: S311 -- jitter
        try:
            await asyncio.wait({stopping, waking}, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
            # A slot that has become free waits a moment for others, so that a lease is for several.
            rest_s = self._asked_at + GATHER_S - time.monotonic()
            if rest_s > 0 and not stopping.done():
                await asyncio.wait({stopping}, timeout=rest_s)
        finally:
            waking.cancel()
        self._likely = self._likely or self._wake.is_set()
        self._wake.clear()

    @property
    def _full(self) -> bool:
        return len(self._calling) >= self._slots or len(self._sending) >= 2 * self._slots

    def _look_again(self) -> None:
        self._wake.set()

    def _called(self, leased: Leased) -> None:
        """The slot is free: what is left is to keep the answer."""
        if self._full:
            self._look_again()
        self._calling.discard(leased.effect_id)

    def _sent(self, task: "asyncio.Task[None]") -> None:
        if self._full:
            self._look_again()
        self._sending.discard(task)

    async def _drain(self) -> None:
        while self._sending:
            await asyncio.wait(list(self._sending))
        await self._settler.drain()

    async def _send(self, leased: Leased, asked_at: float) -> None:
        try:
            outcome = await self._call(leased, asked_at)
        finally:
            self._called(leased)
        if outcome is not None:
            await self._settle(leased, outcome)

    async def _call(self, leased: Leased, asked_at: float) -> Outcome | None:
        """Dial, if that is still allowed; None where nothing was dialled, and the effect has been given back."""
        connector = self._connectors[leased.connector]
        try:
            await self._declare(leased, connector)
            links = await self._links(leased)
            if links is None:
                await send.withdraw(self._pool, self._ids, leased)
                return None
            leave = await leave_to_dial(self._pool, leased, asked_at=asked_at, lease_s=self._lease_s)
            if leave != "go":
                await send.give_back(self._pool, self._ids, leased, leave)
                return None
        except Exception as error:  # noqa: BLE001 -- whatever failed, nothing was dialled
            _log.exception("not_dialled", effect_id=str(leased.effect_id), error=type(error).__name__)
            await self._give_back(leased)
            return None
        return await self._dial(connector, leased, asked_at, links)

    async def _links(self, leased: Leased) -> Mapping[str, str] | None:
        return await links_of(self._pool, leased.effect_id, self._public_url) if leased.kind == "notice" else {}

    async def _dial(self, connector: Connector, leased: Leased, asked_at: float, links: Mapping[str, str]) -> Outcome:
        rest_s = self._lease_s - (time.monotonic() - asked_at)
        try:
            order = send.order_of(
                leased.body,
                effect_id=leased.effect_id,
                job_id=leased.job_id,
                tenant=leased.tenant,
                attempt=leased.attempt,
                deadline_s=rest_s * DEADLINE_PART,
            )
        except (ValueError, LookupError, TypeError):
            return Refused("bug", "body_unreadable", "What was approved cannot be read as an effect.", "plan")
        if links:
            order = replace(order, payload=filled(order.payload, links))
        return await send.perform(connector, order)

    async def _give_back(self, leased: Leased) -> None:
        """Nothing was dialled because the database failed. Where that goes on, sweep takes it for ambiguous, the safe error."""
        for number in range(1, SETTLE_TRIES + 1):
            await asyncio.sleep(min(5.0, 0.1 * 2**number))
            try:
                await send.give_back(self._pool, self._ids, leased, "not_dialled")
            except Exception as error:  # noqa: BLE001 -- tried again
                _log.warning("give_back_failed", effect_id=str(leased.effect_id), error=type(error).__name__)
            else:
                return

    async def _declare(self, leased: Leased, connector: Connector) -> None:
        """Keep what is declared of a target before it is first needed; only native keys matter to who knows no connectors."""
        said = declared(connector, leased.target)
        stored = (leased.capability or "blind", leased.native_key_ttl_s)
        if stored == (said.capability, said.key_ttl_s) or "native_key" not in {said.capability, stored[0]}:
            return
        async with autocommit(self._pool) as connection:
            place = Place(leased.tenant, leased.connector, leased.target)
            await targets.declare(
                connection, place, capability=said.capability, ttl_s=said.key_ttl_s, lag_s=said.visibility_lag_s
            )

    async def _settle(self, leased: Leased, outcome: Outcome) -> None:
        """Keep the outcome, again and again while the database is away: a receipt that is not kept is a receipt lost."""
        receipt_id = self._ids.new()
        for number in range(1, SETTLE_TRIES + 1):
            try:
                await self._settler.put(leased, outcome, receipt_id=receipt_id, alone=number > 1)
            except Exception as error:  # noqa: BLE001 -- tried again, whatever it was
                _log.exception("settle_failed", effect_id=str(leased.effect_id), attempt=number, error=type(error).__name__)
                await asyncio.sleep(min(5.0, 0.1 * 2**number))
                continue
            return
