"""Editing, handing a say on, deciding several, and something grave: on the page, without scripts, and seen in a browser."""

import html
import re
from typing import Literal

import httpx2
import pytest
from playwright.async_api import async_playwright

from deedbox.access import csrf_of
from deedbox.model.policy import hold
from deedbox.operate.edit_form import fields_of, payload_of
from tests.database import TestDatabase
from tests.decisions import PASSWORD, Held, Letter, make_app
from tests.guarantees import proves
from tests.servers.approving import Site, approving
from tests.test_web_chromium import ARGUMENTS, CHROMIUM, look

pytestmark = pytest.mark.anyio

TEXT = "Dear Zoë,\nthank you.\n\nSupport"


def fields(page: str) -> dict[str, str]:
    """What the fields of the edit form hold, as a browser would send them."""
    found = dict(re.findall(r'<input[^>]*\bname="(f-\d+-\d+)" value="([^"]*)"', page))
    found |= dict(re.findall(r'<textarea[^>]*\bname="(f-\d+-\d+)"[^>]*>\n(.*?)</textarea>', page, re.DOTALL))
    return {name: html.unescape(value).replace("\n", "\r\n") for name, value in found.items()}


async def edited(site: Site, client: httpx2.AsyncClient, held: Held, **changed: str) -> httpx2.Response:
    """Open the form, change these fields by place, and send it."""
    page = (await client.get(f"/approvals/{held.approval_id}/edit")).text
    token = client.cookies["deedbox_session"]
    typed = fields(page) | {f"f-0-{place[1:]}": value for place, value in changed.items()}
    form = {"csrf": csrf_of(token), "digest": held.digest, "reason": "kinder", **typed}
    return await client.post(f"/approvals/{held.approval_id}/edit", data=form)


async def test_an_edit_on_the_page_shows_the_difference_and_both_names(database: TestDatabase) -> None:
    async with approving(database) as site:
        mira, bo = await site.desk.person("Mira", "manager"), await site.desk.person("Bo", "manager")
        held = await site.desk.one({"text": TEXT, "amount": 5, "to": ["a@example.org", "b@example.org"]})
        async with site.client(await site.enter(mira)) as client:
            before = await site.desk.traces()
            unchanged = await edited(site, client, held)
            assert (unchanged.status_code, "Nothing was changed" in unchanged.text) == (400, True)
            wrong = await edited(site, client, held, p1="five")
            assert wrong.status_code == 400
            assert "/payloads/default-1/amount" in wrong.text
            assert ">five<" in wrong.text.replace('value="five"', ">five<")
            assert await site.desk.traces() == before
            done = await edited(site, client, held, p1="7", p2="a@example.org")
            assert done.status_code == 303
            mine = (await client.get(done.headers["location"])).text
            assert "Edited by <bdi>Mira</bdi>" in mine
            assert "<del>5</del>" in mine
            assert "<ins>7</ins>" in mine
            assert "<del>a@example.org, b@example.org</del>" in mine
            assert "another person approves it" in mine
            stale = await client.get(f"/approvals/{held.approval_id}")
            assert "Replaced by a newer version" in stale.text
            assert done.headers["location"] in stale.text
        async with site.client(await site.enter(bo)) as client:
            theirs = (await client.get(done.headers["location"])).text
            assert 'name="decision" value="approve"' in theirs
        body = await database.value(
            "SELECT convert_from(body, 'UTF8') FROM deedbox.proposal_effect ORDER BY proposal_effect_id DESC LIMIT 1"
        )
        assert '"amount":7' in str(body)
        assert TEXT.replace("\n", "\\n") in str(body)


async def test_a_form_from_elsewhere_edits_hands_on_and_decides_nothing(database: TestDatabase) -> None:
    async with approving(database, make_app("reversible")) as site:
        mira = await site.desk.person("Mira", "manager")
        await site.desk.person("Dan", "operator")
        held = await site.desk.one()
        token = await site.enter(mira)
        before = await site.desk.traces()
        forms = {
            f"/approvals/{held.approval_id}/edit": {"digest": held.digest, "f-0-0": "other"},
            f"/approvals/{held.approval_id}/delegate": {"to": "Dan"},
            "/delegations": {"to": "Dan", "until": "2030-01-01T10:00"},
            f"/delegations/{held.approval_id}/withdraw": {"reason": ""},
            "/many": {f"pick-{held.approval_id}": held.digest, "decision": "approve"},
        }
        async with site.client(token) as client:
            for path, form in forms.items():
                assert (await client.post(path, data=form)).status_code == 403, path
                foreign = {"Origin": "https://elsewhere.example", "Sec-Fetch-Site": "cross-site"}
                sent = await client.post(path, data={**form, "csrf": csrf_of(token)}, headers=foreign)
                assert sent.status_code == 403, path
        async with site.client("nobody") as client:
            for path, form in forms.items():
                assert (await client.post(path, data=form)).status_code == 401, path
        assert await site.desk.traces() == before


