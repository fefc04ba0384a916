"""Handing one's say to another person: in one approval, or in all until a moment. Nobody hands on what they may not decide.

A say that was handed on counts once, whoever speaks it; it counts only while its holder still has it, and never towards
whoever asked for the job. What is grave is not handed on. Both names are kept with the vote.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from deedbox.gate.rules import find_say, require_act, require_open, require_person
from deedbox.model.errors import DeedboxError, Problem
from deedbox.model.identity import Principal
from deedbox.model.values import short_message
from deedbox.store import decision, delegation
from deedbox.store.audit import append, entry_by
from deedbox.store.decision import Standing
from deedbox.store.ids import IdSource
from deedbox.store.pool import Connection, Pool
from deedbox.store.transaction import transaction


@dataclass(frozen=True, slots=True)
class HandedOver:
    """A say that is another person's now, from when and until when (None: as long as the approval is open)."""

    delegation_id: UUID
    holder: str
    to: str
    approval_id: UUID | None
    made_at: datetime
    until: datetime | None


async def delegate(
    pool: Pool,
    ids: IdSource,
    principal: Principal,
    *,
    to: str,
    approval_id: UUID | None,
    until: datetime | None,
    reason: str | None,
    how: str,
) -> HandedOver:
    """Hand one's own say to the person of that name: in this approval, or in all until a moment.

    Raises DeedboxError: person_required, invalid_input (nobody of that name who could have it, no moment or one that has passed
    or lies more than 90 days ahead), permission_denied for a say that one has not or that cannot go there, and what `decide`
    raises for an approval that is not open. A refusal changes nothing.
    """
    require_person(principal)
    if (approval_id is None) == (until is None):
        problem = Problem("/until", "required", "a moment for all approvals, none for one")
        raise DeedboxError(
            "invalid_input", "A say is handed on in one approval, or in all until a moment.", problems=(problem,)
        )
    if until is not None and until.tzinfo is None:
        problem = Problem("/until", "timezone", "needs its zone, for example 2026-05-14T16:30:00+02:00")
        raise DeedboxError("invalid_input", "The moment names no zone.", problems=(problem,))
    why = short_message(reason) if reason and reason.strip() else None
    holder = UUID(principal.principal_id)
    async with transaction(pool) as connection:
        if approval_id is not None:
            await decision.lock_job_of(connection, approval_id, principal.tenant)
        to_whom = await _receiver(connection, principal, to)
        if approval_id is None:
            if not principal.may("decide"):
                raise DeedboxError("permission_denied", "You decide nothing, so there is no say to hand on.")
        else:
            standing = await decision.lock_standing(connection, approval_id, principal.tenant, holder)
            if standing is None:
                raise DeedboxError("not_found", "There is no such approval, or it is not yours.")
            _require_own(principal, standing)
            _require_fit(to_whom, standing)
        delegation_id = ids.new()
        made_at = await delegation.hand_over(
            connection,
            delegation_id=delegation_id,
            tenant=principal.tenant,
            holder=holder,
            to=to_whom.principal_id,
            approval_id=approval_id,
            reason=why,
            how=how,
            until=until,
        )
        if made_at is None:
            problem = Problem("/until", "range", "a moment from now on, at most 90 days ahead")
            raise DeedboxError("invalid_input", "That moment has passed, or is too far away.", problems=(problem,))
        subject = ("person", principal.principal_id) if approval_id is None else ("approval", str(approval_id))
        detail = {
            "delegation": str(delegation_id),
            "to": str(to_whom.principal_id),
            "to_name": to_whom.name,
            "until": None if until is None else until.isoformat(),
        }
        await append(connection, entry_by(principal, how, "delegate", subject, reason=why, detail=detail))
    return HandedOver(delegation_id, principal.name, to_whom.name, approval_id, made_at, until)


async def _receiver(connection: Connection, principal: Principal, to: str) -> delegation.Somebody:
    found = await delegation.person(connection, principal.tenant, to.strip())
    if found is None or found.kind != "person" or found.disabled or str(found.principal_id) == principal.principal_id:
        problem = Problem("/to", "person", "the name of another person who may log in")
        raise DeedboxError("invalid_input", "There is no other person of that name.", problems=(problem,))
    if not Principal(str(found.principal_id), principal.tenant, found.name, "person", frozenset(found.roles), "session").may(
        "read"
    ):
        raise DeedboxError("permission_denied", f"{found.name} may not read here, so could not see what is decided.")
    return found


def _require_own(principal: Principal, standing: Standing) -> None:
    """Raise where this person could not decide it now by its own right."""
    say = find_say(principal, standing)
    if say.holder is not None:
        raise DeedboxError("permission_denied", f"You decide by the say of {say.name}, which only {say.name} hands on.")
    require_open(standing)
    if standing.consequence == "grave":
        raise DeedboxError("permission_denied", "A grave effect is decided by whoever has its role; that say is not handed on.")
    require_act(principal, standing, say, "approve", "")


def _require_fit(to_whom: delegation.Somebody, standing: Standing) -> None:
    """Raise where the say could not be used there."""
    if to_whom.principal_id == standing.subject:
        raise DeedboxError("permission_denied", f"{to_whom.name} asked for it, so does not decide it.")
    if standing.required_role is not None and standing.required_role not in to_whom.roles:
        raise DeedboxError("permission_denied", f"{to_whom.name} does not have the role {standing.required_role}.")


async def withdraw(pool: Pool, principal: Principal, delegation_id: UUID, *, how: str) -> None:
    """End a delegation, as the one who gave it or the one who has it. Raises DeedboxError person_required or not_found."""
    require_person(principal)
    async with transaction(pool) as connection:
        ended = await delegation.withdraw(connection, principal.tenant, delegation_id, UUID(principal.principal_id))
        if ended is None:
            raise DeedboxError("not_found", "There is no such delegation, or it is not yours, or it has ended.")
        detail = {"from": str(ended[0]), "to": str(ended[1])}
        entry = entry_by(principal, how, "withdraw_delegation", ("delegation", str(delegation_id)), detail=detail)
        await append(connection, entry)
