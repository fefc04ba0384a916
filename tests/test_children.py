"""An action that starts another as its effect: held like any other, done once, with parent and trace."""

import asyncio
from uuid import UUID

import pytest
from pydantic import BaseModel

from deedbox.connectors.submit import Submit
from deedbox.dispatch.loop import Dispatcher
from deedbox.extend.connector import EffectOrder, Receipt, Refused
from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.intake.child import ChildIntake
from deedbox.intake.request import Request
from deedbox.model.policy import allow, hold
from deedbox.store import switch
from deedbox.store.transaction import transaction
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import Road, road
from tests.test_gate import say

pytestmark = pytest.mark.anyio
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Order(BaseModel):
    number: int = 0
    action: str = "pack_parcel"


class Done(BaseModel):
    number: int = 0


def make_app() -> App:
    app = App(connectors=[Submit()])

    @app.action(roles=["operator"], approvers=["manager"], policy=hold(expires="1h"))
    async def take_order(ctx: Context, order: Order) -> Done:
        ctx.effect("submit", target=order.action, slot="pack", payload={"input": {"number": order.number}})
        return Done(number=order.number)

    @app.action(roles=["operator"], policy=allow())
    async def pack_parcel(_ctx: Context, order: Order) -> Done:
        return Done(number=order.number)

    assert len(app.actions) == 2, (take_order, pack_parcel)
    return app


def lend(one: Road) -> Submit:
    connector = one.app.connectors["submit"]
    assert isinstance(connector, Submit)
    connector.take_submitter(ChildIntake(one.pool, one.app.actions, one.intake))
    return connector


async def approve(one: Road, job_id: UUID) -> None:
    await one.until(job_id, "awaiting_human")
    rows = await one.database.rows("SELECT approval_id, encode(digest, 'hex') FROM deedbox.approval WHERE job_id = %s", job_id)
    assert await say(one, (UUID(str(rows[0][0])), str(rows[0][1]))) == "approved"


@proves("G-CHILD-ONCE")
async def test_an_approved_effect_starts_the_other_action_once_with_parent_and_trace(database: TestDatabase) -> None:
    async with road(database, make_app()) as one:
        connector = lend(one)
        async with transaction(one.pool) as connection:
            await switch.turn_root(connection, "acts", is_on=True, changed_by="test", reason="a test")
        parent = await one.intake.submit(Request(one.caller, "take_order", {"number": 7}, "k", "http", trace=TRACE))
        one.start(one.worker())
        await approve(one, parent.job_id)
        assert await database.value("SELECT count(*) FROM deedbox.job") == 1
        one.start(Dispatcher(one.pool, one.ids, one.app.connectors, environment_on=True))
        await one.until(parent.job_id, "completed")
        rows = await database.rows(
            "SELECT job_id, key_source, subject, trace, source, (SELECT provider_id FROM deedbox.receipt)"
            " FROM deedbox.job WHERE parent_job_id = %s",
            parent.job_id,
        )
        assert len(rows) == 1
        child = UUID(str(rows[0][0]))
        assert rows[0][1:] == ("slot", UUID(one.caller.principal_id), TRACE, "job", str(child))
        await one.until(child, "completed")
        # The same effect sent again, ten times at once, is the same job.
        effect_id = str(await database.value("SELECT effect_id FROM deedbox.effect"))
        order = EffectOrder(
            effect_id=effect_id,
            job_id=str(parent.job_id),
            tenant="default",
            connector="submit",
            target="pack_parcel",
            slot="pack",
            payload={"input": {"number": 7}},
            attempt=2,
            deadline_s=5,
        )
        answers = await asyncio.gather(*(connector.send(order) for _ in range(10)))
        assert {answer.provider_id for answer in answers if isinstance(answer, Receipt)} == {str(child)}
        assert (await connector.look_up(order)).provider_id == str(child)
        assert await database.value("SELECT count(*) FROM deedbox.job") == 2


async def test_an_action_that_is_not_there_is_refused_when_it_is_planned(database: TestDatabase) -> None:
    async with road(database, make_app()) as one:
        lend(one)
        parent = await one.submit("take_order", {"action": "paint_parcel"}, "k")
        one.start(one.worker())
        await one.until(parent.job_id, "failed_terminal")
        rows = await database.rows("SELECT class, code, message FROM deedbox.result")
        assert rows[0][0] == "bug"
        assert "paint_parcel" in str(rows[0][2]), rows
        assert await database.value("SELECT count(*) FROM deedbox.approval") == 0


async def test_nothing_runs_for_somebody_who_was_shut_out_meanwhile(database: TestDatabase) -> None:
    async with road(database, make_app()) as one:
        connector = lend(one)
        parent = await one.submit("take_order", {}, "k")
        await database.rows("UPDATE deedbox.principal SET disabled_at = deedbox.clock() WHERE name = 'caller'")
        order = EffectOrder(
            effect_id="e",
            job_id=str(parent.job_id),
            tenant="default",
            connector="submit",
            target="pack_parcel",
            slot="pack",
            payload={"input": {}},
            attempt=1,
            deadline_s=5,
        )
        answer = await connector.send(order)
        assert isinstance(answer, Refused)
        assert answer.failure_class == "denied"
        assert (await connector.look_up(order)).verdict == "not_accepted"
