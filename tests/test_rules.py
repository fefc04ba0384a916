"""Rules by themselves: what keeps them from starting, and what they say of an effect."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbox.extend.action import RegistrationError
from deedbox.model.expression import compiled
from deedbox.model.facts import Case, Facts, count_recipients, gravest
from deedbox.model.policy import Policy, hold, rules
from deedbox.model.rules import Evidence, Rule, wish
from tests.guarantees import proves
from tests.ruled import app_with, grounds, small


def tiny(facts: Facts) -> bool:
    """A rule in Python."""
    return facts.payload["amount"] <= 20


def judged(facts: Facts, said: Any) -> bool:
    """One that wants a judgement."""
    return facts.effects > 0 and said["score"] > 0


def misspelt(facts: Any) -> bool:
    """One that reads what is not there."""
    return facts.amuont == 1


def no_such_field(facts: Facts) -> bool:
    """One that reads a field that no connector has."""
    return facts.payload["amnt"] == 1


def guessed(facts: Facts) -> bool:
    """One that reads a field that is marked as a judgement."""
    return facts.payload["guess"] > 1


def truthy(facts: Facts) -> Any:
    """One that answers with whatever it finds."""
    return facts.payload["vip"]


def leaves(facts: Facts) -> bool:
    """One that wants to end the process."""
    raise SystemExit(facts.effects)


def fraud(facts: Facts, said: Any) -> bool:
    """One that denies by a judgement."""
    return facts.effects > 0 and said["label"] == "fraud"


async def later(_facts: Facts) -> bool:
    """One that would have to be awaited."""
    return True


def rule(**changes: Any) -> Rule:
    """A good rule that allows, with changes."""
    good: dict[str, Any] = {"name": "r", "verdict": "allow", "when": "payload.amount <= 20", "grounds": grounds()}
    return Rule(**{**good, **changes})


BAD: dict[str, tuple[Policy | Callable[[], Any], str]] = {
    "no rule": (rules(), "has no rule"),
    "a word": (lambda: "hodl", "policy is made by"),
    "verdict": (rules(rule(verdict="alow")), "'alow' is none of"),
    "no grounds": (rules(rule(grounds=None)), "to allow it needs grounds"),
    "no grounds to delay": (rules(rule(verdict="delay", window="1m", grounds=None)), "to delay it needs grounds"),
    "no window": (rules(rule(verdict="delay")), "a delay needs a window"),
    "window": (rules(rule(window="1m")), "a window is for a delay"),
    "bad window": (rules(rule(verdict="delay", window="soon")), "is not a duration"),
    "no share": (rules(rule(verdict="sample")), "a sample needs a share"),
    "share": (rules(rule(verdict="sample", share=0.0)), "share 0.0"),
    "share of two": (rules(rule(verdict="sample", share=2)), "share 2"),
    "true share": (rules(rule(verdict="sample", share=True)), "share True"),
    "grounds to hold": (rules(rule(verdict="hold")), "grounds are for a rule that lets"),
    "not reversible": (rules(rule(grounds=grounds(reversible=False))), "reversible must be True"),
    "reversible in words": (rules(rule(grounds=grounds(reversible="yes"))), "reversible must be True"),
    "evidence": (rules(rule(grounds=grounds(evidence=None))), "evidence names"),
    "evidence without date": (rules(rule(grounds=grounds(evidence=Evidence("x", "spring", 1.0)))), "evidence has a date"),
    "too little evidence": (rules(rule(grounds=grounds(threshold=0.995))), "below the threshold"),
    "threshold": (rules(rule(grounds=grounds(threshold=0))), "threshold 0 "),
    "nobody": (rules(rule(grounds=grounds(approved_by=" "))), "approved_by names"),
    "no zone": (rules(rule(grounds=grounds(valid_until="2999-01-01T00:00:00"))), "is not a time with a zone"),
    "no time": (rules(rule(grounds=grounds(valid_until="always"))), "is not a time with a zone"),
    "no ceiling": (rules(rule(grounds=grounds(per_day=0))), "per_day 0"),
    "endless": (rules(rule(grounds=grounds(per_day=float("inf")))), "per_day inf"),
    "covers": (rules(rule(grounds=grounds(covers=("cash",)))), "covers names 'cash'"),
    "twice": (rules(rule(), rule()), "two rules are named 'r'"),
    "nameless": (rules(rule(name=" ")), "a rule's name"),
    "empty condition": (rules(rule(when="  ")), "the condition is empty"),
    "syntax": (rules(rule(when="payload.amount <")), "cannot be read"),
    "field": (rules(rule(when="amuont < 3")), "unknown field 'amuont'"),
    "payload field": (rules(rule(when="payload.amnt < 3")), "unknown field 'amnt'"),
    "output field": (rules(rule(verdict="hold", grounds=None, when="model.scoer < 3")), "unknown field 'scoer'"),
    "role": (rules(rule(when="role == 'operater'")), "unknown role 'operater'"),
    "role in list": (rules(rule(when="role in ['operator', 'mananger']")), "unknown role 'mananger'"),
    "role turned": (rules(rule(when="'operater' == role")), "unknown role 'operater'"),
    "kind": (rules(rule(when="kind == 'cash'")), "unknown kind 'cash'"),
    "connector": (rules(rule(when="connector != 'smpt'")), "unknown connector 'smpt'"),
    "function": (rules(rule(when="evil(payload.amount)")), "unknown function 'evil'"),
    "no fact": (rules(rule(when="true")), "reads no fact"),
    "judgement": (rules(rule(when="payload.amount < 3 && model.score > 0.9")), "reads what a model judged"),
    "judgement in payload": (rules(rule(when="payload.confidence > 0.9")), "reads what a model judged"),
    "judgement by index": (rules(rule(when="payload['confidence'] > 0.9")), "reads what a model judged"),
    "marked judgement": (rules(rule(when="payload.guess > 0.9")), "reads what a model judged"),
    "judgement in a list": (rules(rule(when="payload.to.exists(x, x.label == 'ok')")), "reads what a model judged"),
    "whole payload": (rules(rule(when="[payload].exists(p, true)")), "read by the names of its fields"),
    "computed name": (rules(rule(when="payload['a' + 'b'] == 1")), "read by the names of its fields"),
    "escaped name": (rules(rule(when=r"payload['\x73core'] > 1")), "written plainly, without escapes"),
    "nested loops": (rules(rule(when="payload.to.exists(x, payload.to.exists(y, x == y))")), "within another"),
    "shadow": (rules(rule(when="payload.to.exists(role, role == 'x')")), "it is a fact"),
    "long": (rules(rule(when="payload.amount < 1 || " * 60 + "payload.amount < 1")), "more than 1000 characters"),
    "unversioned": (rules(rule(when=tiny)), "needs a version"),
    "version of a text": (rules(rule(version=1)), "a version is for a function"),
    "asks for judgement": (rules(rule(when=judged, version=1)), "reads what a model judged"),
    "marked in python": (rules(rule(when=guessed, version=1)), "reads what a model judged"),
    "python field": (rules(rule(when=misspelt, version=1)), "unknown field 'amuont'"),
    "python payload": (rules(rule(when=no_such_field, version=1)), "unknown field 'amnt'"),
    "coroutine": (rules(rule(when=later, version=1)), "a condition in CEL or a function"),
    "number": (rules(rule(when=7)), "a condition in CEL or a function"),
}


@proves("G-POLICY-AT-START")
@pytest.mark.parametrize("name", sorted(BAD))
def test_what_cannot_stand_refuses_to_start(name: str) -> None:
    policy, says = BAD[name]
    with pytest.raises(RegistrationError, match=f"^refund_customer: .*{re.escape(says)}"):
        app_with(policy() if callable(policy) else policy)


def test_without_approvers_rules_refuse_to_start() -> None:
    with pytest.raises(RegistrationError, match="approvers must name a role"):
        app_with(approvers=[])
    with pytest.raises(RegistrationError, match="its input is held"):
        app_with(policy=Policy("allow", "no_effects_expected"), approvers=[], hold_input=True)
    with pytest.raises(RegistrationError, match="kind 'cash' is none of"):
        app_with(kind="cash")


@pytest.mark.parametrize(
    "good",
    [
        small(),
        small("delay", window="10m"),
        small("sample", share=0.05),
        rule(when=tiny, version=3),
        rule(when="role == 'operator' && kind in ['record', 'message'] && size(payload.to) < 3"),
        rule(when="payload.to.exists(x, x == 'a') || payload.to.exists(y, y == 'b')"),
        rule(verdict="hold", grounds=None, when="model.score < 0.8 || payload.confidence < 0.8"),
        rule(verdict="deny", grounds=None, when=judged, version=1),
        rule(verdict="hold", grounds=None, when="true"),
    ],
)
def test_what_can_stand_starts(good: Rule) -> None:
    assert app_with(rules(good)).actions["refund_customer"].policy.rules == (good,)


def case(*, output: dict[str, Any] | None = None, **facts: Any) -> Case:
    """A case of these facts."""
    given: dict[str, Any] = {"action": "a", "connector": "bank", "target": "till", "payload": {"amount": 5}, **facts}
    return Case("one", "default", Facts(**given), output or {})


@proves("G-RULES-FIRST")
def test_the_first_rule_that_applies_decides_and_the_default_is_hold() -> None:
    ordered = (
        Rule("never", "deny", "payload.amount > 1000"),
        Rule("large", "hold", "payload.amount > 20"),
        small(),
        Rule("late", "deny", "true"),
    )
    assert (wish(ordered, case(payload={"amount": 2000})).verdict, wish(ordered, case()).verdict) == ("deny", "allow")
    assert (found := wish(ordered, case(payload={"amount": 30}))).verdict == "hold"
    assert found.why == "large"
    assert wish(ordered[:3], case(payload={"amount": -1})).why == "small"
    nothing = wish((Rule("never", "deny", "payload.amount > 1000"),), case())
    assert (nothing.verdict, nothing.why) == ("hold", "no rule applies")


@proves("G-RULE-FAILS-HOLDS")
@pytest.mark.parametrize(
    ("when", "version", "payload"),
    [
        ("payload.missing > 3", None, {"amount": 5}),
        ("payload.amount > 3", None, {"amount": "five"}),
        ("payload.vip", None, {"vip": "yes"}),
        ("payload.vip", None, {"vip": 1}),
        ("payload.amount / 0 == 1", None, {"amount": 5}),
        ("payload.amount", None, {"amount": 5}),
        ("payload.text == 'x'", None, {"text": "y" * 70000}),
        (truthy, 1, {"vip": "yes"}),
        (truthy, 1, {}),
        (leaves, 1, {}),
    ],
)
def test_a_rule_that_fails_to_evaluate_holds_whatever_comes_after_it(when: Any, version: int | None, payload: Any) -> None:
    broken = rule(when=when, version=version)
    found = wish((broken, Rule("all", "allow", "effects > 0", grounds())), case(payload=payload))
    assert (found.verdict, found.why.split(" (")[0]) == ("hold", "r: failed to evaluate")
    denying = Rule("no", "deny", when, version=version)
    assert wish((denying,), case(payload=payload)).verdict == "hold"


@proves("G-JUDGEMENT-ONLY-HOLDS")
def test_what_a_model_judged_holds_and_denies_and_is_not_there_for_what_lets_out() -> None:
    seen: list[Any] = []

    def peeks(facts: Facts) -> bool:
        seen.append(dict(facts.payload))
        return facts.payload.get("score", 0) > 0.5

    sure = {"amount": 5, "score": 0.99, "deep": {"label": "safe", "n": 1}}
    assert wish((rule(when=peeks, version=1),), case(payload=sure, output={"score": 1.0})).why == "no rule applies"
    assert seen == [{"amount": 5, "deep": {"n": 1}}]
    assert wish((Rule("doubt", "hold", "model.score < 0.8"), small()), case(output={"score": 0.5})).why == "doubt"
    assert wish((Rule("doubt", "hold", "model.score < 0.8"), small()), case(output={"score": 0.9})).verdict == "allow"
    assert wish((Rule("doubt", "hold", "model.score < 0.8"), small()), case(output={})).why.startswith("doubt: failed")
    assert wish((Rule("no", "deny", fraud, version=1),), case(output={"label": "fraud"})).verdict == "deny"


@proves("G-GROUNDS")
@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"kind": "money"}, "small: money is not covered"),
        ({"kind": "access"}, "small: access is not covered"),
        ({"sensitive": True}, "small: sensitive fields are not covered"),
        ({"effects": 11}, "small: more than 10 effects at once"),
        ({"recipients": 11}, "small: more than 10 recipients at once"),
    ],
)
def test_outside_of_its_grounds_a_rule_holds_unless_it_covers_it(facts: dict[str, Any], why: str) -> None:
    assert (found := wish((small(),), case(**facts))).verdict == "hold"
    assert found.why == why
    wide = small(grounds=grounds(covers=("money", "access", "sensitive"), most=11))
    assert wish((wide,), case(**facts)).verdict == "allow"


def test_the_version_is_a_hash_of_engine_rules_and_facts() -> None:
    one, two = rules(small()), rules(small(grounds=grounds(per_day=101)))
    assert one.version == rules(small()).version
    assert one.version.startswith("deedbox-rules-1:")
    others = [two, rules(small(), expires="1h"), rules(small(), quorum=2), rules(rule()), hold()]
    others += [rules(Rule("a", "hold", tiny, version=1)), rules(Rule("a", "hold", tiny, version=2))]
    others += [rules(Rule("a", "hold", "effects > 1"), Rule("b", "hold", "effects > 2"))]
    others += [rules(Rule("b", "hold", "effects > 2"), Rule("a", "hold", "effects > 1"))]
    assert len({policy.version for policy in [one, *others]}) == len(others) + 1
    assert hold().version == hold(expires=86400).version


def test_kinds_and_recipients_are_counted_as_declared() -> None:
    assert (gravest(), gravest("message", None), gravest("message", "money"), gravest("access", "message")) == (
        "record",
        "message",
        "money",
        "access",
    )
    assert count_recipients({"to": ["a", "b"], "cc": "c, d", "bcc": None}) == 4
    assert count_recipients({"amount": 3}) == 1


@given(st.text(max_size=60))
def test_any_text_is_a_condition_or_says_why_not(text: str) -> None:
    try:
        expression = compiled(text)
    except ValueError:
        return
    assert wish((Rule("x", "hold", expression.source),), case()).verdict == "hold"


@given(
    st.dictionaries(
        st.sampled_from(["amount", "to", "vip", "score"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3),
            max_leaves=4,
        ),
    )
)
def test_no_payload_lets_anything_out_that_is_not_eligible(payload: dict[str, Any]) -> None:
    found = wish((small(),), case(payload=payload))
    amount = payload.get("amount")
    eligible = isinstance(amount, (int, float)) and not isinstance(amount, bool) and amount <= 20
    assert (found.verdict == "allow") <= eligible
