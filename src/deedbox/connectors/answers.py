"""Reading what HTTP providers answer: JSON, ids, and when to come back."""

import json
from typing import Any, NoReturn

from deedbox.egress import Answer, EgressRefused, MaybeSent, NotSent
from deedbox.extend.connector import Ambiguous, Refused, Transient
from deedbox.model.backoff import retry_after_s

SUCCESS = range(200, 300)
CLIENT_ERRORS = range(400, 500)
SERVER_ERRORS = range(500, 600)
RETRY_AFTER_CAP_S = 3600.0
_MAX_ID = 500


class UnreadableError(ValueError):
    """The body is not JSON that can be kept."""


def read_json(body: bytes) -> Any:
    """The JSON value of a UTF-8 body. Raises UnreadableError for anything else, NaN and endless nesting included."""

    def refuse(text: str) -> NoReturn:
        raise ValueError(text)

    try:
        return json.loads(body.decode("utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise UnreadableError("the body is not JSON") from error


def outcome_of(error: EgressRefused | NotSent | MaybeSent) -> Transient | Refused | Ambiguous:
    """What a call that got no answer means for an effect: refused, surely not sent, or not to be told."""
    if isinstance(error, EgressRefused):
        return Refused(error.failure_class, error.code, error.message, "connect")
    if isinstance(error, NotSent):
        return Transient("not_sent", error.code, error.message, error.phase)
    return Ambiguous(error.code, error.message, error.phase)


def id_in(value: Any, name: str) -> str | None:
    """The non-empty text or whole number under `name` in an object, as text; None where there is none."""
    found = value.get(name) if isinstance(value, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    if isinstance(found, str) and 0 < len(found) <= _MAX_ID and found.isprintable():
        return found
    return None


def location_of(answer: Answer) -> str | None:
    """The `Location` of an answer, if it has one that can be kept."""
    value = answer.headers.get("location", "").strip()
    return value if value and len(value) <= _MAX_ID and value.isprintable() else None


def retry_after(answer: Answer) -> float | None:
    """The provider's `Retry-After` in seconds, in either form, at most an hour; None where it has none that can be read."""
    wait = retry_after_s(answer.headers.get("retry-after", ""), answer.headers.get("date", ""))
    return None if wait is None else min(wait, RETRY_AFTER_CAP_S)
