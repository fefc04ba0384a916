"""What keeps a policy from being registered: found when an application starts, never at its first job."""

import dis
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, cast

from pydantic import BaseModel

from deedbox.model.expression import compiled
from deedbox.model.facts import FIELDS, JUDGEMENTS, KINDS, VALIDATIONS
from deedbox.model.rules import LONGEST_NAME, STRICTNESS, Evidence, Grounds, Rule, moment, parameters

MOST_COUNT = 1_000_000
COVERS = ("money", "access", "sensitive")


def faults(rules: tuple[Rule, ...], known: "Known") -> Iterator[str]:
    """What keeps these rules from being registered, a sentence each; nothing where all is well."""
    names = [rule.name for rule in rules]
    for rule in rules:
        name = rule.name if isinstance(cast("object", rule.name), str) else "a rule"
        if not isinstance(cast("object", rule.name), str) or not name.strip() or len(name) > LONGEST_NAME or ":" in name:
            yield f"a rule's name is 1 to {LONGEST_NAME} characters without a colon, not {rule.name!r}"
        elif names.count(name) > 1:
            yield f"two rules are named {name!r}"
        if rule.verdict not in STRICTNESS:
            yield f"rule {name!r}: {rule.verdict!r} is none of {', '.join(STRICTNESS)}"
            continue
        yield from (f"rule {name!r}: {fault}" for fault in _of_rule(rule, known))


@dataclass(frozen=True, slots=True)
class Known:
    """What an application has, for conditions to be checked against: the action, its roles and output, and its connectors."""

    action: str
    roles: frozenset[str]
    output: type[BaseModel]
    payloads: Mapping[str, type[BaseModel]]
    judgements: frozenset[str] = field(default_factory=lambda: JUDGEMENTS)


def _of_rule(rule: Rule, known: Known) -> Iterator[str]:
    try:
        yield from _of_condition(rule, known)
        window_s = rule.window_s
    except ValueError as error:
        yield str(error)
        return
    if (rule.verdict == "delay") != (window_s > 0):
        yield "a delay needs a window" if rule.verdict == "delay" else "a window is for a delay"
    if (rule.verdict == "sample") != (rule.share is not None):
        yield "a sample needs a share" if rule.verdict == "sample" else "a share is for a sample"
    if rule.share is not None and not _number(rule.share, 0, 1):
        yield f"share {rule.share!r} is not above 0 and at most 1"
    if rule.lets_out and rule.grounds is None:
        yield f"to {rule.verdict} it needs grounds"
    elif not rule.lets_out and rule.grounds is not None:
        yield "grounds are for a rule that lets something out"
    elif rule.grounds is not None:
        yield from _of_grounds(rule.grounds)


