"""Reading jobs."""
from collections.abc import Sequence
from uuid import UUID

from deedbox.store.pool import Connection


async def notify_jobs(connection: Connection, job_ids: Sequence[UUID]) -> None:
    """Tell listeners."""
    await connection.execute("SELECT pg_notify(%s, x::text) FROM unnest(%s::uuid[]) x", ["deedbox_events", list(job_ids)])
