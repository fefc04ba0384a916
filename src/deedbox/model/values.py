"""Making whatever code produced storable: escaped or cut, so that the job still ends.

Input with such values is refused at the edge (intake.documents); what a handler, a model or a library produced cannot be
refused to anyone, so it is kept in a form that every store and every client can take.
"""

import math
from typing import Any, cast

MAX_DEPTH = 64
MAX_MESSAGE = 1000


def storable_text(text: str) -> str:
    """The text with U+0000 and lone surrogates written as their escapes."""
    if "\x00" in text:
        text = text.replace("\x00", "\\u0000")
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def short_message(text: str) -> str:
    """A storable sentence of at most 1,000 characters, control characters shown as their escapes."""
    shown = "".join(
        character if character.isprintable() else f"\\u{ord(character):04x}" for character in text[: MAX_MESSAGE + 1]
    )
    shown = storable_text(shown)
    return shown if len(shown) <= MAX_MESSAGE else shown[: MAX_MESSAGE - 1] + "…"


def storable(value: Any, depth: int = 0) -> Any:
    """A JSON value any store can keep: texts escaped, numbers that are not finite as text, depth cut at 64."""
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, (dict, list, tuple)) and depth >= MAX_DEPTH:
        return "…"
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {storable_text(str(name)): storable(item, depth + 1) for name, item in items}
    if isinstance(value, (list, tuple)):
        return [storable(item, depth + 1) for item in cast("list[Any]", value)]
    return value
