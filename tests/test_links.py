"""Links by mail, from a real server's real mail: no scanner decides anything, and the person still can.

The server is a process of its own, its mail goes through SMTP, and what scans it is first a program that follows everything and
then Chromium with its scripts on, clicking whatever there is.
"""

import asyncio
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from email.message import EmailMessage
from pathlib import Path
from urllib.parse import urljoin

import httpx2
import pytest
from playwright.async_api import async_playwright

from deedbox.access import add_user
from deedbox.store.ids import IdSource
from tests.builders import outbox_on
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import until
from tests.servers.commands import PASSWORD, Cli, introduced, key_of, opened_pool
from tests.servers.console import field_of, log_in
from tests.servers.house import links_of, read, text_of
from tests.servers.listening import free_port
from tests.servers.smtp_server import SmtpServer
from tests.test_web_chromium import ARGUMENTS, CHROMIUM

pytestmark = pytest.mark.anyio

APP = """
from pydantic import BaseModel
from deedbox import App, Context, hold
from deedbox.connectors import Smtp

app = App(connectors=[Smtp()])


class Asked(BaseModel):
    question: str = ""


class Planned(BaseModel):
    text: str = ""


@app.action(roles=["operator"], approvers=["manager"], policy=hold(), key="new")
async def send_reply(ctx: Context, asked: Asked) -> Planned:
    ctx.effect("smtp", target="zoe@customer.example", slot="reply",
               payload={"to": "zoe@customer.example", "subject": "Your invoice", "body": "It is 1.284,50 EUR."})
    return Planned(text="planned")
"""
# Everything that a decision, or anything short of one, would change.
STATE = """
SELECT (SELECT array_agg((approval_id, state, decided_at, notify_at, audience)::text) FROM deedbox.approval),
       (SELECT array_agg(v::text) FROM deedbox.vote v),
       (SELECT array_agg((effect_id, state, attempt)::text ORDER BY effect_id) FROM deedbox.effect),
       (SELECT array_agg((job_id, state, last_seq)::text) FROM deedbox.queue),
       (SELECT array_agg(t::text) FROM deedbox.approval_token t),
       (SELECT array_agg((job_id, seq, type)::text ORDER BY seq) FROM deedbox.event),
       (SELECT array_agg(verb ORDER BY seq) FROM deedbox.audit WHERE verb NOT LIKE 'login%%')
"""


def settings(server: SmtpServer, port: int) -> dict[str, str]:
    """What a house that asks by mail is given."""
    smtp = f'{{"host": "127.0.0.1", "port": {server.port}, "sender": "desk@house.example", "security": "none"}}'
    return {
        "DEEDBOX_PORT": str(port),
        "DEEDBOX_PUBLIC_URL": f"http://127.0.0.1:{port}",
        "DEEDBOX_SMTP": smtp,
        "DEEDBOX_EGRESS_ALLOW": "127.0.0.1",
        "DEEDBOX_NOTIFY_MAIL": "true",
        "DEEDBOX_ALERTS_TO": '{"default": ["ops@house.example"]}',
        "DEEDBOX_LEASE_S": "3",
        "DEEDBOX_SEND_LEASE_S": "5",
        "DEEDBOX_LOG_LEVEL": "warning",
        "PYTHONUNBUFFERED": "1",
    }


