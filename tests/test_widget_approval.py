"""Deciding in the widget over the real face: on exactly what was shown, by a person who may."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from playwright.async_api import Browser, expect
from pydantic import BaseModel, ConfigDict, Field

from deedbox import App, Context, hold
from tests.builders import ScriptedConnector
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import Road, road
from tests.servers.app_host import AppHost, app_host, result_of
from tests.servers.installed import House, house
from tests.test_web_chromium import CHROMIUM
from tests.test_web_chromium import browser as browser  # noqa: PLC0414 -- the fixture, by its own name
from tools import node

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the PATH; apt-get install chromium"),
    pytest.mark.skipif(not node.is_current(), reason=node.MISSING),
]


class Words(BaseModel):
    """What is noted."""

    model_config = ConfigDict(extra="forbid")
    text: str = Field(max_length=200)


def desk() -> App:
    app = App(connectors=[ScriptedConnector()])

    @app.action(roles=["operator"], approvers=["manager"], policy=hold(), key="new")
    async def leave_note(ctx: Context, given: Words) -> Words:
        """Leave a note."""
        ctx.effect("note", target="desk", slot="note", payload={"text": given.text})
        return given

    del leave_note
    return app


@pytest.fixture
async def host(browser: Browser, tmp_path: Path) -> AsyncIterator[AppHost]:
    async with app_host(browser, tmp_path) as running:
        yield running


async def waiting(one: Road, text: str) -> tuple[str, dict[str, Any]]:
    """A job that waits for a person, and what its call answered."""
    accepted = await one.submit("leave_note", {"text": text})
    await one.until(accepted.job_id, "awaiting_human")
    said = {"status": "pending", "action": "leave_note", "job_id": str(accepted.job_id), "human_message": "It is accepted."}
    return str(accepted.job_id), result_of(said)


def server(site: House, bearer: str) -> dict[str, Any]:
    return {"mcp": f"{site.url}/mcp", "bearer": bearer, "resource": "ui://deedbox/job"}


@proves("G-WIDGET-APPROVE")
async def test_a_manager_decides_on_what_was_shown_and_others_are_led_to_the_page(
    database: TestDatabase, host: AppHost
) -> None:
    app = desk()
    async with road(database, app) as one, house(database, app) as site:
        one.start(one.worker())
        await site.person("Ada", "manager")
        await site.person("Vi", "viewer")
        await site.person("Mo", "admin")
        manager, viewer = await site.session("Ada"), await site.session("Vi")
        job_id, first = await waiting(one, "Call <b>back</b>")
        async with host.chat() as chat:
            await chat.start(**server(site, viewer), first=first)
            await chat.view.get_by_role("button", name="Open the approval page").click()
            await expect(chat.view.get_by_role("button", name="Approve", exact=True)).to_be_hidden()
            links = await chat.seen("links")
            assert len(links) == 1
            assert links[0].startswith(f"{site.url}/approvals/")
        async with host.chat() as chat:
            await chat.start(**server(site, await site.session("Mo")), first=first)
            await expect(chat.view.get_by_text("Deciding this needs one of these roles: manager.")).to_be_visible()
            await expect(chat.view.get_by_role("button", name="Approve", exact=True)).to_be_hidden()
        async with host.chat() as chat:
            await chat.start(**server(site, manager), first=first)
            panel = chat.view.get_by_role("region", name="Waits for a person")
            await expect(panel.get_by_text("Call <b>back</b>")).to_be_visible()
            assert "<b>" not in await panel.evaluate("(panel) => panel.querySelector('dd').innerHTML")
            await panel.get_by_role("button", name="Approve", exact=True).click()
            await one.until(UUID(job_id), "dispatching")
            await expect(panel).to_be_hidden()
        told = await site.told("approve")
        assert [(row[2]) for row in told] == ["mcp"]
        job_id, first = await waiting(one, "Another one")
        async with host.chat() as chat:
            await chat.start(**server(site, manager), first=first)
            reject = chat.view.get_by_role("button", name="Reject", exact=True)
            await reject.click()
            await chat.view.get_by_label("Why is it rejected?").fill("Nobody is there.")
            await reject.click()
            await expect(chat.view.get_by_text("A person rejected it: Nobody is there.")).to_be_visible()
            await expect(chat.view.get_by_text("Rejected", exact=True)).to_be_visible()
