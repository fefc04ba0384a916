"""Reading headers, query parameters and ids strictly: what cannot be understood is refused, never guessed at."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from uuid import UUID

from starlette.requests import Request

from deedbox.extend.action import MOST_PRIORITY
from deedbox.http.deps import LONGEST_WAIT_S
from deedbox.model.errors import DeedboxError, Problem

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SF_STRING = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_CALLER_RUN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,198}[\x21-\x7e])?")
_SECONDS = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,3})?")
_LONGEST_FILTER = 255
_DIGITS = re.compile(r"[0-9]{1,18}")
_FIELDS = "deedbox.fields"


@dataclass(frozen=True, slots=True)
class Prefer:
    """What the caller prefers: to wait so many seconds (0: not at all), or to be answered at once."""

    wait_s: float = 0.0
    at_once: bool = False


@cache
def wire_name(name: str) -> bytes:
    """A header's name as it is sent and received. For names that stand in the code: each is kept for ever."""
    return name.lower().encode("latin-1")


def header_values(request: Request, name: str) -> list[str]:
    """All values of a header, in order; empty where it is absent. They are sorted out once for a request."""
    known: dict[bytes, bytes] | None = request.scope.get(_FIELDS)
    if known is None:
        known = dict(request.scope["headers"])
        if len(known) != len(request.scope["headers"]):
            known = {}
        request.scope[_FIELDS] = known
    if known:
        value = known.get(wire_name(name))
        return [] if value is None else [value.decode("latin-1")]
    # Something stands more than once, or there is no header at all.
    return request.headers.getlist(name)


def one_header(request: Request, name: str, code: str = "invalid_header") -> str | None:
    """The header's value without blanks around it, None where it is absent. Raises DeedboxError where it stands twice."""
    values = header_values(request, name)
    if len(values) > 1:
        problem = Problem(f"/{name}", "repeated", "stands more than once")
        raise DeedboxError(code, f"The header {name} stands more than once.", problems=(problem,))
    return values[0].strip(" \t") if values else None


def idempotency_key(request: Request) -> str | None:
    """The key, quoted as an RFC 8941 string or bare, which is the same key; None where the header is absent.

    Raises DeedboxError key_invalid for a string that does not end, has other escapes, or is followed by anything. Intake
    checks the key itself.
    """
    value = one_header(request, "Idempotency-Key", "key_invalid")
    if value is None or not value.startswith('"'):
        return value
    match = _SF_STRING.fullmatch(value)
    if match is None:
        problem = Problem("/Idempotency-Key", "sf_string", "is not a string of RFC 8941")
        raise DeedboxError("key_invalid", "A quoted key is one string of RFC 8941 and nothing after it.", problems=(problem,))
    return re.sub(r"\\(.)", r"\1", match[1])


def prefer(request: Request) -> Prefer:
    """The preferences of RFC 7240 that we know; others, and what is malformed, are ignored as it asks."""
    wait_s, at_once = 0.0, False
    for value in header_values(request, "Prefer"):
        for part in value.split(","):
            name, _, argument = part.split(";", 1)[0].strip().lower().partition("=")
            if name.strip() == "respond-async":
                at_once = True
            elif name.strip() == "wait" and _SECONDS.fullmatch(argument.strip().strip('"')):
                wait_s = min(float(argument.strip().strip('"')), LONGEST_WAIT_S)
    return Prefer(wait_s, at_once)


def caller_run(request: Request) -> str | None:
    """The caller's own run id: 1 to 200 printable ASCII characters. Raises DeedboxError invalid_header."""
    value = one_header(request, "Deedbox-Caller-Run")
    if value is not None and not _CALLER_RUN.fullmatch(value):
        problem = Problem("/Deedbox-Caller-Run", "caller_run", "is not 1 to 200 printable ASCII characters")
        raise DeedboxError("invalid_header", "A run id is 1 to 200 printable ASCII characters.", problems=(problem,))
    return value


def callback(request: Request) -> str | None:
    """The name of a registered receiver of callbacks; intake knows which there are. Raises DeedboxError invalid_header."""
    value = one_header(request, "Deedbox-Callback")
    if value is not None and not _CALLER_RUN.fullmatch(value):
        raise _unusable("Deedbox-Callback", "the name of a registered receiver of callbacks")
    return value


