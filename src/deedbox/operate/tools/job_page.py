"""All there is to see of a job, as the `data` of `get_job`: what became of it, how far it is, and what happened."""

from typing import Any

from deedbox.extend.action import Action
from deedbox.operate.job_view import JobView
from deedbox.operate.tools.envelope import Envelope, bounded
from deedbox.operate.tools.sentences import called
from deedbox.operate.views import EventPage

MOST_EVENTS = 50


def shown(
    view: JobView, page: EventPage, envelope: Envelope, action: Action | None, *, after: int, link: str
) -> dict[str, Any]:
    """The job with a page of its events after a number; `envelope` is the answer for it, `action` None where it is gone."""
    events = [
        {
            "seq": event.seq,
            "type": event.type,
            "round": event.round,
            "at": event.timestamp.isoformat(),
            "payload": dict(event.payload),
        }
        for event in page.events[:MOST_EVENTS]
    ]
    pending = envelope.data or {} if envelope.status == "pending" else {}
    approvals: list[Any] = pending.get("approvals", [])
    data: dict[str, Any] = {
        "state": view.state,
        "reason": pending.get("reason"),
        "attempt": view.attempts,
        "max_attempts": view.max_attempts,
        "progress": view.progress,
        "partial": view.partial,
        "events": events,
        "next_after": events[-1]["seq"] if events else after,
        "complete": page.complete and len(events) == len(page.events),
        "approval": next(iter(approvals), None),
        "approvals": approvals,
        "result": envelope.data if envelope.status != "pending" else None,
        "title": called(view.action).capitalize() if action is None else action.title.rstrip("."),
        "follow_ups": _follow_ups(view, action),
    }
    return _fitted(data, link)


def _follow_ups(view: JobView, action: Action | None) -> list[dict[str, str]]:
    """What the reader of a finished result may ask for next, in the words that its action was declared with."""
    offered = () if action is None or view.state != "completed" else action.follow_ups
    return [{"label": one.label, "message": one.message} for one in offered]


def _fitted(data: dict[str, Any], link: str) -> Any:
    """The data of a job; where it is too long the result goes by link, then the draft, so that progress is always there."""
    for name in ("result", "partial"):
        if "too_large" not in bounded(data, link):
            return data
        data = {**data, name: None, "link": link}
    return bounded(data, link)
