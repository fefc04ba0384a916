"""The console: what it shows to whom, and what it takes to decide."""

import hashlib
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import httpx2
import pytest

from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.console import DOCUMENT, Console, console, field_of, linked_approval, log_in, make_card

pytestmark = pytest.mark.anyio
TOKEN = "a-link-that-was-mailed"
OTHER = hashlib.sha256(b"second").hexdigest()


@pytest.fixture
async def site(database: TestDatabase) -> AsyncIterator[Console]:
    async with console(database) as running:
        await running.person("Ada", "manager")
        yield running


async def snapshot(database: TestDatabase) -> dict[str, object]:
    """All rows of all tables."""
    tables = await database.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'deedbox' ORDER BY 1")
    return {str(table): await database.rows(f'SELECT t::text FROM deedbox."{table}" t ORDER BY 1') for (table,) in tables}  # noqa: S608 -- names of our own schema


@proves("G-GET-CHANGES-NOTHING")
async def test_get_and_head_change_nothing_and_are_the_same_each_time(site: Console):
    card = site.desk.put(make_card())
    await linked_approval(site, "Ada", TOKEN, card)
    path = f"/approvals/{card.approval_id}"
    async with site.client() as scanner, site.client() as person:
        await log_in(person)
        before = await snapshot(site.database)
        for client, address in ((scanner, f"{path}?t={TOKEN}"), (scanner, path), (person, path), (person, f"{path}?t={TOKEN}")):
            first = await client.get(address)
            await client.head(address)
            again = await client.get(address)
            assert first.content == again.content
            assert first.status_code == again.status_code
        await scanner.get(f"{path}?t={TOKEN}&decision=approve&digest={card.digest_hex}")
        assert await snapshot(site.database) == before
    assert site.desk.calls == []


async def test_a_link_shows_neither_payload_nor_recipient_before_login(site: Console):
    card = site.desk.put(make_card())
    await linked_approval(site, "Ada", TOKEN, card)
    async with site.client() as stranger:
        page = await stranger.get(f"/approvals/{card.approval_id}?t={TOKEN}")
        assert page.status_code == 200
        assert "Draft customer reply" in page.text
        assert "Ada" in page.text
        assert "Decide by" in page.text
        for hidden in ("lukasiewicz", "invoice", "C-2041", card.digest_hex, str(card.job_id), "crm", TOKEN):
            assert hidden not in page.text
        assert f"/login?next=/approvals/{card.approval_id}" in page.text
        assert "set-cookie" not in page.headers

        wrong = await stranger.get(f"/approvals/{card.approval_id}?t=guess")
        unknown = await stranger.get(f"/approvals/{UUID(int=7)}?t={TOKEN}")
        assert "Draft customer reply" not in wrong.text
        assert unknown.text.replace(str(UUID(int=7)), "") == wrong.text.replace(str(card.approval_id), "")


async def test_an_old_or_used_link_shows_no_more_than_none(site: Console):
    card = site.desk.put(make_card())
    await linked_approval(site, "Ada", TOKEN, card)
    async with site.client() as stranger:
        none = await stranger.get(f"/approvals/{card.approval_id}")
        await site.database.shift_clock(86_400 + 1)
        assert (await stranger.get(f"/approvals/{card.approval_id}?t={TOKEN}")).text == none.text
        await site.database.shift_clock(0)
        await site.database.rows("UPDATE deedbox.approval_token SET voided_at = deedbox.clock()")
        assert (await stranger.get(f"/approvals/{card.approval_id}?t={TOKEN}")).text == none.text


