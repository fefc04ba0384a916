"""The bounds of rules that let something out: validity, agreement, the draw of a sample, and the places of a day.

All of it is read, and the places are taken, in the transaction that settles the attempts, under the locks of the rules' days,
which come after those of queue rows and before those of approvals, in the order of their keys. So two admissions at once cannot
both have the last place, and an admission that is rolled back has taken none.
"""

import hmac
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

from deedbox.gate.judge import GroupVerdict, by_group, strictest
from deedbox.model.fingerprint import jcs
from deedbox.model.rules import Grounds, Rule, Wish
from deedbox.store import places
from deedbox.store.places import Key
from deedbox.store.pool import Connection


@dataclass(frozen=True, slots=True)
class Asked:
    """What the rules said of one attempt's effects, to be weighed."""

    attempt_id: UUID
    job_id: UUID
    tenant: str
    action: str
    policy_version: str
    wishes: tuple[Wish, ...]

    @property
    def denied(self) -> bool:
        """Whether some effect is denied, so that nothing of it leaves."""
        return any(item.verdict == "deny" for item in self.wishes)

    def key(self, rule: Rule) -> Key:
        """Whose places a rule of this action takes."""
        return Key(self.tenant, self.action, rule.name)


@dataclass(frozen=True, slots=True)
class Weighed:
    """What becomes of an attempt's proposal, and the verdict on each of its groups."""

    gate: Literal["hold", "deny", "authorize"]
    groups: tuple[GroupVerdict, ...]


@dataclass(slots=True)
class _Ledger:
    """What the database said, and what has been taken of it so far."""

    days: Mapping[Key, places.Day]
    draws: Mapping[UUID, places.Draw]
    taken: dict[Key, int] = field(default_factory=dict[Key, int])


def draw(secret: bytes, job_id: UUID, slot: str, policy_version: str) -> float:
    """A number from 0 to 1, the same for this slot of this job for ever, that nobody without the secret can foresee."""
    digest = hmac.digest(secret, jcs([str(job_id), slot, policy_version]), "sha256")
    return int.from_bytes(digest[:8]) / 2**64


async def weigh(connection: Connection, asked: Sequence[Asked]) -> dict[UUID, Weighed]:
    """Weigh what the rules said of these attempts, by attempt. The caller's transaction has locked their queue rows."""
    letting: dict[Key, Rule] = {}
    sampled: dict[UUID, str] = {}
    for one in asked:
        for rule in _letting(one):
            letting.setdefault(one.key(rule), rule)
            if rule.verdict == "sample":
                sampled[one.job_id] = one.policy_version
    draws = await places.draws(connection, sampled) if sampled else {}
    ledger = _Ledger(await places.lock_days(connection, _wanted(letting)) if letting else {}, draws)
    found = {one.attempt_id: _weighed(one, ledger) for one in asked}
    if ledger.taken:
        await places.take(connection, {key: (ledger.days[key].day, count) for key, count in ledger.taken.items()})
    return found


def _letting(one: Asked) -> Iterator[Rule]:
    if not one.denied:
        yield from (item.rule for item in one.wishes if item.rule is not None and item.rule.lets_out)


def _wanted(letting: Mapping[Key, Rule]) -> list[places.Wanted]:
    return [
        places.Wanted(key, rule.identity, rule.grounds.valid_until)
        for key, rule in sorted(letting.items())
        if rule.grounds is not None
    ]


def _weighed(one: Asked, ledger: _Ledger) -> Weighed:
    groups = by_group(one.wishes)
    if one.denied:
        verdicts = [_of_denied(group, strictest(found)) for group, found in groups.items()]
        return Weighed("deny", tuple(verdicts))
    verdicts = [_of_group(one, group, found, ledger) for group, found in groups.items()]
    return Weighed("authorize" if all(item.lets_out for item in verdicts) else "hold", tuple(verdicts))


def _of_denied(group: str, deciding: Wish) -> GroupVerdict:
    if deciding.verdict == "deny":
        return GroupVerdict(group, "deny", deciding.why, deciding.wanted)
    return GroupVerdict(group, "hold", f"{deciding.why}: another group was denied", deciding.verdict)


def _of_group(one: Asked, group: str, found: list[Wish], ledger: _Ledger) -> GroupVerdict:
    deciding = strictest(found)
    if deciding.verdict == "hold":
        return GroupVerdict(group, "hold", deciding.why, deciding.wanted)
    counts: dict[Key, tuple[Rule, Grounds, int]] = {}
    for item in found:
        if item.rule is not None and item.rule.grounds is not None:
            key = one.key(item.rule)
            before = counts.get(key)
            counts[key] = (item.rule, item.rule.grounds, 1 if before is None else before[2] + 1)
    for key, (rule, grounds, _) in counts.items():
        held = _outside(rule, grounds, ledger.days[key])
        if held is not None:
            sampled_by = rule.identity if held.counts and rule.verdict == "sample" else None
            return GroupVerdict(group, "hold", f"{rule.name}: {held.why}", rule.verdict, sampled_by=sampled_by)
    drawn = _drawn(one, found, ledger)
    if isinstance(drawn, Rule):
        return GroupVerdict(group, "hold", f"{drawn.name}: drawn", "sample", drawn=True, sampled_by=drawn.identity)
    for key, (rule, grounds, count) in counts.items():
        if ledger.days[key].used + ledger.taken.get(key, 0) + count > grounds.per_day:
            return GroupVerdict(group, "hold", f"{rule.name}: the day's {grounds.per_day} are used up", rule.verdict)
    for key, (_, _, count) in counts.items():
        ledger.taken[key] = ledger.taken.get(key, 0) + count
    window_s = max(rule.window_s for rule, _, _ in counts.values())
    return GroupVerdict(group, deciding.verdict, deciding.why, window_s=window_s, drawn=drawn)


@dataclass(frozen=True, slots=True)
class _Held:
    why: str
    counts: bool = False
    """Whether persons' decisions on what is held for this count for the rule's agreement."""


def _outside(rule: Rule, grounds: Grounds, day: places.Day) -> _Held | None:
    if day.rule != rule.identity:
        # Two versions of an action in one flush: the figures that were read are of the other's rule.
        return _Held("another version of it was weighed at the same time")
    if not day.valid:
        return _Held("its validity has ended")
    if day.asked and day.agreed / day.asked < grounds.threshold:
        return _Held(f"persons agreed with {day.agreed} of {day.asked}, below {grounds.threshold:g}", counts=True)
    return None


def _drawn(one: Asked, found: list[Wish], ledger: _Ledger) -> Rule | bool | None:
    """The rule under which the group was drawn, False where a sample let it pass, None where nothing was to be drawn."""
    sampling = [item for item in found if item.rule is not None and item.rule.verdict == "sample"]
    for item in sampling:
        known = ledger.draws[one.job_id]
        rule = item.rule
        if rule is not None and draw(known.secret, one.job_id, item.slot, known.policy_version) < (rule.share or 1):
            return rule
    return False if sampling else None
