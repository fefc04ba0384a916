"""The plain road, station by station: a slow document, a forced error, and a dispatcher that comes later than the job."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from deedbox.dispatch.loop import Dispatcher
from deedbox.extend.connector import Capability, EffectOrder, LookUp, Outcome, Receipt
from deedbox.extend.context import Context
from deedbox.extend.document import Document
from deedbox.extend.registry import App
from deedbox.gate.decide import decide
from deedbox.intake.request import Request, Upload
from deedbox.model.failure import ActionFailure
from deedbox.model.policy import allow, hold
from tests.database import TestDatabase
from tests.road import road

pytestmark = pytest.mark.anyio


class Letter(BaseModel):
    """An uploaded letter."""

    file: Document


class Counted(BaseModel):
    """How long it was, and where it is."""

    size: int
    source: str


class Nothing(BaseModel):
    """No input."""


class Wall:
    """A connector that writes down what it performed."""

    name = "wall"
    payload_model: type[BaseModel] = Nothing

    def __init__(self) -> None:
        self.sent: list[str] = []

    def check_target(self, target: str) -> None:
        """Any target."""

    def check_plan(self, target: str, payload: Mapping[str, Any]) -> None:
        """Any plan."""

    def describe(self, target: str, payload: Mapping[str, Any]) -> str:  # noqa: ARG002 -- the protocol's signature
        """One sentence."""
        return f"Writes on {target}."

    def capability(self, target: str) -> Capability:  # noqa: ARG002 -- the protocol's signature
        """Cannot be asked."""
        return "blind"

    async def send(self, order: EffectOrder) -> Outcome:
        """Write it down."""
        self.sent.append(order.effect_id)
        return Receipt(f"wall-{order.slot}")

    async def look_up(self, order: EffectOrder) -> LookUp:  # noqa: ARG002 -- the protocol's signature
        """Cannot be asked."""
        return LookUp("still_unknown")


async def test_a_slow_document_is_queued_then_running_then_completed_with_its_source(database: TestDatabase) -> None:
    app, started, go = App(), asyncio.Event(), asyncio.Event()

    @app.action(roles=["operator"], policy=allow())
    async def count_letter(ctx: Context, letter: Letter) -> Counted:
        content = await ctx.document(letter.file)
        started.set()
        await go.wait()
        return Counted(size=len(content), source=letter.file.url)

    async with road(database, app) as one:
        upload = Upload("Brief ä.txt", "text/plain", "Grüße".encode())
        job = await one.intake.submit(Request(one.caller, "count_letter", {}, "letter-1", "http", {"file": [upload]}))
        assert await one.state(job.job_id) == "queued"
        assert await database.value("SELECT count(*) FROM deedbox.document") == 1
        one.start(one.worker())
        await started.wait()
        assert await one.state(job.job_id) == "running"
        go.set()
        await one.until(job.job_id, "completed")
        output: Any = await database.value("SELECT output::text FROM deedbox.result")
        document_id = await database.value("SELECT document_id FROM deedbox.job_document")
        assert json.loads(output) == {"size": 7, "source": f"http://127.0.0.1:8484/api/documents/{document_id}"}


async def test_a_forced_error_ends_with_its_code(database: TestDatabase) -> None:
    app = App()

    @app.action(roles=["operator"], policy=allow(), key="new")
    async def always_fails(ctx: Context, given: Nothing) -> Nothing:
        raise ActionFailure("caller_error", "no_such_customer", f"No customer for {ctx.tenant} in {given!r}.")

    async with road(database, app) as one:
        job = await one.submit("always_fails", {})
        one.start(one.worker())
        await one.until(job.job_id, "failed_terminal")
        assert await database.value("SELECT code FROM deedbox.result") == "no_such_customer"
        assert (await one.events(job.job_id))[-1][1] == "job.failed"


async def test_a_dispatcher_that_comes_later_finds_the_approved_effect(database: TestDatabase) -> None:
    wall = Wall()
    app = App(connectors=[wall])

    @app.action(roles=["operator"], approvers=["manager"], policy=hold(), key="new")
    async def write_wall(ctx: Context, given: Nothing) -> Nothing:
        ctx.effect("wall", target="north", slot="line", payload=given)
        return given

    await database.rows("UPDATE deedbox.switch SET is_on = true WHERE switch_id = 'acts'")
    async with road(database, app) as one:
        job = await one.submit("write_wall", {})
        one.start(one.worker())
        await one.until(job.job_id, "awaiting_human")
        row = (await database.rows("SELECT approval_id, encode(digest, 'hex') FROM deedbox.approval"))[0]
        await decide(
            one.pool,
            one.ids,
            one.approver,
            approval_id=UUID(str(row[0])),
            digest_hex=str(row[1]),
            choice="approve",
            reason=None,
            how="test",
        )
        assert await one.state(job.job_id) == "dispatching"
        assert wall.sent == []
        one.start(Dispatcher(one.pool, one.ids, app.connectors, environment_on=True))
        await one.until(job.job_id, "completed")
        assert len(wall.sent) == 1
        assert await database.value("SELECT provider_id FROM deedbox.receipt") == "wall-line"
        types = [kind for _, kind in await one.events(job.job_id)]
        assert types[-4:] == ["job.dispatching", "effect.sending", "effect.completed", "job.completed"]
