"""From rows of the store to what people see: the card, a line of the inbox, and what an edit changed."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

from pydantic import BaseModel

from deedbox.gate.masking import NOTHING, Mask
from deedbox.gate.rules import find_say, require_act, require_open, require_person, why_not
from deedbox.model.consequence import LOW, Consequence
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.operate.cards import (
    ApprovalCard,
    ApprovalLine,
    ApprovalState,
    ChangedRow,
    Decision,
    DoneBefore,
    EffectView,
    OriginalView,
    Show,
    SourceLink,
    Validation,
    VoteLine,
)
from deedbox.operate.reasons import why_asked
from deedbox.operate.rows import rows_of
from deedbox.store.decision import Handed, Standing
from deedbox.store.editing import Content
from deedbox.store.rounds import Before

ZONE = "UTC"
GONE = "someone who is gone"
SOON_S = 3600.0
"""What lapses within so many seconds lapses soon, and is shown although one looks away from it."""
PAGE = "page"
"""The door by which the rules are asked when a card is shown: it is where everything can be decided."""
Models = Mapping[str, type[BaseModel]]


def may_see(principal: Principal, subject: UUID) -> bool:
    """Whoever asked for it, and people who may read."""
    if principal.through is not None:
        # What waits for people is theirs to see, not a service's that calls for one of them.
        return False
    return str(subject) == principal.principal_id or (principal.kind == "person" and principal.may("read"))


@dataclass(frozen=True, slots=True)
class Waiting:
    """A line of the inbox as the rules look at it."""

    audience: Sequence[str]
    subject: UUID
    quorum: int
    consequence: Consequence
    required_role: str | None
    editors: Sequence[UUID]
    voters: Sequence[UUID]
    said: Sequence[UUID]
    handed: Sequence[Handed] = field(default=())
    state: str = "pending"
    lapsed: bool = False
    superseded_by: UUID | None = None
    decided_by: str | None = None
    decided_at: datetime | None = None
    reason: str | None = None


def line_of(row: tuple[Any, ...], principal: Principal, handed: Sequence[tuple[UUID | None, Handed]]) -> ApprovalLine:
    """A line of `cards.sql: inbox`."""
    says = [say for approval_id, say in handed if approval_id in (None, row[0])]
    waiting = Waiting(row[6], row[8], row[7], row[9], row[10], row[11], row[15], row[16], says, state=row[19])
    refused = why_not(principal, waiting, PAGE)
    return ApprovalLine(
        approval_id=row[0],
        action=row[1],
        version=row[2],
        asked_by=row[3] or GONE,
        deadline=row[4].astimezone(UTC),
        zone=ZONE,
        remaining_s=row[5],
        audience=tuple(row[6]),
        quorum=row[7],
        votes=len(row[15]),
        sentences=tuple(row[17]),
        may_decide=refused is None,
        consequence=row[9],
        policy_version=row[12],
        digest_hex=bytes(row[13]).hex(),
        say_of=None if refused else find_say(principal, waiting).name,
        many=refused is None and row[9] in LOW,
        asked_through=row[18],
        state=cast("ApprovalState", row[19]),
        decision=cast("Decision | None", row[20]),
        decided_at=None if row[21] is None else row[21].astimezone(UTC),
        concerns=_concerns(principal, waiting),
    )


def _concerns(principal: Principal, waiting: Waiting) -> bool:
    """Whether it is for a group of this person's, by a role of its own or by a say that it was handed."""
    audience = frozenset(waiting.audience)
    return principal.has_role(audience) or any(one.roles & audience for one in waiting.handed)


def shows(line: ApprovalLine, show: Show) -> bool:
    """Whether a list that shows this has the line."""
    if show in {"decided", "snoozed"}:
        return show == "decided" or line.snoozed_until is not None
    wanted = {"all": True, "mine": line.may_decide, "groups": line.concerns, "soon": line.remaining_s < SOON_S}
    return wanted[show] and (line.snoozed_until is None or show == "soon")


def decides(principal: Principal, standing: Standing) -> bool:
    """Whether this is one of the people who decide on exactly what is shown, by a role of their own or by another's say."""
    audience = frozenset(standing.audience)
    own = principal.has_role(audience) and principal.may("decide")
    return principal.kind == "person" and (own or any(one.roles & audience and not one.over for one in standing.handed))


def original_of(before: Sequence[Before]) -> OriginalView | None:
    """What the job that this one replaces has done, with its receipts."""
    if not before:
        return None
    done = tuple(
        DoneBefore(one.slot, one.connector or "", one.target or "", one.state or "", one.provider_id, one.at)
        for one in before
        if one.slot is not None
    )
    return OriginalView(before[0].job_id, before[0].job_state, done)


def effect_of(content: Content, models: Models, mask: Mask = NOTHING) -> EffectView:
    """One effect with its exact content, less what `mask` hides."""
    payload = mask.payload(content.connector, json.loads(content.body)["payload"])
    return EffectView(content.connector, content.target, content.slot, rows_of(payload, models.get(content.connector)))


