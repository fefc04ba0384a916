"""What callers, operators and workers do, and the passing of time."""

import asyncio
from datetime import datetime, timedelta
from typing import Any, get_args
from uuid import UUID

from hypothesis import strategies as st

from deedbox.intake.request import Accepted, Request
from deedbox.model.failure import ActionFailure
from deedbox.worker.held import Held
from tests.machine.stage import ANY, TWO, Stage, may, pick
from tests.machine.world import ACTIONS, Hand, Mode

MODES: tuple[Mode, ...] = get_args(Mode)
STEPS = st.sampled_from([61.0, 301.0, 301.0, 601.0, 601.0, 3601.0, 90_001.0])


class Workers(Stage):
    """The road up to the gate."""

    # Callers ---------------------------------------------------------------------------------------------------------------

    def later(self, seconds: float | None) -> str | None:
        """A moment so many seconds from now, by the database's clock."""
        if seconds is None:
            return None
        now = datetime.fromisoformat(self.seen.now) if self.seen.now else None
        return (now + timedelta(seconds=seconds)).isoformat() if now else None

    def deliver(self, action: str, key: str, number: int, **options: Any) -> None:
        """One delivery of a key: a new job, a replay, or a conflict; by the book."""
        known = self.world.book.keys.get((action, key))
        request = Request(self.world.asker, action, {"number": number}, key, "http", **options)

        async def put() -> Accepted:
            answer = await self.world.intakes[number % 2].submit(request)
            self.world.book.keys.setdefault((action, key), (str(answer.job_id), number))
            return answer

        answer = self.do(put(), "key_reused")
        if known is None:
            assert isinstance(answer, Accepted), answer
            assert not answer.replayed
        elif known[1] == number:
            assert isinstance(answer, Accepted), answer
            assert (str(answer.job_id), answer.replayed) == (known[0], True)
        else:
            assert answer == "key_reused"

    @may(
        action=st.sampled_from(ACTIONS),
        weight=3,
        key=st.integers(0, 2),
        number=st.integers(0, 2),
        run_at=st.sampled_from([None, None, 200.0]),
        deadline=st.sampled_from([None, None, 400.0]),
    )
    def submit(self, action: str, key: int, number: int, run_at: float | None, deadline: float | None) -> None:
        """A call: new, repeated, or with another payload."""
        self.deliver(action, f"key-{key}", number, run_at=self.later(run_at), deadline=self.later(deadline))

    @may(action=st.sampled_from(ACTIONS), key=st.integers(0, 2), number=st.integers(0, 2))
    def submit_at_once(self, action: str, key: int, number: int) -> None:
        """Six deliveries of one key at two processes at the same moment."""
        known = self.world.book.keys.get((action, f"key-{key}"))
        if known is not None:
            return
        request = Request(self.world.asker, action, {"number": number}, f"key-{key}", "http")

        async def storm() -> list[Accepted]:
            answers = await asyncio.gather(*(self.world.intakes[n % 2].submit(request) for n in range(6)))
            self.world.book.keys[action, f"key-{key}"] = (str(answers[0].job_id), number)
            return answers

        answers = self.do(storm())
        assert isinstance(answers, list)
        assert len({answer.job_id for answer in answers}) == 1
        assert sum(not answer.replayed for answer in answers) == 1

    @may(which=ANY, suffix=st.sampled_from(["", "-2", None]), number=st.integers(0, 2))
    def replace(self, which: int, suffix: str | None, number: int) -> None:
        """A correction of an ended job, under a key of its own or, wrongly, under one made from the old key."""
        job_id = pick(list(self.seen.jobs), which)
        if job_id is None:
            return
        book = self.world.book
        action, old_key = self.seen.jobs[job_id]
        key = f"fix-{which}" if suffix is None else f"{old_key}{suffix}"
        known = book.keys.get((action, key))

        async def put() -> None:
            answer = await self.world.rounds.replace(self.world.asker, UUID(job_id), {"number": number}, key, "A typo.")
            book.keys.setdefault((action, key), (str(answer.job_id), number))

        answer = self.do(put(), "illegal_move", "key_invalid", "key_reused")
        if job_id not in self.seen.results:
            assert answer == "illegal_move"
        elif suffix is not None or key.startswith(str(old_key)):
            assert answer == "key_invalid"
        else:
            assert answer == (None if known is None or known[1] == number else "key_reused")

    @may(which=ANY, verb=st.sampled_from(["cancel", "take_up", "close"]))
    def steer(self, which: int, verb: str) -> None:
        """An operator cancels, takes up or closes some job."""
        job_id = pick(list(self.seen.jobs), which)
        if job_id is None:
            return
        state = self.seen.state(job_id)
        world = self.world
        who, job = world.people[0], UUID(job_id)
        if verb == "cancel":
            answer = self.do(world.verbs.cancel_job(who, job, "Not wanted."), "illegal_move")
            assert state not in {"queued", "awaiting_human", "failed_retryable"} or answer in {"canceled", "illegal_move"}
            return
        work = world.rounds.take_up(who, job, "Again.") if verb == "take_up" else world.rounds.close(who, job, "Enough.")
        answer = self.do(work, "illegal_move")
        assert (answer == "illegal_move") == (state != "failed_retryable"), f"{verb} of a job that is {state}: {answer}"

    # Workers ---------------------------------------------------------------------------------------------------------------

    def attempts(self) -> list[tuple[Hand, Held]]:
        """Every attempt that some worker believes to hold."""
        return [(hand, held) for hand in self.world.hands for held in hand.held]

    def is_current(self, held: Held) -> bool:
        """Whether the database agrees."""
        row = self.seen.queue.get(str(held.claimed.job_id))
        return row is not None and row.attempt_id == str(held.claimed.attempt_id)

    @may(who=TWO, room=st.integers(1, 4))
    def claim(self, who: int, room: int) -> None:
        """A worker claims."""
        if all(row.state != "queued" for row in self.seen.queue.values()):
            return
        self.do(self.world.claim(self.world.hands[who], room))

    @may(room=st.integers(1, 4))
    def claim_side_by_side(self, room: int) -> None:
        """Two workers claim at the same moment; the hands are sorted afterwards, so that chance decides nothing later."""
        if all(row.state != "queued" for row in self.seen.queue.values()):
            return

        async def both() -> list[list[Held]]:
            return await asyncio.gather(*(self.world.claim(hand, room) for hand in self.world.hands))

        answer = self.do(both())
        assert not isinstance(answer, str)
        fresh = sorted([*answer[0], *answer[1]], key=lambda held: held.claimed.job_id)
        assert len({held.claimed.job_id for held in fresh}) == len(fresh), "one job was claimed twice"
        for hand in self.world.hands:
            hand.held = [held for held in hand.held if held not in fresh]
        for number, held in enumerate(fresh):
            self.world.hands[number % 2].held.append(held)

    @may(which=ANY)
    def crash(self, which: int) -> None:
        """A worker forgets an attempt without a word."""
        found = pick(self.attempts(), which)
        if found is not None:
            found[0].held.remove(found[1])

    @may(who=TWO)
    def renew(self, who: int) -> None:
        """A worker beats: what comes back is current and had not lapsed."""
        hand = self.world.hands[who]
        before = {held.claimed.attempt_id: self.seen.queue.get(str(held.claimed.job_id)) for held in hand.held}
        if not before:
            return
        alive = self.do(self.world.renew(hand))
        assert isinstance(alive, dict)
        for attempt_id, row in before.items():
            lives = row is not None and row.attempt_id == str(attempt_id) and not row.lapsed
            assert (str(attempt_id) in alive) == lives, f"attempt {attempt_id} was renewed: {not lives}; its job was {row}"
            assert not lives or row is None or alive[str(attempt_id)] == row.cancel_requested

    @may(who=TWO)
    def take_over(self, who: int) -> None:
        """The leases run out, the sweep takes them back, and a worker claims again; who held them is not told."""
        self.clock(301.0)
        self.sweep(together=False)
        self.claim(who, 4)

    @may(which=ANY, mode=st.sampled_from(MODES), again=st.booleans())
    def settle(self, which: int, mode: Mode, again: bool) -> None:
        """An attempt ends, current or stale, and perhaps says so twice because the first answer was lost."""
        found = pick(self.attempts(), which)
        if found is None:
            return
        hand, held = found
        current = self.is_current(held)
        move = self.do(self.world.settle(hand, held, mode))
        assert (move == "lease_lost") == (not current), f"an attempt that was current: {current}, settled as {move}"
        assert current or not self.seen.moves, f"a stale attempt moved something: {self.seen.moves}"
        if again:
            assert self.do(self.world.settle(hand, held, mode)) == move
            assert not self.seen.moves
        hand.held.remove(held)

    @may(which=ANY)
    def work(self, which: int) -> None:
        """An attempt keeps a checkpoint and shows a draft; a stale one is refused both."""
        found = pick(self.attempts(), which)
        if found is None:
            return
        current = self.is_current(found[1])

        async def go() -> bool:
            port = self.world.port(found[1])
            try:
                await port.partial({"draft": "so far"})
            except ActionFailure as failure:
                return failure.code != "lease_lost"
            await port.step("look", None, lambda: asyncio.sleep(0, "looked"))
            return True

        assert self.do(go()) is current

    @may(weight=2, seconds=STEPS)
    def clock(self, seconds: float) -> None:
        """Time passes."""
        self.do(self.world.step_clock(seconds))

    @may(weight=2, together=st.booleans())
    def sweep(self, together: bool) -> None:
        """One round of the sweep, or two at the same moment."""

        async def go() -> None:
            await asyncio.gather(*(one.round() for one in self.world.sweeps[: 1 + together]))

        self.do(go())
