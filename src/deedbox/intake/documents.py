"""Reading what a caller sent: strict JSON with a pointer to every value that cannot be kept."""

import json
import math
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from deedbox.model.errors import DeedboxError, InvalidValueError, Problem
from deedbox.model.fingerprint import MAX_SAFE_INTEGER, encode, jcs

MAX_DEPTH = 64
MOST_DIGITS = 17
"""2^53 has 16 digits; with its sign no kept integer is longer than this."""


class _Repeated(dict[str, Any]):
    """An object in which a member stood twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        seen: set[str] = set()
        self.member = next(name for name, _ in pairs if name in seen or seen.add(name))


class _Unkept:
    """A number JSON text can spell and no store can keep."""

    def __init__(self, text: str) -> None:
        self.text = text


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _Repeated(pairs)


def _integer(text: str) -> int | _Unkept:
    if len(text) > MOST_DIGITS:
        return _Unkept(text[:20])
    value = int(text)
    return value if -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER else _Unkept(text)


class _Odd(Exception):  # noqa: N818 -- not an error: it sends a text the long way
    """Something that the quick reading does not judge."""


def _quick_integer(text: str) -> int:
    if len(text) > _SURELY_SAFE_DIGITS:
        raise _Odd
    return int(text)


def _canonical_float(text: str) -> float | int:
    value = float(text)
    return int(value) if value.is_integer() else value


def _quick_constant(_text: str) -> Any:
    raise _Odd


# Fewer digits than 2^53 has.
_SURELY_SAFE_DIGITS = 15
_TO_ZERO = bytes(ord("0") if chr(byte).isdecimal() and byte < 128 else byte for byte in range(256))  # noqa: PLR2004 -- ASCII
_MANY_DIGITS = b"0" * (_SURELY_SAFE_DIGITS + 1)
# Escapes of U+0000, of a quotation mark, and of surrogates, alone or in pairs.
_ODD_ESCAPES = re.compile(rb"\\u(?:0000|0022|[dD][89a-fA-F])")
# The first bytes of everything from U+10000 on.
_BEYOND_U_FFFF = (b"\xf0", b"\xf1", b"\xf2", b"\xf3", b"\xf4")
_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_int=_integer, parse_constant=_Unkept)
# Floats that RFC 8785 writes in another way, as Python writes them; perhaps inside a text.
_ODD_FLOATS = re.compile(r"[0-9]e[-+][0-9]|Infinity")
_COUNTING = json.JSONDecoder(parse_int=_quick_integer, parse_constant=_quick_constant)
_CANONICAL = json.JSONDecoder(parse_float=_canonical_float)


def _quickly(raw: bytes) -> tuple[Any, bytes, str]:
    """The value, its canonical bytes and a text of it, where nothing is wrong that only a walk through it finds, else _Odd.

    With few brackets nothing is nested too deep. Without certain escapes no text holds U+0000 or a lone surrogate, and each
    quotation mark of the raw text stands in the canonical one as well, unless a member was dropped because it stands twice.
    An integer of 2^53 or more has many digits in a row; a float that is infinite, or canonically has another form than a point
    between digits, shows in what Python writes of it.
    """
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH or (b"\\u" in raw and _ODD_ESCAPES.search(raw)):
        raise _Odd
    try:
        text = raw.decode()
        value = _COUNTING.decode(text) if _MANY_DIGITS in raw.translate(_TO_ZERO) else from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise _Odd from error
    written = encode(value)
    if ("e-" in written or "e+" in written or "Infinity" in written) and _ODD_FLOATS.search(written):
        raise _Odd
    if not text.isascii() and any(first in raw for first in _BEYOND_U_FFFF):
        canonical = jcs(value)
    else:
        # Perhaps a float without a fraction, which canonically is an integer; read again, because the value keeps its kind.
        canonical = (encode(_CANONICAL.decode(text)) if ".0" in written else written).encode()
    if canonical.count(b'"') != raw.count(b'"'):
        raise _Odd
    return value, canonical, written


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a JSON text says, the RFC 8785 bytes of it, and a text from which it can be read again as it is."""

    value: Any
    canonical: bytes
    text: str


