"""The switch at its doors: parts of it, what is on the wire, its test, and what goes on while it is off."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from deedbox.extend.connector import EffectOrder, Outcome, Receipt
from deedbox.gate import planted
from deedbox.model.errors import DeedboxError
from deedbox.operate import switch_trial
from deedbox.store import outbox
from deedbox.store.switch import Narrow
from tests.builders import Outbox, Planned, outbox_on, principal
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.api import PERSON_TOKEN, api
from tests.servers.commands import PASSWORD, Cli, refused

pytestmark = pytest.mark.anyio


@pytest.fixture
async def box(database: TestDatabase) -> AsyncIterator[Outbox]:
    async with outbox_on(database) as made:
        yield made


@proves("G-SWITCH-PARTS")
async def test_its_test_shows_that_each_part_blocks_and_leaves_nothing_behind(box: Outbox):
    verbs, person = box.verbs(), principal(box.ids, "manager", name="Ada")
    waiting = await box.build(Planned())
    await verbs.set_switch(person, False, "an incident", "api", narrow=Narrow(connector="fax"))
    trials = await verbs.test_switch(person)
    assert [(one.off, one.blocked) for one in trials] == [
        ("nothing", False),
        ("the environment", True),
        ("everything", True),
        ("tenant default", True),
        ("its action", True),
        ("its connector", True),
        ("its target", True),
    ]
    assert all(one.passed for one in trials)
    state = await verbs.switch_state("default")
    assert (state["tested_by"], state["is_on"], len(state["narrowed"])) == ("Ada", True, 1)
    assert state["tested_at"] is not None
    assert await box.database.rows("SELECT action FROM deedbox.job") == [("send_note",)]
    assert await box.database.value("SELECT count(*) FROM deedbox.effect WHERE connector = %s", planted.CONNECTOR) == 0
    assert await box.state(waiting.effect_id) == "pending"
    assert await box.database.value("SELECT verb FROM deedbox.audit ORDER BY seq DESC LIMIT 1") == "switch_test"
    with pytest.raises(DeedboxError) as refusal:
        await verbs.test_switch(principal(box.ids, "viewer"))
    assert refusal.value.code == "permission_denied"


@proves("G-SWITCH-PARTS")
async def test_its_test_fails_where_the_leasing_statement_does_not_look(box: Outbox, monkeypatch: pytest.MonkeyPatch):
    read = outbox.statement

    def blind(file: Any, name: Any) -> Any:
        text = read(file, name)
        return text.replace("AND NOT s.is_on AND", "AND false AND") if name == "lease" else text

    monkeypatch.setattr(outbox, "statement", blind)
    trials = await switch_trial.try_switch(box.pool, box.ids, principal(box.ids, "manager"), door="api")
    assert [one.off for one in trials if not one.passed] == ["tenant default", "its action", "its connector", "its target"]
    assert (await box.verbs().switch_state("default"))["tested_at"] is None


@pytest.mark.parametrize(
    "broken",
    [
        "UPDATE deedbox.switch SET kind = 'notice' WHERE switch_id = 'acts'",
        "UPDATE deedbox.switch SET tenant = 'default' WHERE switch_id = 'acts'",
        "DELETE FROM deedbox.switch WHERE switch_id = 'acts'",
    ],
)
@proves("G-SWITCH-OFF")
async def test_a_root_that_is_malformed_or_missing_means_off(box: Outbox, broken: str):
    await box.build(Planned())
    await box.database.rows(broken)
    assert await box.lease() == []
    assert not (await box.verbs().switch_state("default"))["open"]


@proves("G-SWITCH-OFF")
async def test_a_switch_that_cannot_be_read_means_off(box: Outbox):
    built = await box.build(Planned())
    await box.database.rows("ALTER TABLE deedbox.switch RENAME COLUMN is_on TO was_on")
    with pytest.raises(psycopg.Error):
        await box.dispatcher().once()
    assert (box.connector.sent, await box.state(built.effect_id)) == ([], "pending")


@proves("G-SWITCH-OFF")
async def test_what_is_on_the_wire_is_counted_by_part_until_it_has_landed(box: Outbox):
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_order: EffectOrder) -> Outcome:
        arrived.set()
        await go_on.wait()
        return Receipt("landed")

    box.connector.script.append(slow)
    built = await box.build(Planned())
    sending = asyncio.create_task(box.dispatcher().once())
    await arrived.wait()
    verbs, person = box.verbs(), principal(box.ids, "manager")
    mine, other = Narrow(connector="note", target="desk"), Narrow(connector="fax")
    for part in (mine, other):
        await verbs.set_switch(person, False, "an incident", "api", narrow=part)
    state = await verbs.switch_state("default")
    assert sorted((line["connector"], line["in_flight"]) for line in state["narrowed"]) == [("fax", 0), ("note", 1)]
    assert [await verbs.in_flight(part) for part in (None, mine, other)] == [1, 1, 0]
    # It had begun before: its receipt is kept although the switch is off.
    go_on.set()
    await sending
    assert (await verbs.in_flight(mine), await box.state(built.effect_id)) == (0, "completed")


@proves("G-SWITCH-OFF")
async def test_what_is_leased_and_not_yet_dialled_is_given_back(box: Outbox, monkeypatch: pytest.MonkeyPatch):
    built = await box.build(Planned())
    monkeypatch.setattr("deedbox.dispatch.switch.TRUST_S", -1.0)
    look = outbox.lease

    async def then_off(*given: Any, **options: Any) -> Any:
        return await look(*given, **options)

    monkeypatch.setattr(outbox, "lease", then_off)
    dispatcher = box.dispatcher()
    declare = dispatcher._declare  # pyright: ignore[reportPrivateUsage]

    async def meanwhile(*given: Any) -> None:
        await box.verbs().set_switch(principal(box.ids, "operator"), False, "stop", "api", narrow=Narrow(action="send_note"))
        await declare(*given)

    monkeypatch.setattr(dispatcher, "_declare", meanwhile)
    assert await dispatcher.once() == 1
    assert (box.connector.sent, await box.state(built.effect_id)) == ([], "pending")


async def test_only_a_person_of_the_tenant_turns_a_part_on(box: Outbox):
    verbs = box.verbs()
    part = Narrow(action="send_note")
    service = principal(box.ids, "operator", kind="service", method="api_key")
    assert (await verbs.set_switch(service, False, "it repeats itself", "api", narrow=part))["narrowed"][0]["is_on"] is False
    with pytest.raises(DeedboxError) as refusal:
        await verbs.set_switch(service, True, "I need it", "api", narrow=part)
    assert refusal.value.code == "person_required"
    with pytest.raises(DeedboxError) as refusal:
        await verbs.set_switch(principal(box.ids, "admin"), False, "theirs", "api", narrow=Narrow(tenant="another"))
    assert refusal.value.code == "permission_denied"
    await box.build(Planned())
    assert await box.lease() == []
    await verbs.set_switch(principal(box.ids, "manager"), True, "it was mended", "api", narrow=part)
    assert len(await box.lease()) == 1


@proves("G-SWITCH-PARTS")
async def test_parts_and_the_test_over_http(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        person = {"Authorization": f"Bearer {PERSON_TOKEN}"}
        part = {"on": False, "reason": "an incident", "connector": "http", "target": "crm"}
        state = (await client.put("/api/switch", json=part)).json()
        assert [(line["connector"], line["target"], line["is_on"]) for line in state["narrowed"]] == [("http", "crm", False)]
        refusal = await client.put("/api/switch", json={**part, "on": True})
        assert refusal.json()["code"] == "person_required"
        state = (await client.put("/api/switch", json={**part, "on": True}, headers=person)).json()
        assert state["narrowed"][0]["is_on"] is True
        refusal = await client.put("/api/switch", json={**part, "owner": "Ada"}, headers=person)
        assert refusal.json()["code"] == "invalid_input"
        tried = (await client.post("/api/switch/test", headers=person)).json()
        assert tried["passed"] is True
        assert len(tried["trials"]) == 7
        assert (await client.get("/api/switch", headers=person)).json()["tested_by"] == "approver"


@proves("G-SWITCH-PARTS")
async def test_parts_the_wait_and_the_test_at_the_terminal(database: TestDatabase, tmp_path: Path) -> None:
    cli = Cli(database.owner_url, tmp_path)
    said = {"stdin": f"{PASSWORD}\n"}
    assert (await cli("users", "add", "Ada", "--role", "manager", **said)).code == 0
    off = await cli("switch", "off", "--connector", "http", "--target", "crm", "--reason", "an incident", "--json")
    (line,) = off.json()["narrowed"]
    assert (line["connector"], line["target"], line["is_on"], line["why"]) == ("http", "crm", False, "an incident")
    shown = await cli("switch", "show")
    assert "an incident" in shown.out
    assert "never: deedbox switch test" in shown.out
    assert (await cli("switch", "off", "--wait", "--within", "5")).code == 0
    why = ("--as", "Ada", "--reason", "It is mended.")
    on = await cli("switch", "on", *why, "--connector", "http", "--target", "crm", "--json", **said)
    assert on.json()["narrowed"][0]["is_on"] is True
    refused(await cli("switch", "on", *why, "--action", "x", "--owner", "Ada", **said), 2, "--owner")
    tried = await cli("switch", "test", "--as", "Ada", **said)
    assert tried.code == 0
    assert tried.out.count("kept back") == 6
    assert "by Ada" in (await cli("switch", "show")).out
    doctor = await cli("doctor", "--json")
    assert [one["verdict"] for one in doctor.json() if one["what"] == "switch, test"] == ["ok"]


async def test_off_waits_no_longer_than_it_was_told(database: TestDatabase, tmp_path: Path) -> None:
    async with outbox_on(database) as box:
        await box.build(Planned())
        assert len(await box.lease()) == 1
    cli = Cli(database.owner_url, tmp_path)
    ended = await cli("switch", "off", "--wait", "--within", "0")
    assert (ended.code, "1 that had begun are still on the wire" in ended.err) == (1, True)
    assert await database.value("SELECT is_on FROM deedbox.switch WHERE switch_id = 'acts'") is False