async def test_the_road_from_the_link_through_login_to_the_decision(site: Console):
    card = site.desk.put(make_card())
    path = f"/approvals/{card.approval_id}"
    async with site.client() as client:
        answer = await log_in(client, next_=path)
        assert (answer.status_code, answer.headers["location"]) == (303, path)
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=lax" in cookie
        cleaned = await client.get(f"{path}?t={TOKEN}")
        assert (cleaned.status_code, cleaned.headers["location"]) == (303, path)
        page = await client.get(path)
        for shown in (
            "buchhaltung@lukasiewicz.example",
            "1.284,50 €",
            "msg-20260512-0931@lukasiewicz.example",
            "Thu 14 May 2026, 16:30 CEST",
            "friendly (0.88)",
            "not one of low, normal, high",
            "Valid after one repair",
            "invoice-question.eml",
            "manager",
            "On silence",
            "never starts again",
        ):
            assert shown in page.text
        form = {"csrf": field_of(page.text, "csrf"), "digest": field_of(page.text, "digest"), "reason": ""}
        decided = await client.post(path, data={**form, "decision": "approve"})
        assert (decided.status_code, decided.headers["location"]) == (303, path)
        assert site.desk.calls == [("Ada", card.approval_id, card.digest_hex, "approve", None, "page")]
        after = await client.get(path)
        assert "Approved" in after.text
        assert "Thu 14 May 2026, 11:05 CEST" in after.text
        assert 'name="decision"' not in after.text


async def test_every_page_carries_the_headers(site: Console):
    card = site.desk.put(make_card())
    async with site.client() as client:
        answers = [await client.get("/login"), await client.get(f"/approvals/{card.approval_id}"), await client.get("/")]
        await log_in(client)
        answers += [await client.get("/"), await client.get(f"/approvals/{card.approval_id}"), await client.get("/approvals/x")]
        for answer in answers:
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["x-content-type-options"] == "nosniff"
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert "<script" not in answer.text
            assert " style=" not in answer.text
            assert "<style" not in answer.text
            assert re.search(r"\son[a-z]+=", answer.text) is None


