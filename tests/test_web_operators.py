"""The pages of targets and of the switch: read without scripts, and each verb through its own form, meant and with a reason."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import httpx2
import pytest
from playwright.async_api import Browser, expect

from deedbox.connectors import Http, HttpTargetConfig
from deedbox.extend.registry import App
from tests.builders import Outbox, Planned, ScriptedConnector, principal
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.commands import Cli, refused
from tests.servers.console import field_of, log_in
from tests.servers.installed import House, house
from tests.test_web_chromium import CHROMIUM, look
from tests.test_web_chromium import browser as browser  # noqa: PLC0414 -- the fixture, by its own name
from tests.test_web_chromium import log_in as type_in

pytestmark = pytest.mark.anyio
CRM = {"connector": "http", "target": "crm"}
ONE = "/targets?connector=http&target=crm"


@pytest.fixture
async def site(database: TestDatabase) -> AsyncIterator[House]:
    target = HttpTargetConfig(name="crm", base_url="http://127.0.0.1:9/api", capability="blind")
    shut = HttpTargetConfig(name="inner", base_url="https://10.1.2.3/api", capability="blind")
    app = App(connectors=[Http()])
    options: dict[str, Any] = {
        "targets": (target, shut),
        "egress_allow": frozenset({"127.0.0.1"}),
        "AI_ACTIONS_ENABLED": True,
    }
    async with house(database, app, **options) as running:
        await running.person("Ada", "manager")
        await running.person("Vi", "viewer")
        yield running


async def an_effect(site: House) -> None:
    """One that waits to go to the target."""
    installation = site.installation
    subject = principal(installation.ids, "operator")
    await site.database.rows(
        "INSERT INTO deedbox.principal (principal_id, tenant, kind, name) VALUES (%s, 'default', 'service', 'caller')",
        subject.principal_id,
    )
    box = Outbox(site.database, installation.pool, installation.ids, ScriptedConnector(), UUID(subject.principal_id))
    await box.build(Planned(connector="http", target="crm", payload={"path": "/notes"}))


async def told(site: House, *verbs: str) -> list[tuple[str, str, str]]:
    return [(entry[0], entry[1], entry[2]) for entry in await site.told(*verbs)]


async def form(client: httpx2.AsyncClient, where: str, **fields: str) -> httpx2.Response:
    """The form as a person sends it who ticks that it is meant."""
    csrf = field_of((await client.get(where)).text, "csrf")
    return await client.post(where.split("?", maxsplit=1)[0], data={"csrf": csrf, "sure": "yes", **fields})


@proves("G-CSRF", "G-OPERATOR-PAGES")
@pytest.mark.parametrize("path", ["/targets", "/switch"])
async def test_only_our_own_form_of_somebody_with_the_role_changes_anything(site: House, path: str):
    verb = {"verb": "pause", **CRM} if path == "/targets" else {"verb": "off"}
    given = {**verb, "reason": "an incident", "sure": "yes"}
    changed = ("pause_target", "switch_off")
    async with site.browser() as client:
        assert (await client.get(path)).headers["location"] == f"/login?next={path}"
        answer = await client.post(path, data=given)
        assert (answer.status_code, "nothing was changed" in answer.text) == (401, True)
        await log_in(client)
        assert (await client.post(path, data={**given, "csrf": "no"})).status_code == 403
        csrf = field_of((await client.get(path if path == "/switch" else ONE)).text, "csrf")
        foreign = {"Origin": "https://elsewhere.example", "Sec-Fetch-Site": "cross-site"}
        assert (await client.post(path, data={**given, "csrf": csrf}, headers=foreign)).status_code == 403
        for wrong in ({"sure": ""}, {"reason": " "}, {"verb": "explode"}):
            answer = await client.post(path, data={**given, "csrf": csrf, **wrong})
            assert answer.status_code >= 400, wrong
            assert 'role="alert"' in answer.text
        for method in ("GET", "HEAD"):
            assert (await client.request(method, path, params=given)).status_code == 200
    async with site.browser() as client:
        await log_in(client, "Vi")
        page = await client.get(path if path == "/switch" else ONE)
        assert 'name="sure"' not in page.text
        answer = await client.post(path, data={**given, "csrf": field_of(page.text, "csrf")})
        assert answer.status_code == 403
    assert await told(site, *changed) == []


@proves("G-OPERATOR-PAGES")
async def test_a_target_is_paused_limited_and_let_go_and_says_why_its_first_effect_waits(site: House):
    await an_effect(site)
    async with site.browser() as client:
        await log_in(client)
        assert "1 waiting" in (await client.get("/targets")).text
        assert "No dispatcher runs." in (await client.get(ONE)).text
        answer = await form(client, ONE, verb="pause", reason="They move house", **CRM)
        assert (answer.status_code, answer.headers["location"]) == (303, ONE)
        page = (await client.get(ONE)).text
        assert "The target http:crm is paused by Ada: They move house" in page
        limits = {"rate_per_s": "2.5", "burst": "4", "order_by": "target"}
        assert (await form(client, ONE, verb="limit", reason="Their wish", **limits, **CRM)).status_code == 303
        page = (await client.get(ONE)).text
        assert "2.5 a second" in page
        assert "4 at once" in page
        answer = await form(client, ONE, verb="limit", reason="x", rate_per_s="fast", burst="", order_by="", **CRM)
        assert (answer.status_code, "are numbers" in answer.text, 'value="fast"' in answer.text) == (400, True, True)
        assert (await form(client, ONE, verb="resume", reason="They are back", **CRM)).status_code == 303
        assert "is paused" not in (await client.get(ONE)).text
        assert (await client.get("/targets?connector=http&target=none")).status_code == 404
    verbs = ("pause_target", "limit_target", "resume_target")
    assert await told(site, *verbs) == [(verb, "Ada", "page") for verb in verbs]


@proves("G-EGRESS-VERDICT")
async def test_where_a_target_leads_to_is_judged_at_every_door_as_the_dialler_would(site: House, tmp_path: Path):
    async with site.browser() as client:
        await log_in(client)
        page = (await client.get(ONE)).text
        assert "may be dialled" in page
        assert "in a loopback range, and on the allow list" in page
        page = (await client.get("/targets?connector=http&target=inner")).text
        assert "Refused: 10.1.2.3 is in a private range." in page
    async with site.api(await site.session("Vi")) as client:
        found = (await client.get("/api/targets/egress", params={"connector": "http", "target": "inner"})).json()
        assert (found["host"], found["port"], found["open"]) == ("10.1.2.3", 443, False)
        assert found["addresses"] == [{"address": "10.1.2.3", "open": False, "rule": "in a private range"}]
        assert (await client.get("/api/targets/egress", params=CRM)).json()["open"] is True
        assert (await client.get("/api/targets/egress", params={"connector": "http"})).status_code == 400
        unknown = await client.get("/api/targets/egress", params={"connector": "http", "target": "none"})
        assert unknown.status_code == 404
    cli = Cli(site.database.owner_url, tmp_path)
    refused(await cli("targets", "egress", "http:crm"), 3, "does not say where this target leads to")


@proves("G-OPERATOR-PAGES", "G-SWITCH-PARTS")
async def test_the_switch_tells_who_when_and_why_and_is_turned_by_people(site: House):
    async with site.browser() as client:
        await log_in(client)
        page = (await client.get("/switch")).text
        assert "The switch is off" in page
        assert (await form(client, "/switch", verb="on", reason="We begin", owner="Ada")).status_code == 303
        page = (await client.get("/switch")).text
        assert "The switch is on" in page
        assert "We begin" in page
        assert (await form(client, "/switch", verb="off", part="some", reason="They answer 500", **CRM)).status_code == 303
        page = (await client.get("/switch")).text
        assert "They answer 500" in page
        assert "Turn this part on" in page
        on = await form(client, "/switch", verb="on", part="some", reason="They are well", **CRM)
        assert on.status_code == 303
        assert "Turn this part off" in (await client.get("/switch")).text
        answer = await form(client, "/switch", verb="off", reason="x", **CRM)
        assert (answer.status_code, "only a part is meant" in answer.text) == (400, True)
        tried = await form(client, "/switch", verb="test")
        assert (tried.status_code, tried.text.count("it was kept back")) == (200, 6)
        assert (await form(client, "/switch", verb="off", reason="An incident")).status_code == 303
        assert "The switch is off" in (await client.get("/")).text
    state = await site.installation.verbs.switch_state("default")
    assert (state["is_on"], state["by"], state["why"], state["owner"]) == (False, "Ada", "An incident", "Ada")
    assert (state["tested_by"], state["narrowed"][0]["is_on"]) == ("Ada", True)


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the PATH; apt-get install chromium")
@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (360, "dark"), (1280, "light"), (1280, "dark")])
async def test_the_pages_fit_and_work_without_scripts(
    site: House, browser: Browser, width: int, scheme: Literal["light", "dark"]
):
    await an_effect(site)
    tag = f"{width}-{scheme}"
    context = await browser.new_context(
        base_url=site.url, viewport={"width": width, "height": 800}, color_scheme=scheme, java_script_enabled=False
    )
    page = await context.new_page()
    await page.goto("/login?next=/switch")
    await type_in(page)
    await look(page, f"switch-off-{tag}")
    await page.get_by_label("Why").first.fill("We begin.")
    await page.get_by_label("Yes, let what is authorised leave.").check()
    await page.get_by_role("button", name="Turn it on").click()
    await expect(page.get_by_role("heading", name="The switch is on")).to_be_visible()
    await page.get_by_text("Turn only a part off").click()
    part = page.locator("form", has=page.get_by_label("Connector"))
    await part.get_by_label("Connector").fill("http")
    await part.get_by_label("Why").fill("They answer 500 to everything since this morning.")
    await part.get_by_label("Yes, hold this part back.").check()
    await part.get_by_role("button", name="Turn this part off").click()
    await page.get_by_role("button", name="Test it without sending").click()
    await expect(page.get_by_text("What the test found")).to_be_visible()
    await page.get_by_text("Turn only a part off").click()
    await look(page, f"switch-{tag}")
    await page.get_by_role("link", name="Targets").click()
    await look(page, f"targets-{tag}")
    await page.get_by_role("link", name="crm").click()
    await page.get_by_label("Why kept").first.fill("They move house.")
    await page.get_by_label("Yes, send nothing more there").check()
    await page.get_by_role("button", name="Pause it").click()
    await expect(page.get_by_text("The target http:crm is paused by Ada")).to_be_visible()
    await page.get_by_text("Change its rate and order").click()
    await look(page, f"target-{tag}")
    await context.close()
