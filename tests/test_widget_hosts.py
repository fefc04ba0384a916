"""The widget over the real road: a long job in processes of its own, followed in two hosts in Debian's Chromium.

With DEEDBOX_PICTURES it leaves its pictures there; docs/pictures holds those of the last time somebody looked at them.
"""

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from playwright.async_api import Browser, Frame, FrameLocator, Page, expect

from examples.giftgenius.demo import RECIPIENT, upload
from examples.giftgenius.house import House
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.app_host import AppHost, app_host
from tests.servers.inspector import Inspector, inspector
from tests.test_web_chromium import CHROMIUM, picture
from tests.test_web_chromium import browser as browser  # noqa: PLC0414 -- the fixture, by its own name
from tools import node

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the PATH; apt-get install chromium"),
    pytest.mark.skipif(not node.is_current(), reason=node.MISSING),
]
PATIENCE_MS: Final = 60_000
SCHEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
LOOKS: Final[list[tuple[int, Literal["light", "dark"]]]] = [(width, scheme) for width in (360, 1280) for scheme in SCHEMES]
PROMPT: Final = "A gift for my sister, please: she hikes, reads and drinks tea. At most 60 euros."


@pytest.fixture
async def gifts(database: TestDatabase, tmp_path: Path) -> AsyncIterator[House]:
    place = tmp_path / "house"
    async with House.open(place, {"DEEDBOX_DATABASE_URL": database.owner_url}) as running:
        yield running


@pytest.fixture
async def host(browser: Browser, tmp_path: Path) -> AsyncIterator[AppHost]:
    async with app_host(browser, tmp_path) as running:
        yield running


def asked(document_id: str, budget: float = 60) -> dict[str, Any]:
    return {"recipient": RECIPIENT, "budget_eur": budget, "purchases": {"document_id": document_id}}


def server(gifts: House) -> dict[str, Any]:
    """How the host reaches the server."""
    return {"mcp": f"{gifts.url}/mcp", "bearer": gifts.key, "resource": "ui://deedbox/job", "named": "start_deep_analysis"}


def view_of(page: Page) -> Frame:
    return next(frame for frame in page.frames if frame.parent_frame and frame.parent_frame.parent_frame)


async def look(page: Page, host: str, state: str, width: int, scheme: str, *, whole: bool = True) -> None:
    """A picture, where somebody wants them."""
    if folder := os.environ.get("DEEDBOX_PICTURES"):
        # Frames of other origins are painted only as far as the window reaches.
        height = await page.evaluate("() => document.documentElement.scrollHeight") if whole else 900
        await page.set_viewport_size({"width": width, "height": height})
        await picture(page, Path(folder) / f"widget-{host}-{state}-{width}-{scheme}.png")


async def drafts_shown(view: FrameLocator) -> None:
    region = view.get_by_role("region", name="Draft First results, which may still change")
    await expect(region.get_by_role("heading", level=3).first).to_be_visible(timeout=PATIENCE_MS)


async def ended_well(view: FrameLocator) -> None:
    await expect(view.get_by_text("Done", exact=True)).to_be_visible(timeout=PATIENCE_MS)
    result = view.get_by_role("region", name="Result", exact=True)
    await expect(result.locator("ol > li")).to_have_count(6)
    for item in await result.locator("ol > li").all():
        assert "€" in await item.inner_text()
        assert await item.locator(".why").inner_text()


@proves("G-WIDGET-PROGRESS", "G-WIDGET-RETRIES", "G-WIDGET-NO-ORIGIN", "G-WIDGET-RESTORES", "G-WIDGET-FOLLOW-UPS")
async def test_a_long_job_in_a_host_on_the_official_bridge(gifts: House, host: AppHost) -> None:
    document_id = await upload(gifts)
    async with host.chat() as chat:
        first = await chat.start(**server(gifts), tool="start_deep_analysis", arguments=asked(document_id), prompt=PROMPT)
        job_id = first["structuredContent"]["job_id"]
        await drafts_shown(chat.view)
        await expect(chat.view.get_by_text("Attempt 2 of 10")).to_be_visible(timeout=PATIENCE_MS)
        await gifts.shop("held")
        await looks_at(host, gifts, first, "working", drafts_shown)
        # The host's page is loaded anew: nothing is left but the first answer.
        await chat.page.reload()
        await chat.start(**server(gifts), first=first, prompt=PROMPT)
        await drafts_shown(chat.view)
        await gifts.shop("flaky")
        await ended_well(chat.view)
        await expect(chat.view.get_by_text("attempts")).to_contain_text("The target shop answered")
        await chat.view.get_by_role("button", name="Another kind of gift").click()
        await expect(chat.page.locator("p.said").last).to_contain_text("Please look for another kind of gift")
        notes = await chat.seen("notes")
        assert notes[-1]["structuredContent"]["job_id"] == job_id
        assert {call["name"] for call in await chat.seen("calls")} == {"get_job"}
        allowed = {url.split("/")[2] for url in (host.url, host.sandbox, gifts.url)}
        assert {url.split("/")[2] for url in chat.requests if url.startswith("http")} == allowed
        # The view itself asked for nothing at all: what reached the server went through the host's own page.
        assert await view_of(chat.page).evaluate("() => performance.getEntriesByType('resource').length") == 0
        # The host's client asks whether there is a stream outside of calls, and is told that there is none.
        assert [line for line in chat.complaints if "/mcp" not in line and "405" not in line] == []
    await looks_at(host, gifts, first, "done", ended_well)


