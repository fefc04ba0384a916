"""Which call is the same as one before it: within one parent job for good, and from one caller within a window."""

from dataclasses import dataclass
from uuid import UUID

from deedbox.extend.action import Action
from deedbox.intake.keys import check_key
from deedbox.model.errors import DeedboxError, Problem
from deedbox.model.fingerprint import jcs, sha256
from deedbox.model.identity import Principal
from deedbox.model.secrets import kind_of
from deedbox.store import tools as store
from deedbox.store.pool import Pool
from deedbox.store.transaction import autocommit
from deedbox.store.views import Reader

_WITHIN_S = 400 * 86400.0
"""How long a parent job's calls are remembered, in seconds: a parked one may be taken up much later."""
_FREE = frozenset({"queued", "running", "awaiting_human", "dispatching", "completed"})
"""A call whose job is in one of these states is answered by that job, and is not counted a second time."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """The key that a call is accepted under: one that is its own, or one that comes instead of the action's rule."""

    key: str | None
    otherwise: str | None


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
        async with autocommit(pool) as connection:
            turn = await store.turn(connection, who.tenant, action.name, call, key=key or proposed, window_s=_WITHIN_S)
            if turn.state not in _FREE and not await store.spend(connection, parent, budget):
                raise DeedboxError("budget_exhausted", f"The job has made the {budget} calls of tools that it may make.")
        if turn.state is not None or turn.key == key:
            return Keyed(turn.key, None)
        # Nothing is under this key yet: what the action takes from its input comes first, so that it is found again.
        return Keyed(None, turn.key)
    if key is not None:
        return Keyed(key, None)
    if action.reads_only:
        return Keyed(None, proposed)
    if action.key_rule == "content" or (action.key_rule == "new" and action.policy.decision == "allow"):
        return Keyed(None, None)
    through = b"" if who.through is None else who.through.principal_id.encode()
    call = sha256(b"by:" + who.principal_id.encode() + b"|" + through + b"|" + input_sha256)
    async with autocommit(pool) as connection:
        turn = await store.turn(connection, who.tenant, action.name, call, key=proposed, window_s=window_s)
    return Keyed(None, turn.key)


async def checked_parent(pool: Pool, who: Principal, parent: UUID) -> str:
    """The action of the job within which somebody calls. Raises DeedboxError: not_found, permission_denied when it is over."""
    async with autocommit(pool) as connection:
        found = await store.parent(connection, Reader.of(who), parent)
    if found is None:
        raise DeedboxError("not_found", "There is no such parent job, or it is not yours.")
    if found.state is None:
        raise DeedboxError("permission_denied", "The job within which this is called has ended; it may call nothing more.")
    return found.action


def hash_of(arguments: object) -> bytes:
    """The hash of canonical arguments. Raises InvalidValueError for what has no canonical form."""
    return sha256(jcs(arguments))
