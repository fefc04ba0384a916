"""Sensitive fields: where they are in a value, as paths of names, and what is shown instead of them.

A path goes from name to name; `*` stands for every item of a list or every member of an object, `**` for any depth.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, cast

MASKED = "[masked]"
EVERY, ANY_DEPTH = "*", "**"
LEAST = 4
"""Shorter texts are not looked for in messages: they would be found everywhere."""
Path = tuple[str, ...]

HIDDEN: ContextVar[tuple[str, ...]] = ContextVar("deedbox_hidden", default=())
"""Sensitive texts that this task or thread works with; no line of the log that it writes holds them."""


def masked(value: Any, paths: Iterable[Path]) -> Any:
    """The value with everything at these paths masked; null stays null, and the rest is the same."""
    wanted = [path for path in paths if path]
    return _masked(value, wanted) if wanted else value


def _masked(value: Any, paths: list[Path]) -> Any:
    if isinstance(value, dict):
        return {name: _member(item, _below(paths, name)) for name, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        below = _below(paths, None)
        return [_member(item, below) for item in cast("list[Any]", value)]
    return value


def _member(item: Any, below: list[Path]) -> Any:
    if item is not None and () in below:
        return MASKED
    return _masked(item, below) if below else item


def _below(paths: list[Path], name: str | None) -> list[Path]:
    """What is left of the paths one step further down, at a member of this name or at an item of a list."""
    found: list[Path] = []
    for path in paths:
        if not path:
            continue
        first, rest = path[0], path[1:]
        if first == ANY_DEPTH:
            found.append(path)
            # Any depth is also none: what comes next may be this very name.
            if rest and name is not None and rest[0] in {name, EVERY}:
                found.append(rest[1:])
        elif first in {EVERY, name}:
            found.append(rest)
    return found


def texts_at(value: Any, paths: Iterable[Path]) -> tuple[str, ...]:
    """The texts and numbers at these paths that are long enough to be looked for elsewhere, the longest first."""
    found = {text for path in paths for item in _at(value, [path]) for text in _texts(item) if len(text) >= LEAST}
    return tuple(sorted(found, key=lambda text: (-len(text), text)))


def _at(value: Any, paths: list[Path]) -> Iterator[Any]:
    items: Iterable[tuple[str | None, Any]] = ()
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
    elif isinstance(value, (list, tuple)):
        items = ((None, item) for item in cast("list[Any]", value))
    for name, item in items:
        below = _below(paths, name)
        if () in below:
            yield item
        elif below:
            yield from _at(item, below)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        # A text of several lines is quoted line by line.
        yield from (line.strip() for line in value.splitlines())
    elif isinstance(value, (dict, list, tuple)):
        inner = cast("Mapping[str, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value)
        for item in inner:
            yield from _texts(item)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield str(value)


def scrubbed(text: str, hidden: Iterable[str]) -> str:
    """The text with each of these texts masked wherever it stands."""
    for one in hidden:
        if one in text:
            text = text.replace(one, MASKED)
    return text
