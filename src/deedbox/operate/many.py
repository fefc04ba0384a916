"""Submitting a file: one input a line, hundreds in one commit, and an answer for each line that was refused."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, cast

from deedbox.intake.documents import Parsed, parse_canonically
from deedbox.intake.request import Accepted, Request
from deedbox.intake.submit import Intake
from deedbox.model.errors import DeedboxError, Problem
from deedbox.model.identity import Principal

AT_ONCE = 5000
"""So many lines are in memory at a time."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A line that made no job, counted from 1, and why."""

    line: int
    code: str
    message: str


@dataclass(slots=True)
class Tally:
    """What became of the lines of a file; blank ones are not counted."""

    accepted: int = 0
    replayed: int = 0
    refused: list[Refusal] = field(default_factory=list[Refusal])


async def submit_lines(
    intake: Intake,
    principal: Principal,
    action: str,
    lines: Iterable[bytes],
    *,
    key_from: str | None = None,
    callback: str | None = None,
) -> Tally:
    """Submit each line, a JSON object, as a call of its own; the member `key_from` names its key, else the action's rule does.

    `callback` is the registered receiver that is told what becomes of each. A file that is submitted again makes nothing twice
    where its keys are its own. Raises what reading the lines raises; all lines before those have been submitted then.
    """
    tally = Tally()
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    while chunk := list(islice(numbered, AT_ONCE)):
        calls: list[tuple[int, Request]] = []
        for number, line in chunk:
            try:
                calls.append((number, _call(principal, action, parse_canonically(line), key_from, callback)))
            except DeedboxError as error:
                await intake.journal_refusal(Request(principal, action, None, None, "cli"), error)
                tally.refused.append(_refusal(number, error))
        answers = await intake.submit_many([call for _, call in calls])
        for (number, _), answer in zip(calls, answers, strict=True):
            if not isinstance(answer, Accepted):
                tally.refused.append(_refusal(number, answer))
            elif answer.replayed:
                tally.replayed += 1
            else:
                tally.accepted += 1
    tally.refused.sort(key=lambda refusal: refusal.line)
    return tally


def _call(principal: Principal, action: str, parsed: Parsed, key_from: str | None, callback: str | None) -> Request:
    return Request(principal, action, parsed.value, _key(parsed.value, key_from), "cli", parsed=parsed, callback=callback)


def _key(value: Any, key_from: str | None) -> str | None:
    if key_from is None:
        return None
    found = cast("dict[str, Any]", value).get(key_from) if isinstance(value, dict) else None
    if isinstance(found, bool) or not isinstance(found, str | int):
        problem = Problem(f"/{key_from}", "key", "is to be the key: a text or a whole number")
        raise DeedboxError("key_invalid", f"The line has no {key_from!r} that can be a key.", problems=(problem,))
    return str(found)


def _refusal(number: int, error: DeedboxError) -> Refusal:
    return Refusal(number, error.code, error.sentence)
