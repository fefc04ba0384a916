"""What is kept of a refused call: a line in the journal of calls, and an entry in the audit within a budget.

The audit is one chain with one lock at its end, and a program that has gone wrong can cause refusals by the thousand. So a
caller gets so many entries a minute and all callers together so many; the next entry tells how many had none.
"""

from uuid import UUID

from deedbox import telemetry
from deedbox.access.entries import FailureBudget
from deedbox.intake.gathered import Gathered
from deedbox.intake.request import Request
from deedbox.intake.terms import through
from deedbox.model.errors import DeedboxError
from deedbox.model.fingerprint import sha256
from deedbox.model.secrets import kind_of
from deedbox.model.values import storable_text
from deedbox.store import accept, audit
from deedbox.store.ids import IdSource
from deedbox.store.pg_errors import UNREACHABLE, StoreError
from deedbox.store.pool import Pool
from deedbox.store.transaction import transaction

_LONGEST_NAME = 200
_OURS = frozenset({"unavailable", "internal", "too_many_waiting"})
"""Refused because of us, and not of the call: the journal has them, and whoever sends the call again is accepted."""


class Refusals:
    """Journals refused calls of one process."""

    def __init__(self, pool: Pool, ids: IdSource, gathered: Gathered) -> None:
        """`gathered` writes the lines of many calls at once."""
        self._pool = pool
        self._ids = ids
        self._gathered = gathered
        self._budget = FailureBudget()

    async def journal(self, request: Request, error: DeedboxError) -> None:
        """Keep a refused call; never raises: what is refused stays refused when the store is away."""
        telemetry.REFUSED.labels(error.code).inc()
        action = storable_text(request.action[:_LONGEST_NAME].replace("\x00", ""))
        call = accept.Call(
            call_id=request.call_id or self._ids.new(),
            tenant=request.principal.tenant,
            source=request.source,
            status="refused",
            subject=UUID(request.principal.principal_id),
            action=action,
            key_sha256=sha256(request.key.encode("utf-8", "surrogatepass")) if request.key else None,
            trace=request.trace,
            caller_run=_clean(request.caller_run),
            error_code=error.code,
            through=through(request.principal),
        )
        try:
            if request.call_id is None:
                await self._gathered.journal(call)
            if error.code not in _OURS:
                await self._note(request, action, call.call_id, error.code)
        except (StoreError, *UNREACHABLE) as failure:
            telemetry.log("intake").warning("refusal_not_journalled", code=error.code, error=type(failure).__name__)

    async def _note(self, request: Request, action: str, call_id: UUID, code: str) -> None:
        owed = self._budget.take(request.principal.principal_id)
        if owed is None:
            return
        detail = {"code": code, "source": request.source, "call_id": str(call_id), **({"without_entry": owed} if owed else {})}
        entry = audit.entry_by(request.principal, request.source, "refuse_call", ("action", action), detail=detail)
        try:
            async with transaction(self._pool) as connection:
                await audit.append(connection, entry)
        except BaseException:
            self._budget.pass_over(owed + 1)
            raise


def _clean(caller_run: str | None) -> str | None:
    """The caller's run, unless it looks like a secret."""
    return None if caller_run is None or kind_of(caller_run) is not None else caller_run