@proves("G-DELEGATION")
async def test_a_say_is_handed_on_and_taken_back_on_the_page(database: TestDatabase) -> None:
    async with approving(database, make_app(policy=hold(expires="10h"))) as site:
        mira, dan = await site.desk.person("Mira", "manager"), await site.desk.person("Dan", "viewer")
        held = await site.desk.one()
        token = await site.enter(mira)
        async with site.client(token) as client, site.client(await site.enter(dan)) as his:
            where = f"/approvals/{held.approval_id}"
            assert "You would decide" not in (await his.get(where)).text
            nobody = await client.post(f"{where}/delegate", data={"csrf": csrf_of(token), "to": "Nobody"})
            assert nobody.status_code == 400
            sent = await client.post(f"{where}/delegate", data={"csrf": csrf_of(token), "to": "Dan", "reason": "away"})
            assert sent.headers["location"] == "/delegations"
            assert "by the say of <bdi>Mira</bdi>, who handed it to you" in (await his.get(where)).text
            assert "by the say of <bdi>Mira</bdi>" in (await his.get("/")).text
            listed = (await client.get("/delegations")).text
            (delegation_id,) = re.findall(r"/delegations/([0-9a-f-]+)/withdraw", listed)
            gone = await client.post(f"/delegations/{delegation_id}/withdraw", data={"csrf": csrf_of(token)})
            assert gone.status_code == 303
            assert "Over." in (await client.get("/delegations")).text
            assert "You would decide" not in (await his.get(where)).text
            until = f"{(await site.desk.now()).replace(hour=0, minute=0):%Y-%m-%dT%H:%M}"
            late = await client.post("/delegations", data={"csrf": csrf_of(token), "to": "Dan", "until": until})
            assert (late.status_code, "too far away" in late.text) == (400, True)
            assert (
                await client.post("/delegations", data={"csrf": csrf_of(token), "to": "Dan", "until": "soon"})
            ).status_code == 400


async def test_several_are_looked_at_before_they_are_decided(database: TestDatabase) -> None:
    async with approving(database, make_app("reversible")) as site:
        mira = await site.desk.person("Mira", "manager")
        first, second = await site.desk.one({"text": "one"}), await site.desk.one({"text": "two"})
        token = await site.enter(mira)
        async with site.client(token) as client:
            inbox = (await client.get("/")).text
            assert inbox.count('name="pick"') == 2
            before = await site.desk.traces()
            shown = await client.get("/many", params={"pick": [str(first.approval_id), str(second.approval_id)]})
            assert await site.desk.traces() == before
            picks = dict(re.findall(r'name="(pick-[0-9a-f-]+)" value="([0-9a-f]{64})"', shown.text))
            assert set(picks.values()) == {first.digest, second.digest}
            for bad in ([], ["x"], [str(site.desk.ids.new())], [str(site.desk.ids.new()) for _ in range(21)]):
                assert (await client.get("/many", params={"pick": bad})).status_code in {400, 404}
            picks[f"pick-{second.approval_id}"] = "11" * 32
            form = {"csrf": csrf_of(token), **picks}
            assert (await client.post("/many", data=form)).status_code == 400
            answers = await client.post("/many", data={**form, "decision": "approve"})
            assert "1 of 2 decided" in answers.text
            assert "What was shown is not what waits here now" in answers.text
        assert [await site.desk.state(held) for held in (first, second)] == ["approved", "pending"]


