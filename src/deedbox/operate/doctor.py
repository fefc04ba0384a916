"""How an installation is: read for `doctor`, for the line at the start of a server, and for lists of people."""

from collections.abc import Iterable
from uuid import UUID

from deedbox.extend.action import Action
from deedbox.model.identity import Principal
from deedbox.store import doctor
from deedbox.store.doctor import Figures, PrincipalLine
from deedbox.store.pool import Pool
from deedbox.store.prune import Growth, growth
from deedbox.store.transaction import autocommit

__all__ = ["Figures", "Growth", "PrincipalLine", "people", "read_figures", "read_growth", "undecidable"]


async def people(pool: Pool, tenant: str) -> list[PrincipalLine]:
    """Everybody of a tenant, people before services."""
    async with autocommit(pool) as connection:
        return await doctor.people(connection, tenant)


async def read_figures(pool: Pool, tenant: str) -> tuple[Figures, UUID | None]:
    """What waits for somebody, and a job that has no place or two, which must never be; None when there is none."""
    async with autocommit(pool) as connection:
        return await doctor.figures(connection, tenant), await doctor.misplaced(connection)


async def read_growth(pool: Pool) -> Growth:
    """How far the partitions reach: fewer months than wanted mean that no sweep makes them."""
    async with autocommit(pool) as connection:
        return await growth(connection)


def undecidable(actions: Iterable[Action], lines: Iterable[PrincipalLine]) -> dict[str, str]:
    """The actions that hold effects which too few living people can decide: name to a sentence that says what is missing.

    A member counts when it is a person, not disabled, has a role of the approvers' group and one that may decide at all.
    """
    alive = [_principal(line) for line in lines if line.kind == "person" and line.disabled_at is None]
    found: dict[str, str] = {}
    for action in actions:
        # Under `allow` an effect that was not expected is held all the same, but then the action names whom to ask, or none.
        if (action.policy.decision == "deny" and not action.hold_input) or not action.approvers:
            continue
        able = [one for one in alive if one.has_role(action.approvers) and one.may("decide")]
        if len(able) < action.policy.quorum:
            wanted = " or ".join(sorted(action.approvers))
            found[action.name] = f"{action.policy.quorum} needed with the role {wanted}, {len(able)} there"
    return found


def _principal(line: PrincipalLine) -> Principal:
    return Principal("", "", line.name, "person", frozenset(line.roles), "session", verbs=frozenset(line.verbs))
