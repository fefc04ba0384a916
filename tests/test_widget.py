"""The widget in Debian's Chromium, shown by a host on the official AppBridge that answers what the test says."""

import json
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.async_api import Browser, expect

from deedbox.mcp.widget import META, URI, page
from tests.guarantees import proves
from tests.servers.app_host import AppHost, Chat, app_host, result_of
from tests.servers.scripted_jobs import IDEAS, JOB, OFFERS, Server, done, told
from tests.test_web_chromium import CHROMIUM, LOOK
from tests.test_web_chromium import browser as browser  # noqa: PLC0414 -- the fixture, by its own name
from tools import node

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the PATH; apt-get install chromium"),
    pytest.mark.skipif(not node.is_current(), reason=node.MISSING),
]


@pytest.fixture
async def host(browser: Browser, tmp_path: Path) -> AsyncIterator[AppHost]:
    async with app_host(browser, tmp_path) as running:
        yield running


async def show(chat: Chat, server: Server, **config: Any) -> None:
    await chat.start(html=page(), first=result_of(server.now), **config)


async def text(chat: Chat) -> str:
    return await chat.view.locator("main").inner_text()


def test_the_page_is_one_and_asks_for_nothing() -> None:
    made = page()
    assert made == page()
    assert URI == "ui://deedbox/job"
    assert all(not origins for origins in META["csp"].values())
    head = made.split("<style>")[0]
    assert "default-src 'none'; script-src 'sha256-" in head
    assert "unsafe" not in head
    for reading_markup in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "http:",
        "https:",
    ):
        assert reading_markup not in made


@proves("G-WIDGET-PROGRESS", "G-WIDGET-NO-ORIGIN")
async def test_progress_drafts_and_the_final_list(host: AppHost) -> None:
    server = Server(told("queued", human_message="Find gifts is accepted and waits for its turn."))
    async with host.chat(server.answer) as chat:
        await show(chat, server)
        await expect(chat.view.get_by_text("waits for its turn")).to_be_visible()
        draft = {"draft": True, "value": {"summary": "First ideas.", "ideas": IDEAS[:1]}}
        server.now = told(progress={"step": 3, "total_steps": 9, "message": "Step 2 of 4: books"}, partial=draft, next_after=4)
        bar = chat.view.locator("progress")
        await expect(bar).to_have_attribute("value", "3")
        await expect(bar).to_have_attribute("max", "9")
        await expect(bar).to_have_accessible_name("Step 2 of 4: books")
        region = chat.view.get_by_role("region", name="Draft First results, which may still change")
        await expect(region.get_by_role("heading", name="Head torch")).to_be_visible()
        await expect(chat.view.get_by_role("region", name="Result", exact=True)).to_be_hidden()
        assert (await server.until("get_job", len(server.calls) + 1))["after"] == 4
        server.now = done(follow_ups=OFFERS)
        await expect(region).to_be_hidden()
        result = chat.view.get_by_role("region", name="Result", exact=True)
        items = result.locator("ol > li")
        await expect(items).to_have_count(2)
        assert [line for line in (await items.first.inner_text()).splitlines() if line][:3] == [
            "Head torch",
            "€49.90",
            "Fits hiking.",
        ]
        await expect(chat.view.get_by_text("Done", exact=True)).to_be_visible()
        await expect(bar).to_be_hidden()
        assert {url.split("/")[2] for url in chat.requests if not url.startswith(("about:", "data:"))} == {
            host.url.split("/")[2],
            host.sandbox.split("/")[2],
        }
        assert chat.complaints == []
        asked = len(server.calls)
        await chat.run("() => new Promise((done) => setTimeout(done, 700))")
        assert len(server.calls) == asked, "a job that is over is not asked about"