@proves("G-GRAVE")
async def test_the_page_of_something_grave_asks_for_the_password_and_the_stake(database: TestDatabase) -> None:
    async with approving(database, make_app("grave")) as site:
        mira = await site.desk.person("Mira", "manager", password=True)
        await site.desk.person("Bo", "manager", password=True)
        held = await site.desk.one({"text": "pay", "amount": 1284})
        token = await site.enter(mira)
        where = f"/approvals/{held.approval_id}"
        async with site.client(token) as client:
            page = (await client.get(where)).text
            assert "<bdi>1284</bdi>" in page
            form = {"csrf": csrf_of(token), "digest": held.digest, "decision": "approve", "reason": ""}
            for more, words in (
                ({}, "give your password once more"),
                ({"stake": "1284"}, "give your password once more"),
                ({"stake": "1284", "password": "wrong"}, "give your password once more"),
                ({"stake": "1285", "password": PASSWORD}, "Type the amount exactly"),
            ):
                refused = await client.post(where, data=form | more)
                assert (refused.status_code, words in refused.text) == (403, True)
            assert await site.desk.state(held) == "pending"
            assert await database.value("SELECT count(*) FROM deedbox.audit WHERE verb = 'login_failed'") == 1
            done = await client.post(where, data={**form, "stake": "1284", "password": PASSWORD})
            assert done.status_code == 303
        assert await site.desk.state(held) == "approved"
        again, fresh = await site.desk.one({"text": "pay", "amount": 7}), await site.enter(mira, minutes_ago=4)
        async with site.client(fresh) as client:
            form = {"csrf": csrf_of(fresh), "digest": again.digest, "decision": "approve", "stake": "7"}
            assert (await client.post(f"/approvals/{again.approval_id}", data=form)).status_code == 303


def test_a_form_that_was_only_opened_changes_no_byte() -> None:
    payload = {"text": "a\r\nb \n", "amount": None, "to": ["x", "y"], "extra": {"deep": [1, None]}}
    shown = fields_of(payload, Letter)
    assert [(field.name, field.kind) for field in shown] == [
        ("text", "text"),
        ("amount", "json"),
        ("to", "lines"),
        ("extra", "json"),
    ]
    back = {field.name: field.text.replace("\r\n", "\n").replace("\n", "\r\n") for field in shown}
    assert payload_of(payload, Letter, back, "/p") == payload
    assert payload_of(payload, Letter, {"to": "z\r\n\r\n y ", "amount": "8"}, "/p") == {
        **payload,
        "to": ["z", "y"],
        "amount": 8,
    }
    assert payload_of([1], None, {"": "[2]"}, "/p") == [2]


# In a browser ----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the PATH; apt-get install chromium")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
async def test_the_new_pages_fit_and_can_be_read(database: TestDatabase, width: int, scheme: Literal["light", "dark"]) -> None:
    async with approving(database, make_app("reversible")) as site, async_playwright() as playwright:
        mira, bo = await site.desk.person("Mira", "manager"), await site.desk.person("Bo", "manager")
        await site.desk.person("Dan", "viewer")
        first = await site.desk.one({"text": TEXT, "amount": 5, "to": ["zoe@example.org"]})
        other, grave = await site.desk.one(), await site.desk.one({"text": "pay", "amount": 1284})
        newer = await site.desk.edit(bo, other, {"default-1": {"text": "A kinder word.\nAnd another line.", "amount": 9}})
        await database.rows("UPDATE deedbox.approval SET consequence = 'grave' WHERE approval_id = %s", grave.approval_id)
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        context = await browser.new_context(
            base_url=site.url, viewport={"width": width, "height": 800}, color_scheme=scheme, java_script_enabled=False
        )
        await context.add_cookies([{"name": "deedbox_session", "value": await site.enter(mira), "url": site.url}])
        page = await context.new_page()
        tag = f"{width}-{scheme}"
        await page.goto("/")
        await look(page, f"many-inbox-{tag}")
        for box in await page.get_by_role("checkbox").all():
            await box.check()
        await page.get_by_role("button", name="Look at those ticked").click()
        await look(page, f"many-{tag}")
        await page.goto(f"/approvals/{first.approval_id}/edit")
        await look(page, f"edit-{tag}")
        await page.get_by_label("Amount").fill("six")
        await page.get_by_role("button", name="Hold this instead").click()
        await look(page, f"edit-refused-{tag}")
        await page.get_by_label("Amount").fill("6")
        await page.get_by_role("button", name="Hold this instead").click()
        assert "/edit" not in page.url
        await page.goto(f"/approvals/{newer.approval_id}")
        await page.get_by_text("Hand your say in this").click()
        await look(page, f"edited-{tag}")
        await page.get_by_label("To whom").fill("Dan")
        await page.get_by_role("button", name="Hand it on").click()
        await look(page, f"delegations-{tag}")
        await page.goto(f"/approvals/{grave.approval_id}")
        await page.get_by_role("button", name="Approve").click()
        await look(page, f"grave-{tag}")
        await context.close()
        await browser.close()
