"""The console on a real loopback server, over a desk that keeps its approvals in memory."""

import asyncio
import hashlib
import re
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from uuid import UUID

import httpx2
from starlette.applications import Starlette

from deedbox.access import LoginGuard, Passwords, add_user
from deedbox.gate.confirm import Confirmed
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.operate.alerts import Alerts
from deedbox.operate.cards import (
    ApprovalCard,
    ApprovalLine,
    Attachment,
    Decision,
    DecisionResult,
    DocumentFile,
    EffectView,
    Row,
    SourceLink,
    Validation,
    VoteLine,
)
from deedbox.store.ids import IdSource
from deedbox.store.pool import Pool
from deedbox.web import WebDeps, routes
from tests.database import TestDatabase
from tests.servers.listening import Listening

ZONE = timezone(timedelta(hours=2), "CEST")
DEADLINE = datetime(2026, 5, 14, 16, 30, tzinfo=ZONE)
DECIDED = datetime(2026, 5, 14, 11, 5, tzinfo=ZONE)
PASSWORD = "correct horse, battery"
MAIL = (
    "Dear Zoë Łukasiewicz,\n\nthank you for your message of 12 May. The invoice 2026-0417 names the old address of your "
    "warehouse; we have corrected it and attach the new one. Nothing changes about the amount of 1.284,50 €, and the date of "
    "payment moves to 2 June.\n\nShould the goods arrive before that, please take them: the carrier has been told.\n\n"
    "With kind regards\nSupport"
)
DOCUMENT = UUID("0197f2a8-0000-7000-8000-0000000000d0")


def make_card(**changed: object) -> ApprovalCard:
    """A card with all that an approver is shown."""
    card = ApprovalCard(
        approval_id=UUID("0197f2a8-0000-7000-8000-00000000a001"),
        job_id=UUID("0197f2a8-0000-7000-8000-00000000b001"),
        action="draft_customer_reply",
        version=1,
        state="pending",
        digest_hex=hashlib.sha256(b"first").hexdigest(),
        sentences=(
            "Send an e-mail “Your invoice 2026-0417” to zoe@lukasiewicz.example, with 1 attachment.",
            "Add a note to the customer C-2041 in the CRM.",
        ),
        effects=(
            EffectView(
                "smtp",
                "zoe@lukasiewicz.example",
                "reply",
                (
                    Row("From", "support@handel.example"),
                    Row("To", "zoe@lukasiewicz.example"),
                    Row("Cc", "buchhaltung@lukasiewicz.example"),
                    Row("Subject", "Your invoice 2026-0417"),
                    Row("Text", MAIL),
                ),
                (
                    Attachment(
                        "invoice-2026-0417.pdf",
                        "application/pdf",
                        84_213,
                        hashlib.sha256(b"pdf").hexdigest(),
                        f"/documents/{DOCUMENT}",
                    ),
                ),
            ),
            EffectView("http", "crm", "note", (Row("Customer", "C-2041"), Row("Note", "Corrected invoice 2026-0417 sent."))),
        ),
        key="msg-20260512-0931@lukasiewicz.example",
        asked_by="mail intake",
        why_asked="Every effect of this action waits for a person: the rule “hold” of its policy, version 3f9c21.",
        deadline=DEADLINE,
        zone="CEST",
        audience=("manager",),
        on_yes="Both effects go to the outbox at once and leave once the switch is on, by 15 May, 16:30 at the latest.",
        on_no="Nothing leaves. The job ends as rejected, and who asked is told your reason.",
        on_silence="At the deadline the job ends as expired. Nothing leaves.",
        may_decide=True,
        source_links=(SourceLink("invoice-question.eml", f"/documents/{DOCUMENT}"),),
        draft=(
            Row("Category", "billing"),
            Row("Urgency", "normal (0.71)"),
            Row("Sentiment", "friendly (0.88)"),
            Row("Summary", "The customer asks for a corrected invoice because the warehouse has moved."),
        ),
        validation=Validation("Valid after one repair.", ("/urgency: 'medium' is not one of low, normal, high",), 1),
        model="rules-drafter 1 (no language model was asked)",
    )
    return replace(card, **changed)  # pyright: ignore[reportArgumentType] -- names are checked by replace itself