@proves("G-WIDGET-FOLLOW-UPS")
async def test_follow_ups_are_said_through_the_host_as_the_action_declared_them(host: AppHost) -> None:
    server = Server(done(follow_ups=OFFERS))
    async with host.chat(server.answer) as chat:
        await show(chat, server)
        await chat.view.get_by_role("button", name="A narrower budget").click()
        await expect(chat.view.get_by_text("Asked in the chat")).to_be_visible()
        assert await chat.seen("said") == [OFFERS[1]["message"]]
        notes = await chat.seen("notes")
        assert notes[0]["structuredContent"] == {"job_id": JOB, "action": "find_gifts", "status": "success", "error_code": None}
        assert len(notes) == 1
    async with host.chat(server.answer) as chat:
        await show(chat, server, cannot=["message"])
        await chat.view.get_by_role("button", name="More ideas").click()
        await expect(chat.view.get_by_text("You can say it yourself: “Please find more gift ideas.”")).to_be_visible()
        assert await chat.seen("said") == []
    async with host.chat(server.answer) as chat:
        await show(chat, server, deaf=True)
        await chat.view.get_by_role("button", name="More ideas").click()
        await expect(chat.view.get_by_text("You can say it yourself")).to_be_visible()


@proves("G-WIDGET-RETRIES")
async def test_retries_and_failures_are_said_in_plain_words(host: AppHost) -> None:
    wait = "Attempt 2 of 5 did not work, because the other side asked to wait; it is tried again by itself after 3 seconds."
    server = Server(told("queued", reason="retrying", attempt=2, human_message=wait))
    async with host.chat(server.answer) as chat:
        await show(chat, server)
        await expect(chat.view.get_by_text(wait)).to_be_visible()
        await expect(chat.view.get_by_text("Trying again", exact=True)).to_be_visible()
        retry = {"type": "job.retrying", "seq": 5, "payload": {"message": "The target shop answered 429."}}
        server.now = told(attempt=3, progress={"step": 1, "total_steps": 4, "message": "Reading"}, events=[retry], next_after=5)
        await expect(chat.view.get_by_text("Attempt 3 of 5")).to_contain_text("The last problem: The target shop answered 429.")
        server.now = told(
            "failed_terminal", status="error", error_code="PROVIDER_ERROR", human_message="It did not work.", attempt=5
        )
        server.now["errors"] = [{"code": "PROVIDER_ERROR", "pointer": None, "slot": "note", "message": "The desk is closed."}]
        server.now["data"]["complete"] = True
        await expect(chat.view.get_by_text("It did not work.")).to_be_visible()
        await expect(chat.view.get_by_text("It took 5 attempts.")).to_be_visible()
        await expect(chat.view.get_by_text("note: The desk is closed.")).to_be_visible()
        await expect(chat.view.get_by_text("Failed", exact=True)).to_be_visible()


@proves("G-WIDGET-CANCEL")
async def test_cancel_asks_once_more_and_then_calls(host: AppHost) -> None:
    server = Server()
    server.others["cancel_job"] = told(human_message="Find gifts was told to stop.")
    async with host.chat(server.answer) as chat:
        await show(chat, server)
        await chat.view.get_by_role("button", name="Cancel").click()
        await chat.view.get_by_role("button", name="Keep going").click()
        await expect(chat.view.get_by_role("button", name="Cancel")).to_be_focused()
        assert [name for name, _ in server.calls if name == "cancel_job"] == []
        await chat.view.get_by_role("button", name="Cancel").click()
        await chat.view.get_by_role("button", name="Stop it").click()
        assert await server.until("cancel_job") == {"job_id": JOB}
        await expect(chat.view.get_by_text("It was told to stop.")).to_be_visible()
        server.now = told(
            "canceled", status="error", error_code="CANCELED", human_message="Canceled by the caller.", complete=True
        )
        await expect(chat.view.get_by_text("Canceled", exact=True)).to_be_visible()
        await expect(chat.view.get_by_role("button", name="Cancel")).to_be_hidden()


