"""The console in Debian's Chromium: phone and desk, light and dark, with no scripts at all."""

import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal
from uuid import UUID

import pytest
from playwright.async_api import Browser, Error, Page, async_playwright

from tests.database import TestDatabase
from tests.servers.console import DECIDED, PASSWORD, VOTES, Console, console, linked_approval, make_card

CHROMIUM = shutil.which("chromium")
TOKEN = "a-link-that-was-mailed"
ARGUMENTS = [
    "--no-sandbox",
    "--headless=new",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
NASTY = (
    "Please pay to \u202etnuocca\u202c, see https://\u0430\u0440\u0440\u04cf\u0435.com/" + "a-very-long-path/" * 30 + "<b>x</b>"
)
LOOK = """() => {
  const problems = [];
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) problems.push(`overflow: ${root.scrollWidth} > ${root.clientWidth}`);
  for (const e of document.querySelectorAll('button, a.button, input:not([type=hidden]), textarea, summary')) {
    if (!e.checkVisibility()) continue;
    const box = e.getBoundingClientRect();
    if (box.height < 44) problems.push(`small: ${e.outerHTML.slice(0, 80)} ${box.height}`);
  }
  const parse = c => { const m = c.match(/[\\d.]+/g).map(Number); return m.length > 3 && m[3] === 0 ? null : m.slice(0, 3); };
  const linear = v => v / 255 <= .04045 ? v / 255 / 12.92 : ((v / 255 + .055) / 1.055) ** 2.4;
  const light = c => { const [r, g, b] = c.map(linear);
    return .2126 * r + .7152 * g + .0722 * b; };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    if (!walk.currentNode.data.trim()) continue;
    let e = walk.currentNode.parentElement;
    if (!e.checkVisibility()) continue;
    const ink = light(parse(getComputedStyle(e).color));
    const words = walk.currentNode.data.trim().slice(0, 40);
    let back = null;
    for (let b = e; b && !back; b = b.parentElement) back = parse(getComputedStyle(b).backgroundColor);
    const [hi, lo] = [ink, light(back || [255, 255, 255])].sort((x, y) => y - x);
    if ((hi + .05) / (lo + .05) < 4.5) problems.push(`contrast ${((hi + .05) / (lo + .05)).toFixed(2)}: ${words}`);
  }
  for (const e of document.querySelectorAll('input:not([type=hidden]), textarea'))
    if (!e.labels.length) problems.push(`no label: ${e.name}`);
  return problems;
}"""

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the PATH; apt-get install chromium"),
]


@pytest.fixture
async def site(database: TestDatabase) -> AsyncIterator[Console]:
    async with console(database) as running:
        await running.person("Ada", "manager")
        await running.person("Vi", "viewer")
        yield running


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield opened
        await opened.close()


@asynccontextmanager
async def window(browser: Browser, site: Console, width: int, scheme: Literal["light", "dark"]) -> AsyncGenerator[Page]:
    """A window in which scripts are off."""
    context = await browser.new_context(
        base_url=site.url, viewport={"width": width, "height": 800}, color_scheme=scheme, java_script_enabled=False
    )
    yield await context.new_page()
    await context.close()


async def log_in(page: Page, name: str = "Ada") -> None:
    await page.get_by_label("Name").fill(name)
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Log in").click()


async def picture(page: Page, path: Path, *, full_page: bool = False) -> None:
    """Save a picture. On a busy machine Chromium now and then has no frame to give; the next one it has."""
    for left in (2, 1, 0):
        try:
            await page.screenshot(path=path, full_page=full_page)
        except Error as error:
            if not left or "Unable to capture screenshot" not in str(error):
                raise
        else:
            return


