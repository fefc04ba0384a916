"""A letter on its way through the console, from inbox to receipt, in Chromium, and the pictures that the docs show of it."""

import os
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import pytest
from playwright.async_api import Browser, Page, expect
from pydantic import BaseModel, Field

from deedbox.connectors import Http, HttpTargetConfig, Smtp, SmtpConfig
from deedbox.dispatch.loop import Dispatcher
from deedbox.extend.context import Context
from deedbox.extend.registry import App
from tests.database import TestDatabase
from tests.pasted import PASTE
from tests.road import Road, road
from tests.ruled import approvals, say
from tests.servers.http_provider import HttpProvider
from tests.servers.installed import PASSWORD, House, house
from tests.servers.smtp_server import SmtpServer
from tests.test_web_chromium import CHROMIUM, look, picture
from tests.test_web_chromium import browser as browser  # noqa: PLC0414 -- the fixture, by its own name

pytestmark = pytest.mark.anyio
DOCS = Path(__file__).resolve().parent.parent / "docs"
WANTED = {"inbox": "360-light", "card": "360-light", "edit": "360-light", "receipt": "360-light", "changed": "1280-dark"}
"""Which pictures the docs show, and from which window."""
_TEXT = (
    "Dear Ms Brandt,\n\nthe cup of your order 5531 arrived broken; we are sorry. A new one leaves today and reaches you by"
    " Thursday. You need not send the pieces back.\n\nWith kind regards\nThe shop"
)


class Complaint(BaseModel):
    """What came in."""

    customer: str = Field(max_length=100)
    text: str = Field(max_length=2000)


class Answer(BaseModel):
    """What is drafted."""

    category: str = Field(title="Category")
    summary: str = Field(title="In one sentence")


def make_app() -> App:
    app = App(connectors=[Http(), Smtp()])

    @app.action(roles=["operator"], approvers=["manager"])
    async def answer_complaint(ctx: Context, given: Complaint) -> Answer:
        mail = {"to": [given.customer], "subject": "Your broken cup, order 5531", "body": _TEXT}
        ctx.effect("smtp", target=given.customer, slot="letter", payload=mail)
        note = {"method": "POST", "path": "/notes", "body": {"customer": "C-2041", "note": "A new cup was promised."}}
        ctx.effect("http", target="crm", slot="note", payload=note)
        return Answer(category="damage in transit", summary="The customer asks for a new cup.")

    assert list(app.actions) == ["answer_complaint"], answer_complaint
    return app


@dataclass
class Desk:
    """A running installation, its road, and a job that corrects one which has been done."""

    site: House
    one: Road
    approval_id: UUID

    async def send(self) -> None:
        """Let a dispatcher send what may leave."""
        await Dispatcher(self.one.pool, self.one.ids, self.one.app.connectors, environment_on=True).once()


@asynccontextmanager
async def desk_on(database: TestDatabase) -> AsyncGenerator[Desk]:
    app = make_app()
    async with HttpProvider().running() as provider, SmtpServer().running() as mail:
        options: dict[str, Any] = {
            "targets": (HttpTargetConfig(name="crm", base_url=provider.url, capability="blind"),),
            "smtp": SmtpConfig(host=mail.host, port=mail.port, sender="desk@shop.example", security="none"),
            "egress_allow": frozenset({"127.0.0.1"}),
            "AI_ACTIONS_ENABLED": True,
        }
        async with house(database, app, **options) as site, road(database, app) as one:
            await site.person("Ada", "manager")
            await site.person("Bo", "manager")
            await database.rows("UPDATE deedbox.switch SET is_on = true WHERE switch_id = 'acts'")
            one.start(one.worker())
            body = {"customer": "brandt@customer.example", "text": "My cup is broken."}
            first = (await one.submit("answer_complaint", body, "mail-0930")).job_id
            await one.until(first, "awaiting_human")
            await say(one, (await approvals(one, first))["default"])
            await Dispatcher(one.pool, one.ids, app.connectors, environment_on=True).once()
            await one.until(first, "completed")
            second = (await one.submit("answer_complaint", body, "mail-0931")).job_id
            await one.until(second, "awaiting_human")
            await database.rows("UPDATE deedbox.job SET replaces = %s WHERE job_id = %s", first, second)
            yield Desk(site, one, (await approvals(one, second))["default"][0])


async def enter(page: Page, name: str) -> None:
    await page.goto("/login")
    await page.get_by_label("Name").fill(name)
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Log in").click()


async def keep(page: Page, name: str, tag: str) -> None:
    """Look at the page, and write the picture that the docs show where somebody asks for it."""
    await page.evaluate("scrollTo(0, 0)")
    await look(page, f"letter-{name}-{tag}")
    if os.environ.get(PASTE) and WANTED.get(name) == tag:
        await picture(page, DOCS / "pictures" / f"{name}.png")


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the PATH; apt-get install chromium")
@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (360, "dark"), (1280, "light"), (1280, "dark")])
async def test_a_letter_from_inbox_to_receipt(
    database: TestDatabase, browser: Browser, width: int, scheme: Literal["light", "dark"]
) -> None:
    tag = f"{width}-{scheme}"
    async with desk_on(database) as desk:
        context = await browser.new_context(
            base_url=desk.site.url, viewport={"width": width, "height": 800}, color_scheme=scheme, java_script_enabled=False
        )
        page = await context.new_page()
        await enter(page, "Ada")
        await keep(page, "inbox", tag)
        await page.get_by_role("link", name=re.compile("Answer complaint")).click()
        await expect(page.get_by_text("brandt@customer.example").first).to_be_visible()
        await keep(page, "card", tag)
        await page.get_by_text("Say something, or ask").click()
        await page.get_by_label("What you say").fill("Have we a cup of that colour left?")
        await page.get_by_role("button", name="Say it").click()
        await expect(page.get_by_text("Have we a cup of that colour left?")).to_be_visible()
        await page.get_by_role("link", name="Edit it first").click()
        await page.get_by_label("Body").first.fill(_TEXT.replace("Thursday", "Friday"))
        await keep(page, "edit", tag)
        await page.get_by_role("button", name="Hold this instead").click()
        await expect(page.get_by_text(re.compile("Edited by"))).to_be_visible()
        await keep(page, "changed", tag)
        await page.get_by_role("button", name="Log out", exact=True).click()
        await enter(page, "Bo")
        await page.get_by_role("link", name=re.compile("Answer complaint")).click()
        for box in await page.locator('input[name^="repeat-"]').all():
            await box.check()
        await page.get_by_role("button", name="Approve").click()
        await expect(page.get_by_text(re.compile("Approved"))).to_be_visible()
        await desk.send()
        await page.reload()
        await keep(page, "receipt", tag)
        await context.close()
