"""What people, senders and the provider do."""

import asyncio
from uuid import UUID

from hypothesis import strategies as st

from deedbox.dispatch import reconcile
from deedbox.extend.connector import Ambiguous, Receipt
from deedbox.gate.decide import decide
from deedbox.model.errors import DeedboxError
from deedbox.operate.verbs import EffectVerb
from tests.machine.provider import ENDINGS, Answer, Ending
from tests.machine.seen import ApprovalRow, EffectRow
from tests.machine.stage import ANY, TWO, Stage, may, pick

VERBS: tuple[EffectVerb, ...] = ("confirm", "disprove", "disprove", "abandon", "cancel")


class Senders(Stage):
    """The road from the gate."""

    # People ----------------------------------------------------------------------------------------------------------------

    async def say(self, approval: ApprovalRow, who: int, choice: str, *, digest: str | None = None) -> str:
        """Decide, confirming whatever would be repeated."""
        decided = await decide(
            self.world.pool,
            self.world.ids,
            self.world.person(who),
            approval_id=UUID(approval.approval_id),
            digest_hex=digest or approval.digest,
            choice=choice,
            reason="Because.",
            how="machine",
            repeat=[effect.slot for effect in self.seen.effects.values()],
        )
        return decided.state

    @may(which=ANY, who=st.integers(0, 3), choice=st.sampled_from(["approve", "approve", "reject"]), forged=st.booleans())
    def decide_one(self, which: int, who: int, choice: str, forged: bool) -> None:
        """Somebody decides an approval, open or not, perhaps without having seen what it says."""
        approval = pick(list(self.seen.approvals.values()), which)
        if approval is None:
            return
        refusals = ("already_decided", "approval_expired", "approval_changed", "permission_denied", "person_required")
        work = self.say(approval, who, choice, digest="ab" * 32 if forged and which % 2 else None)
        answer = self.do(work, *refusals)
        assert approval.state == "pending" or answer in refusals
        assert who < 2 or answer in {"permission_denied", "person_required"}

    @may(which=ANY)
    def decide_and_cancel(self, which: int) -> None:
        """An approval, a rejection and a cancellation of one job at the same moment: one wins."""
        approval = pick([one for one in self.seen.approvals.values() if one.state == "pending"], which)
        if approval is None:
            return

        async def race() -> None:
            cancel = self.world.verbs.cancel_job(self.world.people[1], UUID(approval.job_id), "Not wanted.")
            answers = await asyncio.gather(
                self.say(approval, 0, "approve"), self.say(approval, 1, "reject"), cancel, return_exceptions=True
            )
            for answer in answers:
                assert not isinstance(answer, BaseException) or isinstance(answer, DeedboxError), repr(answer)

        self.do(race())

    @may(weight=2, on=st.booleans(), person=st.booleans())
    def switch(self, on: bool, person: bool) -> None:
        """The switch is turned; a program can only turn it off."""
        self.turn(on=on, who=0 if person else 3)

    def turn(self, *, on: bool, who: int) -> None:
        """Turn it, and let the provider know what is allowed now."""
        answer = self.do(self.world.verbs.set_switch(self.world.person(who), on, "A test.", "machine"), "person_required")
        assert (answer == "person_required") == (on and who > 2)
        if isinstance(answer, dict):
            self.world.provider.switched_on = on

    # Senders ---------------------------------------------------------------------------------------------------------------

    @may(weight=2, who=TWO, limit=st.integers(1, 3), environment_on=st.sampled_from([True, True, True, False]))
    def lease(self, who: int, limit: int, environment_on: bool) -> None:
        """A dispatcher leases effects; one whose environment says off, or while the switch is off, leases none."""
        leased = self.do(self.world.lease(self.world.dispatchers[who], limit, environment_on=environment_on))
        assert (environment_on and self.world.provider.switched_on) or not leased

    @may(which=ANY, ending=st.sampled_from(ENDINGS), age=st.sampled_from([1.0, 1.0, 200.0]))
    def dial(self, which: int, ending: Ending, age: float) -> None:
        """A sender that leased earlier dials now, after another look at the switch; its lease may be too old or gone."""
        sending = pick([one for one in self.world.sendings if one.task is None], which)
        if sending is None:
            return
        self.world.provider.ending = ending
        asked = len(self.world.provider.asked)
        self.do(self.world.dial(sending, age))
        assert len(self.world.provider.asked) == asked or age < 200.0
        if sending.task is not None and sending.task.done():
            effect = self.seen.effects[str(sending.leased.effect_id)]
            assert effect.fence != sending.leased.fence, "a sender ended without settling"

    @may(weight=3, who=TWO, ending=st.sampled_from([one for one in ENDINGS if not one.startswith("hangs")]))
    def send_now(self, who: int, ending: Ending) -> None:
        """A dispatcher does a whole round: lease, dial, settle."""
        self.world.provider.ending = ending
        self.do(self.world.dispatchers[who].once())

    @may(which=ANY, receipt=st.booleans())
    def wake(self, which: int, receipt: bool) -> None:
        """A call that hung ends after all, with a receipt where it was done, or cut off."""
        sending = pick([one for one in self.world.sendings if one.task is not None], which)
        if sending is None:
            return
        effect_id = str(sending.leased.effect_id)
        done = receipt and self.world.provider.performed[effect_id]
        outcome = Receipt(f"p-{effect_id}") if done else Ambiguous("reset", "The connection was reset.", "body_sent")
        self.do(self.world.wake(sending, outcome))
        assert not done or self.seen.effects[effect_id].receipts

    @may(which=ANY)
    def lose_sender(self, which: int) -> None:
        """A sender is killed before it dials or while it waits."""
        sending = pick(self.world.sendings, which)
        if sending is not None:
            self.do(self.world.lose(sending))

    def unknown_first(self, which: int) -> EffectRow | None:
        """Some effect, an unknown one where there is any."""
        effects = list(self.seen.effects.values())
        return pick([one for one in effects if one.state == "unknown"] or effects, which)

    @may(which=ANY, answer=st.sampled_from(["truth", "truth", "silence", "error"]), by_person=st.booleans())
    def look_up(self, which: int, answer: Answer, by_person: bool) -> None:
        """The schedule or a person asks the provider, which says what it knows, nothing, or fails."""
        effect = self.unknown_first(which)
        if effect is None:
            return
        world = self.world
        world.provider.answer = answer
        effect_id = UUID(effect.effect_id)
        if by_person:
            self.do(world.verbs.effect_verb(world.people[0], effect_id, "look_up"), "illegal_move")
        else:
            connectors = world.app.connectors
            self.do(reconcile.look_up(world.pool, world.ids, connectors, tenant="default", effect_id=effect_id), "illegal_move")
        became = self.seen.effects[effect.effect_id].state
        if answer != "truth":
            assert became == effect.state, f"{answer} made {effect.state} {became}"

    @may(which=ANY, who=TWO, verb=st.sampled_from(VERBS))
    def judge(self, which: int, who: int, verb: EffectVerb) -> None:
        """A person says what became of an effect."""
        effect = self.unknown_first(which)
        if effect is None:
            return
        evidence = {"provider_id": "seen on the wall"} if verb == "confirm" else None
        work = self.world.verbs.effect_verb(
            self.world.people[who], UUID(effect.effect_id), verb, evidence=evidence, reason="I looked."
        )
        self.do(work, "illegal_move")

    @may(which=ANY)
    def forge(self, which: int) -> None:
        """Somebody with the owner's password changes what was proposed, and the digest beside it."""
        effect = pick([one for one in self.seen.effects.values() if one.state == "pending"], which)
        if effect is None:
            return
        forgery = (
            "UPDATE deedbox.proposal_effect SET body = convert_to(replace(convert_from(body, 'utf8'), ', ', '; '), 'utf8'),"
            " digest = sha256(convert_to(replace(convert_from(body, 'utf8'), ', ', '; '), 'utf8'))"
            " WHERE job_id = %s AND slot = %s"
        )
        self.do(self.world.database.rows(forgery, UUID(effect.job_id), effect.slot))