@proves("G-WIDGET-APPROVE")
async def test_those_who_may_approve_here_and_others_are_led_to_the_page(host: AppHost) -> None:
    url = "http://deedbox.test/approvals/1"
    waits = {
        "approval_id": "1",
        "purpose": "effects",
        "group": "default",
        "expires_at": "2026-12-01T09:00:00+00:00",
        "url": url,
    }
    server = Server(told("awaiting_human", approval=waits, human_message="Find gifts waits for a person's approval."))
    async with host.chat(server.answer) as chat:
        await show(chat, server)
        await expect(chat.view.get_by_role("button", name="Approve", exact=True)).to_be_hidden()
        await chat.view.get_by_role("button", name="Open the approval page").click()
        await expect(chat.view.get_by_text("It lapses 1 Dec 2026, 10:00.")).to_be_visible()
        assert await chat.seen("links") == [url]
    parts = [{"name": "smtp to zoe@example.org", "rows": [{"label": "Subject", "value": "<b>Hello</b>"}]}]
    may = {
        **waits,
        "may_decide": True,
        "digest": "ab" * 32,
        "sentences": ["Send an e-mail to zoe@example.org."],
        "parts": parts,
    }
    server = Server(told("awaiting_human", approval=may))
    server.others["decide_approval"] = told("dispatching")
    async with host.chat(server.answer) as chat:
        await show(chat, server, cannot=["openLinks"])
        await server.until("get_job")
        await expect(chat.view.get_by_text("Send an e-mail to zoe@example.org.")).to_be_visible()
        await expect(chat.view.get_by_text(f"The approval page: {url}")).to_be_visible()
        await expect(chat.view.get_by_role("definition")).to_have_text("<b>Hello</b>")
        await chat.view.get_by_role("button", name="Approve", exact=True).click()
        assert await server.until("decide_approval") == {"approval_id": "1", "digest": "ab" * 32, "decision": "approve"}
    server.others["decide_approval"] = told(
        status="error", action="decide_approval", human_message="Only a person decides.", data=None
    )
    async with host.chat(server.answer) as chat:
        await show(chat, server)
        reject = chat.view.get_by_role("button", name="Reject", exact=True)
        await reject.click()
        await reject.click()
        await expect(chat.view.get_by_text("Say in a few words why it is rejected.")).to_be_visible()
        assert [name for name, _ in server.calls if name == "decide_approval"] == ["decide_approval"]
        await chat.view.get_by_label("Why is it rejected?").fill("The amount is wrong.")
        await reject.click()
        assert (await server.until("decide_approval", 2))["reason"] == "The amount is wrong."
        await expect(chat.view.get_by_text("Only a person decides.")).to_be_visible()


@proves("G-WIDGET-RESTORES")
async def test_a_view_that_was_torn_down_stops_and_the_next_one_restores_itself(host: AppHost) -> None:
    server = Server(told(progress={"step": 3, "total_steps": 9, "message": "Reading"}))
    async with host.chat(server.answer) as chat:
        await show(chat, server)
        await server.until("get_job")
        # It is still there, and asks nothing more.
        assert await chat.run("() => host.rest()") == {}
        asked = len(server.calls)
        await chat.run("() => new Promise((done) => setTimeout(done, 600))")
        assert len(server.calls) == asked
        await chat.run("() => { host.state.frame.remove(); return host.state.bridge.close(); }")
        # What it is told first is what the first call answered, however long ago that was.
        server.now = done()
        await chat.run("() => host.again()")
        await expect(chat.view.get_by_role("heading", name="Teapot")).to_be_visible()
        assert server.calls[-1][1]["after"] == 0
    async with host.chat(server.answer) as chat:
        # A host that keeps the text alone: the number in it is enough.
        await chat.start(html=page(), first={"content": [{"type": "text", "text": f"It has begun as job {JOB}."}]})
        await expect(chat.view.get_by_role("heading", name="Teapot")).to_be_visible()


