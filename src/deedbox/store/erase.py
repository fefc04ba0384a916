"""Erasing what is kept about a person: contents, raw keys and payload hashes go, the skeletons and the audit's chain stay."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from deedbox.store import prune
from deedbox.store.loader import statement
from deedbox.store.migrate import LOCK
from deedbox.store.pool import Connection

_STATEMENTS = (
    "erase_keys",
    "erase_events",
    "erase_attempts",
    "erase_results",
    "erase_approvals",
    "erase_links",
    "erase_effects",
    "erase_receipts",
    "erase_probes",
    "erase_calls",
    "erase_tool_keys",
    "erase_tokens",
    "erase_alerts",
    "erase_details",
    # Last, because it is by what this takes away that the jobs are found.
    "erase_jobs",
)


@dataclass(frozen=True, slots=True)
class SubjectPage:
    """The next jobs about a person: those that have ended, those that have not, and the last that was looked at."""

    ended: tuple[UUID, ...]
    live: tuple[UUID, ...]
    last: UUID | None


async def alone(connection: Connection) -> None:
    """Wait until nobody prunes or migrates; raises psycopg.errors.LockNotAvailable after the pool's patience."""
    await connection.execute(statement("erase", "alone"), {"lock": LOCK})


async def of_subject(connection: Connection, tenant: str, subject: str, after: UUID, limit: int) -> SubjectPage:
    """The next jobs of a tenant about a person, after an id."""
    cursor = await connection.execute(
        statement("erase", "of_subject"), {"tenant": tenant, "subject": subject, "after": after, "limit": limit}
    )
    rows = await cursor.fetchall()
    ended = tuple(row[0] for row in rows if row[1])
    return SubjectPage(ended, tuple(row[0] for row in rows if not row[1]), rows[-1][0] if rows else None)


async def erase(connection: Connection, jobs: Sequence[UUID], *, key_s: float) -> None:
    """Erase these ended jobs in this transaction. Again for the same jobs it changes nothing more.

    Raises psycopg.errors.LockNotAvailable where an upload is under way for longer than prune.IMPATIENT_MS.
    """
    parameters = {"jobs": list(jobs), "first": min(jobs), "last": max(jobs)}
    for name in _STATEMENTS:
        await connection.execute(statement("erase", name), parameters)
    # At the end, because of the lock on documents that uploads wait for.
    await prune.remove_contents(connection, jobs, key_s=key_s)
