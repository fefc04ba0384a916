"""Jobs that effects of other jobs make: the key is the effect's, the caller is whoever the parent runs for."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from deedbox.extend.action import Action
from deedbox.intake.request import Request
from deedbox.intake.submit import Intake
from deedbox.model.errors import DeedboxError
from deedbox.model.fingerprint import key_hash
from deedbox.model.identity import Principal
from deedbox.store import accept
from deedbox.store.pool import Pool
from deedbox.store.transaction import autocommit


class ChildIntake:
    """What `deedbox.extend.submitter.Submitter` promises, over the intake of this process."""

    def __init__(self, pool: Pool, actions: Mapping[str, Action], intake: Intake) -> None:
        """`actions` are those that may be started."""
        self._pool = pool
        self._actions = actions
        self._intake = intake

    def check(self, action: str, given: Mapping[str, Any]) -> None:
        """Raise ValueError for an action that is not served or an input that does not fit it."""
        found = self._actions.get(action)
        if found is None:
            raise ValueError(f"target: there is no action {action!r}")
        found.input_model.model_validate(dict(given))

    async def submit(self, action: str, given: Mapping[str, Any], *, effect_id: str, parent_job_id: str, tenant: str) -> str:
        """Submit for the parent's subject, with its roles of today; the trace goes on."""
        principal, trace = await runs_for(self._pool, UUID(parent_job_id), tenant)
        accepted = await self._intake.submit(
            Request(principal, action, dict(given), _key(effect_id), "job", parent=UUID(parent_job_id), trace=trace)
        )
        return str(accepted.job_id)

    async def find(self, action: str, *, effect_id: str, tenant: str) -> str | None:
        """The job under the effect's key."""
        async with autocommit(self._pool) as connection:
            found = await accept.bound_to(connection, tenant, action, key_hash(_key(effect_id)))
        return str(found) if found else None


async def runs_for(pool: Pool, job_id: UUID, tenant: str) -> tuple[Principal, str | None]:
    """Whom a job runs for, with that one's roles of today, and its trace. Raises DeedboxError permission_denied."""
    async with autocommit(pool) as connection:
        parent = await accept.parent(connection, job_id, tenant)
    if parent is None or parent.disabled:
        raise DeedboxError("permission_denied", "Whoever the parent runs for may not run anything any more.")
    kind = "person" if parent.kind == "person" and parent.through is None else "service"
    who = (str(parent.subject), tenant, parent.name)
    return Principal(*who, kind, parent.roles, "system", verbs=parent.verbs, through=parent.through), parent.trace


def _key(effect_id: str) -> str:
    return f"effect:{effect_id}"