def _number(value: object, low: float, high: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and low < value <= high


def _of_grounds(grounds: Grounds) -> Iterator[str]:
    if grounds.reversible is not True:
        yield "reversible must be True: what cannot be undone is decided by a person"
    yield from _of_evidence(cast("object", grounds.evidence), grounds.threshold)
    if not isinstance(cast("object", grounds.approved_by), str) or not grounds.approved_by.strip():
        yield "approved_by names who answers for it"
    if moment(grounds.valid_until) is None:
        yield f"valid_until {grounds.valid_until!r} is not a time with a zone, as 2026-12-31T00:00:00Z"
    for name, count in (("per_day", grounds.per_day), ("most", grounds.most)):
        if not isinstance(cast("object", count), int) or isinstance(count, bool) or not 1 <= count <= MOST_COUNT:
            yield f"{name} {count!r} is not a whole number from 1 to 1,000,000"
    for word in grounds.covers:
        if word not in COVERS:
            yield f"covers names {word!r}; it may name {', '.join(COVERS)}"


def _of_evidence(evidence: object, threshold: float) -> Iterator[str]:
    if not isinstance(evidence, Evidence) or not str(evidence.cases).strip():
        yield "evidence names the set of cases, the date and the rate"
    elif not _number(evidence.rate, 0, 1) or not _is_date(evidence.date):
        yield "evidence has a date as 2026-05-14 and a rate above 0 and at most 1"
    elif not _number(threshold, 0, 1):
        yield f"threshold {threshold!r} is not above 0 and at most 1"
    elif evidence.rate < threshold:
        yield f"the evidence's rate {evidence.rate:g} is below the threshold {threshold:g}"


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except (TypeError, ValueError):
        return False
    return True


def _of_condition(rule: Rule, known: Known) -> Iterator[str]:
    when = cast("object", rule.when)
    if isinstance(when, str):
        if rule.version is not None:
            yield "a version is for a function; a condition in CEL is its own"
        reads = compiled(when).reads
        if rule.lets_out and not reads.facts:
            yield "its condition reads no fact, so it says of nothing what is eligible"
        yield from _reads(rule, known, payload=reads.payload, judgement=reads.judgement)
        for name in sorted(reads.model - set(known.output.model_fields)):
            yield f"unknown field {name!r}: the action's output does not have it"
        yield from _words(reads.compared, known)
    elif callable(when) and not inspect.iscoroutinefunction(when):
        yield from _of_function(rule, cast("Callable[..., Any]", when), known)
    else:
        yield "`when` is a condition in CEL or a function of Facts"


def _of_function(rule: Rule, when: Callable[..., Any], known: Known) -> Iterator[str]:
    if not isinstance(rule.version, int) or isinstance(rule.version, bool) or rule.version < 1:
        yield "a function needs a version from 1 on, raised with every change of what it does"
    count = parameters(when)
    if count not in {1, 2}:
        yield "its function takes Facts, and what a model judged after that"
        return
    code = getattr(when, "__code__", None)
    if code is None:
        yield "its function is written in Python"
        return
    facts, payload = _function_reads(when, code)
    for name in sorted(facts - set(FIELDS)):
        yield f"unknown field {name!r}; the facts are {', '.join(FIELDS)}"
    if rule.lets_out and not facts:
        yield "its function reads no fact, so it says of nothing what is eligible"
    yield from _reads(rule, known, payload=payload, judgement=count > 1 or bool(payload & known.judgements))


def _reads(rule: Rule, known: Known, *, payload: frozenset[str], judgement: bool) -> Iterator[str]:
    if rule.lets_out and (judgement or payload & known.judgements):
        yield f"it reads what a model judged; such a rule may hold or deny, not {rule.verdict}"
    open_to_all = not known.payloads or any(one.model_config.get("extra") == "allow" for one in known.payloads.values())
    there = {name for one in known.payloads.values() for name in one.model_fields}
    for name in sorted(payload - there):
        if not open_to_all:
            yield f"unknown field {name!r}: no connector has it in its payload"


def _function_reads(when: Callable[..., Any], code: Any) -> tuple[set[str], frozenset[str]]:
    """The attributes that a function takes of its first parameter, and the literal members of `payload` among them."""
    first = next(iter(inspect.signature(when).parameters))
    steps = list(dis.get_instructions(code))
    facts: set[str] = set()
    payload: set[str] = set()
    for at, step in enumerate(steps[:-1]):
        if step.opname != "LOAD_FAST" or step.argval != first:
            continue
        if steps[at + 1].opname in {"LOAD_ATTR", "LOAD_METHOD"}:
            facts.add(str(steps[at + 1].argval))
            following = steps[at + 2] if at + 2 < len(steps) else None
            if steps[at + 1].argval == "payload" and following is not None and following.opname == "LOAD_CONST":
                payload.add(str(following.argval))
    return facts, frozenset(payload)


def _words(compared: Mapping[str, frozenset[str]], known: Known) -> Iterator[str]:
    there: dict[str, frozenset[str]] = {
        "role": known.roles,
        "kind": frozenset[str](KINDS),
        "validation": frozenset[str](VALIDATIONS),
        "connector": frozenset(known.payloads),
        "action": frozenset({known.action}),
    }
    for fact, words in compared.items():
        for word in sorted(words - there.get(fact, words)):
            yield f"unknown {fact} {word!r}; there is {', '.join(sorted(there[fact])) or 'none'}"
