"""What a person is told of: the causes of alerts, and when people are told about an approval that waits."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

CAUSES: Mapping[str, str] = {
    "exhausted": "a job has used up its attempts",
    "given_up": "a job's worker was lost, and no attempt is left",
    "taken_over_repeatedly": "a job is taken over from lost workers again and again",
    "invalid_output": "a job failed: its output did not match its schema",
    "truncated": "a job failed: its output was cut off",
    "denied": "a job failed: it was refused the right",
    "bug": "a job failed of a bug",
    "job_misplaced": "a job is in the queue and has ended, or neither",
    "jobs_queued_long": "jobs wait longer than they should",
    "effect_unknown": "it is not known whether an effect was accepted",
    "effect_unknown_long": "an unknown effect has been left unsettled for long",
    "unknown_unresolved": "an unknown effect has been looked up often enough, and is a person's now",
    "breaker_open": "a target fails again and again, and is left alone for a while",
    "target_disabled": "a receiver of callbacks is gone, and is told nothing more",
    "effect_denied": "a target refused the credentials or the right",
    "receipt_after_end": "a receipt came for an effect that had ended",
    "no_approver": "nobody is there who could decide an approval",
}
"""Every cause of an alert, and what it says in a few words."""

ANY = "default"
"""Stands for every cause that has no owners of its own."""

Saying = Literal["approval.request", "approval.reminder", "approval.escalation"]
REQUEST, ESCALATION = "request", "escalation"


@dataclass(frozen=True, slots=True)
class Stage:
    """What is to be said of an approval now, if anything; what counts as said by that; and when to look next.

    `next_s` is in seconds after the request, None where nothing more will be said.
    """

    say: Saying | None
    marks: tuple[str, ...]
    next_s: float | None


def stage_of(*, age_s: float, life_s: float, parts: Sequence[float], said: Collection[str], escalated: bool) -> Stage:
    """What is to be said of an approval that was asked for `age_s` seconds ago and lapses `life_s` seconds after that.

    `parts` are the parts of its life after which people are reminded. What is late is said once: of several reminders that are
    due only one is sent, and a request that comes late stands for the reminders before it.
    """
    reminders = {f"reminder:{part:g}": part * life_s for part in sorted(parts)}
    passed = tuple(name for name, at_s in reminders.items() if at_s <= age_s and name not in said)
    say: Saying | None = None
    marks: tuple[str, ...] = ()
    if REQUEST not in said:
        say, marks = "approval.request", (REQUEST, *passed, *((ESCALATION,) if escalated else ()))
    elif escalated and ESCALATION not in said:
        say, marks = "approval.escalation", (ESCALATION,)
    elif passed:
        say, marks = "approval.reminder", passed
    left = [at_s for name, at_s in reminders.items() if name not in said and name not in marks]
    return Stage(say, marks, min(left, default=None))
