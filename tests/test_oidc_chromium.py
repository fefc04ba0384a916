"""A login at a real provider in Debian's Chromium, with scripts off on our pages and nothing but buttons pressed."""

from typing import Literal
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import Browser, expect

from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.installed import house
from tests.servers.openid_provider import CLIENT_ID, CLIENT_SECRET, real_provider
from tests.test_web_chromium import CHROMIUM, look
from tests.test_web_chromium import browser as browser  # noqa: PLC0414 -- the fixture, by its own name

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the PATH; apt-get install chromium"),
]


@proves("G-OIDC")
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_somebody_logs_in_at_a_real_provider_without_scripts(
    database: TestDatabase,
    browser: Browser,
    width: int,
    scheme: Literal["light", "dark"],
):
    user = {"sub": "u-17", "preferred_username": "grace", "groups": ["desk"]}
    with real_provider(user) as issuer:
        provider = {
            "name": "corp",
            "title": "the company",
            "issuer": issuer,
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
            "roles": {"desk": ["manager"]},
        }
        async with house(database, oidc=(provider,), egress_allow=frozenset({"127.0.0.1"})) as site:
            tag = f"{width}-{scheme}"
            context = await browser.new_context(
                base_url=site.url, viewport={"width": width, "height": 800}, color_scheme=scheme, java_script_enabled=False
            )
            page = await context.new_page()
            await page.goto("/login?next=/account")
            await look(page, f"oidc-login-{tag}")
            await page.get_by_role("button", name="Log in with the company").click()
            # Our page goes on by itself, without a script.
            await page.get_by_role("button", name="u-17").click()
            await page.wait_for_url(f"{site.url}/**")
            assert await site.told("login_refused") == []
            await expect(page.get_by_role("heading", name="Your account")).to_be_visible()
            assert page.url == f"{site.url}/account"
            assert [entry[4]["provider"] for entry in await site.told("login")] == ["corp"]
            await expect(page.get_by_text("Your roles: manager")).to_be_visible()
            cookies = await context.cookies()
            assert {one.get("name") for one in cookies if one.get("httpOnly")} >= {"deedbox_session"}
            await page.get_by_label("What it is for").fill("a tool")
            await page.get_by_role("button", name="Make a key for 1 hour").click()
            await expect(page.get_by_text("shown this once")).to_be_visible()
            await look(page, f"account-{tag}")
            await page.get_by_role("button", name="Log out", exact=True).click()
            # Ours ends first; theirs is asked for by a page that goes on by itself, and comes back to our login.
            await page.wait_for_url(f"{issuer}/oauth2/end_session?*")
            asked = parse_qs(urlsplit(page.url).query)
            assert asked == {"client_id": [CLIENT_ID], "post_logout_redirect_uri": [f"{site.url}/login"]}
            assert len(await site.told("logout")) == 1
            await page.get_by_role("button").first.click()
            await page.wait_for_url(f"{site.url}/login")
            await page.get_by_role("button", name="Log in with the company").click()
            await page.get_by_role("button", name="u-17").click()
            await page.wait_for_url(f"{site.url}/**")
            await page.goto("/account")
            await page.get_by_role("button", name="Log out everywhere").click()
            await expect(page.get_by_role("heading", name="Log in")).to_be_visible()
            await page.goto("/account")
            assert "/login" in page.url
            await context.close()
