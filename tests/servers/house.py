"""A house that speaks: an outbox with people who have addresses, a real mail server, the notifier and a dispatcher."""

import email
import email.policy
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from email.message import EmailMessage
from typing import Any, cast
from uuid import UUID

from deedbox.connectors.settings import ConnectorSettings, SmtpConfig
from deedbox.connectors.smtp import Smtp
from deedbox.dispatch.loop import Dispatcher
from deedbox.egress import EgressPolicy
from deedbox.gate.asking import Asking
from deedbox.gate.telling import Telling
from deedbox.model.backoff import Retry
from deedbox.sweep.notify import Notifier
from tests import road
from tests.builders import Built, Outbox, outbox_on
from tests.database import TestDatabase
from tests.servers.smtp_server import Mail, SmtpServer

URL = "https://desk.example"
LOOPBACK = EgressPolicy(frozenset({"127.0.0.1"}))
_LINK = re.compile(r"https?://\S+")


@dataclass
class House:
    """What one test speaks with."""

    box: Outbox
    server: SmtpServer
    mail: Smtp
    asking: Asking
    telling: Telling = field(default_factory=Telling)
    public_url: str = URL

    @property
    def database(self) -> TestDatabase:
        """Where all of it is kept."""
        return self.box.database

    def notifier(self) -> Notifier:
        """One more notifier, as a process that has just started has it."""
        return Notifier(self.box.pool, self.box.ids, self.asking, self.telling)

    def dispatcher(self, **options: Any) -> Dispatcher:
        """A dispatcher of the house's mail, and of notes."""
        connectors = {self.mail.name: self.mail, self.box.connector.name: self.box.connector}
        given: dict[str, Any] = {"connectors": connectors, "public_url": self.public_url, "retry": Retry(base=0.001, cap=0.001)}
        return self.box.dispatcher(**(given | options))

    async def speak(self) -> list[EmailMessage]:
        """One round of the notifier and one of the dispatcher; returns the mails that came of it, in the order of addresses."""
        before = len(self.server.mails)
        await self.notifier().round()
        await self.dispatcher().once()
        return sorted(map(read, self.server.mails[before:]), key=lambda mail: str(mail["To"]))

    async def person(self, name: str, *roles: str, kind: str = "person", mail: bool = True) -> UUID:
        """Somebody with an address of their name."""
        made = await road.principal(self.database, self.box.ids, name, kind, *roles)
        if mail and kind == "person":
            query = "UPDATE deedbox.principal SET email = %s WHERE principal_id = %s"
            await self.database.rows(query, f"{name.lower()}@people.example", UUID(made.principal_id))
        return UUID(made.principal_id)

    async def waiting(self, **options: Any) -> tuple[Built, UUID]:
        """A job that waits for managers, and its approval, which lapses in a day."""
        built = await self.box.build(state="awaiting_human", open_groups=["default"], **options)
        approval_id = await self.database.value("SELECT approval_id FROM deedbox.approval WHERE job_id = %s", built.job_id)
        return built, cast("UUID", approval_id)

    async def notices(self) -> list[tuple[object, ...]]:
        """Template, address and state of every notice, in the order they were made."""
        return await self.database.rows(
            "SELECT template, target, state FROM deedbox.notice JOIN deedbox.effect USING (effect_id) ORDER BY effect_id"
        )

    async def audited(self, *verbs: str) -> list[tuple[object, ...]]:
        """Verb and detail of the audit's entries with these verbs."""
        query = (
            "SELECT verb, detail FROM deedbox.audit JOIN deedbox.audit_detail USING (seq) WHERE verb = ANY (%s) ORDER BY seq"
        )
        return await self.database.rows(query, list(verbs))


@asynccontextmanager
async def house_on(database: TestDatabase, **asking: Any) -> AsyncGenerator[House]:
    """A house in this database with a mail server of its own."""
    async with SmtpServer().running() as server, outbox_on(database) as box:
        mail = Smtp("house_mail")
        mail.bind(smtp_at(server), LOOPBACK)
        yield House(box, server, mail, replace(Asking(mail), **asking))


def smtp_at(server: SmtpServer) -> ConnectorSettings:
    """Settings that name this server."""
    config = SmtpConfig(host="127.0.0.1", port=server.port, sender="desk@house.example", security="none")
    return ConnectorSettings(smtp=config)


def read(mail: Mail) -> EmailMessage:
    """A mail as its reader sees it."""
    return email.message_from_bytes(mail.data, policy=email.policy.default)


def text_of(mail: EmailMessage) -> str:
    """What it says."""
    return str(mail.get_content())


def links_of(mail: EmailMessage) -> list[str]:
    """Every address in it."""
    return _LINK.findall(text_of(mail))
