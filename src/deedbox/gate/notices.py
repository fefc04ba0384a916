"""Notices: what we say of our own accord, as effects of the outbox, and the one function that makes them.

A notice is authorised by the built-in verdict `system.notice` over its exact bytes, as an act is by its approval. Its words
come from a fixed template and its recipient from settings or from a principal's own row; nothing of either is a model's. It
belongs to no job's history: it writes no event, ends no job, and is its own job_id on the outbox (ADR 17); what it is about
stands beside it. An end that may have arrived closes it, unless the receiver knows our key: then it is said again.

A payload never holds a link. Where one belongs stands `LINK`, and the dispatcher puts a fresh one there after the lease.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from deedbox.model.fingerprint import effect_body, sha256
from deedbox.store import admission
from deedbox.store.ids import IdSource
from deedbox.store.pool import Connection
from deedbox.telemetry import NOTICES

POLICY_VERSION = "deedbox-notices-1"
HOUSE = "system.notice"
"""The action of a notice that no action's job is the reason for; no registered action can have this name."""
NOT_AFTER_S = 86400.0
LINK = "[[deedbox:link]]"
"""Where the link to an approval will stand."""
TEMPLATES = frozenset(
    {"approval.request", "approval.reminder", "approval.escalation", "alert.opened", "alert.reminder", "callback"}
)
"""What may be said."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to be said. `payload` is what the connector takes; `summary` one sentence for the ledger, without secrets.

    `once` is a name under which it is made only once, for ever until it is pruned. `job_id`, `approval_id` and `alert_id` are
    what it is about, `principal_id` whom it is for; none of them need exist any more. Its action and target narrow the switch
    as an act's do. It is sent `not_before_s` seconds from now at the earliest and lapses `not_after_s` seconds from now.
    """

    template: str
    tenant: str
    connector: str
    target: str
    payload: Mapping[str, Any]
    summary: str
    action: str = HOUSE
    once: str | None = None
    job_id: UUID | None = None
    approval_id: UUID | None = None
    alert_id: UUID | None = None
    principal_id: UUID | None = None
    not_before_s: float = 0.0
    not_after_s: float = NOT_AFTER_S


async def enqueue(connection: Connection, ids: IdSource, notices: Sequence[Notice]) -> list[UUID]:
    """Put notices on the outbox within the caller's transaction; returns the effects of those that were not made before.

    Takes no lock that others wait for, so it may come anywhere before the audit. Tell the outbox after the commit.
    Raises ValueError for a template that is not in the table, InvalidValueError for a payload without a canonical form.
    """
    if not notices:
        return []
    made = await admission.enqueue_notices(connection, [_row(ids, one) for one in notices], POLICY_VERSION)
    NOTICES.inc(len(made))
    return made


def _row(ids: IdSource, notice: Notice) -> admission.NoticeRow:
    if notice.template not in TEMPLATES:
        raise ValueError(f"template: {notice.template!r} is not one of {', '.join(sorted(TEMPLATES))}")
    body = effect_body(notice.connector, notice.target, notice.template, dict(notice.payload))
    return admission.NoticeRow(
        effect_id=ids.new(),
        verdict_id=ids.new(),
        template=notice.template,
        tenant=notice.tenant,
        action=notice.action,
        connector=notice.connector,
        target=notice.target,
        summary=notice.summary,
        body=body,
        digest=sha256(body),
        once=notice.once,
        job_id=notice.job_id,
        approval_id=notice.approval_id,
        alert_id=notice.alert_id,
        principal_id=notice.principal_id,
        not_before_s=notice.not_before_s,
        not_after_s=notice.not_after_s,
    )
