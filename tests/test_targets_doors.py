"""Targets at their doors, and the reasons why an effect does not go out."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Identifier

from deedbox.extend.connector import TargetLimits, Transient
from deedbox.model.backoff import Retry
from deedbox.model.errors import DeedboxError
from deedbox.operate.targets import Targets
from deedbox.store.audit import verify
from deedbox.store.pg_errors import StoreError
from deedbox.store.pool import Pool
from deedbox.store.switch import Narrow
from deedbox.store.targets import Breaker
from tests.builders import Outbox, Planned, ScriptedConnector, outbox_on, principal
from tests.database import TestDatabase, through_a_pooler
from tests.guarantees import proves
from tests.servers.api import PERSON_TOKEN, api
from tests.servers.commands import PASSWORD, Cli, refused

pytestmark = pytest.mark.anyio


@pytest.fixture
async def box(database: TestDatabase) -> AsyncIterator[Outbox]:
    async with outbox_on(database) as made:
        yield made


def verbs(box: Outbox) -> Targets:
    """The verbs over the scripted connector."""
    return Targets(box.pool, {box.connector.name: box.connector})


async def why(box: Outbox, slot: str = "first", **planned: object) -> dict[str, str]:
    """Build an effect and say why it does not go out."""
    built = await box.build(Planned(slot, **planned))  # pyright: ignore[reportArgumentType]
    return await why_of(box, built.effect_id)


async def why_of(box: Outbox, effect_id: object) -> dict[str, str]:
    """Why an effect does not go out."""
    shown = await box.verbs().effect(principal(box.ids, "viewer"), effect_id)  # pyright: ignore[reportArgumentType]
    return {one["why"]: one["message"] for one in shown["waits_for"]}


@pytest.fixture
async def dispatching(box: Outbox) -> None:
    """A living dispatcher, for the reasons that it would be itself."""
    await box.database.rows(
        "INSERT INTO deedbox.process (process_id, roles, version, schema_version, settings_sha256, environment_switch)"
        " VALUES ('one', '{dispatch}', '0', 1, 'x', true)"
    )


@proves("G-WAITS-SAID")
@pytest.mark.usefixtures("dispatching")
async def test_every_thing_that_holds_an_effect_back_is_named(box: Outbox):
    person, it = principal(box.ids, "manager", name="Ada"), verbs(box)
    assert await why(box) == {}
    assert "before" in (await why(box, not_before_s=60))["not_before"]
    assert "passed" in (await why(box, not_after_s=-1))["not_after"]
    chain = await box.build(Planned("first"), Planned("second", after="first"))
    assert "first, which is pending" in (await why_of(box, chain.effects["second"]))["predecessor"]
    await box.verbs().set_switch(person, False, "an incident", "api", narrow=Narrow(action="send_note"))
    assert "action send_note, turned by Ada: an incident" in (await why(box))["switch"]
    await box.verbs().set_switch(person, True, "over", "api", narrow=Narrow(action="send_note"))
    await box.turn(on=False)
    assert "off since test turned it" in (await why(box))["switch"]
    await box.turn(on=True)
    await it.pause(person, "note", "desk", "they move house")
    assert "paused by Ada: they move house" in (await why(box))["paused"]
    await it.resume(person, "note", "desk", "they have moved")
    await it.limit(person, "note", "desk", TargetLimits(0.001, 1), "slowly")
    assert len(await box.lease()) == 1
    assert "0.001 a second" in (await why(box))["rate"]
    await it.limit(person, "note", "desk", TargetLimits(order_by="target"), "one by one")
    assert "one at a time in order" in (await why(box))["order"]
    await it.limit(person, "note", "*", TargetLimits(), "no limit")
    await it.limit(person, "note", "desk", TargetLimits(), "no limit")
    await box.database.rows("UPDATE deedbox.process SET environment_switch = false")
    assert "AI_ACTIONS_ENABLED" in (await why(box))["switch"]
    await box.database.rows("UPDATE deedbox.process SET stopped_at = deedbox.clock()")
    assert (await why(box)) == {"dispatcher": "No dispatcher runs."}
    assert await verify(box.pool) is None


@proves("G-WAITS-SAID")
@pytest.mark.usefixtures("dispatching")
async def test_a_breaker_and_a_wait_are_named(box: Outbox):
    one = box.dispatcher(breaker=Breaker(failures=1), retry=Retry(attempts=9, base=1e7, cap=1e7))
    box.connector.script.append(Transient("rate_limited", "http_429", "Busy.", "answered", 30.0))
    await box.build(Planned(target="busy"))
    await one.once()
    assert "left alone until" in (await why(box, target="busy"))["slowed"]
    box.connector.script.append(Transient("not_sent", "refused", "Nobody listens.", "connect"))
    await box.build(Planned())
    await one.once()
    assert "refused: Nobody listens." in (await why(box))["breaker"]
    await box.database.shift_clock(31)
    assert len(await box.lease(1)) == 1
    assert "tried with effect" in (await why(box))["breaker"]


@pytest.mark.usefixtures("dispatching")
async def test_what_no_approval_stands_for_is_named(box: Outbox):
    built = await box.build(Planned())
    await box.database.rows("ALTER TABLE deedbox.approval DISABLE TRIGGER USER")
    await box.database.rows("UPDATE deedbox.approval SET effect_digests = '{}' WHERE job_id = %s", built.job_id)
    assert "exact bytes" in (await why_of(box, built.effect_id))["authority"]


async def test_who_may_do_what_to_a_target(box: Outbox):
    it = verbs(box)
    program = principal(box.ids, "operator", kind="service", method="api_key", name="agent")
    assert (await it.pause(program, "note", "desk", "it fails")).paused
    with pytest.raises(DeedboxError) as refusal:
        await it.resume(program, "note", "desk", "it is well")
    assert refusal.value.code == "person_required"
    for who, code in ((principal(box.ids, "viewer"), "permission_denied"), (principal(box.ids), "permission_denied")):
        with pytest.raises(DeedboxError) as refusal:
            await it.pause(who, "note", "desk", "no")
        assert refusal.value.code == code
    with pytest.raises(DeedboxError) as refusal:
        await it.listed(principal(box.ids))
    assert refusal.value.code == "permission_denied"
    elsewhere = await it.listed(principal(box.ids, "viewer", tenant="another"))
    assert elsewhere == []
    with pytest.raises(DeedboxError) as refusal:
        await it.resume(principal(box.ids, "operator"), "note", "unheard", "go on")
    assert refusal.value.code == "not_found"


@pytest.mark.parametrize(
    ("target", "limits", "pointer"),
    [
        ("desk", TargetLimits(0.0), "/rate_per_s"),
        ("desk", TargetLimits(float("nan")), "/rate_per_s"),
        ("desk", TargetLimits(1.0, 0), "/burst"),
        ("desk", TargetLimits(None, 5), "/burst"),
        ("desk", TargetLimits(order_by="to"), "/order_by"),
        ("desk", TargetLimits(order_by="/a~2"), "/order_by"),
        ("*", TargetLimits(order_by="/to"), "/order_by"),
        (" ", TargetLimits(), "/target"),
    ],
)
async def test_limits_that_are_none_are_refused_by_name_and_change_nothing(
    box: Outbox, target: str, limits: TargetLimits, pointer: str
):
    with pytest.raises(DeedboxError) as refusal:
        await verbs(box).limit(principal(box.ids, "operator"), "note", target, limits, "why not")
    assert refusal.value.problems[0].pointer == pointer
    assert await box.database.rows("SELECT FROM deedbox.target") == []


async def test_a_pause_waits_for_the_lease_in_progress_and_none_follows(box: Outbox):
    await box.build(Planned("first"), Planned("second"))
    await verbs(box).pause(principal(box.ids, "operator"), "note", "desk", "stop")
    assert await box.lease() == []
    line = await verbs(box).shown(principal(box.ids, "viewer"), "note", "desk")
    assert (line.pending, line.sending, line.capability) == (2, 0, "blind")


async def test_targets_over_http(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        where = {"connector": "http", "target": "crm", "reason": "a test"}
        changed = (await client.put("/api/targets", json={**where, "paused": True})).json()
        assert (changed["paused"], changed["pause_reason"]) == (True, "a test")
        refusal = await client.put("/api/targets", json={**where, "paused": False})
        assert refusal.json()["code"] == "person_required"
        person = {"Authorization": f"Bearer {PERSON_TOKEN}"}
        assert (await client.put("/api/targets", json={**where, "paused": False}, headers=person)).json()["paused"] is False
        limits = {"rate_per_s": 5, "burst": 10, "order_by": "/to"}
        changed = (await client.put("/api/targets", json={**where, "limits": limits})).json()
        assert {name: changed[name] for name in limits} == limits
        wrong: list[dict[str, Any]] = [
            {},
            {"paused": True, "limits": {}},
            {"limits": {"rate_per_s": -1}},
            {"limits": {"rate": 1}},
        ]
        for bad in wrong:
            assert (await client.put("/api/targets", json={**where, **bad})).json()["code"] == "invalid_input"
        listed = (await client.get("/api/targets")).json()["targets"]
        assert [(line["connector"], line["target"], line["rate_per_s"]) for line in listed] == [("http", "crm", 5)]
        assert (await client.get("/api/targets?target=other")).json() == {"targets": []}


async def test_targets_at_the_terminal(database: TestDatabase, tmp_path: Path) -> None:
    cli = Cli(database.owner_url, tmp_path)
    said = {"stdin": f"{PASSWORD}\n"}
    assert (await cli("users", "add", "Ada", "--role", "manager", **said)).code == 0
    reason = ("--as", "Ada", "--reason", "They move house.")
    assert "no targets yet" in (await cli("targets", "list")).out
    assert "paused" in (await cli("targets", "pause", "http:crm", *reason, **said)).out
    (line,) = (await cli("targets", "list", "--json")).json()
    assert (line["target"], line["paused"], line["paused_by"]) == ("crm", True, "Ada")
    limited = await cli("targets", "limit", "smtp:*", *reason, "--rate", "2.5", "--burst", "5", "--order", "target", **said)
    assert "2.5/s, 5 at once; in order (set by Ada)" in limited.out
    assert (await cli("targets", "resume", "http:crm", *reason, **said)).code == 0
    shown = await cli("targets", "show", "http:crm")
    assert "closed" in shown.out
    table = (await cli("targets", "list")).out
    assert "smtp:*" in table
    lifted = await cli("targets", "limit", "smtp:*", *reason, "--json", **said)
    assert (lifted.json()["rate_per_s"], lifted.json()["order_by"]) == (None, None)
    refused(await cli("targets", "limit", "smtp:*", *reason, "--rate", "fast", **said), 2, "--rate")
    refused(await cli("targets", "pause", "crm", *reason, **said), 2, "CONNECTOR:TARGET")
    refused(await cli("targets", "show", "http:unheard"), 3, "Nothing is known")


class Limited(ScriptedConnector):
    """A connector whose settings bound a target."""

    def limits(self) -> dict[str, TargetLimits]:
        """Five a second."""
        return {"desk": TargetLimits(5.0)}


class Counted(Targets):
    """Counts how often the settings could not be kept."""

    missed = 0

    async def take_settings(self, tenant: str) -> int:
        """The same, counted."""
        try:
            return await super().take_settings(tenant)
        except StoreError:
            self.missed += 1
            raise


@proves("G-TARGET-SETTINGS")
async def test_who_begins_to_send_while_the_database_is_away_waits_for_it_and_has_the_limits(database: TestDatabase) -> None:
    if through_a_pooler():
        pytest.skip("a pooler keeps its clients waiting while the database takes no connections")
    name = conninfo_to_dict(database.owner_url)["dbname"]
    pool = Pool(database.url, "targets", size=1)
    pool.timeout = 0.2
    await pool.open(wait=True)
    it, stop = Counted(pool, {"note": Limited()}), asyncio.Event()
    async with await AsyncConnection[Any].connect(
        make_conninfo(database.owner_url, dbname="postgres"), autocommit=True
    ) as admin:
        gate = SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
        try:
            await admin.execute(gate.format(Identifier(str(name)), SQL("false")))
            await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
            keeping = asyncio.create_task(it.keep_settings("default", stop))
            async with asyncio.timeout(30):
                while it.missed < 2:
                    await asyncio.wait({keeping}, timeout=0.05)
                    assert not keeping.done()
                await admin.execute(gate.format(Identifier(str(name)), SQL("true")))
                await keeping
        finally:
            await admin.execute(gate.format(Identifier(str(name)), SQL("true")))
            await pool.close()
    assert await database.rows("SELECT target, rate_per_s FROM deedbox.target WHERE connector = 'note'") == [("desk", 5.0)]
