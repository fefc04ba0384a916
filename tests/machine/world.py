"""What the machine drives: the product's own parts on one database, with workers and senders that can be stopped anywhere."""

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import psycopg
import structlog
from psycopg import AsyncConnection
from pydantic import BaseModel

from deedbox.dispatch.loop import Dispatcher
from deedbox.extend.context import Context
from deedbox.extend.outcome import Abstain
from deedbox.extend.registry import App
from deedbox.intake.submit import Intake
from deedbox.model.backoff import Retry
from deedbox.model.failure import ActionFailure
from deedbox.model.identity import Principal
from deedbox.model.lease import Lease
from deedbox.model.policy import allow, deny, hold
from deedbox.operate.rounds import Rounds
from deedbox.operate.verbs import Verbs
from deedbox.store import outbox, queue
from deedbox.store.ids import IdSource
from deedbox.store.outbox import Leased
from deedbox.store.pool import Pool
from deedbox.store.transaction import autocommit, transaction
from deedbox.sweep.service import Sweep
from deedbox.worker.asking import Journal, Lending
from deedbox.worker.execute import Outcome, Port, execute
from deedbox.worker.held import Held
from deedbox.worker.loop import Worker, WorkerSettings
from tests.database import TestDatabase, fresh_database
from tests.machine.promises import Book
from tests.machine.provider import TARGETS, Provider
from tests.machine.seen import FORGET, NOTES, look
from tests.road import Poll, principal

T = TypeVar("T")
Mode = Literal["complete", "hold", "hold_groups", "abstain", "overloaded", "later", "broken", "canceled", "drained"]
LEASE = Lease(300.0)
SHORT = Retry(attempts=6, base=0.001, cap=0.001)
ACTIONS = ("note_fact", "write_words", "write_twice", "deny_words")
EXPECTED = frozenset({"leases_rescued", "connector_raised", "look_up_raised"})
"""Warnings that tell of what the machine does on purpose; any other means that a part met what it could only survive."""


class Fact(BaseModel):
    """What the actions take."""

    number: int = 0


class Said(BaseModel):
    """What the actions answer."""

    text: str = "said"


@dataclass
class Script:
    """How the next attempt ends, and what handlers have planned."""

    mode: Mode = "complete"
    planned: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]])

    def app(self, provider: Provider) -> App:  # noqa: C901 -- four actions, one handler
        """Four actions under different policies, all doing what the script says."""
        app = App(connectors=[provider])

        async def act(ctx: Context, fact: Fact) -> Said | Abstain:
            match self.mode:
                case "overloaded":
                    raise ActionFailure("overloaded", "busy", "The model is busy.", retry_after=0.0)
                case "later":
                    raise ActionFailure("rate_limited", "slow_down", "Not now.", retry_after=200.0)
                case "broken":
                    raise ActionFailure("denied", "not_allowed", "The provider refuses this account.")
                case "abstain":
                    return Abstain("not sure")
                case "hold" | "hold_groups":
                    for number, target in enumerate(TARGETS if self.mode == "hold_groups" else [list(TARGETS)[fact.number]]):
                        plan = ctx.effect(
                            "paper",
                            target=target,
                            slot=f"slot-{target}",
                            payload={"text": f"{fact.number}, {ctx.attempt}"},
                            group=f"group-{min(number, 1)}",
                        )
                        self.planned.add((str(ctx.job_id), plan.slot, plan.digest.hex()))
                case _:
                    pass
            return Said()

        retry = Retry(attempts=2, base=100.0, cap=250.0)

        @app.action(roles=["operator"], policy=allow(), retry=retry, max_runtime="20m")
        async def note_fact(ctx: Context, fact: Fact) -> Said | Abstain:
            return await act(ctx, fact)

        @app.action(roles=["operator"], approvers=["manager"], policy=hold(expires="1h"), retry=retry)
        async def write_words(ctx: Context, fact: Fact) -> Said | Abstain:
            return await act(ctx, fact)

        @app.action(roles=["operator"], approvers=["manager"], policy=hold(expires="12h", quorum=2), retry=retry)
        async def write_twice(ctx: Context, fact: Fact) -> Said | Abstain:
            return await act(ctx, fact)

        @app.action(roles=["operator"], policy=deny(), retry=retry)
        async def deny_words(ctx: Context, fact: Fact) -> Said | Abstain:
            return await act(ctx, fact)

        assert tuple(app.actions) == ACTIONS, (note_fact, write_words, write_twice, deny_words)
        return app


