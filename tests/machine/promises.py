"""What must hold after every step, whatever it was. Each check raises AssertionError with a sentence that says what broke."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from deedbox.model.lifecycle import ALL, APPROVAL, EFFECT
from tests.machine.provider import TARGETS, Provider
from tests.machine.seen import NOTHING, EventRow, Seen

EDGES = {machine.name: frozenset(machine.edges()) for machine in ALL}
BIRTHS = {machine.name: frozenset(move.target for move in machine.moves if not move.sources) for machine in ALL}
ENDINGS = {"completed": "job.completed", "failed_terminal": "job.failed", "canceled": "job.canceled"}
PARKED = "failed_retryable"


@dataclass
class Book:
    """What the machine knows without asking: what was accepted and planned, and what went before."""

    provider: Provider
    keys: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict[tuple[str, str], tuple[str, int]])
    """Action and key of every accepted call, with its job and the number of its payload."""
    planned: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]])
    """Job, slot and digest of every effect that a handler planned."""
    before: Seen = NOTHING
    after: Seen = NOTHING
    last_move: int = 0
    fences: dict[str, int] = field(default_factory=dict[str, int])
    attempts: dict[str, int] = field(default_factory=dict[str, int])
    used_fences: set[int] = field(default_factory=set[int])
    been_unknown: set[str] = field(default_factory=set[str])
    disproved: Counter[str] = field(default_factory=Counter[str])
    orders_read: int = 0

    def turn(self, seen: Seen) -> None:
        """Take what was seen, and check every promise."""
        self.before, self.after = self.after, seen
        self.last_move = max([self.last_move, *(move.n for move in seen.moves)])
        for check in PROMISES:
            check(self)


def moves_are_edges_of_the_tables(book: Book) -> None:
    """Every change that was made is a move of the lifecycle; a job leaves the queue exactly as its result says."""
    left: dict[str, str] = {}
    came: dict[str, str] = {}
    for move in book.after.moves:
        if move.kind == "result":
            assert move.was is None, f"the result of job {move.id} was changed"
            came[move.id] = move.became or ""
        elif move.was is None:
            assert move.became in BIRTHS[move.kind], f"{move.kind} {move.id} began as {move.became}"
        elif move.became is None:
            left[move.id] = move.was
        elif move.was != move.became or move.kind == "job":
            assert (move.was, move.became) in EDGES[move.kind], f"{move.kind} {move.id}: {move.was} -> {move.became} is no move"
    assert left.keys() == came.keys(), f"left the queue {sorted(left)}, have a result {sorted(came)}"
    for job_id, was in left.items():
        assert (was, came[job_id]) in EDGES["job"], f"job {job_id}: {was} -> {came[job_id]} is no move"


def ended_jobs_never_move(book: Book) -> None:
    """What had a result before the step has the same one, and nothing else happened to it."""
    for job_id, result in book.before.results.items():
        assert book.after.results.get(job_id) == result, f"the result of {job_id} changed"
        assert book.after.events[job_id] == book.before.events[job_id], f"something followed the end of {job_id}"
    moved = {move.id for move in book.after.moves if move.kind in {"job", "result"}}
    assert not moved & book.before.results.keys(), f"ended jobs moved: {moved & book.before.results.keys()}"


def fences_rise_and_attempts_never_go_back(book: Book) -> None:
    """A claim gets a fence that was never used, above all earlier ones of its job, and the next number of an attempt."""
    for move in book.after.moves:
        if move.kind == "effect" and move.became == "sending":
            assert move.fence not in book.used_fences, f"fence {move.fence} was used twice"
            book.used_fences.add(move.fence or 0)
        if move.kind != "job" or move.attempt is None:
            continue
        known = book.attempts.get(move.id, 0)
        if move.became == "running":
            assert move.fence is not None, f"job {move.id} runs without a fence"
            assert move.fence not in book.used_fences, f"fence {move.fence} was used twice"
            assert move.fence > book.fences.get(move.id, 0), f"the fence of {move.id} went back"
            assert move.attempt == known + 1, f"attempt {move.attempt} of {move.id} follows attempt {known}"
            book.fences[move.id] = move.fence
            book.used_fences.add(move.fence)
        else:
            assert move.attempt == known, f"job {move.id} had {known} attempts, and has {move.attempt}"
        book.attempts[move.id] = move.attempt
    for row in book.after.queue.values():
        assert row.attempt <= row.attempts_allowed, f"{row.job_id} was tried more often than is allowed"


def every_key_has_one_job_and_every_job_one_place(book: Book) -> None:
    """A key that was accepted has its job for good, and a job is in the queue or has a result, never both or neither."""
    seen = book.after
    accepted = {job_id for job_id, _ in book.keys.values()}
    assert seen.jobs.keys() == accepted, f"accepted {sorted(accepted)}, stored {sorted(seen.jobs)}"
    for (action, key), (job_id, _) in book.keys.items():
        assert seen.jobs[job_id] == (action, key), f"job {job_id} is not the one of key {key}"
    assert Counter(job_id for _, job_id, _ in seen.keys) == Counter(accepted), "keys and jobs are not one to one"
    assert not seen.queue.keys() & seen.results.keys(), f"in both places: {seen.queue.keys() & seen.results.keys()}"
    assert seen.queue.keys() | seen.results.keys() == accepted, f"lost: {accepted - seen.queue.keys() - seen.results.keys()}"


def _check_rounds(job_id: str, state: str, at: int, events: list[EventRow]) -> None:
    rounds = [event.round for event in events]
    assert rounds == sorted(rounds), f"rounds of {job_id} are mixed: {rounds}"
    assert rounds[-1] == at, f"{job_id} is in round {at}, its last event in {rounds[-1]}"
    for number in range(1, at + 1):
        types = [event.type for event in events if event.round == number]
        endings = [kind for kind in types if kind in ENDINGS.values()]
        over = number < at or state in ENDINGS or state == PARKED
        assert len(endings) == over, f"round {number} of {job_id} ({state}) ended {len(endings)} times: {types}"
        assert not over or types[-1] == endings[0], f"something follows the end of round {number} of {job_id}: {types}"
    if state in ENDINGS or state == PARKED:
        assert events[-1].type == ENDINGS.get(state, "job.failed"), f"{job_id} is {state} and told {events[-1].type}"


def events_are_gapless_and_each_round_ends_once(book: Book) -> None:
    """Numbers run from 1 to last_seq; a round that is over has one ending event, its last; a live one has none."""
    for job_id in book.after.jobs:
        row = book.after.queue.get(job_id) or book.after.results[job_id]
        events = book.after.events[job_id]
        numbers = [event.seq for event in events]
        assert numbers == list(range(1, row.last_seq + 1)), f"events of {job_id}: {numbers}, last_seq {row.last_seq}"
        _check_rounds(job_id, row.state, row.round, events)


def nothing_is_on_the_outbox_unapproved(book: Book) -> None:
    """Each effect has an approval that people gave, enough of them, for exactly its digest."""
    for effect in book.after.effects.values():
        assert effect.verdict_id is None, "no policy here lets an effect through by itself"
        approval = book.after.approvals[effect.approval_id or ""]
        assert approval.state == "approved", f"effect {effect.effect_id} has an approval that is {approval.state}"
        assert effect.digest in approval.effect_digests, f"effect {effect.effect_id} is not what was approved"
    for approval in book.after.approvals.values():
        if approval.state == "approved":
            assert approval.approvers >= approval.quorum, f"approved by {approval.approvers} of {approval.quorum} people"


def jobs_agree_with_their_approvals_and_effects(book: Book) -> None:
    """Who waits for a person has something open; what has ended has nothing open; the outcome is what the effects say."""
    for job_id in book.after.jobs:
        state = book.after.state(job_id)
        approvals = [item.state for item in book.after.approvals.values() if item.job_id == job_id]
        effects = [item.state for item in book.after.effects_of(job_id)]
        assert ("pending" in approvals) == (state == "awaiting_human"), f"{job_id} is {state} with approvals {approvals}"
        alive = [one for one in effects if one in EFFECT.live]
        assert not alive or state in {"dispatching", "awaiting_human"}, f"{job_id} is {state} with effects {effects}"
        if state == "completed":
            assert all(one == "completed" for one in effects), f"{job_id} is completed with effects {effects}"
        if state == "canceled":
            assert all(one == "canceled" for one in effects), f"{job_id} is canceled with effects {effects}"
        assert all(one in APPROVAL.states for one in approvals)


def the_provider_did_nothing_twice_and_nothing_else(book: Book) -> None:
    """At most once, unless it was unknown and found not to have arrived; only what was approved; never while switched off."""
    for move in book.after.moves:
        if move.kind == "effect" and move.became == "unknown":
            book.been_unknown.add(move.id)
        if move.kind == "effect" and (move.was, move.became) == ("unknown", "pending"):
            book.disproved[move.id] += 1
    for order in book.provider.asked[book.orders_read :]:
        effect = book.after.effects[order.effect_id]
        assert order.switched_on, f"{order.slot} was sent while the switch was off"
        assert order.digest == effect.digest, f"{order.slot} was sent with other bytes than were approved"
        assert (order.job_id, order.slot, order.digest) in book.planned, f"{order.slot} was never planned like this"
    book.orders_read = len(book.provider.asked)
    for effect_id, times in book.provider.performed.items():
        allowed = 1 + book.disproved[effect_id]
        assert times <= allowed, f"effect {effect_id} was performed {times} times, {allowed} allowed"


def what_happened_is_not_denied(book: Book) -> None:
    """A completed effect has a receipt; one that the provider performed does not end otherwise without having been unknown."""
    for effect in book.after.effects.values():
        assert effect.state != "completed" or effect.receipts, f"effect {effect.effect_id} is completed without a receipt"
        ended_otherwise = effect.state in {"failed", "canceled"}
        if ended_otherwise and book.provider.performed[effect.effect_id]:
            assert effect.effect_id in book.been_unknown, f"{effect.slot} was performed, and is {effect.state}"
        if book.disproved[effect.effect_id] and TARGETS[effect.target] == "blind":
            assert effect.doubters > 1, f"{effect.slot} was disproved by one person alone"


PROMISES: tuple[Callable[[Book], None], ...] = (
    moves_are_edges_of_the_tables,
    ended_jobs_never_move,
    fences_rise_and_attempts_never_go_back,
    every_key_has_one_job_and_every_job_one_place,
    events_are_gapless_and_each_round_ends_once,
    nothing_is_on_the_outbox_unapproved,
    jobs_agree_with_their_approvals_and_effects,
    the_provider_did_nothing_twice_and_nothing_else,
    what_happened_is_not_denied,
)
