"""Many rows as parameters of one statement: as one JSON text read with `json_to_recordset`, or as one array per column.

Measured: with a single row each array costs the server a function call with a tuple store of its own, so wide rows that
often come alone are JSON. With hundreds of rows JSON costs a hash table per row, so large batches are arrays. The driver's
own dumper of lists is not used: it looks for the type of each element anew and takes ten times as long.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID


def _text(value: object) -> str:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bytes | memoryview):
        return f"\\x{value.hex()}"
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no place in a row")


encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False, default=_text).encode
"""The JSON of one value: ids, bytes and times as PostgreSQL reads them from text. Raises TypeError for anything else."""


def rows(items: Sequence[Mapping[str, Any]]) -> str:
    """The JSON of these rows: ids, bytes and times as PostgreSQL reads them from text. Raises TypeError for anything else."""
    return encode(items)


def digits(value: UUID | str) -> str:
    """An id as 32 hexadecimal digits, which is what a text of one is in this layer."""
    return value if isinstance(value, str) else value.hex


def uuids(values: Iterable[UUID | str]) -> str:
    """For `uuid[]`."""
    return "{" + ",".join(map(digits, values)) + "}"


def numbers(values: Iterable[int]) -> str:
    """For arrays of integers."""
    return "{" + ",".join([str(value) for value in values]) + "}"


def texts(values: Iterable[str | None]) -> str:
    """For `text[]`. A NUL is refused by the driver, as in any text."""
    return "{" + ",".join(["NULL" if value is None else _quoted(value) for value in values]) + "}"


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
