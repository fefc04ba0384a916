"""What `doctor` says of notices: whether people are asked by mail and can be, and whether anybody is told of alerts."""

from collections.abc import Iterable, Iterator
from typing import Literal

from deedbox.extend.registry import App
from deedbox.model.alarms import ANY
from deedbox.model.identity import Principal
from deedbox.operate.doctor import PrincipalLine
from deedbox.settings import Settings
from deedbox.wiring import StartError
from deedbox.wiring.house import voice_of

Said = tuple[str, Literal["ok", "note", "missing"], str, str | None]
"""What was looked at, the verdict, how it is, and what to do."""


def voice(settings: Settings, app: App | None) -> Iterator[Said]:
    """What settings say of it."""
    if settings.notify_mail and settings.smtp is not None:
        yield "asking", "ok", f"approvals are asked for by mail through {settings.smtp.host}", None
    else:
        yield (
            "asking",
            "note",
            "nobody is asked by mail when an approval waits",
            "set DEEDBOX_NOTIFY_MAIL=true, with DEEDBOX_SMTP",
        )
    if not settings.alerts_to:
        yield "alert owners", "note", "nobody is told of alerts", 'name them in DEEDBOX_ALERTS_TO: {"default": ["ops@…"]}'
        return
    try:
        # Without the app only those can be checked that need none of its connectors.
        if app is not None or not any(":" in one for owners in settings.alerts_to.values() for one in owners):
            voice_of(settings, app or App())
    except StartError as error:
        yield "alert owners", "missing", str(error), "name a connector of the app that can say an alert, or a mail address"
        return
    named = ", ".join(f"{cause}: {' and '.join(owners)}" for cause, owners in settings.alerts_to.items())
    if ANY in settings.alerts_to:
        yield "alert owners", "ok", named, None
    else:
        yield "alert owners", "note", f"{named}; of every other cause nobody is told", f"add {ANY} to DEEDBOX_ALERTS_TO"


def unreachable(settings: Settings, lines: Iterable[PrincipalLine]) -> Iterator[Said]:
    """Who may decide and cannot be asked."""
    if not settings.notify_mail:
        return
    silent = [
        line.name
        for line in lines
        if line.kind == "person"
        and line.disabled_at is None
        and line.email is None
        and Principal("", "", line.name, "person", frozenset(line.roles), "session").may("decide")
    ]
    if silent:
        said = f"{len(silent)} may decide and have no address: {', '.join(silent[:5])}"
        yield "addresses", "note", said, "deedbox users email NAME ADDRESS"
