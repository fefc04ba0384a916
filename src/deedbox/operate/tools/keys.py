"""Which call is the same as one before it: within one parent job for good, and from one caller within a window."""

from dataclasses import dataclass
from uuid import UUID

from deedbox.extend.action import Action
from deedbox.intake.keys import check_key
from deedbox.model.errors import DeedboxError, Problem
from deedbox.model.fingerprint import sha256
from deedbox.model.identity import Principal
from deedbox.model.secrets import kind_of
from deedbox.store import tools as store
from deedbox.store.pool import Connection, Pool
from deedbox.store.transaction import autocommit, transaction
from deedbox.store.views import Reader

_WITHIN_S = 400 * 86400.0
"""How long a parent job's calls are remembered, in seconds: a parked one may be taken up much later."""
_OVER = frozenset({"failed_retryable", "failed_terminal", "canceled"})
"""A repeated call whose job is in one of these states is counted again: a loop that repeats what failed has an end."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """The key that a call is accepted under: one that is its own, or one that comes instead of the action's rule."""

    key: str | None
    otherwise: str | None
    counted: bool = True
    """Whether the budget has counted it; one that repeats another under way is counted only if it is refused."""


async def keyed(
    pool: Pool,
    who: Principal,
    action: Action,
    *,
    key: str | None,
    parent: UUID | None,
    budget: int,
    input_sha256: bytes,
    new: UUID,
    window_s: float,
) -> Keyed:
    """The key of a call; inside a parent job the call is counted there, at most `budget` of them.

    Inside a parent, equal calls are one whatever keys they bring. Outside, one that brings none shares the key of an equal
    call of the same caller within `window_s` seconds, unless it has no effects or its action has a rule of its own. Raises
    DeedboxError: key_invalid, secret_in_input, budget_exhausted.
    """
    if key is not None:
        check_key(key)
        if kind_of(key) is not None:
            problem = Problem("/Idempotency-Key", "secret", "looks like a secret")
            raise DeedboxError("secret_in_input", "The key looks like a secret: send another.", problems=(problem,))
    proposed = f"tool:{new}"
    if parent is not None:
        call = sha256(b"within:" + parent.bytes + input_sha256)
        # One transaction: a call that the budget refuses has not taken its key either.
        async with transaction(pool) as connection:
            turn = await store.turn(
                connection, who.tenant, action.name, call, key=key or proposed, call_id=new, window_s=_WITHIN_S
            )
            counts = turn.first or turn.state in _OVER
            if counts:
                await _spend(connection, parent, budget)
        if turn.state is not None or turn.key == key:
            return Keyed(turn.key, None, counts)
        # Nothing is under this key yet: what the action takes from its input comes first, so that it is found again.
        return Keyed(None, turn.key, counts)
    if key is not None:
        return Keyed(key, None)
    if action.reads_only:
        return Keyed(None, proposed)
    if action.key_rule == "content" or (action.key_rule == "new" and action.policy.decision == "allow"):
        return Keyed(None, None)
    through = b"" if who.through is None else who.through.principal_id.encode()
    call = sha256(b"by:" + who.principal_id.encode() + b"|" + through + b"|" + input_sha256)
    async with autocommit(pool) as connection:
        turn = await store.turn(connection, who.tenant, action.name, call, key=proposed, call_id=new, window_s=window_s)
    return Keyed(None, turn.key)


async def count_refused(pool: Pool, parent: UUID, budget: int) -> None:
    """Count a call that was refused and repeats another. Raises DeedboxError budget_exhausted."""
    async with autocommit(pool) as connection:
        await _spend(connection, parent, budget)


async def _spend(connection: Connection, parent: UUID, budget: int) -> None:
    if not await store.spend(connection, parent, budget):
        raise DeedboxError("budget_exhausted", f"The job has made the {budget} calls of tools that it may make.")


async def checked_parent(pool: Pool, who: Principal, parent: UUID) -> str:
    """The action of the job within which somebody calls. Raises DeedboxError: not_found, permission_denied when it is over."""
    async with autocommit(pool) as connection:
        found = await store.parent(connection, Reader.of(who), parent)
    if found is None:
        raise DeedboxError("not_found", "There is no such parent job, or it is not yours.")
    if found.state is None:
        raise DeedboxError("permission_denied", "The job within which this is called has ended; it may call nothing more.")
    return found.action