def changes_of(former: Sequence[Content], now: Sequence[Content], models: Models) -> Iterator[ChangedRow]:
    """What differs, in the order in which it is read; what only one of them has stands beside nothing."""
    before = {one.slot: one for one in former}
    for one in now:
        was = effect_of(before[one.slot], models).rows if one.slot in before else ()
        old = {row.label: row.value for row in was}
        new = {row.label: row.value for row in effect_of(one, models).rows}
        for label in dict.fromkeys([*new, *old]):
            if old.get(label) != new.get(label):
                yield ChangedRow(one.slot, label, old.get(label), new.get(label))


def card_of(
    row: tuple[Any, ...],
    standing: Standing,
    votes: list[tuple[Any, ...]],
    documents: list[tuple[UUID, str]],
    principal: Principal,
) -> ApprovalCard:
    """The card without what leaves, the draft, and what was edited."""
    facts = cast("dict[str, Any]", row[19] or {})
    refused = why_not(principal, standing, PAGE)
    say_of, may_edit, may_delegate = (None, False, False) if refused else _beside(principal, standing)
    if refused is not None and _may_edit(principal, standing):
        may_edit = True
    abstained = facts.get("abstained")
    return ApprovalCard(
        approval_id=row[0],
        job_id=row[1],
        action=row[2],
        version=row[3],
        state=cast("ApprovalState", row[4]),
        digest_hex=bytes(row[5]).hex(),
        sentences=(),
        effects=(),
        key=row[6] if row[7] == "header" else None,
        asked_by=row[8] or GONE,
        why_asked=f"The action abstained: {abstained}" if abstained else _why_asked(standing, row[9]),
        deadline=row[11].astimezone(UTC),
        zone=ZONE,
        audience=tuple(row[12]),
        quorum=row[13],
        on_yes=_on_yes(standing),
        on_no="Nothing is sent; the job ends as rejected, with your reason.",
        on_silence="Nothing is sent; at the deadline the job ends as expired. Silence never approves.",
        may_decide=refused is None,
        why_not=refused,
        source_links=tuple(SourceLink(name, f"/documents/{document_id}") for document_id, name in documents),
        validation=_validation(facts),
        model=_model(facts),
        votes=tuple(VoteLine(vote[0], cast("Decision", vote[1]), vote[2].astimezone(UTC), vote[3]) for vote in votes),
        decided_by=row[15],
        decided_at=None if row[14] is None else row[14].astimezone(UTC),
        reason=row[16],
        superseded_by=row[17],
        pruned_at=row[25],
        asked_through=row[26],
        remaining_s=row[27],
        rule=row[9],
        policy_version=row[10],
        consequence=standing.consequence,
        required_role=standing.required_role,
        say_of=say_of,
        may_edit=may_edit,
        may_delegate=may_delegate,
    )


def _beside(principal: Principal, standing: Standing) -> tuple[str | None, bool, bool]:
    """Whose say a person who may decide would speak, and whether it may edit and hand on."""
    say = find_say(principal, standing)
    own = say.holder is None and standing.consequence != "grave"
    return say.name, standing.purpose == "effects" and standing.effects > 0, own


def _may_edit(principal: Principal, standing: Standing) -> bool:
    """Whether somebody who may not approve may edit all the same: who has edited it, or has voted."""
    try:
        require_person(principal)
        say = find_say(principal, standing)
        require_open(standing)
        require_act(principal, standing, say, "edit", PAGE)
    except DeedboxError:
        return False
    return standing.purpose == "effects" and standing.effects > 0


def _why_asked(standing: Standing, rule: str) -> str:
    meant = {
        "read": "It only reads.",
        "reversible": "It can be undone.",
        "consequential": "It cannot simply be undone.",
        "grave": "It is grave: nobody who asked for it or edited it approves it.",
    }
    role = standing.required_role
    return f"{why_asked(rule)} {meant[standing.consequence]}" + (f" Whoever decides has the role {role}." if role else "")


def _on_yes(standing: Standing) -> str:
    missing = standing.quorum - len(standing.voters)
    if standing.state == "pending" and missing > 1:
        return f"Your vote is kept; nothing goes out before {missing - 1} more of the audience approve."
    if standing.purpose == "input":
        return "The action runs with exactly these arguments; what it then proposes is judged on its own."
    many = "all of it is sent" if standing.effects != 1 else "it is sent"
    return f"Exactly what is shown here goes out: {many} once, as soon as the switch allows."


def _validation(facts: dict[str, Any]) -> Validation:
    repairs = int(facts.get("repairs") or 0)
    stated = {"valid": "The draft matched its schema.", "repaired": f"The draft matched its schema after {repairs} repair(s)."}
    return Validation(
        stated.get(str(facts.get("validation")), "The output matched its schema; no model was asked."), (), repairs
    )


def _model(facts: dict[str, Any]) -> str | None:
    models = cast("list[dict[str, Any]]", facts.get("models") or [])
    return ", ".join(dict.fromkeys(str(model.get("model")) for model in models)) or None
