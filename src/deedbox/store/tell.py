"""Telling others that there is something to see: after the commit, once per transaction, and never part of it.

NOTIFY takes a lock of the whole database at commit, so it does not travel with the work. What was committed stands whether or
not the telling succeeds: a notification makes a look earlier, the poll is the truth.
"""

from collections.abc import Sequence
from uuid import UUID

from deedbox import telemetry
from deedbox.store.loader import statement
from deedbox.store.pg_errors import UNREACHABLE, StoreError
from deedbox.store.pool import Connection, Pool
from deedbox.store.transaction import autocommit


async def tell(pool: Pool, *, jobs: Sequence[UUID] = (), queue: bool = False, outbox: bool = False) -> None:
    """Wake whoever follows these jobs, the workers and the dispatchers, as asked.

    To be called after the commit. Never raises for the database: a caller must not take what is committed for undone.
    """
    if not (jobs or queue or outbox):
        return
    try:
        async with autocommit(pool) as connection:
            if queue:
                await connection.execute(statement("tell", "queue"))
            if outbox:
                await connection.execute(statement("tell", "outbox"))
            if jobs:
                await notify_jobs(connection, jobs)
    except (StoreError, *UNREACHABLE) as error:
        telemetry.log("tell").warning("not_told", error=type(error).__name__)


async def notify_jobs(connection: Connection, job_ids: Sequence[UUID]) -> None:
    """Wake whoever follows these jobs, on a connection that has no transaction open."""
    await connection.execute(statement("tell", "jobs"), {"job_id": list(dict.fromkeys(job_ids))})
