"""What the faces call about the audit: its entries, its check, its export, the questions, and erasing. One pool behind all."""

from collections.abc import AsyncIterator
from datetime import datetime

from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.operate import answers, audit
from deedbox.operate.answers import Answer, Question
from deedbox.operate.audit import AuditPage, ChainCheck, Format
from deedbox.operate.erasure import Erased, Erasure
from deedbox.store.pool import Pool


class Auditing:
    """The audit of one installation, for a principal."""

    def __init__(self, pool: Pool, *, erasure: Erasure | None = None) -> None:
        """Nothing is read before it is asked for."""
        self._pool = pool
        self._erasure = erasure or Erasure(pool)

    async def listed(
        self,
        principal: Principal,
        *,
        actor: str | None = None,
        verb: str | None = None,
        subject: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> AuditPage:
        """A page of entries of the principal's tenant, newest first. Raises DeedboxError permission_denied."""
        return await audit.listed(
            self._pool,
            principal,
            actor=actor,
            verb=verb,
            subject=subject,
            since=since,
            until=until,
            before=before,
            limit=limit,
        )

    async def check(self, principal: Principal, exported: str | None = None) -> ChainCheck:
        """Walk the whole chain, and past a head that was kept. Raises DeedboxError: permission_denied, invalid_parameter."""
        if not principal.may("administer"):
            raise DeedboxError("permission_denied", "Checking the audit needs a role that may administer.")
        return await audit.check(self._pool, None if exported is None else audit.read_head(exported))

    def export(
        self, principal: Principal, *, since: datetime | None = None, until: datetime | None = None, form: Format = "ndjson"
    ) -> AsyncIterator[str]:
        """The entries of a time as lines, see deedbox.operate.audit.export. Raises DeedboxError permission_denied at once."""
        if not principal.may("administer"):
            raise DeedboxError("permission_denied", "Exporting the audit needs a role that may administer.")
        return audit.export(self._pool, principal, since=since, until=until, form=form)

    async def ask(self, principal: Principal, question: Question, what: str) -> list[Answer]:
        """An answer for each job that a word means. Raises DeedboxError not_found."""
        return await answers.ask(self._pool, principal, question, what)

    async def ask_key(self, principal: Principal, action: str, key: str) -> Answer:
        """Whether a key of an action was processed."""
        return await answers.ask_key(self._pool, principal, action, key)

    async def erase(self, principal: Principal, subject: str, reason: str, *, door: str = "api") -> Erased:
        """Erase the ended jobs about a person. Raises DeedboxError: permission_denied, invalid_input, unavailable."""
        return await self._erasure.erase(principal, subject, reason, door=door)
