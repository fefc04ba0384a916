"""With what the house itself speaks: its own mail connector, who is asked, and who is told of alerts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from deedbox.connectors.settings import Bindable
from deedbox.egress import EgressPolicy
from deedbox.extend.announce import Announces
from deedbox.extend.connector import Connector
from deedbox.extend.registry import App
from deedbox.gate.asking import Asking
from deedbox.gate.telling import Owner, Telling
from deedbox.settings import Settings
from deedbox.store.notify import Escalation
from deedbox.wiring.places import StartError

HOUSE_MAIL = "house_mail"
"""The connector that notices go out by; an app cannot have one of this name."""


@dataclass(frozen=True, slots=True)
class Voice:
    """With what the house speaks: its own connectors, who is asked to decide and how, and who is told of alerts."""

    connectors: Mapping[str, Connector] = field(default_factory=dict[str, Connector])
    asking: Asking = field(default_factory=Asking)
    telling: Telling = field(default_factory=Telling)


def voice_of(settings: Settings, app: App) -> Voice:
    """What settings say of it, over connectors that need not be bound yet.

    Raises StartError where they name what is not there or cannot say anything.
    """
    house = _connectors(settings, app)
    return Voice(house, _asking(settings, app, house), _telling(settings, app, house))


def check_owners(voice: Voice) -> None:
    """Ask the connectors, once they are bound, whether they can reach the owners of alerts. Raises StartError."""
    for owner in chain.from_iterable(voice.telling.owners.values()):
        try:
            owner.connector.check_target(owner.target)
        except ValueError as error:
            raise StartError(f"DEEDBOX_ALERTS_TO: {owner.name}: {error}") from error


def _connectors(settings: Settings, app: App) -> dict[str, Connector]:
    if settings.smtp is None:
        return {}
    if HOUSE_MAIL in app.connectors:
        raise StartError(f"the name {HOUSE_MAIL} is for the house's own mail: call the app's connector something else")
    # Imported late: a process without mail does not wait for the library.
    from deedbox.connectors.smtp import Smtp  # noqa: PLC0415

    return {HOUSE_MAIL: Smtp(HOUSE_MAIL)}


def bound(connectors: Mapping[str, Connector], settings: Settings, policy: EgressPolicy) -> Iterator[Bindable]:
    """Give each connector its settings; yields those that are to be closed."""
    for connector in connectors.values():
        if isinstance(connector, Bindable):
            connector.bind(settings.connectors, policy)
            yield connector


def _asking(settings: Settings, app: App, house: Mapping[str, Connector]) -> Asking:
    mail = _announcer(house, HOUSE_MAIL) if settings.notify_mail else None
    further = tuple(
        Escalation(action.name, action.escalate_to, action.escalate_after_s)
        for action in app.actions.values()
        if action.escalate_to is not None and action.escalate_after_s is not None
    )
    return Asking(mail, settings.notify_remind_at, further)


def _telling(settings: Settings, app: App, house: Mapping[str, Connector]) -> Telling:
    connectors = {**app.connectors, **house}
    owners = {cause: tuple(_owner(connectors, one) for one in names) for cause, names in settings.alerts_to.items()}
    return Telling(
        owners,
        remind_s=settings.alerts_remind_s,
        reminders=settings.alerts_reminders,
        queued_s=settings.alerts_queued_s,
        public_url=settings.public_url,
    )


def _owner(connectors: Mapping[str, Connector], owner: str) -> Owner:
    name, colon, target = owner.partition(":")
    if not colon:
        name, target = HOUSE_MAIL, owner
    return Owner(_announcer(connectors, name), target)


def _announcer(connectors: Mapping[str, Connector], name: str) -> Announces:
    connector = connectors.get(name)
    if connector is None:
        raise StartError(f"DEEDBOX_ALERTS_TO: there is no connector called {name!r}")
    if not isinstance(connector, Announces):
        raise StartError(f"DEEDBOX_ALERTS_TO: the connector {name!r} cannot say an alert")
    return connector
