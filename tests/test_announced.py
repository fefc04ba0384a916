"""What leaves by itself, what waits for its arguments, and rules tried on what was proposed: on page, API and command line."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest
import uvicorn
from playwright.async_api import async_playwright
from pydantic import SecretStr

from deedbox import wiring
from deedbox.access import add_user
from deedbox.extend.registry import App
from deedbox.intake.request import Request
from deedbox.model.identity import Principal
from deedbox.model.policy import hold, rules
from deedbox.model.rules import Rule
from deedbox.operate.approvals import Approvals
from deedbox.operate.policy import Policies, Tried
from deedbox.operate.reasons import why_asked
from deedbox.settings import Settings
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import principal, road, until
from tests.ruled import Want, app_with, approvals, ask, bank_of, grounds, said, say, small
from tests.servers.commands import PASSWORD as TERMINAL_PASSWORD
from tests.servers.commands import ROOT, Cli, refused
from tests.servers.console import PASSWORD, field_of, log_in
from tests.test_web_chromium import ARGUMENTS, CHROMIUM, look

pytestmark = pytest.mark.anyio

PLACE = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.ruled import app_with, small, grounds
from deedbox import Rule, rules
app = app_with(rules(Rule("large", "hold", "payload.amount > 20"), small("delay", window="10m")))
"""


@dataclass
class Site:
    """A running installation whose worker has put one delayed effect on the outbox."""

    url: str
    installation: wiring.Installation
    caller: Principal
    job_id: UUID


@asynccontextmanager
async def site(database: TestDatabase, app: App) -> AsyncGenerator[Site]:
    """Serve the whole face with a worker behind it. No dispatcher runs: nothing is to leave."""
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    settings = Settings(database_url=SecretStr(database.url), public_url=url)
    stop = asyncio.Event()
    async with wiring.opened(settings, app, wiring.find_database(settings), roles=("api", "worker")) as one:
        server = uvicorn.Server(uvicorn.Config(wiring.make_asgi(one, stop), log_config=None, lifespan="off", ws="none"))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        working = asyncio.create_task(wiring.run_roles(one, ("worker",), stop))
        try:
            caller = await principal(database, one.ids, "web-form", "service", "operator")
            await add_user(one.pool, one.ids, "default", "Ada", ["manager"], PASSWORD)
            await add_user(one.pool, one.ids, "default", "Vi", ["viewer"], PASSWORD)
            job = await one.intake.submit(Request(caller, "refund_customer", {"wants": [{"amount": 7}]}, "k", "http"))
            await until(lambda: database.rows("SELECT state FROM deedbox.effect"), bool, within=30)
            yield Site(url, one, caller, job.job_id)
        finally:
            stop.set()
            server.should_exit = True
            await asyncio.gather(serving, working)


@proves("G-CANCEL-WINDOW", "G-CSRF")
async def test_the_inbox_announces_what_leaves_by_itself_and_cancels_it(database: TestDatabase) -> None:
    async with site(database, app_with(rules(small("delay", window="10m")))) as one:
        headers = {"Origin": one.url, "Sec-Fetch-Site": "same-origin"}
        effect_id = await database.value("SELECT effect_id FROM deedbox.effect")
        where = f"/effects/{effect_id}/cancel"
        async with httpx2.AsyncClient(base_url=one.url, headers=headers, trust_env=False) as client:
            assert (await client.post(where, data={"reason": "x", "csrf": "x"})).status_code == 401
            assert (await client.get(where)).status_code in (404, 405)
            await log_in(client, "Vi")
            seen = (await client.get("/")).text
            assert "Pays 7 to till." in seen
            assert "Cancel it" not in seen
            shown = await client.post(where, data={"reason": "x", "csrf": field_of(seen, "csrf")})
            assert shown.status_code == 403
        async with httpx2.AsyncClient(base_url=one.url, headers=headers, trust_env=False) as client:
            await log_in(client, "Ada")
            seen = (await client.get("/")).text
            assert "by the rule “small”" in seen
            assert "min left" in seen
            form = {"csrf": field_of(seen, "csrf"), "reason": "the wrong customer"}
            assert (await client.post(where, data={**form, "csrf": "x"})).status_code == 403
            assert (await client.post(where, data={**form, "reason": " "})).status_code == 400
            assert await database.value("SELECT state FROM deedbox.effect") == "pending"
            assert (await client.post(where, data=form)).headers["location"] == "/"
            assert (await client.post(where, data=form)).status_code == 409
            assert "Pays 7 to till." not in (await client.get("/")).text
        assert await database.rows("SELECT state, code FROM deedbox.effect") == [("canceled", "canceled")]
        assert await database.value("SELECT state FROM deedbox.result") == "canceled"
        assert await database.value("SELECT door FROM deedbox.audit WHERE verb = 'cancel'") == "page"


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the PATH; apt-get install chromium")
async def test_the_announcement_and_the_card_of_arguments_fit(database: TestDatabase) -> None:
    held = app_with(rules(small("delay", window="10m")))
    async with site(database, held) as one, async_playwright() as playwright:
        job = await one.installation.intake.submit(
            Request(one.caller, "refund_customer", {"wants": [{"amount": 7, "to": ["zoe@example.org"]}]}, "k2", "http")
        )
        assert job.state == "queued"
        await database.rows(
            "INSERT INTO deedbox.approval (approval_id, job_id, tenant, action, purpose, group_name, state, digest,"
            " effect_digests, policy_version, rule, audience, requested_at, expires_at) SELECT gen_random_uuid(), %s,"
            " 'default', 'refund_customer', 'input', 'input', 'pending', sha256('x'), '{}', 'v', 'hold_input', '{manager}',"
            " deedbox.clock(), deedbox.clock() + interval '1h'",
            job.job_id,
        )
        approval_id = await database.value("SELECT approval_id FROM deedbox.approval WHERE purpose = 'input'")
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        for width, scheme in ((360, "light"), (360, "dark"), (1280, "light"), (1280, "dark")):
            context = await browser.new_context(
                base_url=one.url,
                viewport={"width": width, "height": 800},
                color_scheme="dark" if scheme == "dark" else "light",
                java_script_enabled=False,
            )
            page = await context.new_page()
            await page.goto("/login")
            await page.get_by_label("Name").fill("Ada")
            await page.get_by_label("Password").fill(PASSWORD)
            await page.get_by_role("button", name="Log in").click()
            await page.get_by_role("button", name="Cancel it").first.wait_for()
            await look(page, f"announced-{width}-{scheme}")
            await page.goto(f"/approvals/{approval_id}")
            await page.get_by_text("zoe@example.org").first.wait_for()
            await look(page, f"arguments-{width}-{scheme}")
        await browser.close()


