"""Coming in: the login form, where it leads, and where the console says it is."""

from collections.abc import AsyncIterator

import pytest

from deedbox.web.forms import Site
from tests.database import TestDatabase
from tests.servers.console import PASSWORD, Console, console, field_of, log_in, make_card

pytestmark = pytest.mark.anyio


@pytest.fixture
async def site(database: TestDatabase) -> AsyncIterator[Console]:
    async with console(database) as running:
        await running.person("Ada", "manager")
        yield running


async def test_a_wrong_password_is_told_in_words_and_many_are_slowed(site: Console):
    async with site.client() as client:
        for _ in range(5):
            answer = await log_in(client, password="wrong password")
            assert answer.status_code == 401
            assert "do not fit together" in answer.text
            assert "wrong password" not in answer.text
        slowed = await log_in(client)
        assert slowed.status_code == 429
        assert 1 <= int(slowed.headers["retry-after"]) <= 60


async def test_the_login_form_belongs_to_the_browser_it_was_shown_in(site: Console):
    async with site.client() as client, site.client() as other:
        csrf = field_of((await client.get("/login")).text, "csrf")
        form = {"csrf": csrf, "name": "Ada", "password": PASSWORD}
        assert (await other.post("/login", data=form)).status_code == 403
        await other.get("/login")
        assert (await other.post("/login", data=form)).status_code == 403
        assert (await client.post("/login", data=form, headers={"Sec-Fetch-Site": "cross-site"})).status_code == 403
        assert (await client.post("/login", data=form)).status_code == 303


@pytest.mark.parametrize("elsewhere", ["https://evil.example", "//evil.example", "/approvals/../x", "/\\evil.example", "x"])
async def test_after_login_nobody_is_sent_to_another_site(site: Console, elsewhere: str):
    async with site.client() as client:
        assert (await log_in(client, next_=elsewhere)).headers["location"] == "/"


async def test_links_do_not_follow_the_host_header(site: Console):
    card = site.desk.put(make_card())
    async with site.client() as client:
        for path in ("/", "/login", f"/approvals/{card.approval_id}"):
            answer = await client.get(path, headers={"Host": "evil.example", "X-Forwarded-Host": "evil.example"})
            assert "evil.example" not in answer.text
            assert "evil.example" not in answer.headers.get("location", "")


def test_the_site_is_https_or_on_loopback():
    assert Site.of("https://deeds.example:443/box/") == Site("https://deeds.example", "/box", secure=True)
    assert Site.of("http://127.0.0.1:8000") == Site("http://127.0.0.1:8000", "", secure=False)
    assert Site.of("http://[::1]:8000").origin == "http://[::1]:8000"
    assert Site.of("https://deeds.example").session_cookie.startswith("__Host-")
    for url in (
        "http://deeds.example",
        "ftp://deeds.example",
        "https://",
        "https://a@b.example",
        "deeds.example",
        "http://10.0.0.1",
    ):
        with pytest.raises(ValueError, match="public URL"):
            Site.of(url)
