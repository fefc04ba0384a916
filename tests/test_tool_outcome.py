"""What a call is answered with as soon as its job has completed, read from less than all of it: the same in every member."""

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from deedbox.extend.registry import App
from deedbox.store.tell import tell
from deedbox.store.wakeup import EVENTS, Wakeup
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import road
from tests.toolbox import Toolbox, toolbox

pytestmark = pytest.mark.anyio


async def answered_alike(box: Toolbox, action: str, arguments: dict[str, str]) -> str:
    """Call, then ask for the job: both answers are one but for their own ids; returns the status."""
    called = await box.call(action, arguments, wait_s=15)
    asked = await box.tools.outcome(box.operator, str(called.job_id))
    assert replace(called, audit_id="") == replace(asked, audit_id="")
    return called.status


@proves("G-TOOL-SHAPE")
async def test_the_answer_to_a_call_is_the_answer_for_its_job(database: TestDatabase) -> None:
    async with toolbox(database) as box:
        box.work()
        await box.turn(on=True)
        assert await answered_alike(box, "get_status", {"order_id": "4711"}) == "success"
        box.play.length = 50_000
        assert await answered_alike(box, "get_status", {"order_id": "4712"}) == "success"
        # The same calls again after a person has decided: with a receipt, and with a part that was declined.
        lead = await box.call("create_lead", {"name": "Ada"})
        pair = await box.call("create_pair", {"name": "Ada"})
        await box.decide(lead.job_id, "approve")
        await box.decide(pair.job_id, "approve", "one")
        await box.decide(pair.job_id, "reject", "two")
        box.send()
        await box.tools.outcome(box.operator, str(lead.job_id), wait_s=15)
        await box.tools.outcome(box.operator, str(pair.job_id), wait_s=15)
        assert await answered_alike(box, "create_lead", {"name": "Ada"}) == "success"
        assert await answered_alike(box, "create_pair", {"name": "Ada"}) == "error"
        assert (await box.call("create_lead", {"name": "Ada"})).object_id == "provider-lead"


async def test_a_telling_that_came_before_the_subscription_is_not_missed(database: TestDatabase) -> None:
    """A quick job ends before whoever asked for it has subscribed: the wait does not last until the next look."""
    here, elsewhere = UUID(int=7), UUID(int=8)
    async with road(database, App()) as one:
        wakeup = Wakeup(database.direct_url)
        running = asyncio.create_task(wakeup.run())
        try:
            await wakeup.ready()
            heard = wakeup.event(EVENTS)
            heard.clear()
            await tell(one.pool, jobs=[here])
            await heard.wait(10)
            async with wakeup.job(here) as signal, wakeup.job(elsewhere) as other:
                assert (signal.is_set(), other.is_set()) == (True, False)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