async def look(page: Page, name: str) -> None:
    """Save a picture of the page and measure it: no overflow, targets of 44 px, contrast of at least 4.5."""
    # Playwright makes the folder where it is new.
    folder = Path(os.environ.get("DEEDBOX_SCREENSHOTS") or Path(tempfile.gettempdir()) / "deedbox-screenshots")
    await picture(page, folder / f"{name}.png")
    await picture(page, folder / f"{name}-whole.png", full_page=True)
    # Playwright evaluates from outside, so this works although the page itself may run nothing.
    assert await page.evaluate(LOOK) == [], name


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
async def test_every_page_fits_and_can_be_read(site: Console, browser: Browser, width: int, scheme: Literal["light", "dark"]):
    card = site.desk.put(make_card())
    second = replace(card, approval_id=UUID(int=2), quorum=2, votes=VOTES, sentences=(f"Send a message: {NASTY}",))
    site.desk.put(replace(second, effects=(), action="send_message", asked_by="n8n"))
    site.desk.put(replace(card, approval_id=UUID(int=3), sentences=card.sentences[:1], effects=card.effects[:1]))
    await linked_approval(site, "Ada", TOKEN, card)
    path = f"/approvals/{card.approval_id}"
    tag = f"{width}-{scheme}"
    async with window(browser, site, width, scheme) as page:
        await page.goto(f"{path}?t={TOKEN}")
        await look(page, f"landing-{tag}")
        await page.get_by_role("main").get_by_role("link", name="Log in").click()
        await look(page, f"login-{tag}")
        await log_in(page)
        assert page.url == site.url + path
        await look(page, f"approval-{tag}")
        await page.goto("/")
        await look(page, f"inbox-{tag}")
        await page.goto(f"/approvals/{UUID(int=2)}")
        await look(page, f"nasty-{tag}")
        await page.goto(f"/approvals/{UUID(int=3)}")
        site.desk.put(replace(site.desk.cards[UUID(int=3)], digest_hex="0" * 64))
        await page.get_by_role("button", name="Approve").click()
        await look(page, f"changed-{tag}")
        await page.get_by_label("Reason").fill("The amount is wrong:\nit must be 1.248,50 €.")
        await page.get_by_role("button", name="Reject").click()
        await look(page, f"rejected-{tag}")
        await page.goto("/approvals/nothing")
        await look(page, f"missing-{tag}")


async def test_without_a_reason_the_browser_does_not_send_a_rejection(site: Console, browser: Browser):
    card = site.desk.put(make_card())
    async with window(browser, site, 360, "light") as page:
        await page.goto(f"/login?next=/approvals/{card.approval_id}")
        await log_in(page)
        await page.get_by_role("button", name="Reject").click()
        await page.get_by_role("button", name="Approve").click()
        await page.get_by_text("Approved by Ada").wait_for()
        assert [call[3] for call in site.desk.calls] == ["approve"]


async def test_the_two_buttons_stand_apart_at_the_bottom_and_none_has_the_focus(site: Console, browser: Browser):
    card = site.desk.put(make_card())
    async with window(browser, site, 360, "light") as page:
        await page.goto(f"/login?next=/approvals/{card.approval_id}")
        await log_in(page)
        reject = await page.get_by_role("button", name="Reject").bounding_box()
        approve = await page.get_by_role("button", name="Approve").bounding_box()
        assert reject is not None
        assert approve is not None
        assert approve["x"] - (reject["x"] + reject["width"]) >= 72
        assert 700 < reject["y"] + reject["height"] <= 800
        assert await page.evaluate("document.activeElement.tagName") == "BODY"


async def test_a_reader_without_the_role_sees_no_buttons(site: Console, browser: Browser):
    card = site.desk.put(make_card())
    site.desk.put(
        replace(card, approval_id=UUID(int=5), state="approved", decided_by="Ada", decided_at=DECIDED, may_decide=False)
    )
    async with window(browser, site, 360, "light") as page:
        await page.goto(f"/login?next=/approvals/{card.approval_id}")
        await log_in(page, "Vi")
        assert await page.get_by_role("button", name="Approve").count() == 0
        await look(page, "reader-360-light")
        await page.goto(f"/approvals/{UUID(int=5)}")
        await look(page, "approved-360-light")