def moment_parameter(request: Request, name: str) -> datetime | None:
    """A query parameter that is a moment with its zone; None where it is absent. Raises DeedboxError invalid_parameter."""
    text = request.query_params.get(name)
    if text is None:
        return None
    found = moment_of(text)
    if found is None:
        raise _bad_parameter(name, "a date and time with zone, such as 2027-03-01T09:00:00Z")
    return found


def moment_of(text: str) -> datetime | None:
    """A moment in RFC 3339 with its zone, None for anything else."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return parsed if parsed.tzinfo is not None and 1970 <= parsed.year <= 9000 else None  # noqa: PLR2004 -- years a database keeps


def priority(request: Request) -> int | None:
    """How urgent the job is, 0 to 1000. Raises DeedboxError invalid_header."""
    value = one_header(request, "Deedbox-Priority")
    if value is not None and (not _DIGITS.fullmatch(value) or int(value) > MOST_PRIORITY):
        raise _unusable("Deedbox-Priority", "a number from 0, the most urgent, to 1000")
    return None if value is None else int(value)


def moment(request: Request, name: str) -> str | None:
    """A moment in RFC 3339, with its zone. Raises DeedboxError invalid_header."""
    value = one_header(request, name)
    if value is None:
        return None
    parsed = moment_of(value)
    if parsed is None:
        raise _unusable(name, "a date and time with zone, such as 2027-03-01T09:00:00Z")
    return parsed.astimezone(UTC).isoformat()


def _unusable(name: str, what: str) -> DeedboxError:
    problem = Problem(f"/{name}", "header", f"is not {what}")
    return DeedboxError("invalid_header", f"{name} is {what}.", problems=(problem,))


def traceparent(request: Request) -> str | None:
    """The caller's trace; one that is malformed is dropped, as W3C Trace Context asks."""
    values = header_values(request, "traceparent")
    return values[0] if len(values) == 1 and _TRACEPARENT.fullmatch(values[0]) else None


def seconds(request: Request, name: str) -> float:
    """A query parameter in seconds, at most the longest wait; 0 where it is absent. Raises DeedboxError invalid_parameter."""
    text = request.query_params.get(name)
    if text is None:
        return 0.0
    if not _SECONDS.fullmatch(text):
        raise _bad_parameter(name, "a number of seconds such as 20")
    return min(float(text), LONGEST_WAIT_S)


def number(text: str, name: str, *, header: bool = False) -> int:
    """A whole number of at most 18 digits from a parameter or a header. Raises DeedboxError."""
    if _DIGITS.fullmatch(text):
        return int(text)
    if header:
        problem = Problem(f"/{name}", "number", "is not a whole number")
        raise DeedboxError("invalid_header", f"{name} is a whole number.", problems=(problem,))
    raise _bad_parameter(name, "a whole number")


def text_parameter(request: Request, name: str) -> str | None:
    """A query parameter as text that can be looked for. Raises DeedboxError invalid_parameter for one that cannot."""
    text = request.query_params.get(name)
    if text is not None and ("\x00" in text or len(text) > _LONGEST_FILTER):
        raise _bad_parameter(name, f"at most {_LONGEST_FILTER} characters, none of them U+0000")
    return text


def path_id(request: Request, name: str, thing: str) -> UUID:
    """An id from the path. Whatever is not one is answered as an unknown one: DeedboxError not_found."""
    text = str(request.path_params[name])
    if not _UUID.fullmatch(text):
        raise no_such(thing)
    return UUID(text)


def parameter_id(text: str, name: str) -> UUID:
    """An id from a query parameter. Raises DeedboxError invalid_parameter."""
    if not _UUID.fullmatch(text):
        raise _bad_parameter(name, "an id")
    return UUID(text)


def no_such(thing: str) -> DeedboxError:
    """The one answer for unknown and foreign ids."""
    return DeedboxError("not_found", f"There is no such {thing}, or it is not yours.")


def _bad_parameter(name: str, wanted: str) -> DeedboxError:
    problem = Problem(f"/{name}", "parameter", f"must be {wanted}")
    return DeedboxError("invalid_parameter", f"The parameter {name} must be {wanted}.", problems=(problem,))
