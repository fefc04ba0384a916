"""The three patterns, as the examples have them, against a provider that is really called, with dispatchers at full speed."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from deedbox.connectors import ConnectorSettings, HttpTargetConfig
from deedbox.connectors.settings import Bindable
from deedbox.dispatch.loop import Dispatcher
from deedbox.egress import EgressPolicy
from deedbox.extend.registry import App
from deedbox.gate.decide import decide
from deedbox.operate.verbs import Verbs
from examples.patterns import approve_first, by_exception, cancel_window
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import Road, road
from tests.servers.http_provider import HttpProvider

pytestmark = pytest.mark.anyio

LOOKS = 25


class Racing:
    """Dispatchers that look for something to send without a pause."""

    def __init__(self, one: Road, count: int = 2) -> None:
        self._ways = [Dispatcher(one.pool, one.ids, one.app.connectors, environment_on=True) for _ in range(count)]
        self._looked = asyncio.Condition()
        self.looks = 0
        self.sent = 0

    async def run(self) -> None:
        """Go on until canceled."""
        await asyncio.gather(*(self._one(way) for way in self._ways))

    async def _one(self, way: Dispatcher) -> None:
        while True:
            self.sent += await way.once()
            async with self._looked:
                self.looks += 1
                self._looked.notify_all()

    async def looked_again(self) -> None:
        """Wait until everybody has looked many times more, each look begun after this call."""
        wanted = self.looks + LOOKS
        async with asyncio.timeout(60), self._looked:
            await self._looked.wait_for(lambda: self.looks >= wanted)

    async def until_sent(self, count: int) -> None:
        """Wait until so many have been sent."""
        async with asyncio.timeout(60), self._looked:
            await self._looked.wait_for(lambda: self.sent >= count)


@asynccontextmanager
async def racing(database: TestDatabase, app: App) -> AsyncGenerator[tuple[Road, HttpProvider, Racing]]:
    """The app on a road with its switch on, a provider, a worker, and dispatchers that never rest."""
    async with HttpProvider().running() as provider, road(database, app) as one:
        target = HttpTargetConfig(name="crm", base_url=provider.url, capability="blind")
        for connector in app.connectors.values():
            assert isinstance(connector, Bindable)
            connector.bind(ConnectorSettings(http=(target,)), EgressPolicy(frozenset({"127.0.0.1"})))
        await database.rows("UPDATE deedbox.switch SET is_on = true WHERE switch_id = 'acts'")
        one.start(one.worker())
        race = Racing(one)
        running = asyncio.create_task(race.run())
        try:
            yield one, provider, race
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            for connector in app.connectors.values():
                assert isinstance(connector, Bindable)
                await connector.aclose()


async def approve(one: Road, job_id: UUID) -> None:
    """Decide the one approval of a job that is open."""
    ((approval_id, digest),) = await one.database.rows(
        "SELECT approval_id, encode(digest, 'hex') FROM deedbox.approval WHERE job_id = %s AND state = 'pending'", job_id
    )
    await decide(
        one.pool,
        one.ids,
        one.approver,
        approval_id=UUID(str(approval_id)),
        digest_hex=str(digest),
        choice="approve",
        reason=None,
        how="test",
    )


def bodies(provider: HttpProvider) -> list[Any]:
    """What arrived."""
    return [json.loads(request.body) for request in provider.requests]


@proves("G-HOLD")
async def test_approve_before_act(database: TestDatabase) -> None:
    async with racing(database, approve_first.app) as (one, provider, race):
        job = await one.submit("refund_customer", {"customer": "C-1", "amount": 30}, "k")
        await one.until(job.job_id, "awaiting_human")
        await race.looked_again()
        await database.shift_clock(4 * 3600 - 5)
        await race.looked_again()
        assert bodies(provider) == []
        await approve(one, job.job_id)
        await one.until(job.job_id, "completed")
        assert bodies(provider) == [{"customer": "C-1", "amount": 30}]


@proves("G-INPUT-HELD")
async def test_approve_the_arguments_and_then_the_act(database: TestDatabase) -> None:
    async with racing(database, approve_first.app) as (one, provider, race):
        job = await one.submit("close_account", {"customer": "C-1", "amount": 30}, "k")
        await race.looked_again()
        assert await database.value("SELECT count(*) FROM deedbox.proposal") == 0
        await approve(one, job.job_id)
        await one.until(job.job_id, "awaiting_human")
        await race.looked_again()
        assert bodies(provider) == []
        await approve(one, job.job_id)
        await one.until(job.job_id, "completed")
        assert bodies(provider) == [{"closed": True}]


@proves("G-CANCEL-WINDOW")
async def test_act_with_a_cancel_window(database: TestDatabase) -> None:
    async with racing(database, cancel_window.app) as (one, provider, race):
        first = await one.submit("keep_note", {"customer": "C-1", "note": "kept"}, "k1")
        second = await one.submit("keep_note", {"customer": "C-2", "note": "not kept"}, "k2")
        for job in (first, second):
            await one.until(job.job_id, "dispatching")
        opens = "SELECT extract(epoch FROM max(opens_at) - statement_timestamp())::float8 FROM deedbox.verdict"
        first_opens = opens.replace("max", "min")
        await race.looked_again()
        await database.shift_clock(float(str(await database.value(first_opens))) - 2)
        await race.looked_again()
        assert bodies(provider) == []
        effect_id = await database.value("SELECT effect_id FROM deedbox.effect WHERE job_id = %s", second.job_id)
        verbs = Verbs(one.pool, one.ids, one.app.connectors)
        await verbs.effect_verb(one.approver, UUID(str(effect_id)), "cancel", reason="another customer")
        assert await one.state(second.job_id) == "canceled"
        await database.shift_clock(float(str(await database.value(opens))) + 1)
        await race.until_sent(1)
        await one.until(first.job_id, "completed")
        await race.looked_again()
        assert bodies(provider) == [{"customer": "C-1", "text": "kept"}]


@proves("G-SAMPLE-DRAWN-ONCE")
async def test_approve_by_exception(database: TestDatabase) -> None:
    async with racing(database, by_exception.app) as (one, provider, race):
        jobs = [await one.submit("sort_ticket", {"ticket": f"T-{n}", "queue": "billing"}, f"k{n}") for n in range(40)]
        strange = await one.submit("sort_ticket", {"ticket": "T-x", "queue": "the boss"}, "kx")
        states = [await one.until(job.job_id, "awaiting_human", "completed", within=60) for job in jobs]
        await one.until(strange.job_id, "awaiting_human")
        await race.looked_again()
        drawn = [job for job, state in zip(jobs, states, strict=True) if state == "awaiting_human"]
        # Who was drawn is between the secret and the job; that they wait and the others have left is for all to see.
        rows = await database.rows("SELECT job_id FROM deedbox.verdict WHERE drawn")
        assert {UUID(str(row[0])) for row in rows} == {job.job_id for job in drawn}
        assert len(bodies(provider)) == len(jobs) - len(drawn)
        for job in drawn:
            await approve(one, job.job_id)
            await one.until(job.job_id, "completed")
        assert {body["ticket"] for body in bodies(provider)} == {f"T-{n}" for n in range(40)}
