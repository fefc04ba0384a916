"""What may happen: every event picks among what there is, does it through the product, and has the promises checked.

No event has a precondition and no argument depends on the database, so that the same choices always make the same steps; one
that finds nothing to do does nothing. All are drawn by one rule: Hypothesis would leave half of many rules out of each
example, and what is rare here takes most of them in a row.
"""

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import rule

from deedbox.model.lifecycle import EFFECT
from tests.machine.provider import ENDINGS
from tests.machine.senders import VERBS, Senders
from tests.machine.stage import ANY, ARGUMENTS, HAPPENINGS, Happening, may, pick
from tests.machine.workers import MODES, Workers
from tests.machine.world import ACTIONS, World


class Machine(Workers, Senders):
    """One example: some steps in a world that was emptied before."""

    # Whole roads -----------------------------------------------------------------------------------------------------------

    @may(weight=3, action=st.sampled_from(ACTIONS[1:3]), key=st.integers(0, 2), number=st.integers(0, 2), groups=st.booleans())
    def hurry(self, action: str, key: int, number: int, groups: bool) -> None:
        """A job goes straight to the outbox, so that the end of the road is reached often."""
        if (action, f"key-{key}") in self.world.book.keys:
            return
        self.turn(on=True, who=0)
        self.deliver(action, f"key-{key}", number)
        job_id, _ = self.world.book.keys[action, f"key-{key}"]
        self.do(self.world.claim(self.world.hands[0], 8))
        for hand, held in self.attempts():
            if str(held.claimed.job_id) == job_id:
                self.do(self.world.settle(hand, held, "hold_groups" if groups else "hold"))
                hand.held.remove(held)
        for approval in [one for one in self.seen.approvals.values() if one.job_id == job_id]:
            for who in range(approval.quorum):
                self.do(self.say(approval, who, "approve"))

    @may(weight=14, which=ANY, how=st.integers(0, 23))
    def go_on(self, which: int, how: int) -> None:
        """The next thing that some unfinished job waits for, one way or another."""
        job_id = pick(list(self.seen.queue), which)
        if job_id is None:
            return
        state = self.seen.queue[job_id].state
        mode = MODES[how % len(MODES)]
        if state == "queued" and how < 18:
            self.claim(how % 2, 4)
        elif state == "queued":
            self.clock(301.0)
            self.sweep(together=False)
        elif state == "running":
            mine = [number for number, one in enumerate(self.attempts()) if str(one[1].claimed.job_id) == job_id]
            if mine and how < 19:
                # The last claimed is the current one; before it, what was taken over and does not know it.
                self.settle(mine[-1 if how < 12 else 0], mode, again=False)
            else:
                self.take_over(how % 2)
        elif state == "awaiting_human":
            open_ones = [number for number, one in enumerate(self.seen.approvals.values()) if one.job_id == job_id]
            if how > 21:
                self.clock(3601.0)
                self.sweep(together=False)
            elif how > 19:
                self.steer(list(self.seen.jobs).index(job_id), "cancel")
            self.decide_one(open_ones[how % len(open_ones)], how // 2 % 2, "reject" if how > 18 else "approve", forged=False)
        elif state == "failed_retryable":
            self.again(job_id, how)
        else:
            self.send_on(job_id, how)

    def again(self, job_id: str, how: int) -> None:
        """A parked job is taken up by an operator or by its caller, or is given up."""
        if how > 12:
            self.steer(list(self.seen.jobs).index(job_id), ["cancel", "take_up", "close"][how % 3])
            return
        action, key = self.seen.jobs[job_id]
        self.clock(301.0)
        self.deliver(action, str(key), self.world.book.keys[action, str(key)][1])

    def send_on(self, job_id: str, how: int) -> None:
        """Something about the effects of a job that is dispatching."""
        effect = pick([one for one in self.seen.effects_of(job_id) if one.state in EFFECT.live], how)
        if effect is None:
            return
        index = [one.effect_id for one in self.seen.effects.values() if one.state == "unknown" or effect.state != "unknown"]
        at = index.index(effect.effect_id)
        ending = ENDINGS[how % len(ENDINGS)]
        if effect.state == "unknown":
            if how > 20:
                self.clock(3601.0)
                for who in range(2):
                    self.judge(at, who, "disprove")
            elif how > 12:
                self.look_up(at, "truth", by_person=how % 2 == 0)
            else:
                self.judge(at, how % 2, VERBS[how // 2 % len(VERBS)])
        elif effect.state == "sending":
            if how > 12 or not self.world.sendings:
                self.clock(301.0)
                self.sweep(together=False)
            self.wake(how, receipt=how % 3 > 0)
            self.dial(how, ending, 1.0)
        else:
            self.turn(on=True, who=0)
            self.lease(how % 2, 1 + how % 3, environment_on=True)
            if how < 18:
                self.dial(how, ending, 1.0)


def machine_in(world: World, names: Sequence[str] = HAPPENINGS) -> type[Machine]:
    """The machine in a world, in which just these things happen, each as often as it is named."""
    happenings = st.sampled_from(list(names)).flatmap(lambda name: st.tuples(st.just(name), ARGUMENTS[name]))

    class Here(Machine):
        @rule(happening=happenings)
        def step(self, happening: Happening) -> None:
            self.happen(happening)

    Here.world = world
    return Here
