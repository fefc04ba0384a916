"""Reading what HTTP providers answer: JSON, ids, and when to come back."""

import json
from email.utils import parsedate_to_datetime
from typing import Any, NoReturn

from deedbox.egress import Answer

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
    """The provider's `Retry-After` in seconds, at most an hour; None where it has none that can be read.

    Of a date, the distance to the answer's own `Date` is taken: both come from the provider's clock, and ours is not
    asked.
    """
    text = answer.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        # Twelve digits are already 30,000 years; more would only be a slow number to parse.
        return min(float(text[:12]), RETRY_AFTER_CAP_S)
    try:
        then = parsedate_to_datetime(text)
        now = parsedate_to_datetime(answer.headers.get("date", ""))
        wait = (then - now).total_seconds()
    except (ValueError, TypeError):
        # TypeError: one date has a zone and the other has none.
        return None
    return min(max(wait, 0.0), RETRY_AFTER_CAP_S)
