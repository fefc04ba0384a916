"""The terms on which a job is accepted: who approves its arguments before it runs, and which service called for somebody."""

from uuid import UUID

from deedbox.extend.action import Action
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