@dataclass
class Hand:
    """One simulated worker: the product's, without its loop, and the attempts it believes to hold."""

    worker: Worker
    held: list[Held] = field(default_factory=list[Held])


@dataclass
class Sending:
    """One leased effect in the hands of a simulated sender; `task` is its call once it has dialled."""

    dispatcher: Dispatcher
    leased: Leased
    task: "asyncio.Task[None] | None" = None


class World:
    """Opened once per test; `begin` empties it for the next example. Coroutines run on a loop of its own."""

    def __init__(self) -> None:
        """Open a database of its own."""
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self.log: list[Any] = []
        self.complaints: list[str] = []
        """What broke, in the order in which it was met."""
        self.examples = self.steps = 0
        self.made: Counter[tuple[str, str, str]] = Counter()
        """How often each move was made, over all examples."""
        self.provider = Provider()
        self.script = Script()
        self.app = self.script.app(self.provider)
        try:
            self.run(self._open())
        except BaseException:
            self.close()
            raise

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run to the end; what is suspended elsewhere goes on meanwhile."""
        # Not the runner's own `run`, which costs more than most steps: it exchanges signal handlers each time.
        return self._runner.get_loop().run_until_complete(coroutine)

    def close(self) -> None:
        """Drop the database."""
        try:
            self.run(self._stack.aclose())
        finally:
            self._runner.close()

    async def _open(self) -> None:
        # Waits that are drawn at random would make the same steps do different things.
        kept, outbox.RETRY = outbox.RETRY, SHORT
        self._stack.callback(setattr, outbox, "RETRY", kept)
        self.log = self._stack.enter_context(structlog.testing.capture_logs())
        self.database: TestDatabase = await self._stack.enter_async_context(fresh_database())
        await self.database.rows(NOTES)
        self.owner = await psycopg.AsyncConnection.connect(self.database.owner_url, autocommit=True)
        self._stack.push_async_callback(self.owner.close)
        self.eyes: AsyncConnection[Any] = self.owner
        self.pool: Pool = Pool(self.database.url, "machine", size=8)
        self._stack.push_async_callback(self.pool.close)
        await self.pool.open(wait=True)
        self.ids = await IdSource.read(self.pool)
        self.asker = await principal(self.database, self.ids, "asker", "person", "operator", "manager")
        self.people = [await principal(self.database, self.ids, f"p{n}", "person", "operator", "manager") for n in range(2)]
        self.robot = await principal(self.database, self.ids, "robot", "service", "operator", "manager")

    def begin(self) -> None:
        """Forget everything, and start the parts anew, as many processes would."""
        self.run(self._begin())
        self.examples += 1

    async def _begin(self) -> None:
        await self.owner.execute(FORGET)
        await self.owner.execute("UPDATE deedbox.switch SET is_on = false")
        await self.database.shift_clock(0)
        self.provider.forget()
        self.script.planned.clear()
        self.log.clear()
        self.book = Book(self.provider, planned=self.script.planned)
        self.intakes = [self._intake(), self._intake()]
        self.rounds = Rounds(self.pool, self.ids, self.app.actions, self.intakes[0])
        self.verbs = Verbs(self.pool, self.ids, self.app.connectors, environment_on=True)
        self.sweeps = [Sweep(self.pool, self.ids, LEASE) for _ in range(2)]
        self.hands = [Hand(self._worker(f"w{number}")) for number in range(2)]
        self.dispatchers = [self._dispatcher() for _ in range(2)]
        self.sendings: list[Sending] = []

    def _intake(self) -> Intake:
        return Intake(self.pool, self.ids, self.app.actions, public_url="http://127.0.0.1:8484", max_waiting=1000)

    def _worker(self, name: str) -> Worker:
        # Below zero: the lanes are read from their beginning each time, whatever the time of this machine.
        settings = WorkerSettings(name=name, build="machine", poll_s=-1.0)
        return Worker(
            url=self.database.url, pool=self.pool, ids=self.ids, app=self.app, lease=LEASE, settings=settings, wake=Poll()
        )

    def _dispatcher(self) -> Dispatcher:
        return Dispatcher(
            self.pool, self.ids, self.app.connectors, environment_on=True, slots=4, lease_s=LEASE.length, retry=SHORT
        )

    async def end(self) -> None:
        """Stop the senders that still hang."""
        for sending in list(self.sendings):
            await self.lose(sending)

    async def look(self) -> None:
        """Read everything back, check the promises, and that no part met what it could only survive."""
        self.steps += 1
        self.book.turn(await look(self.eyes, self.book.last_move))
        self._tally()
        bad = [one for one in self.log if one["log_level"] in {"warning", "error"} and one["event"] not in EXPECTED]
        self.log.clear()
        assert not bad, f"a part met what it could only survive: {bad}"

    def _tally(self) -> None:
        came = {move.id: str(move.became) for move in self.book.after.moves if move.kind == "result"}
        for move in self.book.after.moves:
            if move.kind != "result" and move.was is not None:
                self.made[move.kind, move.was, move.became or came[move.id]] += 1

    async def step_clock(self, seconds: float) -> None:
        """Let time pass for the database and for the provider."""
        self.provider.now_s += seconds
        await self.database.shift_clock(self.provider.now_s)

    # Workers ---------------------------------------------------------------------------------------------------------------

    async def claim(self, hand: Hand, room: int) -> list[Held]:
        """Claim as the worker does; returns what is new in its hands."""
        sent = time.monotonic()
        shares, claimed = await hand.worker._take(room, sent)  # pyright: ignore[reportPrivateUsage]
        hand.worker._rota.learn(shares, claimed, room)  # pyright: ignore[reportPrivateUsage]
        # In one order, whatever the plan of the statement was.
        fresh = [Held(item, sent + LEASE.trust) for item in sorted(claimed, key=lambda item: item.job_id)]
        hand.held += fresh
        return fresh

    async def renew(self, hand: Hand) -> dict[str, bool]:
        """Beat once, as the heartbeat does; what does not come back stays in the hand, as in a worker that is not told."""
        async with autocommit(self.pool) as connection:
            alive = await queue.renew(connection, [held.fence for held in hand.held], LEASE.length)
        return {str(attempt_id): flagged for attempt_id, flagged in alive.items()}

    def port(self, held: Held) -> Port:
        """What an attempt is lent."""
        return Port(self.pool, self.ids, held, None, Lending(), Journal())

    async def outcome(self, hand: Hand, held: Held, mode: Mode) -> Outcome:
        """Run the handler to the end that `mode` names, or stop it as a worker stops it."""
        if mode in {"canceled", "drained"}:
            held.reason = "canceled" if mode == "canceled" else "drained"
            return hand.worker._stopped(held, self.port(held))  # pyright: ignore[reportPrivateUsage]
        self.script.mode = mode
        return await execute(self.app.actions[held.claimed.action], self.app.connectors, self.port(held))

    async def settle(self, hand: Hand, held: Held, mode: Mode) -> str:
        """End an attempt; returns the move."""
        return await hand.worker._settler.put(await self.outcome(hand, held, mode))  # pyright: ignore[reportPrivateUsage]

    # Senders ---------------------------------------------------------------------------------------------------------------

    async def lease(self, dispatcher: Dispatcher, limit: int, *, environment_on: bool) -> list[Sending]:
        """Lease as the dispatcher does, and stop before anything is dialled."""
        async with transaction(self.pool) as connection:
            leased = await outbox.lease(
                connection,
                environment_on=environment_on,
                connectors=list(self.app.connectors),
                sender=dispatcher.name,
                lease_s=LEASE.length,
                event_ids=self.ids.many(limit),
            )
        fresh = [Sending(dispatcher, one) for one in sorted(leased, key=lambda one: one.effect_id)]
        self.sendings += fresh
        return fresh

    async def dial(self, sending: Sending, age_s: float) -> None:
        """Let the dispatcher go on as if its lease were `age_s` seconds old, to the end of the call or to where it hangs."""
        self.provider.hung.clear()
        loop = asyncio.get_running_loop()
        sending.task = loop.create_task(sending.dispatcher._send(sending.leased, time.monotonic() - age_s))  # pyright: ignore[reportPrivateUsage]
        hung = loop.create_task(self.provider.hung.wait())
        await asyncio.wait([sending.task, hung], return_when=asyncio.FIRST_COMPLETED)
        hung.cancel()
        if sending.task.done():
            self.sendings.remove(sending)
            await sending.task

    async def wake(self, sending: Sending, outcome: Any) -> None:
        """Let a call that hangs end, however late."""
        assert sending.task is not None
        self.provider.hanging.pop((str(sending.leased.effect_id), sending.leased.attempt)).set_result(outcome)
        await sending.task
        self.sendings.remove(sending)

    async def lose(self, sending: Sending) -> None:
        """Kill a sender: nothing is settled."""
        if sending.task is not None:
            sending.task.cancel()
            await asyncio.wait([sending.task])
        self.sendings.remove(sending)

    def person(self, number: int) -> Principal:
        """Two people who may decide, who asked, and a program."""
        return [*self.people, self.asker, self.robot][number]