@proves("G-WIDGET-HIDDEN")
async def test_nobody_is_asked_while_nobody_looks_and_more_slowly_while_nothing_happens(host: AppHost) -> None:
    server = Server()
    async with host.chat(server.answer) as chat:
        await show(chat, server)
        await server.until("get_job", 3)
        hide = "(hidden) => { Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });"
        hide += " document.dispatchEvent(new Event('visibilitychange')); }"
        view = next(frame for frame in chat.page.frames if frame.parent_frame and frame.parent_frame.parent_frame)
        # One question is under way; what it is answered is taken in, and no other is asked.
        server.free.clear()
        asked = len(server.calls) + 1
        await server.until("get_job", asked)
        await view.evaluate(hide, True)
        server.now = told(progress={"step": 7, "total_steps": 9, "message": "Seen by nobody"})
        server.free.set()
        await expect(chat.view.locator("#step")).to_have_text("Seen by nobody")
        await chat.run("() => new Promise((done) => setTimeout(done, 1000))")
        assert len(server.calls) == asked
        await view.evaluate(hide, False)
        await server.until("get_job", asked + 1)
        await server.until("get_job", asked + 6)
        began = [call["began"] for call in await chat.seen("calls")][asked:]
        pauses = [later - earlier for earlier, later in pairwise(began)]
        assert pauses[-1] > pauses[0], pauses


async def test_a_host_with_window_openai_and_no_bridge_is_used_as_it_is(browser: Browser) -> None:
    server = Server(done(follow_ups=OFFERS))
    context = await browser.new_context()
    window = await context.new_page()

    async def called(name: str, given: dict[str, Any]) -> dict[str, Any]:
        return result_of(await server.answer(name, given))

    said: list[str] = []

    async def saying(given: dict[str, str]) -> None:
        said.append(given["prompt"])

    await window.expose_function("called", called)  # pyright: ignore[reportUnknownMemberType] -- its types say nothing
    await window.expose_function("saying", saying)  # pyright: ignore[reportUnknownMemberType] -- the same
    kept = {"status": "pending", "job_id": JOB, "human_message": "It is accepted."}
    await window.add_init_script(
        f"window.openai = {{ toolOutput: {json.dumps(kept)}, callTool: (name, given) => window.called(name, given),"
        " sendFollowUpMessage: (given) => window.saying(given), setWidgetState: (given) => { window.state = given; } };"
    )
    await window.goto("about:blank")
    await window.set_content(page())
    await expect(window.get_by_role("heading", name="Teapot")).to_be_visible()
    await window.get_by_role("button", name="More ideas").click()
    await expect(window.get_by_text("Asked in the chat")).to_be_visible()
    assert said == [OFFERS[0]["message"]]
    assert await window.evaluate("() => window.state") == {"job_id": JOB}
    await context.close()


async def test_a_wire_that_breaks_is_told_and_tried_again(host: AppHost) -> None:
    server = Server()
    async with host.chat(server.answer) as chat:
        await show(chat, server)
        await server.until("get_job")
        server.broken = True
        await expect(chat.view.get_by_text("The connection is interrupted")).to_be_visible()
        server.broken = False
        await expect(chat.view.get_by_text("The connection is interrupted")).to_be_hidden()
        server.now = told(action="get_job", status="error", error_code="NOT_FOUND", job_id=None, retryable=False, data=None)
        server.now["human_message"] = "There is no such job, or it is not yours."
        await expect(chat.view.get_by_text("There is no such job, or it is not yours.")).to_be_visible()
        await expect(chat.view.get_by_text("Failed", exact=True)).to_be_visible()


NASTY = '<img src=x onerror="parent.postMessage(1)"><script>document.title="taken"</script>\u202egnp.exe {policy}'


