"""The page of alerts: read without scripts, on a phone and on a desk, and closed by its form alone."""

from collections.abc import AsyncIterator
from typing import Literal
from uuid import UUID

import pytest
from playwright.async_api import Browser, async_playwright

from deedbox.store.alert import Alert, open_alerts
from deedbox.store.transaction import transaction
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.console import Console, console, field_of, log_in
from tests.test_web_chromium import ARGUMENTS, CHROMIUM, NASTY, look, window
from tests.test_web_chromium import log_in as type_in

pytestmark = pytest.mark.anyio


@pytest.fixture
async def site(database: TestDatabase) -> AsyncIterator[Console]:
    async with console(database) as running:
        await running.person("Ada", "manager")
        await running.person("Vi", "viewer")
        yield running


async def raise_some(site: Console) -> list[UUID]:
    told = [("bug", "It failed of a bug."), ("effect_unknown", f"It is not known whether {NASTY} was accepted.")]
    alerts = [Alert(site.ids.new(), site.ids.new(), cause, said, tenant="default") for cause, said in told]
    async with transaction(site.pool) as connection:
        await open_alerts(connection, alerts)
    return [one.alert_id for one in alerts]


@proves("G-ALERT-CLOSED", "G-CSRF")
async def test_only_our_own_form_of_somebody_with_the_role_closes_an_alert(site: Console):
    first, second = await raise_some(site)
    left = "SELECT count(*) FROM deedbox.alert WHERE closed_at IS NULL"
    async with site.client() as client:
        assert (await client.get("/alerts")).headers["location"] == "/login?next=/alerts"
        assert (await client.post(f"/alerts/{first}", data={"reason": "x"})).status_code == 401
        await log_in(client)
        page = await client.get("/alerts")
        assert "bug" in page.text
        csrf = field_of(page.text, "csrf")
        assert (await client.post(f"/alerts/{first}", data={"reason": "x", "csrf": "no"})).status_code == 403
        foreign = {"Origin": "https://elsewhere.example", "Sec-Fetch-Site": "cross-site"}
        assert (await client.post(f"/alerts/{first}", data={"reason": "x", "csrf": csrf}, headers=foreign)).status_code == 403
        assert (await client.post(f"/alerts/{first}", data={"reason": " ", "csrf": csrf})).status_code == 400
        assert (await client.post("/alerts/none", data={"reason": "x", "csrf": csrf})).status_code == 404
        assert (await client.get(f"/alerts/{first}")).status_code == 405
        assert await site.database.value(left) == 2
        done = await client.post(f"/alerts/{first}", data={"reason": "Mended.", "csrf": csrf})
        assert (done.status_code, done.headers["location"]) == (303, "/alerts")
        again = await client.post(f"/alerts/{first}", data={"reason": "again", "csrf": csrf})
        assert again.status_code == 409
        assert "closed already, by Ada" in again.text
    async with site.client() as client:
        await log_in(client, "Vi")
        page = await client.get("/alerts")
        assert "<textarea" not in page.text
        csrf = field_of(page.text, "csrf")
        assert (await client.post(f"/alerts/{second}", data={"reason": "x", "csrf": csrf})).status_code == 403
        assert await site.database.value(left) == 1


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield opened
        await opened.close()


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the PATH; apt-get install chromium")
@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (360, "dark"), (1280, "light"), (1280, "dark")])
async def test_the_page_fits_can_be_read_and_closes(
    site: Console, browser: Browser, width: int, scheme: Literal["light", "dark"]
):
    await raise_some(site)
    async with window(browser, site, width, scheme) as page:
        await page.goto("/login")
        await type_in(page)
        await page.get_by_role("link", name="Alerts").click()
        await look(page, f"alerts-{width}-{scheme}")
        await page.get_by_label("Reason").first.fill("Seen to.")
        await page.get_by_role("button", name="Close this alert").first.click()
        await page.get_by_role("button", name="Close this alert").wait_for()
        await page.get_by_label("Reason").fill("Seen to as well.")
        await page.get_by_role("button", name="Close this alert").click()
        await page.get_by_text("Nothing is open.").wait_for()
        await look(page, f"alerts-none-{width}-{scheme}")
