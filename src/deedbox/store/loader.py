"""Named, described SQL statements from the files beside this module.

A file holds statements headed `-- name: NAME` and a comment that says what the statement guarantees. A mark such as
`{{job.claim}}` stands for the states which that move of the lifecycle leaves, so a guard cannot drift from the model.
`{{part.NAME}}` stands for the text of the block headed `-- part: NAME` in the same file, so that two places cannot drift apart.
"""

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import sha256
from importlib import resources
from typing import LiteralString, cast

from deedbox.model.lifecycle import ALL

_HEAD = re.compile(r"^-- (?P<kind>name|part): (?P<name>[a-z_]+)\s*$", re.MULTILINE)
_PART = re.compile(r"\{\{part\.(?P<name>[a-z_]+)\}\}")
_MARK = re.compile(r"\{\{(?P<machine>[a-z]+)\.(?P<move>[a-z_]+)\}\}")
_PARAMETER = re.compile(r"%\((?P<name>[a-z0-9_]+)\)s")
_MACHINES = {lifecycle.name: lifecycle for lifecycle in ALL}


def _sources(match: re.Match[str]) -> str:
    states = _MACHINES[match["machine"]].sources(match["move"])
    return ", ".join(f"'{state}'" for state in states)


@cache
def statements(file: str) -> dict[str, LiteralString]:
    """All statements of `sql/{file}.sql` by name. Raises ValueError for a statement without a description."""
    text = resources.files("deedbox.store").joinpath("sql", f"{file}.sql").read_text(encoding="utf-8")
    heads = list(_HEAD.finditer(text))
    found: dict[str, LiteralString] = {}
    parts: dict[str, str] = {}
    for number, head in enumerate(heads):
        end = heads[number + 1].start() if number + 1 < len(heads) else len(text)
        body = text[head.end() : end].strip()
        if not body.startswith("--"):
            raise ValueError(f"{file}.sql: {head['name']} has no description")
        if head["kind"] == "part":
            parts[head["name"]] = _MARK.sub(_sources, body)
            continue
        whole = _PART.sub(lambda match: parts[match["name"]], body)
        # The text comes from files of this package alone, never from input.
        found[head["name"]] = cast("LiteralString", _MARK.sub(_sources, whole))
    return found


def statement(file: str, name: str) -> LiteralString:
    """One statement. Raises KeyError for a name the file does not have."""
    return statements(file)[name]


@dataclass(frozen=True, slots=True)
class Numbered:
    """A statement as the server takes it: with $1, $2 and so on, in the order of these names."""

    name: bytes
    text: bytes
    order: tuple[str, ...]


def numbered(file: str, name: str) -> Numbered:
    """One statement, for a connection that sends it past the driver's own formatting.

    Raises KeyError like `statement`.
    """
    return _numbered(f"{file}.{name}", statement(file, name))


@lru_cache(maxsize=1024)
def _numbered(name: str, text: str) -> Numbered:
    order = tuple(dict.fromkeys(match["name"] for match in _PARAMETER.finditer(text)))
    places = {parameter: f"${place}" for place, parameter in enumerate(order, 1)}
    plain = _PARAMETER.sub(lambda match: places[match["name"]], text).replace("%%", "%")
    # The name stands for the text: one that is prepared under it is this one and no other.
    return Numbered(f"{name} {sha256(plain.encode()).hexdigest()[:12]}".encode(), plain.encode(), order)