@proves("G-WIDGET-TEXT")
async def test_what_models_say_is_text_whatever_it_looks_like(host: AppHost) -> None:
    idea = {"title": NASTY, "price": "12.5", "currency": "EUR", "reason": NASTY, NASTY: NASTY, "inner": {"deep": [[NASTY]]}}
    result = {"summary": NASTY, "ideas": [idea], "more": [NASTY], "__proto__": NASTY}
    retry = {"type": "job.retrying", "seq": 1, "payload": {"message": NASTY}}
    server = Server(
        done(result=result, human_message=NASTY, attempt=2, events=[retry], follow_ups=[{"label": NASTY, "message": "x"}])
    )
    async with host.chat(server.answer) as chat:
        await show(chat, server)
        await expect(chat.view.locator("ol > li h3").first).to_contain_text("<img src=x onerror=")
        await chat.view.get_by_text("More about this result").click()
        view = next(frame for frame in chat.page.frames if frame.parent_frame and frame.parent_frame.parent_frame)
        assert await view.evaluate("() => [...document.querySelectorAll('img, script')].length") == 1
        assert await view.title() == "Find gifts"
        shown = await text(chat)
        assert "[U+202E]" in shown
        assert "\u202e" not in shown
        assert chat.complaints == []


SHOWN: list[tuple[dict[str, Any], list[str]]] = [
    (
        {"text": "Hello\nyou", "words": 3, "is_new": True, "sent_on": "2026-05-14"},
        ["Words", "3", "Is new", "Yes", "14 May 2026"],
    ),
    ({"order": {"id": "O-1", "lines": [{"sku": "A", "count": 2}]}}, ["Order", "ID", "O-1", "Lines", "SKU", "A"]),
    ({"ideas": []}, ["Ideas", "None."]),
    ({"too_large": True, "size": 99_000, "link": "http://deedbox.test/api/jobs/1"}, ["too long to be shown here (97 KiB)"]),
    ({"tags": ["red", "blue"], "amount": "12.50", "nothing": None}, ["red", "blue", "12.50", "\u2013"]),
    ({"customers": [{"name": "Zoë", "total": 1234.5}, {"name": "Ada"}]}, ["Zoë", "1,234.5", "Ada"]),
]


async def test_any_output_is_shown_decently(host: AppHost) -> None:
    for result, words in SHOWN:
        server = Server(done(result=result))
        async with host.chat(server.answer) as chat:
            await show(chat, server)
            await expect(chat.view.get_by_text("Done", exact=True)).to_be_visible()
            shown = await text(chat)
            assert [word for word in words if word not in shown] == []
            assert chat.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
async def test_every_state_fits_and_can_be_read(host: AppHost, width: int, scheme: Literal["light", "dark"]) -> None:
    may = {"approval_id": "1", "purpose": "effects", "group": "default", "expires_at": "2026-12-01T09:00:00+00:00"}
    may |= {
        "may_decide": True,
        "digest": "ab" * 32,
        "sentences": ["Send an e-mail to zoe@example.org."],
        "url": "http://d.test/a",
    }
    draft = {"draft": True, "value": {"summary": "First ideas.", "ideas": IDEAS}}
    at = {"step": 3, "total_steps": 9, "message": "Step 2 of 4: books"}
    states = {
        "working": told(progress=at, partial=draft, attempt=2),
        "waits": told("awaiting_human", approval=may),
        "done": done(follow_ups=OFFERS, attempt=3),
        "failed": told("failed_terminal", status="error", human_message="It did not work.", complete=True),
    }
    states["failed"]["errors"] = [{"code": "X", "pointer": "/budget", "slot": None, "message": "must be more"}]
    for name, now in states.items():
        server = Server(now)
        async with host.chat(server.answer, width=width, scheme=scheme) as chat:
            await show(chat, server, theme=scheme)
            await expect(chat.view.locator("#badge")).not_to_have_text("Starting")
            await server.until("get_job")
            view = next(frame for frame in chat.page.frames if frame.parent_frame and frame.parent_frame.parent_frame)
            problems = [one for one in await view.evaluate(LOOK) if not one.endswith(" 0")]
            assert problems == [], name
            # The frame is as high as what is in it: nothing is cut off and nothing scrolls.
            await chat.page.wait_for_function("() => host.state.frame.clientHeight === host.state.sizes.at(-1)")
            assert await view.evaluate("() => document.documentElement.scrollHeight - innerHeight") <= 0, name
            assert chat.complaints == []