@asynccontextmanager
async def running(cli: Cli, command: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    """A process of the house."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "deedbox.cli.main", command, "app.py"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=cli.cwd,
        env=cli.environment,
    )
    async with introduced(process):
        yield process


async def person(database: TestDatabase) -> None:
    async with opened_pool(database.url) as pool:
        ids = await IdSource.read(pool)
        await add_user(pool, ids, "default", "Ada", ["manager"], PASSWORD, email="ada@people.example")


async def submit(url: str, key: str) -> None:
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(base_url=url, headers=headers, trust_env=False) as client:
        done = await client.post("/api/actions/send_reply/jobs", json={"question": "How much is it?"})
        assert done.status_code == 202, done.text


async def mails(server: SmtpServer, count: int) -> list[EmailMessage]:
    async def come() -> int:
        return len(server.mails)

    await until(come, lambda seen: seen >= count, within=60)
    return [read(mail) for mail in server.mails]


async def scan(link: str) -> None:
    """What a scanner without scripts does with a link: opens it again and again, follows everything, posts to everything."""
    async with httpx2.AsyncClient(trust_env=False, follow_redirects=True) as client:
        pages = [await client.get(link) for _ in range(3)]
        assert {page.status_code for page in pages} == {200}
        assert len({page.content for page in pages}) == 1
        head = await client.head(link)
        assert (head.status_code, head.content) == (200, b"")
        text = pages[0].text
        assert "http-equiv" not in text.lower()
        assert "refresh" not in {name.lower() for name in pages[0].headers}
        assert "1.284,50" not in text
        assert "zoe@" not in text
        followed = {urljoin(link, found) for found in re.findall(r'(?:href|src|action)="([^"]+)"', text)}
        for address in sorted(followed):
            assert (await client.get(address)).status_code < 500
        page = link.partition("?")[0]
        for address in (link, page, *sorted(followed)):
            for body in ({"decision": "approve"}, {"decision": "reject", "reason": "no"}, {"digest": "0" * 64}):
                refused = await client.post(address, data=body, headers={"Origin": link[:22]})
                assert refused.status_code >= 400, address
            for method in ("OPTIONS", "PUT", "DELETE", "PATCH"):
                assert (await client.request(method, address)).status_code >= 400 or method == "OPTIONS"
        api = page.replace("/approvals/", "/api/approvals/")
        for address in (api, f"{api}/decision"):
            assert (await client.post(address, json={"decision": "approve", "digest": "0" * 64})).status_code in {401, 405}


async def scan_with_a_browser(link: str) -> None:
    """What a scanner with scripts does: opens it, clicks and submits all there is, and posts by script from within the page."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = await (await browser.new_context(java_script_enabled=True)).new_page()
        for _ in range(2):
            await page.goto(link)
            await page.goto(link, wait_until="networkidle")
        for number in range(await page.locator("a, button").count()):
            await page.goto(link)
            await page.locator("a, button").nth(number).click(timeout=10_000)
        await page.goto(link)
        await page.evaluate(
            """async () => { for (const method of ['POST', 'GET', 'HEAD'])
                 try { await fetch(location.href, {method, body: method === 'POST' ? 'decision=approve' : undefined,
                   headers: {'Content-Type': 'application/x-www-form-urlencoded'}}) } catch (refused) {}
               const form = document.createElement('form');
               form.method = 'post'; form.action = location.pathname;
               form.innerHTML = '<input name=decision value=approve>';
               document.body.append(form); form.submit(); }"""
        )
        await page.wait_for_load_state()
        await browser.close()


@proves("G-LINK-DECIDES-NOTHING", "G-ASKED")
@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the PATH; apt-get install chromium")
async def test_no_scanner_decides_by_a_link_and_the_first_click_after_a_restart_counts(
    database: TestDatabase, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(APP)
    await person(database)
    key = await key_of(database.url)
    async with SmtpServer().running() as server:
        cli = Cli(database.owner_url, tmp_path, settings(server, free_port()))
        url = cli.extra["DEEDBOX_PUBLIC_URL"]
        async with running(cli, "serve"):
            await submit(url, key)
            (mail,) = await mails(server, 1)
            assert "zoe@" not in text_of(mail)
            (link,) = links_of(mail)
            assert link.startswith(f"{url}/approvals/")

            async def sent() -> object:
                return await database.value("SELECT state FROM deedbox.effect")

            await until(sent, lambda state: state == "completed")
            before = await database.rows(STATE)
            await scan(link)
            await scan_with_a_browser(link)
            assert await database.rows(STATE) == before
            headers = {"Origin": url, "Sec-Fetch-Site": "same-origin"}
            async with httpx2.AsyncClient(base_url=url, headers=headers, trust_env=False) as client:
                assert "send reply" in (await client.get(link)).text.lower()
                assert (await log_in(client, password=PASSWORD)).status_code == 303
                card = await client.get(link, follow_redirects=True)
                cookies = dict(client.cookies)
        async with (
            running(cli, "serve"),
            httpx2.AsyncClient(base_url=url, headers=headers, cookies=cookies, trust_env=False) as client,
        ):
            form = {name: field_of(card.text, name) for name in ("csrf", "digest")} | {"decision": "approve"}
            done = await client.post(str(card.url), data=form)
            assert done.status_code == 303, done.text
            assert await database.value("SELECT state FROM deedbox.approval") == "approved"
            assert await database.value("SELECT count(*) FROM deedbox.approval_token WHERE voided_at IS NULL") == 0


@proves("G-LINK-MINTED", "G-NOTICE")
async def test_a_dispatcher_that_is_killed_between_minting_and_sending_leaves_an_approval_that_can_be_decided(
    database: TestDatabase, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(APP)
    await person(database)
    async with SmtpServer(faults={"banner": "stall"}).running() as server:
        cli = Cli(database.owner_url, tmp_path, settings(server, 0) | {"DEEDBOX_PUBLIC_URL": "http://127.0.0.1:1"})
        async with outbox_on(database) as box:
            await box.build(state="awaiting_human", open_groups=["default"], action="send_reply")
        async with running(cli, "dispatch") as process:
            await asyncio.wait_for(server.reached.wait(), 60)
            # Its token is there, and nothing has been said to the server yet.
            assert await database.value("SELECT count(*) FROM deedbox.approval_token") == 1
            assert server.commands == []
            process.kill()
            await process.wait()
        assert await database.value("SELECT state FROM deedbox.effect") == "sending"
        server.faults.clear()
        await database.shift_clock(0.51 * 86400)
        query = "SELECT template, state FROM deedbox.notice JOIN deedbox.effect USING (effect_id) ORDER BY effect_id"
        ended = [("approval.request", "unknown_closed"), ("approval.reminder", "completed")]
        async with running(cli, "dispatch"):
            (reminder,) = await mails(server, 1)
            await until(lambda: database.rows(query), lambda seen: seen == ended)
        assert str(reminder["Subject"]).startswith("Reminder: ")
        assert await database.value("SELECT count(*) FROM deedbox.approval_token WHERE voided_at IS NULL") == 2
        assert await database.value("SELECT state FROM deedbox.approval") == "pending"
