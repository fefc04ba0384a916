"""What an approver sees: the card, the inbox's lines, and the functions that fill and decide them.

Every door shows the same card. Times are aware datetimes in the zone they are to be read in; sentences are plain, complete
and made by code, never by a model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol, get_args
from uuid import UUID

from deedbox.gate.confirm import Confirmed, Stake
from deedbox.model.again import RULES
from deedbox.model.consequence import Consequence
from deedbox.model.identity import Principal

Decision = Literal["approve", "reject"]
Show = Literal["all", "mine", "groups", "soon", "snoozed", "decided"]
SHOWS: tuple[Show, ...] = get_args(Show)
"""What a list of approvals shows: all that waits but for what one looks away from, what one may decide oneself, what is for a
group of one's own, what lapses within the hour, what one looks away from, and what one has decided."""
ApprovalState = Literal["pending", "approved", "rejected", "expired", "superseded", "withdrawn"]

RUNNING_AGAIN = RULES


@dataclass(frozen=True, slots=True)
class Row:
    """One labelled value, shown as it is; where it is `empty`, the value is our word for null or for nothing, not a text."""

    label: str
    value: str
    empty: bool = False


@dataclass(frozen=True, slots=True)
class SourceLink:
    """Where something came from: a name and an http(s) address or a path on this site."""

    name: str
    url: str


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that goes out with an effect; `size` is in bytes."""

    name: str
    media_type: str
    size: int
    sha256_hex: str
    url: str | None = None


@dataclass(frozen=True, slots=True)
class EffectView:
    """One effect with its exact final content and every recipient, its fields in the order of the connector's model."""

    connector: str
    target: str
    slot: str
    rows: tuple[Row, ...]
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True)
class Validation:
    """How the draft did against its schema: a sentence, the errors met, and the number of repairs."""

    text: str
    errors: tuple[str, ...] = ()
    repairs: int = 0


@dataclass(frozen=True, slots=True)
class VoteLine:
    """One person's vote."""

    name: str
    decision: Decision
    at: datetime
    for_name: str | None = None
    """Whose say it was, where that was not the voter's own."""


@dataclass(frozen=True, slots=True)
class CommentLine:
    """What one person said before it was decided."""

    name: str
    text: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """One value that an edit changed: where, what it was and what it is now; None where there was or is none."""

    slot: str
    label: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class EditedBy:
    """Who changed what was proposed, first to last, when the last of them did, and what that changed."""

    names: tuple[str, ...]
    at: datetime
    former: UUID
    changes: tuple[ChangedRow, ...]


@dataclass(frozen=True, slots=True)
class RepeatView:
    """An effect that the replaced job has done, or may have done, under this slot, with the provider's id of it where known."""

    slot: str
    state: str
    effect_id: UUID
    provider_id: str | None = None


@dataclass(frozen=True, slots=True)
class DoneBefore:
    """An effect as it stands, with the provider's id of what it accepted, and since when it knows."""

    slot: str
    connector: str
    target: str
    state: str
    provider_id: str | None
    at: datetime | None


@dataclass(frozen=True, slots=True)
class OriginalView:
    """The job that is replaced: where it stands and what became of its effects."""

    job_id: UUID
    state: str
    effects: tuple[DoneBefore, ...]


