"""Rules: what the gate says of an effect, by code over facts. The first rule whose condition holds decides.

A rule may hold or deny for any reason, a model's judgement included. One that lets something out (`allow`, `delay`, `sample`)
reads facts alone and states its grounds; whatever lies outside of them is held for a person.
"""

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, cast, get_args

from deedbox.model.backoff import seconds
from deedbox.model.expression import compiled
from deedbox.model.facts import HELD_KINDS, Case, without

Verdict = Literal["allow", "delay", "sample", "hold", "deny"]
STRICTNESS: tuple[Verdict, ...] = get_args(Verdict)
"""From the mildest to the strictest: of a group's effects the strictest decides."""
LETTING = frozenset({"allow", "delay", "sample"})

Condition = str | Callable[..., bool]
LONGEST_NAME = 100


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was measured before a rule was let act: on which cases, on which day (ISO 8601), and which share of it was right."""

    cases: str
    date: str
    rate: float


@dataclass(frozen=True, slots=True)
class Grounds:
    """Why a rule may let something out without a person, and how far.

    What it lets out must be `reversible`, and `approved_by` says who answers for it. The rate of the `evidence`, and later the
    share of a sample that persons agreed with, is at least `threshold`. After `valid_until` (ISO 8601 with a zone), beyond
    `per_day` effects in a day (UTC), beyond `most` effects or recipients in one proposal, and for money, access or what is
    sensitive unless `covers` names it, the effect is held.
    """

    reversible: bool
    evidence: Evidence
    threshold: float
    approved_by: str
    valid_until: str
    per_day: int
    most: int = 10
    covers: tuple[Literal["money", "access", "sensitive"], ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its name, its verdict, and when it applies.

    `when` is a condition in CEL, or a function of Facts with a declared `version`, raised with every change of what it does; a
    function of a rule that holds or denies may take what a model judged as a second parameter. `window` is how long a delayed
    effect can be canceled (`10m`), `share` how much of a sample a person looks at (0.05). Everything is checked when an action
    is registered.
    """

    name: str
    verdict: Verdict
    when: Condition
    grounds: Grounds | None = None
    version: int | None = None
    window: str | float | None = None
    share: float | None = None

    @property
    def lets_out(self) -> bool:
        """Whether something may leave without a person."""
        return self.verdict in LETTING

    @property
    def window_s(self) -> float:
        """The window of a delay, in seconds; zero without one."""
        return 0.0 if self.window is None else seconds(self.window, name="window")

    @property
    def identity(self) -> str:
        """Name and hash: the same rule has the same one everywhere, a changed rule another."""
        return f"{self.name}:{hashlib.sha256(self.text.encode()).hexdigest()[:16]}"

    @property
    def text(self) -> str:
        """All that the rule is, for hashing."""
        when = self.when if isinstance(self.when, str) else f"python:{self.when.__qualname__}:{self.version}"
        grounds = None if self.grounds is None else asdict(self.grounds)
        window = None if self.window is None else self.window_s
        return json.dumps([self.name, self.verdict, when, grounds, window, self.share], sort_keys=True, default=str)


@dataclass(frozen=True, slots=True)
class Wish:
    """What the rules say of one effect, before the bounds that only the database knows.

    `verdict` is the strictest it can become; `wanted` is what the rule said where something about the effect itself kept it
    from being so. `why` is the rule's name, with what kept it.
    """

    slot: str
    group: str
    verdict: Verdict
    why: str
    rule: Rule | None = None
    wanted: Verdict | None = None


def wish(rules: tuple[Rule, ...], case: Case) -> Wish:
    """What the first rule that applies says; hold where none does, and where one that was reached cannot be evaluated."""
    for rule in rules:
        try:
            answer = _holds(rule, case)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 -- whatever a condition does (the engine's panic is no Exception): held
            return _failed(rule, case, type(error).__name__)
        if answer is True:
            return _within(rule, case)
        if answer is not False:
            return _failed(rule, case, "neither true nor false")
    return Wish(case.slot, case.group, "hold", "no rule applies")


def _holds(rule: Rule, case: Case) -> object:
    judged = not rule.lets_out
    if isinstance(rule.when, str):
        return compiled(rule.when).holds(case, judged=judged)
    facts = case.facts
    if not judged:
        facts = replace(facts, payload=_frozen(facts.payload, case))
    if judged and parameters(rule.when) > 1:
        return rule.when(facts, MappingProxyType(dict(case.judged)))
    return rule.when(facts)


def _frozen(payload: Mapping[str, Any], case: Case) -> Mapping[str, Any]:
    return MappingProxyType(cast("dict[str, Any]", without(payload, case.hidden)))


def _failed(rule: Rule, case: Case, what: str) -> Wish:
    return Wish(case.slot, case.group, "hold", f"{rule.name}: failed to evaluate ({what})", None, rule.verdict)


def _within(rule: Rule, case: Case) -> Wish:
    """The rule's verdict, or hold where the effect lies outside of its grounds."""
    grounds = rule.grounds
    if not rule.lets_out or grounds is None:
        return Wish(case.slot, case.group, "hold" if rule.lets_out else rule.verdict, rule.name, rule)
    outside = next(_outside(grounds, case), None)
    if outside is not None:
        return Wish(case.slot, case.group, "hold", f"{rule.name}: {outside}", None, rule.verdict)
    return Wish(case.slot, case.group, rule.verdict, rule.name, rule)


def _outside(grounds: Grounds, case: Case) -> Iterator[str]:
    facts = case.facts
    if facts.kind in HELD_KINDS and facts.kind not in grounds.covers:
        yield f"{facts.kind} is not covered"
    if facts.sensitive and "sensitive" not in grounds.covers:
        yield "sensitive fields are not covered"
    if facts.effects > grounds.most:
        yield f"more than {grounds.most} effects at once"
    if facts.recipients > grounds.most:
        yield f"more than {grounds.most} recipients at once"


def moment(text: str) -> datetime | None:
    """A time with a zone, or None for what is none."""
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo is not None else None


def parameters(when: Callable[..., Any]) -> int:
    """How many parameters a function takes."""
    return len(inspect.signature(when).parameters)