class Desk:
    """Cards by id, decided under the rules that `operate` keeps."""

    def __init__(self) -> None:
        self.cards: dict[UUID, ApprovalCard] = {}
        self.calls: list[tuple[str, UUID, str, str, str | None, str]] = []

    def put(self, card: ApprovalCard) -> ApprovalCard:
        """Show this card under its id."""
        self.cards[card.approval_id] = card
        return card

    async def card(self, tenant: str, approval_id: UUID, principal: Principal) -> ApprovalCard | None:
        card = self.cards.get(approval_id)
        if card is None or tenant != principal.tenant:
            return None
        if not principal.has_role(frozenset(card.audience)):
            return replace(card, may_decide=False, why_not="Your roles do not include one that decides this.")
        return card

    async def decide(
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
        assert confirmed is None, "no card of this console is grave"
        self.calls.append((principal.name, approval_id, digest_hex, decision, reason, how))
        assert not repeat, "no card of this console has anything to repeat"
        card = self.cards.get(approval_id)
        if card is None:
            raise DeedboxError("not_found", "There is no such approval.")
        if not principal.has_role(frozenset(card.audience)):
            raise DeedboxError("permission_denied", "Your roles do not include one that decides this.")
        if card.state == "expired":
            raise DeedboxError("approval_expired", "Its time ran out before you answered. Nothing was sent.")
        if card.state != "pending":
            raise DeedboxError("already_decided", f"{card.decided_by} has decided it before you; your answer changed nothing.")
        if card.digest_hex != digest_hex:
            raise DeedboxError("approval_changed", "The draft was edited since you opened this page.")
        state = "approved" if decision == "approve" else "rejected"
        self.cards[approval_id] = replace(
            card, state=state, decided_by=principal.name, decided_at=DECIDED, reason=reason, may_decide=False
        )
        return DecisionResult(state, principal.name, DECIDED, f"{state} by {principal.name}")

    async def inbox(self, tenant: str, principal: Principal, show: str = "all") -> list[ApprovalLine]:
        assert show == "all", "this desk keeps no lists of people's own"
        left = iter((8 * 3600.0 + 300, 1500.0, 3 * 86400.0))
        return [
            ApprovalLine(
                card.approval_id,
                card.action,
                card.version,
                card.sentences,
                card.asked_by,
                card.deadline,
                card.zone,
                next(left, 7200.0),
                card.audience,
                principal.has_role(frozenset(card.audience)),
                card.quorum,
                len(card.votes),
            )
            for card in self.cards.values()
            if card.state == "pending" and tenant == principal.tenant
        ]

    async def document(self, tenant: str, document_id: UUID, principal: Principal) -> DocumentFile | None:
        if document_id != DOCUMENT or tenant != principal.tenant:
            return None
        return DocumentFile('<img>"ß.eml', "text/html", b"<script>alert(1)</script>")


@dataclass
class Console:
    """A running console and what it stands on."""

    url: str
    desk: Desk
    pool: Pool
    ids: IdSource
    database: TestDatabase

    def client(self, cookies: dict[str, str] | None = None) -> httpx2.AsyncClient:
        """A browser without scripts: keeps cookies, follows nothing by itself, and says where its forms come from."""
        headers = {"Origin": self.url, "Sec-Fetch-Site": "same-origin"}
        return httpx2.AsyncClient(base_url=self.url, headers=headers, cookies=cookies, trust_env=False)

    async def person(self, name: str, *roles: str) -> None:
        """Make a person with the password of all tests."""
        await add_user(self.pool, self.ids, "default", name, roles, PASSWORD)


@asynccontextmanager
async def console(database: TestDatabase) -> AsyncGenerator[Console]:
    """Serve the console on a port of its own."""
    desk = Desk()
    pool = Pool(database.url, "test console", size=4)
    await pool.open()
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    deps = WebDeps(
        pool=pool,
        public_url=url,
        tenant="default",
        card=desk.card,
        decide=desk.decide,
        inbox=desk.inbox,
        document=desk.document,
        guard=LoginGuard(Passwords()),
        alerts=Alerts(pool),
    )
    server = Listening(Starlette(routes=routes(deps)), access_log=True)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await server.listening.wait()
        yield Console(url, desk, pool, await IdSource.read(pool), database)
    finally:
        server.should_exit = True
        await running
        await pool.close()


async def linked_approval(site: Console, asked_by: str, token: str, card: ApprovalCard) -> None:
    """Store the job, the approval and the hashed link of a card."""
    database, job_id = site.database, site.ids.new()
    await database.rows(
        "INSERT INTO deedbox.job (job_id, tenant, action, action_version, key_sha256, key_source, subject, role, source,"
        " created_at) SELECT %s, 'default', %s, 1, sha256('k'), 'header', principal_id, 'operator', 'http', deedbox.clock()"
        " FROM deedbox.principal WHERE name = %s",
        job_id,
        card.action,
        asked_by,
    )
    await database.rows(
        "INSERT INTO deedbox.approval (approval_id, job_id, tenant, action, purpose, group_name, state, digest, effect_digests,"
        " policy_version, rule, audience, requested_at, expires_at) VALUES (%s, %s, 'default', %s, 'effects', 'all', 'pending',"
        " decode(%s, 'hex'), '{}', 'v', 'hold', %s, deedbox.clock(), deedbox.clock() + interval '1 day')",
        card.approval_id,
        job_id,
        card.action,
        card.digest_hex,
        list(card.audience),
    )
    await database.rows(
        "INSERT INTO deedbox.approval_token (token_sha256, approval_id, purpose, audience, expires_at)"
        " VALUES (%s, %s, 'decide', 'manager', deedbox.clock() + interval '1 day')",
        hashlib.sha256(token.encode()).digest(),
        card.approval_id,
    )


VOTES = (VoteLine("Ada", "approve", DECIDED),)


def field_of(page: str, name: str) -> str:
    """The value of a hidden field."""
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert found, f"the page has no field {name}"
    return found[1]


async def log_in(client: httpx2.AsyncClient, name: str = "Ada", password: str = PASSWORD, next_: str = "/") -> httpx2.Response:
    """Fill in and send the login form as a browser would."""
    page = await client.get("/login", params={"next": next_})
    form = {"csrf": field_of(page.text, "csrf"), "next": field_of(page.text, "next"), "name": name, "password": password}
    return await client.post("/login", data=form)
