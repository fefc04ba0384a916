"""Alerts: opened once, told to their owners, recalled while they are open, closed by people with a reason, at every door."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml
from pydantic import ValidationError

from deedbox import telemetry
from deedbox.extend.connector import Ambiguous
from deedbox.extend.registry import App
from deedbox.gate.telling import Owner, Telling
from deedbox.model.alarms import CAUSES
from deedbox.model.errors import DeedboxError
from deedbox.model.failure import MATRIX
from deedbox.model.lease import Lease
from deedbox.operate.alerts import Alerts
from deedbox.settings import Settings
from deedbox.store.alert import Alert, open_alerts
from deedbox.store.transaction import transaction
from deedbox.sweep.service import Sweep
from deedbox.wiring.house import check_owners, voice_of
from deedbox.wiring.places import StartError
from tests.builders import Planned, ScriptedConnector, principal
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.api import PERSON_TOKEN, api, problem_of
from tests.servers.commands import PASSWORD, Cli, people, refused
from tests.servers.house import URL, House, house_on, text_of

pytestmark = pytest.mark.anyio
SOURCES = Path(__file__).resolve().parent.parent / "src" / "deedbox"
LOST = Ambiguous("timed_out", "No answer came in time.", "body_sent")


@dataclass
class Chat(ScriptedConnector):
    """A chat that can say a few words."""

    name: str = "chat"

    def announcement(self, target: str, subject: str, body: str) -> Mapping[str, Any]:
        """One text."""
        assert target
        return {"text": f"{subject}\n{body}"}


@pytest.fixture
async def house(database: TestDatabase) -> AsyncIterator[House]:
    async with house_on(database) as made:
        chat = Chat()
        made.box.connector = chat
        owners = {
            "default": (Owner(made.mail, "ops@house.example"),),
            "effect_unknown": (Owner(chat, "duty"), Owner(made.mail, "duty@house.example")),
        }
        made.telling = Telling(owners, remind_s=3600, reminders=2, queued_s=600, public_url=URL)
        yield made


async def raise_one(house: House, cause: str = "bug", **given: Any) -> UUID:
    built = await house.box.build(Planned())
    one = Alert(house.box.ids.new(), built.job_id, cause, "It failed of a bug.", **given)
    async with transaction(house.box.pool) as connection:
        await open_alerts(connection, [one])
    return one.alert_id


def sweep(house: House) -> Sweep:
    """One that takes half an hour for long."""
    return Sweep(house.box.pool, house.box.ids, Lease(2.0), unknown_s=1800)


async def state_of(house: House, alert_id: UUID) -> tuple[object, ...]:
    query = "SELECT owner, told, notify_at IS NULL, closed_at IS NULL FROM deedbox.alert WHERE alert_id = %s"
    return (await house.database.rows(query, alert_id))[0]


@proves("G-ALERT-TOLD")
async def test_an_owner_is_told_once_at_the_opening_and_a_bounded_number_of_times_after(house: House):
    await house.box.turn(on=False)
    alert_id = await raise_one(house)
    seen: list[int] = []
    for shift in (0, 1800, 3700, 3800, 7500, 90000):
        await house.database.shift_clock(shift)
        await asyncio.gather(*(house.notifier().round() for _ in range(4)))
        await house.dispatcher().once()
        seen.append(len(house.server.mails))
    assert seen == [1, 1, 2, 2, 3, 3]
    assert await state_of(house, alert_id) == ("ops@house.example", 3, True, True)
    assert {tuple(mail.recipients) for mail in house.server.mails} == {("ops@house.example",)}


@proves("G-ALERT-TOLD")
async def test_what_happens_to_an_effect_is_told_by_mail_and_chat_with_cause_job_and_age(house: House):
    chat = house.box.connector
    chat.script.append(LOST)
    built = await house.box.build(Planned(connector="chat"))
    await house.dispatcher().once()
    (mail,) = await house.speak()
    assert (mail["To"], mail["Subject"]) == ("duty@house.example", f"Alert: {CAUSES['effect_unknown']}")
    said = text_of(mail)
    assert f"Job:     {built.job_id}" in said
    assert f"Effect:  {built.effect_id}" in said
    assert f"{URL}/alerts" in said
    assert str(chat.sent[-1].payload["text"]).startswith("Alert: ")
    assert [order.target for order in chat.sent] == ["desk", "duty"]
    await house.database.shift_clock(3700)
    await sweep(house).round()
    # By then it is an alert of its own as well that nobody has settled it; it is for whoever owns the rest.
    reminders = [mail for mail in await house.speak() if mail["To"] == "duty@house.example"]
    assert [str(mail["Subject"]) for mail in reminders] == [f"Still open after 1 h: {CAUSES['effect_unknown']}"]
    causes = "SELECT cause, owner FROM deedbox.alert ORDER BY cause"
    assert await house.database.rows(causes) == [
        ("effect_unknown", "chat:duty, duty@house.example"),
        ("effect_unknown_long", "ops@house.example"),
    ]


async def test_causes_without_an_owner_stay_open_and_hold_up_no_others(house: House):
    house.telling = Telling({"bug": (Owner(house.mail, "ops@house.example"),)}, public_url=URL)
    quiet, told = await raise_one(house, "exhausted"), await raise_one(house)
    assert len(await house.speak()) == 1
    assert await state_of(house, quiet) == (None, 0, False, True)
    assert await state_of(house, told) == ("ops@house.example", 1, False, True)


@proves("G-ALERT-TOLD")
async def test_an_effect_left_unknown_is_an_alarm_once_even_after_a_person_closed_it(house: House):
    house.box.connector.script.append(LOST)
    await house.box.build(Planned(connector="chat"))
    await house.dispatcher().once()
    manager = principal(house.box.ids, "manager")
    for shift, found in ((1700, 0), (1900, 1), (5000, 1)):
        await house.database.shift_clock(shift)
        await asyncio.gather(*(sweep(house).round() for _ in range(3)))
        rows = await house.database.rows("SELECT alert_id FROM deedbox.alert WHERE cause = 'effect_unknown_long'")
        assert len(rows) == found
    alerts = Alerts(house.box.pool)
    for line in await alerts.listed(manager):
        await alerts.close(manager, line.alert_id, "The provider looks.", door="page")
    await sweep(house).round()
    assert await alerts.listed(manager) == []


@proves("G-ALERT-TOLD")
async def test_jobs_that_wait_too_long_are_one_alarm_of_their_tenant_and_a_paused_lane_is_none(house: House):
    for action in ("send_note", "send_more", "send_less"):
        await house.box.build(state="queued", action=action)
    await house.database.rows("UPDATE deedbox.lane SET paused = true WHERE action = 'send_less'")
    await house.database.shift_clock(590)
    await house.notifier().round()
    assert await house.database.rows("SELECT FROM deedbox.alert") == []
    await house.database.shift_clock(610)
    await asyncio.gather(*(house.notifier().round() for _ in range(3)))
    rows = await house.database.rows("SELECT cause, tenant, job_id, message FROM deedbox.alert")
    assert [row[:3] for row in rows] == [("jobs_queued_long", "default", None)]
    assert "send_note" in str(rows[0][3])
    # Closed, it is silent for as long again.
    await house.database.rows("UPDATE deedbox.alert SET closed_at = deedbox.clock()")
    await house.notifier().round()
    await house.database.shift_clock(1300)
    await house.notifier().round()
    assert await house.database.value("SELECT count(*) FROM deedbox.alert") == 2


# Closing --------------------------------------------------------------------------------------------------------------


@proves("G-ALERT-CLOSED")
async def test_a_person_closes_an_alert_with_a_reason_and_nothing_more_is_said(house: House):
    alert_id = await raise_one(house)
    await house.notifier().round()
    alerts = Alerts(house.box.pool)
    ids = house.box.ids
    for who, reason, code in (
        (principal(ids, "manager", kind="service"), "done", "person_required"),
        (principal(ids, "viewer"), "done", "permission_denied"),
        (principal(ids, "operator"), " ", "invalid_input"),
        (principal(ids, "operator", tenant="another"), "done", "not_found"),
    ):
        with pytest.raises(DeedboxError) as refusal:
            await alerts.close(who, alert_id, reason, door="api")
        assert refusal.value.code == code
    assert (await state_of(house, alert_id))[3] is True
    operator = principal(ids, "operator", name="Ada")
    line = await alerts.close(operator, alert_id, "It was the old release.", door="api")
    assert (line.closed_reason, line.cause) == ("It was the old release.", "bug")
    with pytest.raises(DeedboxError, match="closed already"):
        await alerts.close(operator, alert_id, "again", door="api")
    assert await house.speak() == []
    assert [state for _, _, state in await house.notices()] == ["canceled"]
    (entry,) = await house.audited("close_alert")
    assert entry[1]["cause"] == "bug"  # pyright: ignore[reportIndexIssue] -- a JSON object
    # What happens again is an alert again.
    await raise_one(house)
    assert len(await alerts.listed(operator)) == 1
    assert len(await alerts.listed(operator, is_open=None)) == 2


@proves("G-ALERT-CLOSED")
async def test_alerts_over_http_and_at_the_terminal(database: TestDatabase, tmp_path: Path):
    async with api(database) as one, one.client() as program, one.client(PERSON_TOKEN) as person:
        job = await program.post("/api/actions/note_thing/jobs", json={}, headers={"Idempotency-Key": "k"})
        found = [Alert(one.road.ids.new(), UUID(job.json()["job_id"]), cause, "Look at it.") for cause in ("bug", "exhausted")]
        async with transaction(one.road.pool) as connection:
            await open_alerts(connection, found)
        shown = (await person.get("/api/alerts")).json()["alerts"]
        assert [item["cause"] for item in shown] == ["exhausted", "bug"]
        assert {"alert_id", "message", "job_id", "owner", "age_s", "opened_at"} <= set(shown[0])
        (older,) = (await person.get(f"/api/alerts?before={shown[0]['alert_id']}")).json()["alerts"]
        assert older["cause"] == "bug"
        where = f"/api/alerts/{shown[0]['alert_id']}/close"
        assert problem_of(await program.post(where, json={"reason": "x"}))[:2] == (403, "person_required")
        assert problem_of(await person.post(where, json={}))[:2] == (400, "invalid_input")
        assert problem_of(await person.get("/api/alerts?state=none"))[:2] == (400, "invalid_parameter")
        assert (await person.post(where, json={"reason": "Seen to."})).json()["closed_by"] == "approver"
        assert problem_of(await person.post(where, json={"reason": "again"}))[:2] == (409, "illegal_move")
        assert len((await person.get("/api/alerts?state=closed")).json()["alerts"]) == 1
    await people(database.owner_url, Ada="manager")
    cli = Cli(database.owner_url, tmp_path)
    (line,) = (await cli("alerts", "list", "--json")).json()
    assert line["cause"] == "bug"
    assert "bug" in (await cli("alerts", "list")).out
    close = ("alerts", "close", line["alert_id"], "--as", "Ada", "--reason", "Mended.")
    assert (await cli(*close, stdin=f"{PASSWORD}\n")).out == "closed: bug\n"
    refused(await cli(*close, stdin=f"{PASSWORD}\n"), 1, "closed already, by Ada")
    assert (await cli("alerts", "list", "--json")).json() == []
    assert len((await cli("alerts", "list", "--all", "--json")).json()) == 2


# Settings, and the one place ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"notify_mail": True}, "needs a mail server"),
        ({"notify_remind_at": (0.5, 1.0)}, "a part of the time"),
        ({"alerts_to": {"default": ("ops@house.example",)}}, "needs a mail server"),
        ({"alerts_to": {"effect_unknwon": ("chat:ops",)}}, "is no cause"),
        ({"alerts_to": {"default": ("nobody",)}}, "neither a mail address"),
        ({"alerts_to": {"default": ("chat:",)}}, "connector:target"),
        ({"alerts_to": {"default": ()}}, "names nobody"),
    ],
)
def test_settings_that_lack_what_they_need_are_refused(given: dict[str, Any], said: str):
    with pytest.raises(ValidationError, match=said):
        Settings(**given)


@pytest.mark.parametrize(
    ("connectors", "said"), [([], "no connector called 'chat'"), ([ScriptedConnector("chat")], "cannot say an alert")]
)
def test_an_owner_that_nothing_can_be_told_stops_the_start(connectors: list[ScriptedConnector], said: str):
    with pytest.raises(StartError, match=said):
        voice_of(Settings(alerts_to={"default": ("chat:ops",)}), App(connectors=connectors))
    voice_of(Settings(alerts_to={"default": ("chat:ops",)}), App(connectors=[Chat()]))


def test_an_owner_that_its_connector_cannot_reach_stops_the_start():
    @dataclass
    class Picky(Chat):
        def check_target(self, target: str) -> None:
            if target != "duty":
                raise ValueError("there is no such channel")

    for target, good in (("duty", True), ("ops", False)):
        voice = voice_of(Settings(alerts_to={"default": (f"chat:{target}",)}), App(connectors=[Picky()]))
        if good:
            check_owners(voice)
        else:
            with pytest.raises(StartError, match="no such channel"):
                check_owners(voice)


def test_alerts_are_inserted_in_one_place_and_every_cause_is_in_the_table():
    texts = {path.name: path.read_text() for path in (SOURCES / "store" / "sql").glob("*.sql")}
    inserts = [name for name, text in texts.items() if "INSERT INTO deedbox.alert " in text]
    assert inserts == ["alert.sql"]
    named = {name for name, rule in MATRIX.items() if rule.alert} | {"exhausted"}
    for path in SOURCES.rglob("*.py"):
        named |= set(re.findall(r'Alert\([^()]*(?:\([^()]*\)[^()]*)*?"([a-z_]+)"', path.read_text()))
    assert {"effect_unknown", "job_misplaced", "jobs_queued_long"} <= named
    assert not named - set(CAUSES)


def test_the_rules_for_prometheus_name_figures_that_are_there():
    path = SOURCES.parent.parent / "deploy" / "prometheus" / "deedbox.rules.yml"
    rules = yaml.safe_load(path.read_text())["groups"][0]["rules"]
    there = {sample for family in telemetry.REGISTRY.collect() for sample in (family.name, f"{family.name}_total")}
    named = {name for rule in rules for name in re.findall(r"deedbox_[a-z_]+", rule["expr"])}
    assert len(named) >= 5
    assert not named - there
    assert all(rule["annotations"]["summary"] for rule in rules)
