"""Growth: partitions made ahead and dropped, contents that go when their retention has passed, tombstones of keys.

Everything runs in pages, each a transaction that has won `elect`: one process prunes at a time, none while a migration runs.
What stays provable stays until the records go: digests, receipts, decisions. The audit chain is never pruned.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Self
from uuid import UUID

import psycopg

from deedbox.store.loader import statement
from deedbox.store.migrate import LOCK, MONTHS_AHEAD, PARTITIONED, missing_partitions
from deedbox.store.notices import prune_of_jobs
from deedbox.store.pool import Connection
from deedbox.store.rows import rows

DAY_S = 86400.0
IMPATIENT_MS = 250
"""How long DDL and the lock on documents wait: whoever queues behind them waits no longer either."""
_CONTENTS = ("prune_steps", "prune_output", "prune_events", "prune_proposals", "prune_effects", "prune_comments")
_RECORDS = (
    "forget_probes",
    "forget_effects",
    "forget_votes",
    "forget_tokens",
    "forget_delegations",
    "forget_approvals",
    "forget_verdicts",
    "forget_proposed",
    "forget_model_calls",
)


@dataclass(frozen=True, slots=True)
class Retention:
    """How long things are kept after a job's end, in seconds.

    Contents (input, output, steps, documents, what was proposed) go first, by action where it says so; records (who, when,
    digests, receipts, decisions) go with the partition of their month, never before the last contents. A key that may expire
    does so `key_s` after it was taken.
    """

    contents_s: float = 90 * DAY_S
    records_s: float = 400 * DAY_S
    by_action: Mapping[str, float] = field(default_factory=dict[str, float])
    key_s: float = 400 * DAY_S

    @classmethod
    def in_days(cls, contents: float, records: float, by_action: Mapping[str, float | None]) -> Self:
        """From days for the installation, and seconds for the actions that say something for themselves."""
        own = {name: keep_s for name, keep_s in by_action.items() if keep_s is not None}
        return cls(contents * DAY_S, records * DAY_S, own)

    @property
    def least_s(self) -> float:
        """The shortest that any contents are kept."""
        return min((self.contents_s, *self.by_action.values()))

    @property
    def longest_s(self) -> float:
        """The longest that anything is kept."""
        return max((self.records_s, self.contents_s, *self.by_action.values()))

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of statements that ask what an action keeps."""
        keeps = [{"action": action, "keep_s": keep_s} for action, keep_s in self.by_action.items()]
        return {"keeps": rows(keeps), "default_s": self.contents_s}


@dataclass(frozen=True, slots=True)
class Page:
    """A page of jobs by id: how many were looked at, the last of them, and those to which something is to be done."""

    looked: int
    last: UUID | None
    jobs: tuple[UUID, ...]


async def elect(connection: Connection) -> bool:
    """Whether this transaction may prune; False while another one does, or while a migration runs."""
    cursor = await connection.execute(statement("prune", "elected"), {"lock": LOCK})
    row = await cursor.fetchone()
    return bool(row and row[0])


async def _impatient(connection: Connection) -> None:
    await connection.execute(statement("prune", "patience"), {"lock_timeout": str(IMPATIENT_MS)})


async def make_next_partition(connection: Connection) -> str | None:
    """Make the nearest partition that is missing; returns its name, or None when all are there.

    Readers and writers do not wait for it. Raises psycopg.errors.LockNotAvailable where other DDL holds the table.
    """
    await _impatient(connection)
    for parent, month in await missing_partitions(connection):
        await connection.execute(statement("prune", "add_partition"), {"parent": parent, "month": month})
        return f"{parent}_{month:%Y_%m}"
    return None


async def old_months(connection: Connection, keep_s: float) -> list[tuple[date, list[str]]]:
    """The months that ended so long ago and still have partitions, the oldest first, each with its tables."""
    cursor = await connection.execute(statement("prune", "months"), {"parents": list(PARTITIONED), "keep_s": keep_s})
    return [(row[0], list(row[1])) for row in await cursor.fetchall()]


async def in_the_way(connection: Connection, month: date, keep_s: float) -> str | None:
    """What keeps a month's records, in a sentence; None when nothing does."""
    cursor = await connection.execute(statement("prune", "in_the_way"), {"month": month, "keep_s": keep_s})
    row = await cursor.fetchone()
    return row[0] if row else None


async def drop_partition(connection: Connection, parent: str, month: date, keep_s: float) -> str | None:
    """Drop one partition in this transaction; returns why not, None when it is gone.

    The table is locked whole until the transaction ends, and waited for no longer than IMPATIENT_MS: `busy` then, and the
    transaction is of no more use.
    """
    await _impatient(connection)
    try:
        cursor = await connection.execute(
            statement("prune", "drop_partition"), {"parent": parent, "month": month, "keep_s": keep_s}
        )
    except psycopg.errors.LockNotAvailable:
        return "busy"
    row = await cursor.fetchone()
    return row[0] if row else None


