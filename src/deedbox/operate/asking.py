"""What is asked of whoever waits for a job: to open the page of an approval. What their client answers decides nothing."""

from collections.abc import Mapping
from dataclasses import dataclass

from deedbox.operate.job_view import ApprovalSummary, JobView
from deedbox.store import asked
from deedbox.store.pool import Pool
from deedbox.store.tell import tell
from deedbox.store.transaction import autocommit

ANSWERS = ("accept", "decline", "cancel")


@dataclass(frozen=True, slots=True)
class Page:
    """An approval's page that a person is asked to open."""

    key: str
    url: str
    message: str


class ApprovalPages:
    """The pages of the open approvals of a job."""

    def __init__(self, pool: Pool, public_url: str) -> None:
        """Links are made from `public_url`. They hold no token: whoever opens one logs in."""
        self._pool = pool
        self._base_url = public_url.rstrip("/")

    async def open(self, job: JobView) -> tuple[Page, ...]:
        """The pages that were not answered about yet; none unless the job waits for a person."""
        pending = _pending(job)
        if not pending:
            return ()
        async with autocommit(self._pool) as connection:
            shown = await asked.shown(connection, job.job_id)
        what = job.action.replace("_", " ")
        return tuple(
            Page(
                str(one.approval_id),
                f"{self._base_url}/approvals/{one.approval_id}",
                f"A person has to decide about {what}. Open the page to see exactly what is asked for, and decide there.",
            )
            for one in pending
            if one.approval_id not in shown
        )

    async def answered(self, job: JobView, answers: Mapping[str, str]) -> None:
        """Keep what was answered by key; unknown keys and later answers are passed over."""
        open_ids = {str(one.approval_id): one.approval_id for one in _pending(job)}
        given = {open_ids[key]: answer for key, answer in answers.items() if key in open_ids}
        if not given:
            return
        async with autocommit(self._pool) as connection:
            kept = await asked.note_shown(connection, job.job_id, given)
        if kept:
            await tell(self._pool, jobs=[job.job_id])


def _pending(job: JobView) -> tuple[ApprovalSummary, ...]:
    if job.state != "awaiting_human":
        return ()
    return tuple(one for one in job.approvals if one.state == "pending")
