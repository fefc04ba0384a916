"""A job as it is shown: its state, its parts and its history."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from deedbox.model.lifecycle import JOB
from deedbox.store.views import JobRow

OVER = frozenset({*JOB.ended, "failed_retryable"})
"""States that end a round: nothing follows but a new round."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Why something failed: the class that decided, a stable code, and a sentence that can be said aloud."""

    failure_class: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ApprovalSummary:
    """One approval of a job; times are the database's."""

    approval_id: UUID
    purpose: str
    group: str
    state: str
    expires_at: datetime
    decided_at: datetime | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class EffectSummary:
    """One effect of a job as it stands; `provider_id` is the provider's own id for what it accepted."""

    effect_id: UUID
    connector: str
    target: str
    slot: str
    state: str
    attempt: int
    code: str | None
    message: str | None
    provider_id: str | None


@dataclass(frozen=True, slots=True)
class DocumentLink:
    """An upload that the job carries; `size` is in bytes."""

    document_id: UUID
    name: str
    media_type: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as it stands, read in one snapshot.

    `attempts` were begun out of `max_attempts` allowed. `result` is set only where the state is completed, `failure` only
    where it ended otherwise; `last_error` is that of the last attempt that failed. `needs_attention`: an effect is unknown.
    `contents_pruned_at` is when input, output and what was proposed were removed because their retention had passed.
    """

    job_id: UUID
    action: str
    version: int
    state: str
    round: int
    attempts: int
    max_attempts: int
    last_seq: int
    cancel_requested: bool
    needs_attention: bool
    created_at: datetime
    updated_at: datetime
    next_attempt_at: datetime | None
    progress: Mapping[str, Any] | None
    partial: Mapping[str, Any] | None
    last_error: Failed | None
    failure: Failed | None
    result: Any
    done: tuple[Mapping[str, Any], ...]
    not_done: tuple[Mapping[str, Any], ...]
    declined: tuple[Mapping[str, Any], ...]
    approvals: tuple[ApprovalSummary, ...]
    effects: tuple[EffectSummary, ...]
    documents: tuple[DocumentLink, ...]
    replaces: UUID | None
    replaced_by: tuple[UUID, ...]
    parent_job_id: UUID | None
    deadline: datetime | None
    contents_pruned_at: datetime | None = None
    models: Mapping[str, Any] | None = None
    """What it asked of models in all of its attempts: calls, requests, tokens, cost by currency; None where it asked none."""

    @property
    def is_over(self) -> bool:
        """Whether nothing follows but a new round."""
        return self.state in OVER


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a job has come to, for whoever asked for it: all that a completed one is answered with.

    `done` are the receipts of its effects in the order in which they were proposed, `declined` the groups that nobody let out.
    """

    job_id: UUID
    action: str
    version: int
    state: str
    result: Any
    done: tuple[Mapping[str, Any], ...]
    declined: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a job's history; `seq` counts from 1 without gaps."""

    event_id: UUID
    seq: int
    type: str
    job_id: UUID
    round: int
    attempt_id: UUID | None
    timestamp: datetime
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events after a number, and the job in the same snapshot. `complete`: these are the last for this round."""

    events: tuple[Event, ...]
    state: str
    last_seq: int
    next_after: int

    @property
    def complete(self) -> bool:
        """Whether nothing follows these events but a new round."""
        return self.state in OVER and self.next_after >= self.last_seq


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One thing that happened to a job, by its kind: call, event, attempt, model, approval, vote, effect, receipt or probe."""

    at: datetime
    kind: str
    what: str
    detail: Mapping[str, Any]


def _failed(found: Mapping[str, Any] | None) -> Failed | None:
    if found is None:
        return None
    return Failed(str(found["class"] or "bug"), str(found["code"] or ""), str(found["message"] or ""))


def _when(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def job_view(row: JobRow) -> JobView:
    """The view of a job that was read."""
    return JobView(
        job_id=row.job_id,
        action=row.action,
        version=row.version,
        state=row.state,
        round=row.round,
        attempts=row.attempt,
        max_attempts=row.attempts_allowed,
        last_seq=row.last_seq,
        cancel_requested=row.cancel_requested,
        needs_attention=any(effect["state"] == "unknown" for effect in row.effects),
        created_at=row.created_at,
        updated_at=row.updated_at,
        next_attempt_at=row.next_attempt_at,
        progress=row.progress,
        partial=None if row.state == "completed" else row.partial,
        last_error=None if row.state == "completed" else _failed(row.failure or row.last_error),
        failure=_failed(row.failure),
        result=row.output if row.state == "completed" else None,
        done=tuple(row.done),
        not_done=tuple(row.not_done),
        declined=tuple(row.declined),
        approvals=tuple(_approval(item) for item in row.approvals),
        effects=tuple(_effect(item) for item in row.effects),
        documents=tuple(_document(item) for item in row.documents),
        replaces=row.replaces,
        replaced_by=tuple(row.replaced_by),
        parent_job_id=row.parent_job_id,
        deadline=row.deadline,
        contents_pruned_at=row.contents_pruned_at,
        models=row.models,
    )


def _approval(item: Mapping[str, Any]) -> ApprovalSummary:
    return ApprovalSummary(
        approval_id=UUID(item["approval_id"]),
        purpose=item["purpose"],
        group=item["group"],
        state=item["state"],
        expires_at=datetime.fromisoformat(item["expires_at"]),
        decided_at=_when(item["decided_at"]),
        reason=item["reason"],
    )


def _effect(item: Mapping[str, Any]) -> EffectSummary:
    return EffectSummary(
        effect_id=UUID(item["effect_id"]),
        connector=item["connector"],
        target=item["target"],
        slot=item["slot"],
        state=item["state"],
        attempt=item["attempt"],
        code=item["code"],
        message=item["message"],
        provider_id=item["provider_id"],
    )


def _document(item: Mapping[str, Any]) -> DocumentLink:
    return DocumentLink(UUID(item["document_id"]), item["name"], item["media_type"], item["size"], item["sha256"])
