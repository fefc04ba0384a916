"""How the command line speaks: tables and lines for people, JSON for programs, one line on standard error for a refusal."""

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import IntEnum
from typing import cast

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_PIPED_WIDTH = 200
_GAP, _INDENT = 2, 3
_LONG_WORD, _READABLE = 24, 16
"""Columns: a longer word may be broken, and a text of more words has at least so much room."""
_WHOLE = frozenset({"", "id", "state", "accepted", "part", "job", "for"})
_STYLES = {
    "completed": "green",
    "approved": "green",
    "on": "green",
    "ok": "green",
    "failed_terminal": "red",
    "failed_retryable": "red",
    "failed": "red",
    "rejected": "red",
    "off": "red",
    "missing": "red",
    "unknown": "bold yellow",
    "awaiting_human": "yellow",
    "pending": "yellow",
    "note": "yellow",
    "canceled": "dim",
    "expired": "dim",
    "withdrawn": "dim",
}


class Exit(IntEnum):
    """What the exit code says."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    NOT_THERE = 3
    STOPPED = 130


class CommandError(Exception):
    """A command ends here: one line on standard error, and an exit code."""

    def __init__(self, message: str, code: Exit = Exit.REFUSED) -> None:
        """`message` is one sentence that says what to do where something can be done."""
        super().__init__(message)
        self.code = code


def console() -> Console:
    """Standard output, as wide as the terminal, and wide enough for one line per row where it is a pipe or a file."""
    return Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH, markup=False, highlight=False, emoji=False)


def plain(value: object) -> str:
    """A value as text in which nothing is hidden: control and direction characters are shown by their numbers.

    What is printed here was written by strangers, and a terminal obeys what it is sent.
    """
    text = str(value)
    return text if text.isprintable() else "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in text)


def cell(value: object) -> Text:
    """One value of a table: times in UTC to the second, lists by commas, a dash for nothing, states in their colours."""
    if isinstance(value, Text):
        return value
    if value is None or value in {"", ()}:
        return Text("-", style="dim")
    if isinstance(value, datetime):
        return Text(when(value))
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, (list, tuple, set, frozenset)):
        return Text(", ".join(plain(item) for item in cast("Sequence[object]", value)))
    text = plain(value)
    return Text(text, style=style_of(text))


def style_of(text: str) -> str:
    """The colour of a state; none for what is no state."""
    return _STYLES.get(text, "")


def when(moment: datetime) -> str:
    """A time as a list shows it."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def age(seconds: float) -> str:
    """A duration in seconds as people say it: 42 s, 7 min, 3 h, 5 d."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if abs(seconds) >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> None:
    """A table on standard output; `empty` where there are no rows.

    Ids, states and times stay whole, and words too. Where the terminal is too narrow for that, each row becomes a block: its
    first value, and below it the others, each behind its name.
    """
    out = console()
    if not rows:
        out.print(Text(empty, style="dim"))
        return
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    cells = [[_short(value) for value in row] for row in rows]
    least = -_GAP
    for number, name in enumerate(columns):
        texts = [Text(name), *(row[number] for row in cells)]
        longest = max(text.cell_len for text in texts)
        whole = name in _WHOLE or any(isinstance(row[number], datetime) for row in rows)
        word = max((Text(word).cell_len for text in texts for word in text.plain.split()), default=0)
        narrowest = longest if whole else max(min(word, _LONG_WORD), min(longest, _READABLE))
        table.add_column(name, no_wrap=whole, overflow="fold", min_width=narrowest)
        least += narrowest + _GAP
    if least > out.width:
        for row in cells:
            _show_block(out, columns, row)
        return
    for row in cells:
        table.add_row(*row[: len(columns)])
    out.print(table)


def _short(value: object) -> Text:
    """A value in a table: times to the minute, the rest as everywhere."""
    return Text(when(value)[:-3]) if isinstance(value, datetime) else cell(value)


def _show_block(out: Console, columns: Sequence[str], row: Sequence[Text]) -> None:
    """One row of a table that is too wide: as many values in a line as go into it, those that are missing left out."""
    if row[0].plain:
        out.print(row[0], style="bold")
    line = Text()
    for name, value in zip(columns[1:], row[1:], strict=False):
        if value.plain in {"", "-"}:
            continue
        one = Text.assemble((f"{name} " if name else "", "dim"), value)
        if line.plain and line.cell_len + _GAP + one.cell_len > out.width - _INDENT:
            out.print(Padding(line, (0, 0, 0, _INDENT)))
            line = one
        else:
            line = Text.assemble(line, " " * _GAP, one) if line.plain else one
    if line.plain:
        out.print(Padding(line, (0, 0, 0, _INDENT)))


def show_pairs(pairs: Sequence[tuple[str, object]]) -> None:
    """Labelled values, one a line, those that are None left out."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in pairs:
        if value is not None:
            table.add_row(label, cell(value))
    console().print(table)


def say(text: str) -> None:
    """One line on standard output."""
    print(plain(text), flush=True)


def complain(text: str) -> None:
    """One line on standard error."""
    print(f"deedbox: {plain(text)}", file=sys.stderr, flush=True)


def show_json(value: object) -> None:
    """A value as JSON: a list for a list, names as the API has them, times in ISO 8601, hashes in hexadecimal."""
    print(json.dumps(value, ensure_ascii=False, indent=2, default=_jsonable))


def _jsonable(value: object) -> object:
    """What JSON does not know by itself; called by the encoder, which goes on inside of what comes back."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, object]", value))
    if isinstance(value, (set, frozenset)):
        return sorted(str(item) for item in cast("frozenset[object]", value))
    if isinstance(value, datetime):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)
