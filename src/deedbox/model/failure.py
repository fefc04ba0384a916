"""Failure classes and the retry matrix: one function turns any failure into a class, and another decides by the class.

A failure is classified by where it came from, not by its exception type alone: whatever a handler raises that Deedbox's
own calls did not raise is the handler's bug.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal, cast

from deedbox.model.values import short_message, storable_text

FailureClass = Literal[
    "not_sent",
    "rate_limited",
    "overloaded",
    "invalid_output",
    "truncated",
    "rejected_output",
    "caller_error",
    "denied",
    "bug",
    "ambiguous",
    "lost",
    "canceled",
]

Answer = Literal["retry", "retry_once", "fail", "hold"]
"""What an action may say about a class of failure: again with backoff, again once, end, or let a person decide."""

JobVerb = Literal["back_off", "fail", "hold", "cancel"]
EffectVerb = Literal["retry", "resend_same_key", "lose_track", "refuse"]

LONGEST_CODE = 100


class ActionFailure(Exception):  # noqa: N818 -- the word of the design: a failure has a class
    """A failure whose class is known where it was raised.

    `code` is stable and safe to show; `message` is a sentence that can be said aloud; `retry_after` is in seconds.
    """

    def __init__(self, failure_class: FailureClass, code: str, message: str, *, retry_after: float | None = None) -> None:
        """Bind class, code, sentence and the provider's own wait."""
        super().__init__(message)
        self.failure_class: FailureClass = failure_class
        self.code = code
        self.message = message
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Failure:
    """What the journal keeps of a failure: never a stack trace, never a payload."""

    failure_class: FailureClass
    code: str
    message: str
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the matrix.

    `job` is what becomes of the job by default and `choices` what its action may say instead. `effect` is what becomes of an
    effect whose sending ended so, None where no sending ends so. `alert`: a person is told when the job ends of it.
    """

    job: Answer | Literal["cancel"]
    choices: tuple[Answer, ...]
    effect: EffectVerb | None
    alert: bool = False


MATRIX: Mapping[FailureClass, Rule] = {
    "not_sent": Rule("retry", ("retry", "retry_once", "fail"), "retry"),
    "rate_limited": Rule("retry", ("retry", "retry_once", "fail"), "retry"),
    "overloaded": Rule("retry", ("retry", "retry_once", "fail"), "lose_track"),
    # Repaired within the attempt, as far as that goes: what is left will not get better by itself.
    "invalid_output": Rule("fail", ("retry", "retry_once", "fail", "hold"), None, alert=True),
    "truncated": Rule("fail", ("retry", "retry_once", "fail", "hold"), None, alert=True),
    "rejected_output": Rule("fail", ("fail", "hold"), None),
    "caller_error": Rule("fail", ("retry", "retry_once", "fail"), "refuse"),
    "denied": Rule("fail", ("retry", "retry_once", "fail"), "refuse", alert=True),
    # Never over and over: a bug that came twice stays.
    "bug": Rule("fail", ("retry_once", "fail"), None, alert=True),
    "ambiguous": Rule("fail", ("retry", "retry_once", "fail"), "lose_track"),
    "lost": Rule("retry", (), "lose_track"),
    "canceled": Rule("cancel", (), None),
}


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows from a failure: for the job, for the effect, and whether a person is told when the job ends of it."""

    job: JobVerb
    effect: EffectVerb
    alert: bool


def decide(
    failure_class: FailureClass,
    *,
    on_failure: Mapping[FailureClass, Answer] | None = None,
    repeated: bool = False,
    native_key: bool = False,
    not_taken: bool = False,
) -> Decision:
    """The whole matrix: what becomes of a job's attempt, or of an effect, that ended with this class.

    For a job, `on_failure` is what its action says of classes, and `repeated` that an earlier attempt of the same round was
    tried again for the same class already. `back_off` turns into exhaust where no attempt is left. For an effect, `native_key`
    says that the target still knows the key, and `not_taken` that the connector declares such an answer as not taken. What
    ends in a way that no sending should may have been accepted.
    """
    rule = MATRIX[failure_class]
    said = on_failure.get(failure_class) if on_failure else None
    answer = rule.job if said is None else said
    verb: JobVerb
    if answer == "retry" or (answer == "retry_once" and not repeated):
        verb = "back_off"
    else:
        verb = "fail" if answer == "retry_once" else answer
    effect = rule.effect or "lose_track"
    if effect == "lose_track" and failure_class == "overloaded" and not_taken:
        effect = "retry"
    elif effect == "lose_track" and native_key:
        effect = "resend_same_key"
    return Decision(verb, effect, rule.alert and verb == "fail")


def checked_answers(on_failure: Mapping[FailureClass, Answer], *, has_approvers: bool) -> dict[FailureClass, Answer]:
    """What an action says of failure classes, checked. Raises ValueError naming the class and what may be said of it."""
    for failure_class, answer in on_failure.items():
        rule = MATRIX.get(failure_class)
        if rule is None:
            raise ValueError(f"on_failure: {failure_class!r} is no failure class; there are {', '.join(MATRIX)}")
        if answer not in rule.choices:
            may = f"may be {', '.join(rule.choices)}" if rule.choices else "is not the action's to decide"
            raise ValueError(f"on_failure: {failure_class} {may}, not {answer!r}")
        if answer == "hold" and not has_approvers:
            raise ValueError(f"on_failure: {failure_class} is held for a person, so approvers must name a role")
    return dict(on_failure)


def classify(error: BaseException) -> Failure:
    """The class, code and safe sentence of anything a handler or a connector raised.

    A group of failures (of a TaskGroup) is what its gravest is: one that ends the job before one that is tried again, and of
    those the one with the longest wait. Anything else in the group makes it a bug.
    """
    leaves = list(_leaves(error))
    known = [_said(leaf) for leaf in leaves if isinstance(leaf, ActionFailure)]
    if known and len(known) == len(leaves):
        return min(known, key=lambda item: (MATRIX[item.failure_class].job == "retry", -(item.retry_after or 0)))
    name = type(error).__name__
    return Failure("bug", "handler_error", f"The action's code raised {name}; the details are in the worker's log.")


def job_verb(failure_class: FailureClass) -> JobVerb:
    """What becomes of a job whose attempt failed this way and whose action says nothing else."""
    return decide(failure_class).job


def class_of_status(status: int) -> FailureClass:
    """The class of an HTTP status answered by a provider (RFC 9110; 429 from RFC 6585)."""
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return "rate_limited"
    if status in (401, 403):
        return "denied"
    if status in (408, 425) or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "overloaded"
    return "caller_error"


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
        yield from _leaves(inner)


def _said(error: ActionFailure) -> Failure:
    """What a handler said of its failure, in a form that can be kept: a job ends whatever was written into it."""
    if error.failure_class not in MATRIX:
        return Failure("bug", "unknown_class", "The action's code raised a failure of a class that does not exist.")
    code = storable_text(str(error.code))[:LONGEST_CODE] or "unnamed"
    return Failure(error.failure_class, code, short_message(str(error.message)), _finite(error.retry_after))


def _finite(wait: object) -> float | None:
    return float(wait) if isinstance(wait, int | float) and math.isfinite(wait) and wait >= 0 else None
