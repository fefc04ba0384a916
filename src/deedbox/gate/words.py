"""The words of notices: fixed, plain, and without anything that an effect says or whom it reaches.

What stands in them comes from the database and from settings. Names are of people and services that an administrator made;
they are shown in one line, without characters that hide or reorder others, and cannot stand for a placeholder.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal
from uuid import UUID

from deedbox.gate.notices import LINK
from deedbox.model.alarms import CAUSES, Saying

_LONGEST = 200
_LONGEST_MESSAGE = 600
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "June", "July", "Aug", "Sept", "Oct", "Nov", "Dec")
_HEADS: dict[Saying, tuple[str, str]] = {
    "approval.request": ("Approval wanted", "Somebody is asked to decide, and you are one of those who may."),
    "approval.reminder": (
        "Reminder: approval wanted",
        "This still waits for a decision, and you are one of those who may decide.",
    ),
    "approval.escalation": (
        "Escalated: approval wanted",
        "Those who were asked first have not decided this in time, so you are asked as well.",
    ),
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What may be said of an approval before anybody has logged in."""

    action: str
    purpose: str
    asked_by: str | None
    expires_at: datetime
    quorum: int
    audience: Sequence[str]


@dataclass(frozen=True, slots=True)
class Alarm:
    """What is said of an alert; `age_s` is in seconds."""

    cause: str
    message: str
    job_id: UUID | None
    effect_id: UUID | None
    opened_at: datetime
    age_s: float


def one_line(text: str, longest: int = _LONGEST) -> str:
    """The text in one line, cut: what does not print becomes a question mark, and no placeholder is left in it."""
    shown = "".join(one if one.isprintable() else " " if one.isspace() else "?" for one in text[: longest + 1])
    shown = shown.replace("[[", "[ [")
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def when(moment: datetime) -> str:
    """A moment with its zone, in words that need no locale: `Thu 14 May 2026, 16:30 UTC`."""
    at = moment.astimezone(UTC)
    return f"{_DAYS[at.weekday()]} {at.day} {_MONTHS[at.month - 1]} {at.year}, {at.hour:02}:{at.minute:02} UTC"


def approval(saying: Saying, wanted: Wanted) -> tuple[str, str]:
    """Subject and text of a mail that asks somebody to decide; `LINK` stands where the link will be."""
    head, why = _HEADS[saying]
    action, asked_by = one_line(wanted.action), one_line(wanted.asked_by or "someone who is gone")
    kind = "whether an action may run with what it was given"
    if wanted.purpose == "effects":
        kind = "whether what an action has drafted goes out"
    needed = "one person decides" if wanted.quorum == 1 else f"{wanted.quorum} people have to approve"
    body = [
        why,
        "",
        f"To decide:  {kind}",
        f"Action:     {action}",
        f"Asked by:   {asked_by}",
        f"Decide by:  {when(wanted.expires_at)}",
        f"Who:        {needed}, with the role {one_line(' or '.join(wanted.audience))}",
        "",
        "Read it and decide it here, after logging in:",
        LINK,
        "",
        "Opening the link decides nothing. If nobody decides in time, nothing goes out.",
        "The link is meant for you alone; it shows no content to anybody who is not logged in.",
    ]
    return f"{head}: {action}, by {when(wanted.expires_at)}", "\n".join(body)


def alert(saying: Literal["alert.opened", "alert.reminder"], alarm: Alarm, public_url: str) -> tuple[str, str]:
    """Subject and text of an alert, or of a reminder that it is still open."""
    few = CAUSES.get(alarm.cause, one_line(alarm.cause.replace("_", " ")))
    head = "Alert" if saying == "alert.opened" else f"Still open after {_age(alarm.age_s)}"
    about = [("Job:", alarm.job_id), ("Effect:", alarm.effect_id)]
    body = [
        one_line(alarm.message, _LONGEST_MESSAGE),
        "",
        f"Cause:   {one_line(alarm.cause)}",
        *(f"{label:8} {value}" for label, value in about if value is not None),
        f"Since:   {when(alarm.opened_at)}",
        "",
        "It stays open until a person closes it, with a reason:",
        f"{public_url.rstrip('/')}/alerts",
    ]
    return f"{head}: {few}", "\n".join(body)


def _age(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