def parse_canonically(raw: bytes) -> Parsed:
    """The value of a JSON text with its canonical bytes, which cost less while it is read. Raises as `parse_json` does."""
    with suppress(_Odd):
        return Parsed(*_quickly(raw))
    value = _thoroughly(raw)
    return Parsed(value, jcs(value), encode(value))


def parse_json(raw: bytes) -> Any:
    """The value of a JSON text (RFC 8259) that can be stored and hashed as it is.

    Raises DeedboxError `invalid_json` for what is not JSON in UTF-8, and `invalid_value` with a pointer for U+0000, lone
    surrogates, NaN and infinities, integers from 2^53 on, a member named twice and nesting beyond 64.
    """
    with suppress(_Odd):
        return _quickly(raw)[0]
    return _thoroughly(raw)


def _thoroughly(raw: bytes) -> Any:
    try:
        value = _DECODER.decode(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise DeedboxError("invalid_json", f"The body is not UTF-8 (byte {error.start}).") from error
    except RecursionError as error:
        raise _refusal(InvalidValueError("", "too_deep", f"nesting beyond {MAX_DEPTH}")) from error
    except ValueError as error:
        where = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        raise DeedboxError("invalid_json", f"The body is not JSON{where}.") from error
    try:
        check(value)
    except InvalidValueError as error:
        raise _refusal(error) from error
    return value


def _refusal(error: InvalidValueError) -> DeedboxError:
    return DeedboxError("invalid_value", f"The input cannot be kept: {error.problem.message}.", problems=(error.problem,))


def pointer(path: tuple[str | int, ...]) -> str:
    """The RFC 6901 pointer of a path."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def check(value: Any, path: tuple[str | int, ...] = ()) -> None:
    """Raise InvalidValueError with a pointer for the first value that no store can keep."""
    if isinstance(value, str):
        _check_text(value, path)
    elif isinstance(value, dict):
        _check_object(value, path)  # pyright: ignore[reportUnknownArgumentType]
    elif isinstance(value, list):
        if len(path) >= MAX_DEPTH:
            raise InvalidValueError(pointer(path), "too_deep", f"nesting beyond {MAX_DEPTH}")
        for number, item in enumerate(value):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
            check(item, (*path, number))
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidValueError(pointer(path), "not_finite", "a number too large to keep; send it as a string")
    elif isinstance(value, _Unkept):
        raise InvalidValueError(
            pointer(path), "number", f"{value.text} is a number that cannot be kept exactly; send it as a string"
        )
    elif isinstance(value, int) and not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
        raise InvalidValueError(pointer(path), "number", "an integer from 2^53 on; send it as a string")


def _check_object(value: dict[str, Any], path: tuple[str | int, ...]) -> None:
    if len(path) >= MAX_DEPTH:
        raise InvalidValueError(pointer(path), "too_deep", f"nesting beyond {MAX_DEPTH}")
    if isinstance(value, _Repeated):
        raise InvalidValueError(pointer((*path, value.member)), "repeated_member", "the member stands twice in one object")
    for name, item in value.items():
        _check_text(name, (*path, name))
        check(item, (*path, name))


def _check_text(text: str, path: tuple[str | int, ...]) -> None:
    if "\x00" in text:
        raise InvalidValueError(_spelt(path), "nul", "a text with U+0000")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidValueError(_spelt(path), "surrogate", "a text with a lone surrogate") from error


def _spelt(path: tuple[str | int, ...]) -> str:
    """A pointer that can itself be sent, whatever the member's name holds."""
    return pointer(path).encode("utf-8", "backslashreplace").decode().replace("\x00", "\\u0000")


def input_problems(errors: list[Any]) -> tuple[Problem, ...]:
    """Pydantic's errors as problems with pointers; the values themselves are not repeated."""
    return tuple(Problem(pointer(tuple(item["loc"])), str(item["type"]), str(item["msg"])) for item in errors)
