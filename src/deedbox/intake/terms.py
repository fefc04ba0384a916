"""The terms on which a job is accepted: who runs it, in which lane, how urgent it is, who approves its arguments, and room."""

import time
from collections.abc import Collection, Mapping
from uuid import UUID

from deedbox.extend.action import MOST_PRIORITY, Action
from deedbox.intake.request import Request
from deedbox.model.errors import DeedboxError, Problem
from deedbox.model.identity import Principal, require_scope
from deedbox.store import accept
from deedbox.store.pool import Pool
from deedbox.store.transaction import autocommit

_DERIVED_EXPIRY_S = 400 * 86400.0
_MOST = 4096


class Desk:
    """Says on which terms a call's job is accepted; what calls have in common it has said before."""

    def __init__(self, pool: Pool, actions: Mapping[str, Action], callbacks: Collection[str], *, max_waiting: int) -> None:
        """`max_waiting` is how many jobs may wait per action and tenant before more are refused; `callbacks` are the receivers.

        Raises ValueError for an action whose own receiver is none of them.
        """
        for action in actions.values():
            if action.callback is not None and action.callback not in callbacks:
                raise ValueError(f"{action.name}: no receiver of callbacks is called {action.callback!r}")
        self._pool = pool
        self._callbacks = frozenset(callbacks)
        self._max_waiting = max_waiting
        self._terms: dict[tuple[object, ...], accept.Terms] = {}
        self._lanes: dict[tuple[str, str, str], int] = {}
        self._counted: dict[int, tuple[float, int]] = {}
        self._roles: dict[tuple[str, frozenset[str]], str] = {}

    def role(self, action: Action, principal: Principal) -> str:
        """The role under which this caller runs the action. Raises DeedboxError permission_denied, insufficient_scope."""
        may = principal.may("submit") or (action.reads_only and principal.may("read"))
        known = self._roles.get((action.name, principal.roles))
        if known is not None and may:
            return known
        held = sorted(principal.roles & action.roles)
        if not held or not may:
            require_scope(principal, frozenset({"submit", "read"} if action.reads_only else {"submit"}))
            wanted = ", ".join(sorted(action.roles))
            raise DeedboxError("permission_denied", f"Running {action.name} needs one of these roles: {wanted}.")
        self._roles[action.name, principal.roles] = held[0]
        return held[0]

    async def terms(self, action: Action, request: Request, role: str, key_source: str) -> accept.Terms:
        """The terms of this call, once there is room in its lane.

        Raises DeedboxError invalid_parameter for a priority beyond the range, invalid_input for a receiver that is not
        registered, too_many_waiting.
        """
        principal = request.principal
        service = None if principal.through is None else principal.through.principal_id
        who = (principal.tenant, principal.principal_id, service, role)
        same = (action.name, *who, request.source, key_source, request.priority, request.callback)
        terms = self._terms.get(same)
        if terms is None:
            if len(self._terms) >= _MOST:
                self._terms.clear()
            terms = self._terms[same] = await self._new(action, request, role, key_source)
        counted = self._counted.get(terms.lane_id)
        # Counted at most once a second, so the limit is soft by a second's intake.
        if counted is None or time.monotonic() - counted[0] > 1:
            counted = await self._count(terms.lane_id, action, principal.tenant)
        if counted[1] > self._max_waiting:
            raise DeedboxError("too_many_waiting", f"Too many jobs of {action.name} wait already.", retry_after=5)
        return terms

    async def _new(self, action: Action, request: Request, role: str, key_source: str) -> accept.Terms:
        principal = request.principal
        urgency = priority(request.priority, action)
        callback = self._callback(request.callback, action)
        return accept.Terms(
            tenant=principal.tenant,
            action=action.name,
            version=action.version,
            key_source=key_source,
            subject=UUID(principal.principal_id),
            role=role,
            source=request.source,
            lane_id=await self._lane(action, principal.tenant),
            attempts=action.retry.attempts,
            priority=urgency,
            deadline_s=action.deadline_s,
            expires_s=_DERIVED_EXPIRY_S if key_source in ("content", "new") else None,
            through=through(principal),
            callback=callback,
            held_for=_held_for(action),
        )

    def _callback(self, wanted: str | None, action: Action) -> str | None:
        if wanted is None:
            return action.callback
        if wanted not in self._callbacks:
            # A URL is none of them: where we call is for settings to say.
            problem = Problem("/callback", "callback", "is not the name of a registered receiver")
            raise DeedboxError("invalid_input", "A callback goes to a registered receiver.", problems=(problem,))
        return wanted

    async def _lane(self, action: Action, tenant: str) -> int:
        identity = (action.queue, action.name, tenant)
        lane_id = self._lanes.get(identity)
        if lane_id is None:
            async with autocommit(self._pool) as connection:
                lane_id = self._lanes[identity] = await accept.lane(connection, *identity)
        return lane_id

    async def _count(self, lane_id: int, action: Action, tenant: str) -> tuple[float, int]:
        now = time.monotonic()
        # Those who come while it is counted go by what was counted before.
        self._counted[lane_id] = (now, self._counted.get(lane_id, (now, 0))[1])
        async with autocommit(self._pool) as connection:
            count = await accept.waiting(connection, lane_id, self._max_waiting + 1)
            if action.hold_input:
                # What waits for a yes waits as well.
                count += await accept.held(connection, tenant, action.name, self._max_waiting + 1)
        self._counted[lane_id] = (now, count)
        return now, count


def _held_for(action: Action) -> accept.HeldFor | None:
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