@dataclass(frozen=True, slots=True)
class ApprovalCard:
    """One approval with everything that a person needs to decide it, and how it was decided.

    `digest_hex` is the SHA-256 of exactly what is shown (64 lower-case hexadecimal digits). `sentences` say what will happen.
    `key` is the caller's idempotency key. `audience` are the roles that may decide. `why_not` says why this principal may
    not, where `may_decide` is false. `superseded_by` is the approval that took this one's place.
    `pruned_at` is when the content of what was proposed was removed, because its retention had passed. `rule` is why it is
    held. `required_role` is what whoever decides has to hold beside a role of the audience. `stake` is what is typed before
    something grave is approved. `say_of` is whose say this principal would speak, where it is not its own.
    """

    approval_id: UUID
    job_id: UUID
    action: str
    version: int
    state: ApprovalState
    digest_hex: str
    sentences: tuple[str, ...]
    effects: tuple[EffectView, ...]
    key: str | None
    asked_by: str
    why_asked: str
    deadline: datetime
    zone: str
    audience: tuple[str, ...]
    on_yes: str
    on_no: str
    on_silence: str
    may_decide: bool
    why_not: str | None = None
    source_links: tuple[SourceLink, ...] = ()
    draft: tuple[Row, ...] = ()
    validation: Validation | None = None
    model: str | None = None
    quorum: int = 1
    votes: tuple[VoteLine, ...] = ()
    running_again: tuple[str, ...] = RUNNING_AGAIN
    decided_by: str | None = None
    decided_at: datetime | None = None
    reason: str | None = None
    superseded_by: UUID | None = None
    repeats: tuple[RepeatView, ...] = ()
    original: OriginalView | None = None
    """Where this job replaces another: what that one has done, with its receipts."""
    pruned_at: datetime | None = None
    purpose: Literal["effects", "input"] = "effects"
    """Whether effects are decided, or the arguments with which the action is to run."""
    arguments: tuple[Row, ...] = ()
    rule: str = ""
    policy_version: str = ""
    consequence: Consequence = "consequential"
    required_role: str | None = None
    stake: Stake | None = None
    say_of: str | None = None
    edited: EditedBy | None = None
    may_edit: bool = False
    may_delegate: bool = False
    asked_through: str | None = None
    """The service that called in the name of `asked_by`, where one did."""
    remaining_s: float = 0.0
    """Until the deadline, in seconds by the database's clock."""
    sent: tuple[DoneBefore, ...] = ()
    """What became of what it let out, with its receipts, once it was approved."""
    comments: tuple[CommentLine, ...] = ()
    snoozed_until: datetime | None = None
    """Until when this principal looks away from it."""


@dataclass(frozen=True, slots=True)
class ApprovalLine:
    """One approval as the inbox lists it; `remaining_s` is in seconds by the database's clock."""

    approval_id: UUID
    action: str
    version: int
    sentences: tuple[str, ...]
    asked_by: str
    deadline: datetime
    zone: str
    remaining_s: float
    audience: tuple[str, ...]
    may_decide: bool
    quorum: int = 1
    votes: int = 0
    consequence: Consequence = "consequential"
    policy_version: str = ""
    digest_hex: str = ""
    say_of: str | None = None
    many: bool = False
    """Whether it may be decided together with others of its action and policy."""
    asked_through: str | None = None
    """The service that called in the name of `asked_by`, where one did."""
    state: ApprovalState = "pending"
    decision: Decision | None = None
    """What this principal said, in a list of what it has decided, and when."""
    decided_at: datetime | None = None
    concerns: bool = True
    """Whether it is for a group of this principal's."""
    snoozed_until: datetime | None = None
    """Until when this principal looks away from it."""


@dataclass(frozen=True, slots=True)
class DocumentFile:
    """A stored upload as it is handed to a person who may see its job."""

    name: str
    media_type: str
    content: bytes


@dataclass(frozen=True, slots=True)
class DecisionResult:
    """What became of a decision: the approval's state, who moved it and when, and a sentence that says so."""

    state: ApprovalState
    by: str
    at: datetime
    message: str


class ShowCard(Protocol):
    """Reads one approval as a principal may see it."""

    async def __call__(self, tenant: str, approval_id: UUID, principal: Principal) -> ApprovalCard | None:
        """The card, or None for an id that is unknown, of another tenant, or not for this principal's eyes. Changes nothing."""
        ...


class Decide(Protocol):
    """Decides one approval, in one transaction, for every door."""

    async def __call__(
        self,
        principal: Principal,
        approval_id: UUID,
        digest_hex: str,
        decision: Decision,
        reason: str | None,
        how: str,
        repeat: Sequence[str] = (),
        confirmed: Confirmed | None = None,
    ) -> DecisionResult:
        """Decide exactly what `digest_hex` names; `repeat` are the slots that are to be done a second time.

        `confirmed` is what a page asked once more for something grave. Raises DeedboxError with the code approval_changed,
        already_decided, approval_expired, permission_denied, session_required, confirmation_required, repeat_unconfirmed or
        not_found.
        """
        ...


class ListInbox(Protocol):
    """Lists what waits for a principal."""

    async def __call__(self, tenant: str, principal: Principal, show: Show = "all") -> list[ApprovalLine]:
        """The pending approvals this principal may see, the nearest deadline first, or what `show` says. Changes nothing."""
        ...


class ReadDocument(Protocol):
    """Reads a stored upload for a principal."""

    async def __call__(self, tenant: str, document_id: UUID, principal: Principal) -> DocumentFile | None:
        """The document, or None for an id that is unknown or of a job this principal may not see."""
        ...
