"""Failure classes and the retry matrix: one function turns any failure into a class, and the class decides.

A failure is classified by where it came from, not by its exception type alone: whatever a handler raises that Deedbox's
own calls did not raise is the handler's bug.
"""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

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

JobVerb = Literal["back_off", "fail", "cancel"]
EffectVerb = Literal["retry", "lose_track", "refuse"]


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


_JOB: dict[FailureClass, JobVerb] = {
    "not_sent": "back_off",
    "rate_limited": "back_off",
    "overloaded": "back_off",
    "invalid_output": "fail",
    "truncated": "fail",
    "rejected_output": "fail",
    "caller_error": "fail",
    "denied": "fail",
    "bug": "fail",
    "ambiguous": "fail",
    "lost": "back_off",
    "canceled": "cancel",
}

_EFFECT: dict[FailureClass, EffectVerb] = {
    "not_sent": "retry",
    "rate_limited": "retry",
    "overloaded": "lose_track",
    "caller_error": "refuse",
    "denied": "refuse",
    "bug": "lose_track",
    "ambiguous": "lose_track",
    "lost": "lose_track",
}


def classify(error: BaseException) -> Failure:
    """The class, code and safe sentence of anything a handler or a connector raised."""
    if isinstance(error, ActionFailure):
        return Failure(error.failure_class, error.code, error.message, error.retry_after)
    name = type(error).__name__
    return Failure("bug", "handler_error", f"The action's code raised {name}; the details are in the worker's log.")


def job_verb(failure_class: FailureClass) -> JobVerb:
    """What becomes of a job whose attempt failed this way; back_off turns into exhaust when no attempt is left."""
    return _JOB[failure_class]


def effect_verb(failure_class: FailureClass) -> EffectVerb:
    """What becomes of an effect whose sending ended this way; anything not listed may have been accepted."""
    return _EFFECT.get(failure_class, "lose_track")


def class_of_status(status: int) -> FailureClass:
    """The class of an HTTP status answered by a provider (RFC 9110; 429 from RFC 6585)."""
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return "rate_limited"
    if status in (401, 403):
        return "denied"
    if status in (408, 425) or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "overloaded"
    return "caller_error"
