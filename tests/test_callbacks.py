"""Callbacks from the commit of an event to its receiver: once each, again when lost, never at a job's expense."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from deedbox.connectors import Callback, ConnectorSettings
from deedbox.connectors.signing import verify
from deedbox.dispatch.callbacks import Callbacks
from deedbox.dispatch.loop import Dispatcher
from deedbox.egress import EgressPolicy
from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.intake.request import Request
from deedbox.intake.submit import Intake
from deedbox.model.backoff import Retry
from deedbox.model.errors import DeedboxError
from deedbox.model.failure import ActionFailure
from deedbox.model.policy import allow, hold
from deedbox.operate.callbacks import Callbacks as Desk
from deedbox.operate.verbs import Verbs
from deedbox.store import outbox
from deedbox.store.transaction import transaction
from deedbox.testing import CallbackReceiver
from tests.builders import ScriptedConnector
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import Road, principal, road, until

pytestmark = pytest.mark.anyio

OLD, NEW = ("whsec_" + base64.b64encode(letter * 32).decode() for letter in (b"o", b"n"))
POLICY = EgressPolicy(frozenset({"127.0.0.1"}))
DEFAULT = frozenset({"job.completed", "job.failed", "job.canceled", "job.awaiting_human"})


class Note(BaseModel):
    """What is noted."""

    text: str = ""


def desk() -> App:
    app = App(connectors=[ScriptedConnector()])
    retry = Retry(attempts=1)

    @app.action(roles=["operator"], policy=allow(), key="new", callback="shop", retry=retry)
    async def note_thing(_ctx: Context, note: Note) -> Note:
        """Note a thing."""
        if note.text == "later":
            raise ActionFailure("overloaded", "busy", "Not now.")
        return note

    @app.action(roles=["operator"], approvers=["manager"], policy=hold(expires="1h"), key="new", retry=retry)
    async def send_note(ctx: Context, note: Note) -> Note:
        """Send a note."""
        ctx.effect("note", target="someone", slot="note", payload={"text": note.text})
        return note

    return app


@dataclass
class House:
    """A road with a receiver at its side."""

    road: Road
    receiver: CallbackReceiver
    connector: Callback
    desk: Desk

    def dispatcher(self, **options: Any) -> Dispatcher:
        return Dispatcher(
            self.road.pool, self.road.ids, {"callback": self.connector}, environment_on=False, wake=asyncio.Event(), **options
        )

    def pump(self, wanted: frozenset[str] = DEFAULT) -> Callbacks:
        return Callbacks(self.road.pool, self.road.ids, {"shop": wanted})

    async def submit(self, action: str = "note_thing", text: str = "hello", callback: str | None = None) -> UUID:
        request = Request(self.road.caller, action, {"text": text}, None, "http", callback=callback)
        return (await self.road.intake.submit(request)).job_id

    async def ended(self, *given: Any, state: str = "completed", **more: Any) -> UUID:
        job_id = await self.submit(*given, **more)
        stop = self.road.start(self.road.worker())
        await self.road.until(job_id, state)
        stop.set()
        return job_id

    async def deliver(self) -> int:
        """Put what is new on the outbox and send it, once."""
        await self.pump().once()
        return await self.dispatcher().once()

    async def states(self) -> list[tuple[str, str | None]]:
        rows = await self.road.database.rows("SELECT state, code FROM deedbox.effect WHERE kind = 'notice' ORDER BY effect_id")
        return [(str(row[0]), None if row[1] is None else str(row[1])) for row in rows]

    async def marks(self) -> int:
        return int(str(await self.road.database.value("SELECT count(*) FROM deedbox.callback")))


@pytest.fixture
async def house(database: TestDatabase) -> AsyncIterator[House]:
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(road(database, desk(), callbacks=["shop"]))
        receiver = CallbackReceiver(secrets=(NEW,))
        await stack.enter_async_context(receiver.running())
        connector = Callback()
        shop = {"name": "shop", "url": f"{receiver.url}/hooks?from=deedbox", "secrets": [OLD, NEW]}
        connector.bind(ConnectorSettings.model_validate({"callbacks": [shop]}), POLICY)
        stack.push_async_callback(connector.aclose)
        yield House(one, receiver, connector, Desk(one.pool, one.ids))


async def event_ids(house: House, job_id: UUID, *types: str) -> list[str]:
    rows = await house.road.database.rows(
        "SELECT event_id FROM deedbox.event WHERE job_id = %s AND type = ANY (%s) ORDER BY seq", job_id, list(types)
    )
    return [str(row[0]) for row in rows]


@proves("G-CALLBACK", "G-SIGNED")
async def test_a_job_that_ended_is_told_once_signed_with_both_secrets_and_with_the_events_own_id(house: House):
    job_id = await house.ended()
    assert await house.deliver() == 1
    (request,) = house.receiver.requests
    told = json.loads(request.body)
    assert [told["event_id"]] == await event_ids(house, job_id, "job.completed")
    assert (told["type"], told["job_id"], told["action"]) == ("job.completed", str(job_id), "note_thing")
    assert "result" not in told["payload"]
    for secret in (OLD, NEW):
        assert verify([secret], request.headers, request.body) == told["event_id"]
    assert request.target == "/hooks?from=deedbox"
    assert await house.deliver() == 0
    assert await house.marks() == 0
    # It is no part of the job's history.
    assert [kind for _, kind in await house.road.events(job_id)] == ["job.queued", "job.started", "job.completed"]


@proves("G-CALLBACK")
async def test_several_that_put_callbacks_on_the_outbox_put_each_there_once(house: House):
    for _ in range(8):
        await house.submit()
    stop = house.road.start(house.road.worker())
    pumps = [house.pump() for _ in range(3)]
    for _ in range(40):
        await asyncio.gather(*(pump.once() for pump in pumps))
        if await house.marks() == 0:
            break
    stop.set()
    assert await house.marks() == 0
    await house.dispatcher().once()
    ids = [event["event_id"] for event in house.receiver.events]
    assert len(ids) == len(set(ids)) == len(house.receiver.requests) == 8


@proves("G-CALLBACK")
async def test_what_waits_for_a_person_is_told_and_then_its_end(house: House):
    job_id = await house.ended("send_note", callback="shop", state="awaiting_human")
    await house.deliver()
    assert [event["type"] for event in house.receiver.events] == ["job.awaiting_human"]
    assert await house.marks() == 1
    verbs = Verbs(house.road.pool, house.road.ids, house.road.app.connectors, environment_on=False)
    await verbs.cancel_job(house.road.caller, job_id, "not needed", door="api")
    await house.deliver()
    assert [event["type"] for event in house.receiver.events] == ["job.awaiting_human", "job.canceled"]
    assert [event["seq"] for event in house.receiver.events] == sorted(event["seq"] for event in house.receiver.events)
    assert await house.marks() == 0


@proves("G-CALLBACK")
async def test_a_parked_job_is_told_and_followed_into_its_next_round(house: House):
    job_id = await house.ended(text="later", state="failed_retryable")
    await house.deliver()
    assert [(event["type"], event["round"]) for event in house.receiver.events] == [("job.failed", 1)]
    assert await house.marks() == 1
    assert await house.road.state(job_id) == "failed_retryable"


@proves("G-CALLBACK", "G-CALLBACK-ONCE")
async def test_whatever_becomes_of_a_callback_it_is_sent_again_with_the_same_bytes_and_the_job_does_not_change(house: House):
    job_id = await house.ended()
    house.receiver.faults.extend(["accept_then_503", "accept_then_reset", "accept_as_307", "rate_limited"])
    await house.pump().once()
    async with house.receiver.away():
        await house.dispatcher().once()
    for number in range(1, 6):
        assert [state for state, _ in await house.states()] == ["pending"]
        await house.road.database.shift_clock(number * 6 * 3600)
        # Its time is a day; the clock that is moved is the database's alone.
        await house.road.database.rows("UPDATE deedbox.effect SET not_after = deedbox.clock() + interval '1 day'")
        await house.dispatcher().once()
    assert [state for state, _ in await house.states()] == ["completed"]
    requests = house.receiver.requests
    assert len(requests) == 5
    assert len({request.body for request in requests}) == len({request.headers["webhook-id"] for request in requests}) == 1
    assert len(house.receiver.events) == 1
    assert await house.road.state(job_id) == "completed"
    assert await house.road.database.value("SELECT count(*) FROM deedbox.alert") == 0


@proves("G-CALLBACK-ONCE")
async def test_a_sender_that_is_killed_while_it_tells_is_replaced(house: House):
    await house.ended()
    await house.deliver()
    await house.ended()
    await house.pump().once()
    async with transaction(house.road.pool) as connection:
        leased = await outbox.lease(
            connection,
            environment_on=False,
            connectors=["callback"],
            sender="killed",
            lease_s=5,
            event_ids=house.road.ids.many(1),
        )
    assert len(leased) == 1
    await house.road.database.shift_clock(6)
    async with transaction(house.road.pool) as connection:
        await outbox.rescue_sendings(connection, house.road.ids)
    await house.road.database.shift_clock(60)
    assert await house.dispatcher().once() == 1
    assert [state for state, _ in await house.states()] == ["completed", "completed"]


@proves("G-CALLBACK-GONE")
async def test_a_receiver_that_answers_410_is_told_no_more_until_a_person_enables_it_and_then_what_it_missed(house: House):
    job_id = await house.ended()
    house.receiver.faults.append("refuse")
    await house.deliver()
    assert await house.states() == [("failed", "target_gone")]
    assert await house.road.state(job_id) == "completed"
    (alert,) = await house.road.database.rows("SELECT cause, message FROM deedbox.alert")
    assert alert[0] == "target_disabled"
    assert "callback/shop" in str(alert[1])
    later = await house.ended()
    assert await house.deliver() == 0
    assert len(house.receiver.requests) == 1
    manager = await principal(house.road.database, house.road.ids, "boss", "person", "admin")
    (out,) = await house.desk.disabled(manager)
    assert (out.target, "410" in out.reason) == ("shop", True)
    with pytest.raises(DeedboxError, match="role that may switch"):
        await house.desk.enable(house.road.caller, "shop", "they asked")
    await house.desk.enable(manager, "shop", "they asked for it")
    assert await house.desk.disabled(manager) == []
    assert await house.dispatcher().once() == 1
    assert [event["job_id"] for event in house.receiver.events] == [str(later)]
    assert (await house.desk.replay(manager, job_id=job_id)).replayed == 1
    assert await house.dispatcher().once() == 1
    assert [event["job_id"] for event in house.receiver.events] == [str(later), str(job_id)]
    with pytest.raises(DeedboxError, match="no disabled receiver"):
        await house.desk.enable(manager, "shop", "again")


@proves("G-CALLBACK-GONE")
async def test_what_was_told_since_a_moment_can_be_asked_for_and_told_again_under_the_same_ids(house: House):
    first = await house.ended()
    await house.deliver()
    since = await house.road.database.value("SELECT deedbox.clock()")
    await house.road.database.shift_clock(60)
    second = await house.ended()
    await house.deliver()
    mine = house.road.caller
    page = await house.desk.listed(mine)
    assert [(line.job_id, line.state, line.type) for line in page.callbacks] == [
        (first, "completed", "job.completed"),
        (second, "completed", "job.completed"),
    ]
    assert page.cursor is None
    found = await house.desk.listed(mine, since=since)  # type: ignore[arg-type] -- a time, as the database gives it
    assert [line.job_id for line in found.callbacks] == [second]
    assert found.callbacks[0].event == house.receiver.events[1]
    one = await house.desk.listed(mine, limit=1)
    assert one.cursor is not None
    assert [line.job_id for line in (await house.desk.listed(mine, after=one.cursor)).callbacks] == [second]
    for _ in range(2):
        done = await house.desk.replay(mine, since=since)  # type: ignore[arg-type] -- as above
        assert (done.replayed, done.cursor) == (1, None)
    assert await house.dispatcher().once() == 2
    ids = [request.headers["webhook-id"] for request in house.receiver.requests]
    assert ids[1:] == [ids[1]] * 3
    assert len(house.receiver.events) == 2
    stranger = await principal(house.road.database, house.road.ids, "stranger", "service", "operator")
    assert (await house.desk.listed(stranger)).callbacks == []
    assert (await house.desk.replay(stranger, since=since)).replayed == 0  # type: ignore[arg-type] -- as above
    with pytest.raises(DeedboxError, match="Say since when"):
        await house.desk.replay(mine)


async def test_only_a_registered_receiver_can_be_named_and_a_url_never(house: House):
    for wrong in ("nobody", "https://evil.example/hook", ""):
        with pytest.raises(DeedboxError) as refused:
            await house.submit(callback=wrong)
        assert refused.value.code == "invalid_input"
        assert [problem.pointer for problem in refused.value.problems] == ["/callback"]
    assert await house.road.database.value("SELECT count(*) FROM deedbox.job") == 0
    with pytest.raises(ValueError, match="note_thing: no receiver of callbacks"):
        Intake(house.road.pool, house.road.ids, house.road.app.actions, public_url="http://x", max_waiting=1)


async def test_a_receiver_that_settings_lost_is_waited_for(house: House):
    await house.ended()
    assert await Callbacks(house.road.pool, house.road.ids, {"other": DEFAULT}).once() == 0
    assert await house.marks() == 1
    assert await house.pump().once() == 1
    assert await house.marks() == 0


async def test_a_receiver_is_told_what_it_wants_to_hear_and_no_more(house: House):
    job_id = await house.ended()
    assert await house.pump(frozenset({"job.queued", "job.started"})).once() == 2
    await house.dispatcher().once()
    wanted = await event_ids(house, job_id, "job.queued", "job.started")
    assert sorted(event["event_id"] for event in house.receiver.events) == sorted(wanted)
    assert await house.marks() == 0


async def test_the_loop_puts_callbacks_on_the_outbox_soon_after_it_was_woken(house: House):
    wake, stop = asyncio.Event(), asyncio.Event()
    loop = Callbacks(house.road.pool, house.road.ids, {"shop": DEFAULT}, wake=wake)
    running = asyncio.create_task(loop.run(stop))
    job_id = await house.ended()
    wake.set()
    await until(house.states, bool)
    stop.set()
    await running
    assert await house.road.state(job_id) == "completed"
