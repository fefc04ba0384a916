"""Browsers: a public key that submits one action from its own pages, and a token that shows one job and nothing else."""

import json
from collections.abc import AsyncIterator

import httpx2
import pytest
from pydantic import BaseModel

from deedbox.access import add_form_key, add_key, list_keys, revoke_key
from deedbox.connectors import Http
from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.model.errors import DeedboxError
from deedbox.model.policy import allow, hold
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.installed import House, house

pytestmark = pytest.mark.anyio
PAGE = "https://www.shop.example"
TOKEN = "Deedbox-Status-Token"
PATH = "/api/actions/ask_desk/jobs"


class Ask(BaseModel):
    text: str = ""


def desk() -> App:
    app = App(connectors=[Http()])

    @app.action(roles=["operator"], policy=allow(), key="new")
    async def ask_desk(_ctx: Context, ask: Ask) -> Ask:
        """Ask the desk."""
        return ask

    @app.action(roles=["operator"], approvers=["manager"], policy=hold(expires="1h"), key="new")
    async def post_note(_ctx: Context, ask: Ask) -> Ask:
        """Post a note."""
        return ask

    return app


@pytest.fixture
async def site(database: TestDatabase) -> AsyncIterator[House]:
    async with house(database, desk()) as running:
        yield running


async def form_key(site: House, *, rate: int = 60, origins: tuple[str, ...] = (PAGE,), action: str = "ask_desk") -> str:
    return await add_form_key(
        site.installation.pool,
        site.installation.ids,
        "default",
        "web form",
        ["operator"],
        "contact page",
        action=action,
        origins=origins,
        rate_per_minute=rate,
    )


async def submitted(client: httpx2.AsyncClient, key: str = "k", text: str = "hello") -> httpx2.Response:
    return await client.post(PATH, json={"text": text}, headers={"Idempotency-Key": key})


@proves("G-FORM-KEY")
async def test_a_form_submits_from_its_own_page_and_looks_at_its_job_alone(site: House):
    key = await form_key(site)
    async with site.api(key, Origin=PAGE) as form, site.api(Origin=PAGE) as page:
        answer = await submitted(form)
        assert answer.status_code == 202
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert "origin" in answer.headers["vary"].lower()
        body = answer.json()
        token, job = body["status_token"], f"/api/jobs/{body['job_id']}"
        assert len(token) == 43
        assert token not in str(answer.headers)
        shown = await page.get(job, headers={TOKEN: token})
        assert shown.status_code == 200
        assert shown.headers["access-control-allow-origin"] == PAGE
        assert not set(shown.json()) & {"approvals", "effects", "documents", "last_error", "done", "not_done"}
        events = await page.get(f"{job}/events", headers={TOKEN: token, "Accept": "application/json"})
        assert [event["type"] for event in events.json()["events"]] == ["job.queued"]
        # The id alone opens nothing, and the token nothing but this.
        assert (await page.get(job)).status_code == 401
        for path in (f"{job}/cancel", f"{job}/retry"):
            assert (await page.post(path, json={"reason": "x"}, headers={TOKEN: token})).status_code == 401
        for path in ("/api/jobs", "/api/effects", "/api/switch", "/api/me", "/api/approvals"):
            assert (await page.get(path, headers={TOKEN: token})).status_code == 401
            assert (await form.get(path)).status_code == 403
        assert (await page.get(job, headers={"Authorization": f"Bearer {token}"})).status_code == 401
        assert (await page.get(f"{job}?token={token}")).status_code == 401
        other = (await submitted(form, "k2")).json()
        foreign = await page.get(f"/api/jobs/{other['job_id']}", headers={TOKEN: token})
        unknown = await page.get("/api/jobs/0197f2a8-0000-7000-8000-0000000000ff", headers={TOKEN: token})
        assert (foreign.status_code, foreign.text) == (unknown.status_code, unknown.text)
        assert foreign.status_code == 401
        # A form key reads nothing, not even its own job.
        assert (await form.get(job)).status_code == 403
        rows = await site.database.rows("SELECT encode(token_sha256, 'hex') FROM deedbox.status_token")
        assert token not in json.dumps([str(row) for row in rows])
        # The answer that was lost is asked for again, and has a token too.
        again = (await submitted(form)).json()
        assert again["job_id"] == body["job_id"]
        assert (await page.get(job, headers={TOKEN: again["status_token"]})).status_code == 200
        await site.database.shift_clock(7 * 86400 + 1)
        assert (await page.get(job, headers={TOKEN: token})).status_code == 401
        await submitted(form, "k3")
        assert await site.database.value("SELECT count(*) FROM deedbox.status_token") == 1


