"""Rows of one statement as one JSON parameter, read with `json_to_recordset`.

Measured against one array per column: a tie in large batches, and half the processor time for a single row, where each array
costs the server a function call with a tuple store of its own.
"""

import json
from collections.abc import Mapping, Sequence
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


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False, default=_text).encode


def rows(items: Sequence[Mapping[str, Any]]) -> str:
    """The JSON of these rows: ids, bytes and times as PostgreSQL reads them from text. Raises TypeError for anything else."""
    return _encode(items)
