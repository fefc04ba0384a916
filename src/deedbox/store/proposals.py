"""What was proposed, read again: for trying other rules on it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from deedbox.store.loader import statement
from deedbox.store.pool import Connection

_PAGE = 200
_FIRST = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Stored:
    """A proposal as it was kept, with what was decided about its groups; `body` of an effect is None where it was pruned."""

    job_id: UUID
    proposal_id: UUID
    action: str
    role: str
    created_at: datetime
    policy_version: str
    output: Any
    facts: dict[str, Any]
    verdicts: list[dict[str, Any]]
    effects: list[dict[str, Any]]


async def since(connection: Connection, tenant: str, since_s: float) -> AsyncIterator[Stored]:
    """The proposals of jobs accepted within so many seconds, the oldest first, page by page."""
    after = (_FIRST, _FIRST)
    while True:
        cursor = await connection.execute(
            statement("proposals", "since"),
            {"tenant": tenant, "since_s": since_s, "job_id": after[0], "proposal_id": after[1], "limit": _PAGE},
        )
        page = await cursor.fetchall()
        for row in page:
            yield Stored(row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7] or {}, row[8] or [], row[9] or [])
        if len(page) < _PAGE:
            return
        after = (page[-1][0], page[-1][1])