@proves("G-INPUT-HELD")
async def test_the_card_shows_every_argument_and_what_an_answer_means(database: TestDatabase) -> None:
    made = app_with(hold_input=True)
    async with road(database, made) as one:
        body = {"wants": [{"slot": "one", "amount": 7, "to": ["zoe@example.org"]}], "score": 0.5}
        await one.submit("refund_customer", body, "k")
        desk = Approvals(one.pool, one.ids, public_url="http://127.0.0.1", connectors=made.connectors, actions=made.actions)
        (line,) = await desk.inbox("default", one.approver)
        assert line.sentences == ("Runs refund customer with what was asked for.",)
        card = await desk.card("default", line.approval_id, one.approver)
        assert card is not None
        shown = {row.label: row.value for row in card.arguments}
        assert {"7", "one", "zoe@example.org", "0.5", "default"} <= set(shown.values())
        assert (card.purpose, card.effects, card.may_decide) == ("input", (), True)
        assert "does not run" in card.on_silence


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("hold_every_effect", "Every external effect of this action is decided by a person."),
        ("large", "The rule “large” asks for a person."),
        ("small: drawn", "The rule “small” would let this out; it was drawn for a look by chance."),
        ("small: the day's 3 are used up", "The rule “small” does not let this out by itself: the day's 3 are used up."),
    ],
)
def test_the_card_says_why_a_person_is_asked(rule: str, says: str) -> None:
    assert why_asked(rule) == says


@proves("G-CANCEL-WINDOW")
async def test_announced_shown_and_canceled_at_the_terminal(database: TestDatabase, tmp_path: Path) -> None:
    cli = Cli(database.url, tmp_path)
    async with road(database, app_with(rules(small("delay", window="10m")))) as one:
        await ask(one)
        await add_user(one.pool, one.ids, "default", "Ada", ["operator"], TERMINAL_PASSWORD)
        (line,) = (await cli("effects", "announced", "--json")).json()
        assert (line["rule"], line["sentence"], line["may_cancel"]) == ("small", "Pays 5 to till.", False)
        assert 0 < line["remaining_s"] <= 600
        assert "Pays 5 to till." in (await cli("effects", "announced")).out
        given = ("effects", "cancel", line["effect_id"], "--as", "Ada", "--reason", "not today")
        done = await cli(*given, "--json", stdin=f"{TERMINAL_PASSWORD}\n")
        assert done.json()["state"] == "canceled"
        refused(await cli(*given, stdin=f"{TERMINAL_PASSWORD}\n"), 1, "canceled")
        assert (await cli("effects", "announced")).out == "nothing leaves by itself\n"