async def looks_at(
    host: AppHost, gifts: House, first: dict[str, Any], state: str, ready: Callable[[FrameLocator], Any]
) -> None:
    """The same job in windows of every size and scheme, each restored from the first answer alone."""
    for width, scheme in LOOKS:
        async with host.chat(width=width, scheme=scheme) as chat:
            await chat.start(**server(gifts), first=first, theme=scheme, prompt=PROMPT)
            await ready(chat.view)
            await chat.page.wait_for_function("() => host.state.frame.clientHeight === host.state.sizes.at(-1)")
            await look(chat.page, "bridge", state, width, scheme)


@proves("G-WIDGET-CANCEL")
async def test_cancel_in_the_widget_stops_the_handler(gifts: House, host: AppHost) -> None:
    document_id = await upload(gifts)
    await gifts.shop("held")
    async with host.chat() as chat:
        first = await chat.start(**server(gifts), tool="start_deep_analysis", arguments=asked(document_id, 30))
        await gifts.until_shop("holding", 1)
        await cancelled(chat.view)
        # Whoever served the request saw the worker hang up.
        await gifts.until_shop("left", 1)
        job = await gifts.until_over(first["structuredContent"]["job_id"])
        assert job["state"] == "canceled"
        assert [call["name"] for call in await chat.seen("calls")].count("cancel_job") == 1


async def cancelled(view: FrameLocator) -> None:
    await view.get_by_role("button", name="Cancel", exact=True).click(timeout=PATIENCE_MS)
    await view.get_by_role("button", name="Stop it").click()
    await expect(view.get_by_text("Canceled", exact=True)).to_be_visible(timeout=PATIENCE_MS)


@proves("G-WIDGET-PROGRESS", "G-WIDGET-CANCEL", "G-WIDGET-NO-ORIGIN")
async def test_a_long_job_in_the_inspectors_web_client(gifts: House, browser: Browser, tmp_path: Path) -> None:
    document_id = await upload(gifts)
    async with inspector(tmp_path, f"{gifts.url}/mcp", gifts.key) as running:
        context = await browser.new_context(viewport={"width": 1280, "height": 900})
        page = await context.new_page()
        view = await opened(page, running, asked(document_id))
        await drafts_shown(view)
        await ended_well(view)
        await expect(view.get_by_role("button", name="More ideas")).to_be_visible()
        assert await view_of(page).evaluate("() => performance.getEntriesByType('resource').length") == 0
        await context.close()
        await pictures(browser, running, document_id)
        await gifts.shop("held")
        left = (await gifts.shop())["left"]
        context = await browser.new_context(viewport={"width": 1280, "height": 900})
        view = await opened(await context.new_page(), running, asked(document_id, 25))
        await gifts.until_shop("holding", 1)
        await cancelled(view)
        await gifts.until_shop("left", left + 1)
        await context.close()


async def opened(page: Page, running: Inspector, arguments: dict[str, Any]) -> FrameLocator:
    """The tool's view in the Inspector, called with these arguments."""
    await page.goto(running.link("start_deep_analysis", arguments))
    await page.locator('[data-testid="connection-status"][data-status="connected"]').wait_for(timeout=PATIENCE_MS)
    await page.get_by_role("button", name="Open App").click(timeout=PATIENCE_MS)
    return page.frame_locator("iframe").frame_locator("iframe")


async def pictures(browser: Browser, running: Inspector, document_id: str) -> None:
    """A job of its own in every size and scheme, while it works and at its end: equal calls are one for a minute."""
    for more, (width, scheme) in enumerate(LOOKS if os.environ.get("DEEDBOX_PICTURES") else (), start=1):
        context = await browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = await context.new_page()
        view = await opened(page, running, asked(document_id, 60 + more))
        await drafts_shown(view)
        await look(page, "inspector", "working", width, scheme, whole=False)
        await ended_well(view)
        await look(page, "inspector", "done", width, scheme, whole=False)
        await context.close()
