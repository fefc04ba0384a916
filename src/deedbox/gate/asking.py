"""Asking people to decide: the request, the reminders and the escalation of an approval, each once, by the database's clock.

What has been said is a row per stage, and people are found when it is said: who was disabled, has voted or asked for it gets
nothing. Nothing here touches how long an approval lives; whoever decides is neither waited for nor held up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deedbox.extend.announce import Announces
from deedbox.gate import words
from deedbox.gate.notices import Notice, enqueue
from deedbox.model.alarms import Saying, Stage, stage_of
from deedbox.model.identity import Principal
from deedbox.store import notices, notify
from deedbox.store.audit import AuditEntry, append
from deedbox.store.ids import IdSource
from deedbox.store.notify import DueApproval, Escalation, Reachable
from deedbox.store.pool import Connection

_VERBS: Mapping[Saying, str] = {
    "approval.request": "ask",
    "approval.reminder": "remind",
    "approval.escalation": "ask_further",
}
_ACTOR = "system:notifier"


@dataclass(frozen=True, slots=True)
class Asking:
    """How people are asked: by which connector mails go out, None for no mail, and after which parts of its life again.

    `escalations` name, by action, who may decide as well what has waited too long.
    """

    mail: Announces | None = None
    remind_at: tuple[float, ...] = (0.5, 0.9)
    escalations: tuple[Escalation, ...] = ()


async def ask(connection: Connection, ids: IdSource, asking: Asking, limit: int) -> int:
    """Say what is due about at most `limit` approvals, within the caller's transaction; returns how many there were.

    Tell the outbox after the commit.
    """
    if asking.mail is None:
        return 0
    due = await notify.due_approvals(connection, limit)
    people = await notify.audience(connection, [one.approval_id for one in due]) if due else []
    entries: list[AuditEntry] = []
    for one in due:
        stage = stage_of(
            age_s=one.age_s,
            life_s=one.life_s,
            parts=asking.remind_at,
            said=set(one.stages),
            escalated=one.escalated_to is not None,
        )
        if stage.say is not None and await notify.mark_stages(connection, one.approval_id, stage.marks):
            able = [person for person in people if person.approval_id == one.approval_id and _asked(person, one, stage.say)]
            # What was to be said before and has not left is overtaken by this.
            await notices.cancel_of_approval(connection, one.approval_id, "overtaken", "A later notice stands for it.")
            await enqueue(connection, ids, _mails(asking.mail, one, stage.say, able))
            entries.append(_entry(one, stage, able))
        await notify.notify_next(connection, one.approval_id, stage.next_s)
    for entry in entries:
        await append(connection, entry)
    return len(due)


async def escalate(connection: Connection, asking: Asking, limit: int) -> int:
    """Let further roles decide what nobody has decided in time, within the caller's transaction; returns how many approvals."""
    moved = await notify.escalate(connection, asking.escalations, limit)
    for one in moved:
        detail = {"job_id": str(one.job_id), "role": one.role}
        subject = str(one.approval_id)
        await append(
            connection, AuditEntry(one.tenant, _ACTOR, "sweep", "system", "escalate", "approval", subject, None, detail)
        )
    return len(moved)


def _asked(person: Reachable, approval: DueApproval, saying: Saying) -> bool:
    """Whether this is for that person: one who may decide at all, and for an escalation one who was not asked before."""
    roles = frozenset(person.roles)
    if not Principal(str(person.principal_id), approval.tenant, person.name, "person", roles, "session").may("decide"):
        return False
    if saying != "approval.escalation":
        return True
    return approval.escalated_to in roles and not roles & (set(approval.audience) - {approval.escalated_to})


def _mails(mail: Announces, one: DueApproval, saying: Saying, able: Sequence[Reachable]) -> list[Notice]:
    wanted = words.Wanted(one.action, one.purpose, one.asked_by, one.expires_at, one.quorum, one.audience)
    subject, body = words.approval(saying, wanted)
    return [
        Notice(
            template=saying,
            tenant=one.tenant,
            connector=mail.name,
            target=person.email,
            payload=mail.announcement(person.email, subject, body),
            summary=f"Asks somebody to decide an approval of {one.action}.",
            action=one.action,
            job_id=one.job_id,
            approval_id=one.approval_id,
            principal_id=person.principal_id,
            not_after_s=one.life_s - one.age_s,
        )
        for person in able
    ]


def _entry(one: DueApproval, stage: Stage, able: Sequence[Reachable]) -> AuditEntry:
    detail: dict[str, Any] = {
        "job_id": str(one.job_id),
        "stages": list(stage.marks),
        "people": [person.name for person in able],
    }
    verb = _VERBS[stage.say] if stage.say else ""
    return AuditEntry(one.tenant, _ACTOR, "sweep", "system", verb, "approval", str(one.approval_id), None, detail)