@proves("G-CSRF")
async def test_a_decision_from_elsewhere_or_without_the_token_changes_nothing(site: Console):
    card = site.desk.put(make_card())
    path = f"/approvals/{card.approval_id}"
    async with site.client() as client, site.client() as other:
        await log_in(client)
        await log_in(other)
        csrf = field_of((await client.get(path)).text, "csrf")
        foreign = field_of((await other.get(path)).text, "csrf")
        good = {"csrf": csrf, "digest": card.digest_hex, "decision": "approve"}
        before = await snapshot(site.database)
        for form in ({**good, "csrf": ""}, {**good, "csrf": foreign}, {k: v for k, v in good.items() if k != "csrf"}):
            answer = await client.post(path, data=form)
            assert answer.status_code == 403
        for headers in (
            {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
            {"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"},
            {"Origin": site.url, "Sec-Fetch-Site": "same-site"},
            {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
            {"Origin": site.url, "Sec-Fetch-Site": "none"},
        ):
            assert (await client.post(path, data=good, headers=headers)).status_code == 403
        for headers in ({"Origin": "null"}, {"Origin": "https://evil.example"}, {"Origin": site.url + ".evil.example"}, {}):
            async with httpx2.AsyncClient(base_url=site.url, cookies=client.cookies, trust_env=False) as bare:
                assert (await bare.post(path, data=good, headers=headers)).status_code == 403
        assert site.desk.calls == []
        assert await snapshot(site.database) == before
        assert (await client.post(path, data=good, headers={"Origin": "null"})).status_code == 303


async def test_a_post_without_a_session_changes_nothing(site: Console):
    card = site.desk.put(make_card())
    async with site.client() as stranger:
        before = await snapshot(site.database)
        form = {"csrf": "x", "digest": card.digest_hex, "decision": "approve"}
        answer = await stranger.post(f"/approvals/{card.approval_id}?t={TOKEN}", data=form)
        assert answer.status_code == 401
        assert "nothing was decided" in answer.text
        assert "lukasiewicz" not in answer.text
        assert await snapshot(site.database) == before
    assert site.desk.calls == []


@pytest.mark.parametrize("end", ["idle", "out"])
async def test_a_session_that_has_ended_decides_nothing(site: Console, end: str):
    card = site.desk.put(make_card())
    path = f"/approvals/{card.approval_id}"
    async with site.client() as client:
        await log_in(client)
        page = (await client.get(path)).text
        form = {"csrf": field_of(page, "csrf"), "digest": card.digest_hex, "decision": "approve"}
        kept = dict(client.cookies)
        if end == "idle":
            await site.database.shift_clock(31 * 60)
        else:
            assert (await client.post("/logout", data={"csrf": "wrong"})).status_code == 403
            assert (await client.post("/logout", data={"csrf": form["csrf"]})).headers["location"] == "/login"
        async with site.client(cookies=kept) as late:
            assert (await late.post(path, data=form)).status_code == 401
            assert "lukasiewicz" not in (await late.get(path)).text
    assert site.desk.calls == []


async def test_only_the_two_words_decide_and_only_once_each(site: Console):
    card = site.desk.put(make_card())
    path = f"/approvals/{card.approval_id}"
    async with site.client() as client:
        await log_in(client)
        csrf = field_of((await client.get(path)).text, "csrf")
        good = {"csrf": csrf, "digest": card.digest_hex}
        for word in (
            "true",
            "True",
            "1",
            "yes",
            "on",
            "approved",
            "Approve",
            "APPROVE",
            " approve",
            "approve ",
            "",
            "approve\0",
        ):
            answer = await client.post(path, data={**good, "decision": word})
            assert answer.status_code == 400, word
        assert (await client.post(path, data=good)).status_code == 400
        for digest in ("", "0" * 63, card.digest_hex.upper(), card.digest_hex + "\n", "true"):
            assert (await client.post(path, data={"csrf": csrf, "decision": "approve", "digest": digest})).status_code == 400
        typed = {"Content-Type": "application/x-www-form-urlencoded"}
        twice = f"csrf={csrf}&digest={card.digest_hex}&decision=reject&decision=approve&reason=x"
        assert (await client.post(path, content=twice, headers=typed)).status_code == 400
        assert (await client.post(path, content=b"csrf=%ff", headers=typed)).status_code == 400
        assert (await client.post(path, content=b"csrf=\xff", headers=typed)).status_code == 400
        assert (await client.post(path, content=b"a&" * 100, headers=typed)).status_code in {400, 403}
        assert (await client.post(path, content=b"a=" + b"x" * 70_000, headers=typed)).status_code == 413
        assert (await client.post(path, json={**good, "decision": "approve"})).status_code == 415
        assert site.desk.calls == []


async def test_a_rejection_needs_a_reason(site: Console):
    card = site.desk.put(make_card())
    path = f"/approvals/{card.approval_id}"
    async with site.client() as client:
        await log_in(client)
        form = {"csrf": field_of((await client.get(path)).text, "csrf"), "digest": card.digest_hex, "decision": "reject"}
        for reason in ("", "  \r\n ", "x" * 2001):
            assert (await client.post(path, data={**form, "reason": reason})).status_code == 400
        assert site.desk.calls == []
        assert (await client.post(path, data={**form, "reason": " The amount is wrong. "})).status_code == 303
        assert site.desk.calls[0][3:] == ("reject", "The amount is wrong.", "page")
        assert "The amount is wrong." in (await client.get(path)).text


async def test_what_changed_since_it_was_shown_is_not_decided_but_shown_anew(site: Console):
    card = site.desk.put(make_card())
    path = f"/approvals/{card.approval_id}"
    async with site.client() as client:
        await log_in(client)
        page = (await client.get(path)).text
        site.desk.put(replace(card, digest_hex=OTHER, sentences=("Send an e-mail to somebody else.",)))
        form = {"csrf": field_of(page, "csrf"), "digest": field_of(page, "digest"), "decision": "approve", "reason": "Fine."}
        answer = await client.post(path, data=form)
        assert answer.status_code == 409
        assert "This changed after you opened it" in answer.text
        assert "Send an e-mail to somebody else." in answer.text
        assert field_of(answer.text, "digest") == OTHER
        assert ">Fine.</textarea>" in answer.text
        assert site.desk.cards[card.approval_id].state == "pending"


async def test_a_stale_click_learns_who_decided_and_when(site: Console):
    card = site.desk.put(make_card())
    path = f"/approvals/{card.approval_id}"
    await site.person("Bo", "manager")
    async with site.client() as ada, site.client() as bo:
        await log_in(ada)
        await log_in(bo, "Bo")
        forms = [
            {"csrf": field_of((await one.get(path)).text, "csrf"), "digest": card.digest_hex, "decision": "approve"}
            for one in (ada, bo)
        ]
        assert (await bo.post(path, data=forms[1])).status_code == 303
        late = await ada.post(path, data=forms[0])
        assert late.status_code == 409
        assert "decided already" in late.text
        assert "Bo" in late.text
        assert "Thu 14 May 2026, 11:05 CEST" in late.text
        site.desk.put(replace(card, state="expired", may_decide=False))
        over = await ada.post(path, data=forms[0])
        assert over.status_code == 409
        assert "Nothing was sent" in over.text


async def test_the_page_says_when_what_was_proposed_was_removed(site: Console):
    gone = make_card(state="approved", may_decide=False, effects=(), draft=(), pruned_at=datetime(2026, 9, 1, 12, tzinfo=UTC))
    card = site.desk.put(gone)
    async with site.client() as client:
        await log_in(client)
        page = (await client.get(f"/approvals/{card.approval_id}")).text
        assert "What was proposed was removed on" in page
        assert "Tue 1 Sept 2026, 12:00 UTC" in page
        site.desk.put(make_card())
        assert "was removed on" not in (await client.get(f"/approvals/{card.approval_id}")).text


@proves("G-PERSON-DECIDES")
async def test_who_lacks_the_role_reads_but_does_not_decide(site: Console):
    card = site.desk.put(make_card())
    path = f"/approvals/{card.approval_id}"
    await site.person("Vi", "viewer", "admin")
    async with site.client() as client:
        await log_in(client, "Vi")
        page = await client.get(path)
        assert "do not include one that decides" in page.text
        assert 'name="decision"' not in page.text
        form = {"csrf": field_of(page.text, "csrf"), "digest": card.digest_hex, "decision": "approve"}
        assert (await client.post(path, data=form)).status_code == 403
        assert site.desk.cards[card.approval_id].state == "pending"


async def test_an_unknown_approval_is_not_there(site: Console):
    async with site.client() as client:
        await log_in(client)
        for path in (f"/approvals/{UUID(int=7)}", "/approvals/x", "/approvals/" + "0" * 32):
            assert (await client.get(path)).status_code == 404
        csrf = field_of((await client.get("/")).text, "csrf")
        form = {"csrf": csrf, "digest": OTHER, "decision": "approve"}
        assert (await client.post(f"/approvals/{UUID(int=7)}", data=form)).status_code == 404


async def test_the_inbox_is_sorted_by_deadline_and_needs_a_login(site: Console):
    card = make_card()
    site.desk.put(replace(card, sentences=("The later one.",)))
    sooner = card.deadline.replace(hour=9)
    site.desk.put(replace(card, approval_id=UUID(int=9), sentences=("The sooner one.",), deadline=sooner))
    async with site.client() as client:
        assert (await client.get("/")).headers["location"] == "/login"
        await log_in(client)
        page = (await client.get("/")).text
        assert page.index("The sooner one.") < page.index("The later one.")


async def test_a_document_is_handed_over_as_a_file(site: Console):
    async with site.client() as client:
        assert (await client.get(f"/documents/{DOCUMENT}")).headers["location"] == "/login"
        await log_in(client)
        answer = await client.get(f"/documents/{DOCUMENT}")
        assert answer.content.startswith(b"<script>")
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''%3Cimg%3E%22%C3%9F.eml"
        assert "sandbox" in answer.headers["content-security-policy"]
        assert (await client.get(f"/documents/{UUID(int=1)}")).status_code == 404


async def test_a_failure_is_a_page_without_its_insides(site: Console):
    card = site.desk.put(make_card())
    async with site.client() as client:
        await log_in(client)
        site.desk.cards[card.approval_id] = None  # pyright: ignore[reportArgumentType] -- breaks the inbox on purpose
        answer = await client.get("/")
        assert answer.status_code == 500
        assert "Something went wrong here" in answer.text
        assert "NoneType" not in answer.text


async def test_what_a_stranger_wrote_cannot_hide_or_run(site: Console):
    nasty = 'Pay <script>alert(1)</script> "A\u202etnuocca\u202c" x\u200by @ex\u0430mple'
    card = site.desk.put(replace(make_card(), sentences=(nasty,)))
    async with site.client() as client:
        await log_in(client)
        page = (await client.get(f"/approvals/{card.approval_id}")).text
        assert "<script" not in page
        assert "&lt;script&gt;" in page
        assert "\u202e" not in page
        assert ">U+202E</span>" in page
        assert ">U+200B</span>" in page
        assert "mixes Latin and Cyrillic letters" in page