async def contents(connection: Connection, retention: Retention, after: UUID, limit: int) -> Page:
    """The next jobs that have contents, and those of them whose contents may go."""
    cursor = await connection.execute(
        statement("prune", "contents"),
        {**retention.parameters, "least_s": retention.least_s, "after": after, "limit": limit},
    )
    found = await cursor.fetchall()
    return Page(len(found), found[-1][0] if found else None, tuple(row[0] for row in found if row[1]))


async def remove_contents(connection: Connection, jobs: Sequence[UUID], *, key_s: float) -> None:
    """Remove all contents of these neighbouring ended jobs and make tombstones of their keys, in this transaction.

    Raises psycopg.errors.LockNotAvailable where an upload is under way for longer than IMPATIENT_MS; nothing is removed then.
    """
    parameters = {"jobs": list(jobs), "first": min(jobs), "last": max(jobs)}
    await connection.execute(statement("prune", "keep_keys"), {**parameters, "key_s": key_s})
    for name in _CONTENTS:
        await connection.execute(statement("prune", name), parameters)
    await prune_of_jobs(connection, jobs)
    await connection.execute(statement("prune", "prune_inputs"), parameters)
    cursor = await connection.execute(statement("prune", "prune_links"), parameters)
    shown = await cursor.fetchall()
    if shown:
        # Last, because uploads wait for this lock. Without it a document could go between being found and being linked.
        await _impatient(connection)
        await connection.execute(statement("prune", "lock_documents"))
        await connection.execute(
            statement("prune", "prune_documents"), {"tenant": [row[0] for row in shown], "sha256": [row[1] for row in shown]}
        )


async def parked(connection: Connection, retention: Retention, after: UUID, limit: int) -> list[tuple[UUID, str]]:
    """Parked jobs that nobody took up within their retention, after an id, each with its tenant."""
    cursor = await connection.execute(statement("prune", "parked"), {**retention.parameters, "after": after, "limit": limit})
    return [(row[0], str(row[1])) for row in await cursor.fetchall()]


async def remove_expired_keys(connection: Connection, limit: int) -> int:
    """Remove keys whose time has passed; returns how many."""
    return (await connection.execute(statement("prune", "expired_keys"), {"limit": limit})).rowcount


async def remove_old_tools(connection: Connection, keep_s: float, limit: int) -> int:
    """Remove what was kept of calls of tools without a key and of the budgets of ended jobs; returns how many of the more."""
    keys = await connection.execute(statement("prune", "old_tool_keys"), {"limit": limit})
    budgets = await connection.execute(statement("prune", "old_tool_budgets"), {"keep_s": keep_s, "limit": limit})
    return max(keys.rowcount, budgets.rowcount)


async def remove_old_calls(connection: Connection, keep_s: float, limit: int) -> int:
    """Remove old lines of the journal of calls; returns how many."""
    return (await connection.execute(statement("prune", "old_calls"), {"keep_s": keep_s, "limit": limit})).rowcount


async def remove_closed_alerts(connection: Connection, keep_s: float, limit: int) -> int:
    """Remove alerts that were closed more than `keep_s` seconds ago; returns how many."""
    return (await connection.execute(statement("prune", "closed_alerts"), {"keep_s": keep_s, "limit": limit})).rowcount


async def forget_records(connection: Connection, month: date, after: UUID, limit: int) -> UUID | None:
    """Remove what the tables without partitions keep of the next jobs of a month; returns the last job, None at the end."""
    cursor = await connection.execute(statement("prune", "records"), {"month": month, "after": after, "limit": limit})
    jobs = [row[0] for row in await cursor.fetchall()]
    if not jobs:
        return None
    for name in _RECORDS:
        await connection.execute(statement("prune", name), {"jobs": jobs})
    return jobs[-1]


async def misplaced(connection: Connection, after: UUID, limit: int) -> Page:
    """The next jobs after an id, and those of them that are in `queue` and in `result`, or in neither."""
    cursor = await connection.execute(statement("prune", "places"), {"after": after, "limit": limit})
    row = await cursor.fetchone()
    return Page(int(row[0]), row[1], tuple(row[2])) if row else Page(0, None, ())


@dataclass(frozen=True, slots=True)
class Growth:
    """How far the partitions reach: months ahead of this one that are whole, out of those wanted, and the oldest month.

    `months` are those with partitions up to this one; `content_bytes` is what all partitions take with their indexes,
    `total_bytes` the whole schema; `jobs` is about how many jobs are kept, as the planner last counted them.
    """

    ahead: int
    wanted: int
    oldest: date | None
    months: int = 0
    content_bytes: int = 0
    total_bytes: int = 0
    jobs: int = 0


async def growth(connection: Connection) -> Growth:
    """How far the partitions reach."""
    cursor = await connection.execute(statement("prune", "growth"), {"ahead": MONTHS_AHEAD, "parents": list(PARTITIONED)})
    row = await cursor.fetchone()
    return Growth(int(row[0]), MONTHS_AHEAD, row[1], *map(int, row[2:])) if row else Growth(0, MONTHS_AHEAD, None)
