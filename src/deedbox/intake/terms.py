"""The terms on which a job is accepted: who approves its arguments, which service called for somebody, how urgent it is."""

from uuid import UUID

from deedbox.extend.action import MOST_PRIORITY, Action
from deedbox.model.errors import DeedboxError, Problem
from deedbox.model.identity import Principal
from deedbox.store import accept


def held_for(action: Action) -> accept.HeldFor | None:
    """Who approves its arguments before it runs, where somebody does."""
    if not action.hold_input:
        return None
    policy = action.policy
    return accept.HeldFor(tuple(sorted(action.approvers)), policy.quorum, policy.expires_s, policy.version)


def through(principal: Principal) -> UUID | None:
    """The service that calls for this person; None where it calls for itself, and for one that has no row."""
    if principal.through is None:
        return None
    try:
        return UUID(principal.through.principal_id)
    except ValueError:
        return None


def priority(asked: int | None, action: Action) -> int:
    """The one that is asked for, else the action's own. Raises DeedboxError invalid_parameter beyond the range."""
    if asked is None:
        return action.priority
    if not 0 <= asked <= MOST_PRIORITY:
        problem = Problem("/priority", "range", f"is from 0, the most urgent, to {MOST_PRIORITY}")
        raise DeedboxError("invalid_parameter", "The priority is out of range.", problems=(problem,))
    return asked
