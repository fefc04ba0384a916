"""Deciding several approvals by one click: of one action, of low consequence, under one policy; each by its own digest.

Each is a decision of its own with its own transaction, its own audit entry and its own answer: one that is refused holds up no
other and changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from deedbox.gate.decide import decide
from deedbox.gate.rules import require_person
from deedbox.model.consequence import LOW
from deedbox.model.errors import DeedboxError, Problem
from deedbox.model.identity import Principal
from deedbox.store import decision
from deedbox.store.decision import Standing
from deedbox.store.ids import IdSource
from deedbox.store.pool import Pool
from deedbox.store.transaction import autocommit

MOST = 20
"""How many are decided at once, at most: as many as a person can read in one go."""


@dataclass(frozen=True, slots=True)
class Line:
    """One of those to be decided: its id, and the digest of what was shown of it."""

    approval_id: UUID
    digest_hex: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one of them: the state it has now, or the code of the refusal; a sentence either way."""

    approval_id: UUID
    state: str | None
    code: str | None
    message: str
    at: datetime | None = None


async def decide_many(
    pool: Pool, ids: IdSource, principal: Principal, *, lines: Sequence[Line], choice: str, reason: str | None, how: str
) -> list[Answer]:
    """Decide each of these approvals alike, and answer for each in the same order.

    Raises DeedboxError where nothing was decided: person_required, or invalid_input for no approval, more than MOST, one twice,
    more than one action or policy version among them, or one that is more than reversible.
    """
    require_person(principal)
    if not 0 < len(lines) <= MOST or len({line.approval_id for line in lines}) != len(lines):
        problem = Problem("/approvals", "many", f"from 1 to {MOST}, each once")
        raise DeedboxError("invalid_input", f"At most {MOST} different approvals are decided at once.", problems=(problem,))
    async with autocommit(pool) as connection:
        found = [await decision.standing(connection, line.approval_id, principal.tenant, None) for line in lines]
    _require_alike([one for one in found if one is not None])
    batch = ids.new()
    answers: list[Answer] = []
    for line in lines:
        try:
            done = await decide(
                pool,
                ids,
                principal,
                approval_id=line.approval_id,
                digest_hex=line.digest_hex,
                choice=choice,
                reason=reason,
                how=how,
                batch=batch,
            )
        except DeedboxError as error:
            answers.append(Answer(line.approval_id, None, error.code, error.detail))
        else:
            answers.append(Answer(line.approval_id, done.state, None, done.message, done.at))
    return answers


def _require_alike(found: Sequence[Standing]) -> None:
    grave = next((number for number, one in enumerate(found) if one.consequence not in LOW), None)
    if grave is not None:
        problem = Problem("/approvals", "consequence", f"{found[grave].approval_id} is {found[grave].consequence}")
        said = "Only what is read or reversible is decided many at once; look at each of the others."
        raise DeedboxError("invalid_input", said, problems=(problem,))
    if len({(one.action, one.policy_version, one.purpose) for one in found}) > 1:
        problem = Problem("/approvals", "alike", "of one action and one version of its policy")
        raise DeedboxError(
            "invalid_input", "Only approvals of one action and one policy are decided at once.", problems=(problem,)
        )
