"""Running one statement where the caller says: in a connection's transaction, or on a wire as one of its own."""

from collections.abc import Mapping
from typing import Any

from deedbox.store.loader import numbered, statement
from deedbox.store.pool import Connection
from deedbox.store.wire import Wire


async def run(on: Connection | Wire, file: str, name: str, values: Mapping[str, str | bytes | None]) -> list[tuple[Any, ...]]:
    """The rows of a statement whose parameters are given as text or packed. Raises what the database raises."""
    if isinstance(on, Wire):
        return await on.run(numbered(file, name), values)
    cursor = await on.execute(statement(file, name), values)
    return await cursor.fetchall() if cursor.description else []
