"""What the switch stops while it is off, wherever an effect or its job stands then, and what goes on when it is on again."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from deedbox.dispatch.loop import Dispatcher
from deedbox.extend.connector import EffectOrder, Outcome, Receipt
from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.model.backoff import Retry
from deedbox.model.failure import ActionFailure
from deedbox.model.policy import rules
from deedbox.operate.rounds import Rounds
from deedbox.operate.verbs import Verbs
from deedbox.store.switch import Narrow
from tests.builders import Outbox, Planned, outbox_on, principal
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import Road, road
from tests.ruled import Bank, Draft, Refunds, approvals, say, small

pytestmark = pytest.mark.anyio

PARTS = {
    "everything": None,
    "its tenant": Narrow(tenant="default"),
    "its action": Narrow(action="send_note"),
    "its connector": Narrow(connector="note"),
    "its target": Narrow(connector="note", target="desk"),
}


@pytest.fixture
async def box(database: TestDatabase) -> AsyncIterator[Outbox]:
    async with outbox_on(database) as made:
        yield made


async def turn(box: Outbox, part: Narrow | None, *, on: bool) -> None:
    await box.verbs().set_switch(principal(box.ids, "manager"), on, "an incident", "api", narrow=part)


@proves("G-SWITCH-MEANWHILE")
@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
async def test_queued_it_stays_and_leaves_once_when_the_switch_is_on(box: Outbox, part: Narrow | None) -> None:
    built = await box.build(Planned())
    await turn(box, part, on=False)
    assert await asyncio.gather(*(box.dispatcher().once() for _ in range(4))) == [0] * 4
    assert (box.connector.sent, await box.state(built.effect_id)) == ([], "pending")
    await turn(box, part, on=True)
    assert sum(await asyncio.gather(*(box.dispatcher().once() for _ in range(4)))) == 1
    assert ([order.slot for order in box.connector.sent], await box.state(built.effect_id)) == (["first"], "completed")


@proves("G-SWITCH-MEANWHILE")
@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
async def test_leased_it_is_given_back_unsent_and_leaves_once_later(
    box: Outbox, part: Narrow | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = await box.build(Planned())
    monkeypatch.setattr("deedbox.dispatch.switch.TRUST_S", -1.0)
    dispatcher = box.dispatcher()
    declare = dispatcher._declare  # pyright: ignore[reportPrivateUsage]

    async def meanwhile(*given: Any) -> None:
        assert await box.state(built.effect_id) == "sending"
        await turn(box, part, on=False)
        await declare(*given)

    monkeypatch.setattr(dispatcher, "_declare", meanwhile)
    assert await dispatcher.once() == 1
    assert (box.connector.sent, await box.state(built.effect_id)) == ([], "pending")
    assert await box.dispatcher().once() == 0
    await turn(box, part, on=True)
    assert await box.dispatcher().once() == 1
    assert ([order.slot for order in box.connector.sent], await box.state(built.effect_id)) == (["first"], "completed")


@proves("G-SWITCH-MEANWHILE")
@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
async def test_on_the_wire_it_lands_and_is_counted_until_then_and_its_successor_stays(box: Outbox, part: Narrow | None) -> None:
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def slow(order: EffectOrder) -> Outcome:
        arrived.set()
        await go_on.wait()
        return Receipt(f"provider-{order.slot}")

    box.connector.script.append(slow)
    built = await box.build(Planned("first"), Planned("second", after="first"))
    sending = asyncio.create_task(box.dispatcher().once())
    await arrived.wait()
    await turn(box, part, on=False)
    assert await box.verbs().in_flight(part or Narrow()) == 1
    go_on.set()
    await sending
    assert await box.verbs().in_flight(part or Narrow()) == 0
    assert [await box.state(effect_id) for effect_id in built.effects.values()] == ["completed", "pending"]
    assert await box.dispatcher().once() == 0
    await turn(box, part, on=True)
    assert await box.dispatcher().once() == 1
    assert [order.slot for order in box.connector.sent] == ["first", "second"]


class Desk:
    """An application whose handler fails, waits or goes on as it is told."""

    def __init__(self) -> None:
        self.app = App(connectors=[Bank()])
        self.down = False
        self.began = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

        @self.app.action(
            roles=["operator"], approvers=["manager"], policy=rules(small()), retry=Retry(attempts=1), again=["operator"]
        )
        async def refund_customer(ctx: Context, given: Refunds) -> Draft:
            self.began.set()
            await self.go_on.wait()
            if self.down:
                raise ActionFailure("overloaded", "provider_down", "The provider is down.")
            for want in given.wants:
                ctx.effect("bank", target="till", slot=want.slot, payload={"amount": want.amount})
            return Draft()

        assert list(self.app.actions) == ["refund_customer"], refund_customer

    @property
    def sent(self) -> list[str]:
        """What the bank did."""
        bank = self.app.connectors["bank"]
        assert isinstance(bank, Bank)
        return bank.sent


@asynccontextmanager
async def desk_on(database: TestDatabase) -> AsyncGenerator[tuple[Desk, Road]]:
    desk = Desk()
    async with road(database, desk.app) as one:
        await database.rows("UPDATE deedbox.switch SET is_on = true WHERE switch_id = 'acts'")
        one.start(one.worker())
        yield desk, one


async def switch(one: Road, part: Narrow | None, *, on: bool) -> None:
    verbs = Verbs(one.pool, one.ids, one.app.connectors, environment_on=True)
    await verbs.set_switch(one.approver, on, "an incident", "api", narrow=part)


async def stays_then_leaves(desk: Desk, one: Road, job_id: UUID, part: Narrow | None) -> None:
    """Nothing leaves while it is off, whoever looks and however long; then it leaves, once."""
    ways = [Dispatcher(one.pool, one.ids, desk.app.connectors, environment_on=True) for _ in range(3)]
    await one.until(job_id, "dispatching")
    assert await asyncio.gather(*(way.once() for way in ways)) == [0, 0, 0]
    states = "SELECT array_agg(DISTINCT state) FROM deedbox.effect WHERE job_id = %s"
    assert (desk.sent, await one.database.value(states, job_id)) == ([], ["pending"])
    await switch(one, part, on=True)
    await asyncio.gather(*(way.once() for way in ways))
    await one.until(job_id, "completed")
    assert desk.sent == ["one"]


JOB_PARTS = {
    "everything": None,
    "its action": Narrow(action="refund_customer"),
    "its target": Narrow(None, None, "bank", "till"),
}


@proves("G-SWITCH-MEANWHILE")
@pytest.mark.parametrize("part", JOB_PARTS.values(), ids=JOB_PARTS)
@pytest.mark.parametrize("by", ["an operator", "a delivery"])
async def test_a_job_taken_up_while_it_is_off_runs_and_sends_nothing(
    database: TestDatabase, part: Narrow | None, by: str
) -> None:
    async with desk_on(database) as (desk, one):
        desk.down = True
        body = Refunds().model_dump(mode="json")
        job_id = (await one.submit("refund_customer", body, "k")).job_id
        await one.until(job_id, "failed_retryable")
        await switch(one, part, on=False)
        desk.down = False
        if by == "an operator":
            await Rounds(one.pool, one.ids, one.app.actions, one.intake).take_up(one.caller, job_id, "The provider is back.")
        else:
            await database.shift_clock(3600)
            assert (await one.submit("refund_customer", body, "k")).job_id == job_id
        await stays_then_leaves(desk, one, job_id, part)


@proves("G-SWITCH-MEANWHILE")
@pytest.mark.parametrize("part", JOB_PARTS.values(), ids=JOB_PARTS)
async def test_a_job_approved_while_it_is_off_sends_nothing(database: TestDatabase, part: Narrow | None) -> None:
    async with desk_on(database) as (desk, one):
        body = Refunds.model_validate({"wants": [{"amount": 500}]}).model_dump(mode="json")
        job_id = (await one.submit("refund_customer", body, "k")).job_id
        await one.until(job_id, "awaiting_human")
        await switch(one, part, on=False)
        assert await say(one, (await approvals(one, job_id))["default"]) == "approved"
        await stays_then_leaves(desk, one, job_id, part)


@proves("G-SWITCH-MEANWHILE")
@pytest.mark.parametrize("part", JOB_PARTS.values(), ids=JOB_PARTS)
async def test_a_job_that_reports_while_it_is_off_sends_nothing(database: TestDatabase, part: Narrow | None) -> None:
    async with desk_on(database) as (desk, one):
        desk.go_on.clear()
        job_id = (await one.submit("refund_customer", Refunds().model_dump(mode="json"), "k")).job_id
        await desk.began.wait()
        await switch(one, part, on=False)
        desk.go_on.set()
        await stays_then_leaves(desk, one, job_id, part)
