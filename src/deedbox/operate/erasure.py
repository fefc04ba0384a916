"""Erasing a person's data on their request: all jobs about them, a page at a time, each page a transaction with its entry.

A job that has not ended is not erased and is named, so that it can be canceled or waited for. What was interrupted goes on
where it stood when it is asked for again: a job that was erased is not found by its person any more.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from deedbox.intake.keys import normal_subject
from deedbox.model.errors import DeedboxError, Problem
from deedbox.model.fingerprint import sha256
from deedbox.model.identity import Principal
from deedbox.operate.evidence import checked_reason
from deedbox.store import audit
from deedbox.store import erase as store
from deedbox.store.pg_errors import AWAY
from deedbox.store.pool import Pool
from deedbox.store.prune import Retention
from deedbox.store.transaction import transaction

PAGE = 100
MOST_PAGES = 50
_FIRST = UUID(int=0)
_MOST_NAMED = 100


@dataclass(frozen=True, slots=True)
class Erased:
    """How many jobs were erased, which have not ended (some of them, where they are many), and whether all were looked at."""

    jobs: int
    not_ended: tuple[UUID, ...]
    complete: bool


class Erasure:
    """Erases by the name under which an action's `data_subject` finds a person in its input."""

    def __init__(self, pool: Pool, *, key_s: float | None = None) -> None:
        """`key_s` is how long a key that may expire stays, in seconds; by default as long as pruning keeps it."""
        self._pool = pool
        self._key_s = Retention().key_s if key_s is None else key_s

    async def erase(
        self, principal: Principal, subject: str, reason: str, *, door: str = "api", pages: int = MOST_PAGES
    ) -> Erased:
        """Erase the ended jobs of the principal's tenant about a person, at most `pages` times PAGE of them.

        Input, output, documents, what was proposed, messages, reasons, evidence, the key as it was sent and the payload's hash
        go; sha256 of the key, who, when, digests, decisions, receipts' ids and the audit's chain stay. Where it is not
        complete, ask again. Raises DeedboxError: permission_denied, invalid_input, unavailable.
        """
        if not principal.may("administer"):
            raise DeedboxError("permission_denied", "Erasing needs a role that may administer.")
        reason = checked_reason(reason)
        if not subject.strip() or "\x00" in subject:
            problem = Problem("/data_subject", "data_subject", "names nobody")
            raise DeedboxError("invalid_input", "Say whose data is to be erased.", problems=(problem,))
        name = normal_subject(subject)
        jobs, live, after = 0, list[UUID](), _FIRST
        for number in range(max(1, pages)):
            page = await self._page(principal, name, reason, door, after, first=number == 0)
            jobs += len(page.ended)
            live += page.live
            if page.last is None or len(page.ended) + len(page.live) < PAGE:
                return Erased(jobs, tuple(live[:_MOST_NAMED]), complete=True)
            after = page.last
        return Erased(jobs, tuple(live[:_MOST_NAMED]), complete=False)

    async def _page(
        self, principal: Principal, name: str, reason: str, door: str, after: UUID, *, first: bool
    ) -> store.SubjectPage:
        try:
            async with transaction(self._pool) as connection:
                await store.alone(connection)
                page = await store.of_subject(connection, principal.tenant, name, after, PAGE)
                if page.ended:
                    await store.erase(connection, page.ended, key_s=self._key_s)
                if page.ended or first:
                    # The chain keeps for ever whose data it was only as a digest; which jobs, in the detail.
                    digest = sha256(f"{principal.tenant}\0{name}".encode("utf-8", "surrogatepass")).hex()
                    detail: dict[str, Any] = {"jobs": [str(job_id) for job_id in page.ended], "not_ended": len(page.live)}
                    entry = audit.entry_by(principal, door, "erase", ("data_subject", digest), reason=reason, detail=detail)
                    await audit.append(connection, entry)
                return page
        except AWAY as error:
            raise DeedboxError(
                "unavailable", "Something else holds what is to be erased; ask again, it goes on where it stood.", retry_after=2
            ) from error
