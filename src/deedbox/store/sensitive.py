"""Which fields are sensitive, as kept in the database: any process masks them, also one without the code that marked them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from deedbox.model.sensitive import Path
from deedbox.store.loader import statement
from deedbox.store.pool import Connection
from deedbox.store.rows import rows


@dataclass(frozen=True, slots=True)
class Marked:
    """The paths of a job's action and of all connectors, and the contents that they are about."""

    input_paths: tuple[Path, ...]
    output_paths: tuple[Path, ...]
    payload_paths: dict[str, tuple[Path, ...]] = field(default_factory=dict[str, tuple[Path, ...]])
    given: Any = None
    output: Any = None


async def keep(connection: Connection, fields: Iterable[tuple[str, str, Path]]) -> None:
    """Keep fields as (kind, name of the action or connector, path)."""
    kept = [{"kind": kind, "name": name, "path": list(path)} for kind, name, path in fields]
    if kept:
        await connection.execute(statement("sensitive", "keep"), {"fields": rows(kept)})


async def of_job(connection: Connection, job_id: UUID) -> Marked | None:
    """What of a job is sensitive; None where nothing can be."""
    cursor = await connection.execute(statement("sensitive", "of_job"), {"job_id": job_id})
    row = await cursor.fetchone()
    if row is None:
        return None
    by_kind: dict[str, list[Path]] = {"input": [], "output": []}
    payloads: dict[str, list[Path]] = {}
    for kind, name, path in row[0]:
        (payloads.setdefault(name, []) if kind == "payload" else by_kind[kind]).append(tuple(path))
    return Marked(
        tuple(by_kind["input"]),
        tuple(by_kind["output"]),
        {name: tuple(paths) for name, paths in payloads.items()},
        row[1],
        row[2],
    )