@proves("G-FORM-KEY")
async def test_a_form_key_is_no_good_anywhere_else(site: House):
    key = await form_key(site)
    for origin in ("https://evil.example", "https://www.shop.example:444", "http://www.shop.example", "null", ""):
        async with site.api(key, Origin=origin) as form:
            answer = await submitted(form)
            assert answer.status_code == 403, origin
            assert "access-control-allow-origin" not in answer.headers
    async with site.api(key) as bare:
        assert (await submitted(bare)).status_code == 403
    async with site.api(key, Origin=PAGE) as form:
        answer = await form.post("/api/actions/post_note/jobs", json={"text": "x"})
        assert answer.status_code == 403
        # Readable by its own page, so that whoever wrote it sees why.
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert (await form.post(PATH, json={"text": 7})).status_code == 400
    assert await site.database.value("SELECT count(*) FROM deedbox.job") == 0
    refused = await site.database.rows("SELECT source, error_code FROM deedbox.call ORDER BY call_id")
    assert refused[0] == ("form", "permission_denied")
    assert len(refused) == 8
    (line,) = await list_keys(site.installation.pool, "default")
    assert await revoke_key(site.installation.pool, "default", line.key_id)
    site.installation.keys.forget()
    async with site.api(key, Origin=PAGE) as form:
        assert (await submitted(form)).status_code == 401


@proves("G-FORM-KEY")
async def test_a_preflight_is_answered_for_the_origins_of_living_keys_alone(site: House):
    await form_key(site)
    async with site.api() as anyone:
        for path, methods in ((PATH, "POST"), ("/api/jobs/x", "GET"), ("/api/jobs/x/events", "GET")):
            good = await anyone.options(path, headers={"Origin": PAGE, "Access-Control-Request-Method": methods})
            assert good.status_code == 204
            assert good.headers["access-control-allow-origin"] == PAGE
            assert good.headers["access-control-allow-methods"] == methods
            assert TOKEN in good.headers["access-control-allow-headers"]
            assert "access-control-allow-credentials" not in good.headers
            for origin in ("https://evil.example", "null", "https://www.shop.example.evil.example", "\u00e9"):
                bad = await anyone.options(path, headers={"Origin": origin.encode("latin-1")})  # pyright: ignore[reportArgumentType] -- bytes are sent as they are
                assert bad.status_code == 204
                assert "access-control-allow-origin" not in bad.headers
        other = await anyone.options("/api/actions/post_note/jobs", headers={"Origin": PAGE})
        assert "access-control-allow-origin" not in other.headers
        # No other route speaks to foreign pages.
        for path in ("/api/jobs", "/api/effects", "/api/switch", "/api/keys", "/"):
            answer = await anyone.options(path, headers={"Origin": PAGE, "Access-Control-Request-Method": "GET"})
            assert "access-control-allow-origin" not in answer.headers


@proves("G-FORM-KEY")
async def test_a_form_is_slowed_over_all_processes_and_gets_its_rate_back(site: House):
    key = await form_key(site, rate=3)
    async with site.api(key, Origin=PAGE) as form:
        assert [(await submitted(form, f"k{number}")).status_code for number in range(3)] == [202] * 3
        before = await site.database.rows("SELECT xmin, tokens FROM deedbox.api_key")
        slow = await submitted(form, "k3")
        assert slow.status_code == 429
        assert slow.json()["code"] == "too_many_calls"
        assert slow.headers["retry-after"] == "60"
        assert slow.headers["access-control-allow-origin"] == PAGE
        # What is refused writes nothing, so a flood costs no more than looking.
        assert await site.database.rows("SELECT xmin, tokens FROM deedbox.api_key") == before
        await site.database.shift_clock(21)
        assert [(await submitted(form, f"l{number}")).status_code for number in range(2)] == [202, 429]
        await site.database.shift_clock(3600)
        assert [(await submitted(form, f"m{number}")).status_code for number in range(4)] == [202, 202, 202, 429]


async def test_a_service_key_is_not_bound_to_pages_and_gets_no_token(site: House):
    key = await add_key(site.installation.pool, site.installation.ids, "default", "shop", ["operator"], "")
    async with site.api(key, Origin="https://anywhere.example") as program:
        answer = await submitted(program)
        assert answer.status_code == 202
        assert "status_token" not in answer.json()
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "origins",
    [
        (),
        ("*",),
        ("https://*.shop.example",),
        ("https://shop.example/path",),
        ("http://shop.example",),
        ("shop.example",),
        ("https://me@shop.example",),
        ("javascript:alert(1)",),
        ("null",),
    ],
)
async def test_an_origin_that_is_none_is_refused(site: House, origins: tuple[str, ...]):
    with pytest.raises(DeedboxError):
        await form_key(site, origins=origins)
    assert await list_keys(site.installation.pool, "default") == []


async def test_an_origin_is_kept_as_browsers_send_it(site: House):
    await form_key(site, origins=("HTTPS://WWW.Shop.example:443", "http://localhost:3000", "http://[::1]:80"))
    (line,) = await list_keys(site.installation.pool, "default")
    assert line.origins == ["http://[::1]", "http://localhost:3000", "https://www.shop.example"]
