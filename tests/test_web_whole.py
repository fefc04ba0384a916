"""The approval page over the real gate, store and wiring, in a real browser: nothing here stands in for anything."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

import httpx2
import pytest
import uvicorn
from playwright.async_api import async_playwright
from pydantic import BaseModel, SecretStr

from deedbox import App, Context, Document, Email, Smtp, hold, wiring
from deedbox.access import add_user
from deedbox.connectors.settings import SmtpConfig
from deedbox.intake.request import Request, Upload
from deedbox.settings import Settings
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import principal, until
from tests.servers.console import PASSWORD, field_of, log_in
from tests.test_web_chromium import ARGUMENTS, CHROMIUM, look

pytestmark = pytest.mark.anyio

ROWS = (
    "SELECT (SELECT count(*) FROM deedbox.vote), (SELECT count(*) FROM deedbox.effect), (SELECT count(*) FROM deedbox.event),"
    " (SELECT count(*) FROM deedbox.audit), (SELECT string_agg(state, ',') FROM deedbox.approval)"
)


class Letter(BaseModel):
    """An uploaded letter and who sent it."""

    file: Document
    sender: str


class Reply(BaseModel):
    """The draft."""

    category: str
    body: str


app = App(connectors=[Smtp()])


@app.action(roles=["operator"], approvers=["manager"], policy=hold(expires="2h"))
async def answer_letter(ctx: Context, letter: Letter) -> Reply:
    """Answer a letter by mail."""
    text = (await ctx.document(letter.file)).decode()
    body = f"Thank you for your letter:\n\n{text}"
    ctx.effect("smtp", target=letter.sender, slot="reply", payload=Email(to=letter.sender, subject="Your letter ✓", body=body))
    return Reply(category="other", body=body)


@dataclass
class Site:
    """A running installation with one approval that waits."""

    url: str
    installation: wiring.Installation
    database: TestDatabase
    approval_id: UUID
    job_id: UUID

    async def rows(self) -> object:
        """Everything that a decision would change."""
        return (await self.database.rows(ROWS))[0]


@asynccontextmanager
async def site(database: TestDatabase) -> AsyncGenerator[Site]:
    """Serve the whole face with a worker behind it, up to the hold. No dispatcher runs: nothing is to leave."""
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    smtp = SmtpConfig(host="127.0.0.1", port=9, sender="desk@example.com", security="none")
    settings = Settings(database_url=SecretStr(database.url), public_url=url, smtp=smtp)
    stop = asyncio.Event()
    async with wiring.opened(settings, app, wiring.find_database(settings), roles=("api", "worker")) as one:
        server = uvicorn.Server(uvicorn.Config(wiring.make_asgi(one, stop), log_config=None, lifespan="off", ws="none"))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        working = asyncio.create_task(wiring.run_roles(one, ("worker",), stop))
        try:
            caller = await principal(database, one.ids, "web-form", "service", "operator")
            await add_user(one.pool, one.ids, "default", "Ada", ["manager"], PASSWORD)
            upload = Upload("Brief ä.txt", "text/plain", "Where is my order? Grüße".encode())
            given = {"sender": "zoe@example.org"}
            job = await one.intake.submit(Request(caller, "answer_letter", given, "letter-1", "http", {"file": [upload]}))
            found = await until(lambda: database.rows("SELECT approval_id FROM deedbox.approval"), bool, within=30)
            await until(lambda: _answers(url), bool, within=30)
            yield Site(url, one, database, UUID(str(found[0][0])), job.job_id)
        finally:
            stop.set()
            server.should_exit = True
            await asyncio.gather(serving, working)


async def _answers(url: str) -> bool:
    async with httpx2.AsyncClient(trust_env=False) as client:
        return (await client.get(f"{url}/readyz")).status_code == 200


@proves("G-GET-CHANGES-NOTHING", "G-CSRF")
async def test_looking_changes_nothing_and_only_a_person_with_the_form_decides(database: TestDatabase) -> None:
    async with site(database) as one:
        link = await one.installation.approvals.link(one.approval_id)
        assert link is not None
        before = await one.rows()
        headers = {"Origin": one.url, "Sec-Fetch-Site": "same-origin"}
        async with httpx2.AsyncClient(base_url=one.url, headers=headers, trust_env=False) as client:
            for _ in range(3):
                for method in ("HEAD", "GET"):
                    seen = await client.request(method, link)
                    assert seen.status_code == 200
                    assert "zoe@example.org" not in seen.text
                    assert "Where is my order" not in seen.text
            bare = await client.post(link, data={"decision": "approve", "digest": "00" * 32, "csrf": "x"})
            assert bare.status_code in (401, 403)
            assert await one.rows() == before
            await log_in(client, "Ada")
            page = await client.get(f"/approvals/{one.approval_id}")
            for shown in (
                "zoe@example.org",
                "Your letter ✓",
                "Where is my order? Grüße",
                "letter-1",
                "Brief ä.txt",
                "web-form",
            ):
                assert shown in page.text, shown
            document_id = await database.value("SELECT document_id FROM deedbox.job_document")
            document = await client.get(f"/documents/{document_id}")
            assert document.content.decode() == "Where is my order? Grüße"
            form = {"csrf": field_of(page.text, "csrf"), "digest": field_of(page.text, "digest"), "reason": ""}
            wrong = await client.post(
                f"/approvals/{one.approval_id}", data={**form, "digest": "00" * 32, "decision": "approve"}
            )
            assert wrong.status_code == 409
            no_token = await client.post(f"/approvals/{one.approval_id}", data={**form, "csrf": "", "decision": "approve"})
            assert no_token.status_code == 403
            assert await database.value("SELECT count(*) FROM deedbox.vote") == 0
            done = await client.post(f"/approvals/{one.approval_id}", data={**form, "decision": "approve"})
            assert done.status_code == 303
        assert await database.rows("SELECT connector, target, slot, state FROM deedbox.effect") == [
            ("smtp", "zoe@example.org", "reply", "pending")
        ]
        assert await database.value("SELECT count(*) FROM deedbox.approval_token WHERE voided_at IS NULL") == 0


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the PATH; apt-get install chromium")
async def test_the_real_card_fits_and_rejects_with_a_reason(database: TestDatabase) -> None:
    async with site(database) as one, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        for width in (360, 1280):
            context = await browser.new_context(base_url=one.url, viewport={"width": width, "height": 800})
            page = await context.new_page()
            await page.goto(f"/login?next=/approvals/{one.approval_id}")
            await page.get_by_label("Name").fill("Ada")
            await page.get_by_label("Password").fill(PASSWORD)
            await page.get_by_role("button", name="Log in").click()
            await page.get_by_role("button", name="Approve").wait_for()
            await look(page, f"whole-{width}")
        await page.get_by_label("Reason").fill("wrong tone")
        await page.get_by_role("button", name="Reject").click()
        await page.get_by_text("Rejected by Ada").wait_for()
        await browser.close()
        assert await database.value("SELECT code FROM deedbox.result") == "rejected"
        assert await database.value("SELECT count(*) FROM deedbox.effect") == 0