async def test_policies_at_the_terminal(database: TestDatabase, tmp_path: Path) -> None:
    (tmp_path / "place.py").write_text(PLACE)
    cli = Cli(database.url, tmp_path)
    (view,) = (await cli("policy", "show", "place.py", "--json")).json()
    assert [rule["name"] for rule in view["rules"]] == ["large", "small"]
    assert view["rules"][1]["grounds"]["per_day"] == 100
    shown = (await cli("policy", "show", "place.py")).out
    assert "payload.amount > 20" in shown
    assert "window 600 s" in shown
    assert (await cli("policy", "try", "place.py")).out == "nothing was proposed in the last 7d\n"
    async with road(database, app_with(hold())) as one:
        for key, amount in (("a", 5), ("b", 50)):
            await ask(one, Want(amount=amount), key=key)
    tried = (await cli("policy", "try", "place.py", "--json")).json()
    assert tried["table"] == [
        {"action": "refund_customer", "was": "hold", "now": "delay", "groups": 1},
        {"action": "refund_customer", "was": "hold", "now": "hold", "groups": 1},
    ]
    assert [(line["was_rule"], line["now_rule"]) for line in tried["differing"]] == [("hold_every_effect", "small")]
    assert "small" in (await cli("policy", "try", "place.py", "--since", "1h")).out
    refused(await cli("policy", "try", "place.py", "--since", "soon"), 2, "is not a duration")
    refused(await cli("policy", "show", "missing.py"), 3, "missing.py")
    assert await database.value("SELECT count(*) FROM deedbox.verdict") == 2


async def test_a_trial_keeps_to_bounds_and_changes_nothing(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    async with road(database, app_with(hold())) as one:
        for number in range(4):
            await ask(one, Want(slot="a", group="x"), Want(slot="b", group="y", amount=50 + number), key=f"k{number}")
        reader = one.approver

        async def trial(*ordered: Rule) -> dict[tuple[str, str], int]:
            made = app_with(rules(*ordered))
            tried = await Policies(one.pool, made.actions, made.connectors).tried(reader, 3600)
            assert (tried.groups, tried.not_tried) == (8, 0)
            return {(was, now): count for (_, was, now), count in tried.counts.items()}

        assert await trial(small()) == {("hold", "allow"): 4, ("hold", "hold"): 4}
        assert await trial(small(grounds=grounds(per_day=3))) == {("hold", "allow"): 3, ("hold", "hold"): 5}
        assert await trial(small(grounds=grounds(valid_until="2020-01-01T00:00:00Z"))) == {("hold", "hold"): 8}
        assert await trial(small("sample", share=1.0)) == {("hold", "hold"): 8}
        assert await trial(Rule("no", "deny", "payload.amount == 50"), small()) == {
            ("hold", "allow"): 3,
            ("hold", "hold"): 4,
            ("hold", "deny"): 1,
        }
        # What persons said of what the rule would have drawn is its agreement: below the threshold it holds.
        for number, choice in enumerate(("reject", "reject", "approve", "approve")):
            query = "SELECT job_id FROM deedbox.job WHERE idempotency_key = %s"
            job_id = UUID(str(await database.value(query, f"k{number}")))
            await say(one, (await approvals(one, job_id))["x"], choice)
        made = app_with(rules(small("sample", share=1.0, grounds=grounds(threshold=0.6))))
        monkeypatch.setattr(Tried, "differs", property(lambda _: True))
        tried = await Policies(one.pool, made.actions, made.connectors).tried(reader, 3600)
        below = [f"small: persons agreed with {agreed} of {asked}, below 0.6" for agreed, asked in ((0, 1), (0, 2), (1, 3))]
        assert [line.now_rule for line in tried.differing if line.group == "x"] == ["small: drawn", *below]
        gone = await Policies(one.pool, {}, {}).tried(reader, 3600)
        assert (gone.groups, gone.not_tried) == (0, 8)
        await database.shift_clock(7200)
        assert (await Policies(one.pool, one.app.actions, one.app.connectors).tried(reader, 3600)).groups == 0


async def test_the_api_tells_announcements_and_policies(database: TestDatabase) -> None:
    async with (
        site(database, app_with(rules(small("delay", window="10m")))) as one,
        httpx2.AsyncClient(trust_env=False) as http,
    ):
        opened = await http.post(f"{one.url}/api/login", json={"name": "Ada", "password": PASSWORD})
        headers = {"Authorization": f"Bearer {opened.json()['token']}"}

        async def get(path: str) -> Any:
            return (await http.get(f"{one.url}{path}", headers=headers)).json()

        listed = await get("/api/approvals")
        assert [line["rule"] for line in listed["announced"]] == ["small"]
        (view,) = (await get("/api/policy"))["policies"]
        assert view["rules"][0]["window_s"] == 600
        assert (await get("/api/policy/trial?since=1h"))["table"] == [
            {"action": "refund_customer", "was": "delay", "now": "delay", "groups": 1}
        ]
        assert (await get("/api/policy/trial?since=never"))["code"] == "invalid_parameter"
        effect_id = listed["announced"][0]["effect_id"]
        done = await http.post(
            f"{one.url}/api/effects/{effect_id}/cancel", headers=headers, content=json.dumps({"reason": "not today"})
        )
        assert done.json()["state"] == "canceled"
        assert (await get("/api/approvals"))["announced"] == []
        assert bank_of(one.installation.app).sent == []
        assert await said(database, one.job_id) == {"default": ("delay", "small")}
