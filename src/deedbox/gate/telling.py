"""Telling the owners of alerts: once when one was opened, and a bounded number of times while it stays open."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from deedbox.extend.announce import Announces
from deedbox.gate import words
from deedbox.gate.notices import Notice, enqueue
from deedbox.model.alarms import ANY
from deedbox.store import notify
from deedbox.store.alert import Alert, open_alerts
from deedbox.store.ids import IdSource
from deedbox.store.notify import DueAlert
from deedbox.store.pool import Connection


@dataclass(frozen=True, slots=True)
class Owner:
    """Whom an alert is for: a target of a connector that can say a few words."""

    connector: Announces
    target: str

    @property
    def name(self) -> str:
        """How the owner stands on the alert."""
        return self.target if "@" in self.target else f"{self.connector.name}:{self.target}"


@dataclass(frozen=True, slots=True)
class Telling:
    """Whose alerts are, by cause, and how often they are recalled; `default` stands for every other cause.

    `queued_s` is how long, in seconds, a job may wait before that is an alert.
    """

    owners: Mapping[str, Sequence[Owner]] = field(default_factory=dict[str, Sequence[Owner]])
    remind_s: float = 14400.0
    reminders: int = 3
    queued_s: float = 900.0
    public_url: str = ""

    @property
    def causes(self) -> tuple[str, ...] | None:
        """The causes that have an owner; None where all have."""
        return None if ANY in self.owners else tuple(self.owners)

    def of(self, cause: str) -> Sequence[Owner]:
        """The owners of a cause."""
        return self.owners.get(cause) or self.owners.get(ANY, ())


async def tell_alerts(connection: Connection, ids: IdSource, telling: Telling, limit: int) -> int:
    """Tell the owners of at most `limit` open alerts, within the caller's transaction; returns how many there were.

    Tell the outbox after the commit.
    """
    made: list[Notice] = []
    due = await notify.due_alerts(connection, telling.causes, limit)
    for one in due:
        owners = telling.of(one.cause)
        made += [_notice(one, owner, telling.public_url) for owner in owners]
        again = telling.remind_s if one.told < telling.reminders else None
        await notify.alert_told(connection, one.alert_id, ", ".join(owner.name for owner in owners), again)
    await enqueue(connection, ids, made)
    return len(due)


async def raise_alarms(connection: Connection, ids: IdSource, telling: Telling) -> int:
    """Open alerts about jobs that wait for too long, within the caller's transaction; returns how many were found."""
    found = [
        Alert(
            ids.new(),
            None,
            "jobs_queued_long",
            f"Jobs of {action} have been due for {age_s / 60:.0f} min, and no worker has taken them.",
            tenant=tenant,
        )
        for tenant, action, age_s in await notify.long_queued(connection, telling.queued_s)
    ]
    if found:
        await open_alerts(connection, found)
    return len(found)


def _notice(one: DueAlert, owner: Owner, public_url: str) -> Notice:
    saying: Literal["alert.opened", "alert.reminder"] = "alert.opened" if one.told == 0 else "alert.reminder"
    alarm = words.Alarm(one.cause, one.message, one.job_id, one.effect_id, one.opened_at, one.age_s)
    subject, body = words.alert(saying, alarm, public_url)
    return Notice(
        template=saying,
        tenant=one.tenant,
        connector=owner.connector.name,
        target=owner.target,
        payload=owner.connector.announcement(owner.target, subject, body),
        summary=f"Tells the owner of an alert: {one.cause}.",
        once=f"alert:{one.alert_id}:{one.told}:{owner.connector.name}:{owner.target}"[:300],
        job_id=one.job_id,
        alert_id=one.alert_id,
    )
