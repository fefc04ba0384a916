"""Asking people to decide by mail: who is asked, what is said, when it is said again, and that nothing waits for it."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from deedbox.cli.doctor_voice import unreachable, voice
from deedbox.connectors.settings import SmtpConfig
from deedbox.extend.action import RegistrationError
from deedbox.extend.registry import App
from deedbox.gate.decide import decide, expire_lapsed
from deedbox.gate.notices import LINK
from deedbox.gate.words import Wanted, approval, one_line
from deedbox.model.alarms import Stage, stage_of
from deedbox.model.identity import Principal
from deedbox.model.policy import hold
from deedbox.operate.doctor import PrincipalLine
from deedbox.settings import Settings
from deedbox.store.notify import Escalation
from deedbox.store.transaction import transaction
from tests.apps.rough import step_then_wait
from tests.builders import Planned
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.commands import PASSWORD, Cli, refused
from tests.servers.house import URL, House, house_on, links_of, text_of

pytestmark = pytest.mark.anyio
DAY = 86400.0


@pytest.fixture
async def house(database: TestDatabase) -> AsyncIterator[House]:
    async with house_on(database) as made:
        yield made


async def digest_of(house: House, approval_id: UUID) -> str:
    digest = await house.database.value(
        "SELECT encode(digest, 'hex') FROM deedbox.approval WHERE approval_id = %s", approval_id
    )
    return str(digest)


async def approve(house: House, approval_id: UUID, person_id: UUID, *roles: str) -> str:
    person = Principal(str(person_id), "default", "somebody", "person", frozenset(roles), "session")
    digest = await digest_of(house, approval_id)
    done = await decide(
        house.box.pool,
        house.box.ids,
        person,
        approval_id=approval_id,
        digest_hex=digest,
        choice="reject",
        reason="not wanted",
        how="page",
    )
    return done.state


# Who, and what is said ------------------------------------------------------------------------------------------------


@proves("G-ASKED")
async def test_every_living_person_who_may_decide_and_has_an_address_is_asked_once(house: House):
    await house.person("Ada", "manager")
    await house.person("Bo", "manager", "viewer")
    await house.person("Silent", "manager", mail=False)
    await house.person("Gone", "manager")
    await house.person("Viewer", "viewer")
    await house.person("robot", "manager", kind="service")
    await house.database.rows("UPDATE deedbox.principal SET disabled_at = deedbox.clock() WHERE name = 'Gone'")
    asker = await house.person("Asker", "manager")
    built, approval_id = await house.waiting()
    await house.database.rows("UPDATE deedbox.job SET subject = %s WHERE job_id = %s", asker, built.job_id)
    first, second = await house.speak()
    assert [str(mail["To"]) for mail in (first, second)] == ["ada@people.example", "bo@people.example"]
    said = text_of(first)
    assert "send_note" in said
    assert "Asker" in said
    assert "role manager" in said
    deadline = await house.database.value(
        "SELECT to_char(expires_at AT TIME ZONE 'UTC', 'FMDD HH24:MI') || ' UTC' FROM deedbox.approval"
    )
    day, time = str(deadline).split(" ", 1)
    assert f" {day} " in said
    assert time in said
    assert time in str(first["Subject"])
    (link,), (other,) = links_of(first), links_of(second)
    assert link.startswith(f"{URL}/approvals/{approval_id}?t=")
    assert link != other
    assert await house.speak() == []
    assert await house.audited("ask") == [
        ("ask", {"job_id": str(built.job_id), "stages": ["request"], "people": ["Ada", "Bo"]}),
    ]
    assert await house.box.events(built.job_id) == ["job.queued"]


@proves("G-ASKED")
async def test_a_mail_tells_nothing_of_what_an_effect_says_or_whom_it_reaches(house: House):
    await house.person("Ada", "manager")
    planned = Planned(target="zoe@customer.example", payload={"text": "Ihre Rechnung 4711"}, group="other")
    built, approval_id = await house.waiting()
    await house.box.build(planned)
    await house.database.rows(
        "UPDATE deedbox.proposal_effect SET job_id = %s, group_name = 'default' WHERE target = 'zoe@customer.example'",
        built.job_id,
    )
    (mail,) = await house.speak()
    whole = mail.as_string() + text_of(mail)
    for word in ("zoe", "customer.example", "4711", "Rechnung", "Grüße", await digest_of(house, approval_id)):
        assert word not in whole


def test_a_name_can_neither_hide_anything_nor_stand_for_the_link():
    wanted = Wanted(
        "send_note", "effects", f"Eve {LINK}\r\nBcc: x\u202e", datetime(2026, 5, 14, 16, 30, tzinfo=UTC), 2, ["manager"]
    )
    subject, body = approval("approval.request", wanted)
    assert subject == "Approval wanted: send_note, by Thu 14 May 2026, 16:30 UTC"
    assert body.count(LINK) == 1
    assert "\r" not in body
    assert "\u202e" not in body
    assert "2 people have to approve" in body
    assert one_line("x" * 300).endswith("…")


# When it is said again ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age", "said", "escalated", "stage"),
    [
        (0, [], False, Stage("approval.request", ("request",), 50)),
        (10, ["request"], False, Stage(None, (), 50)),
        (50, ["request"], False, Stage("approval.reminder", ("reminder:0.5",), 90)),
        (95, ["request"], False, Stage("approval.reminder", ("reminder:0.5", "reminder:0.9"), None)),
        (95, ["request", "reminder:0.5"], False, Stage("approval.reminder", ("reminder:0.9",), None)),
        (95, [], True, Stage("approval.request", ("request", "reminder:0.5", "reminder:0.9", "escalation"), None)),
        (60, ["request"], True, Stage("approval.escalation", ("escalation",), 50)),
        (99, ["request", "reminder:0.5", "reminder:0.9"], False, Stage(None, (), None)),
    ],
)
def test_what_is_late_is_said_once(age: float, said: list[str], escalated: bool, stage: Stage):
    assert stage_of(age_s=age, life_s=100, parts=(0.9, 0.5), said=said, escalated=escalated) == stage


@proves("G-REMINDED-ONCE")
async def test_reminders_come_at_their_parts_of_the_time_once_however_many_notifiers_look(house: House):
    await house.person("Ada", "manager")
    await house.waiting()
    await house.speak()
    seen: list[int] = []
    for part in (0.49, 0.51, 0.6, 0.91, 0.95):
        await house.database.shift_clock(part * DAY)
        await asyncio.gather(*(house.notifier().round() for _ in range(6)))
        await house.dispatcher().once()
        seen.append(len(house.server.mails))
    assert seen == [1, 2, 2, 3, 3]
    tokens = await house.database.value("SELECT count(*) FROM deedbox.approval_token WHERE voided_at IS NULL")
    assert tokens == 3
    assert [verb for verb, _ in await house.audited("ask", "remind")] == ["ask", "remind", "remind"]


@proves("G-REMINDED-ONCE")
async def test_a_notifier_passes_by_what_another_one_is_saying(house: House):
    await house.person("Ada", "manager")
    await house.waiting()
    async with transaction(house.box.pool) as holder:
        await holder.execute("SELECT FROM deedbox.approval FOR UPDATE")
        async with asyncio.timeout(10):
            await house.notifier().round()
    assert await house.notices() == []
    assert len(await house.speak()) == 1


async def test_who_has_voted_is_not_reminded_and_what_was_not_sent_is_overtaken(house: House):
    ada = await house.person("Ada", "manager")
    await house.person("Bo", "manager")
    _, approval_id = await house.waiting()
    await house.notifier().round()
    await house.database.rows(
        "INSERT INTO deedbox.vote (approval_id, principal_id, decision, digest, how, voted_at)"
        " VALUES (%s, %s, 'approve', sha256('x'), 'page', deedbox.clock())",
        approval_id,
        ada,
    )
    await house.database.shift_clock(0.55 * DAY)
    (mail,) = await house.speak()
    assert str(mail["Subject"]).startswith("Reminder: ")
    assert await house.notices() == [
        ("approval.request", "ada@people.example", "canceled"),
        ("approval.request", "bo@people.example", "canceled"),
        ("approval.reminder", "bo@people.example", "completed"),
    ]


@proves("G-ESCALATED")
async def test_what_nobody_decides_goes_further_once_and_the_further_role_decides_it(database: TestDatabase):
    async with house_on(database, escalations=(Escalation("send_note", "director", 3600.0),)) as house:
        await house.person("Ada", "manager")
        dora = await house.person("Dora", "director", "manager")
        eve = await house.person("Eve", "director", "admin")
        built, approval_id = await house.waiting()
        await house.waiting(action="send_other")
        assert len(await house.speak()) == 4
        await database.shift_clock(3590)
        assert await house.speak() == []
        with pytest.raises(Exception, match="manager"):
            await approve(house, approval_id, eve, "director", "admin")
        await database.shift_clock(3610)
        await asyncio.gather(*(house.notifier().round() for _ in range(6)))
        await house.dispatcher().once()
        # Dora was asked before, as a manager.
        assert [mail.recipients for mail in house.server.mails[4:]] == [["eve@people.example"]]
        assert await house.audited("escalate", "ask_further") == [
            ("escalate", {"job_id": str(built.job_id), "role": "director"}),
            ("ask_further", {"job_id": str(built.job_id), "stages": ["escalation"], "people": ["Eve"]}),
        ]
        audiences = "SELECT audience FROM deedbox.approval ORDER BY action"
        assert await database.rows(audiences) == [(["manager", "director"],), (["manager"],)]
        assert await approve(house, approval_id, eve, "director", "admin") == "rejected"
        assert dora != eve


async def test_an_approval_goes_further_also_where_no_mail_is_sent(database: TestDatabase):
    async with house_on(database, mail=None, escalations=(Escalation("send_note", "director", 3600.0),)) as house:
        await house.person("Ada", "manager")
        _, approval_id = await house.waiting()
        await database.shift_clock(3700)
        await house.notifier().round()
        assert await database.value("SELECT escalated_to FROM deedbox.approval") == "director"
        assert await house.notices() == []
        # Once there is mail, what waits is asked for, whatever was done before.
        house.asking = replace(house.asking, mail=house.mail)
        assert len(await house.speak()) == 1
        assert await approve(house, approval_id, await house.person("Cy", "manager"), "manager") == "rejected"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"escalate_to": "director"}, "both or neither"),
        ({"escalate_after": "1h"}, "both or neither"),
        ({"escalate_to": "manager", "escalate_after": "1h"}, "further role"),
        ({"escalate_to": "No such", "escalate_after": "1h"}, "further role"),
        ({"escalate_to": "director", "escalate_after": "24h"}, "before its approvals lapse"),
    ],
)
def test_an_escalation_that_lacks_what_it_needs_is_refused_at_registration(options: dict[str, Any], said: str):
    app = App()
    with pytest.raises(RegistrationError, match=said):
        app.action(roles=["operator"], approvers=["manager"], policy=hold(), **options)(step_then_wait)


# Nothing waits for it -------------------------------------------------------------------------------------------------


@proves("G-ASKED")
async def test_what_is_decided_gets_no_more_mails(house: House):
    ada = await house.person("Ada", "manager")
    await house.person("Bo", "manager")
    _, approval_id = await house.waiting()
    await house.notifier().round()
    assert await approve(house, approval_id, ada, "manager") == "rejected"
    await house.database.shift_clock(0.95 * DAY)
    assert await house.speak() == []
    assert [state for _, _, state in await house.notices()] == ["canceled", "canceled"]


@proves("G-SLOW-NOTIFIER")
async def test_a_mail_server_that_hangs_holds_up_neither_a_decision_nor_the_end_of_the_time(house: House):
    ada = await house.person("Ada", "manager")
    _, approval_id = await house.waiting()
    _, other = await house.waiting()
    house.server.faults["mail"] = "stall"
    await house.notifier().round()
    sending = asyncio.create_task(house.dispatcher().once())
    await house.server.reached.wait()
    assert await house.database.value("SELECT expires_at = requested_at + interval '1 day' FROM deedbox.approval LIMIT 1")
    assert await approve(house, approval_id, ada, "manager") == "rejected"
    await house.database.shift_clock(DAY - 60)
    assert await expire_lapsed(house.box.pool, house.box.ids) == 0
    await house.database.shift_clock(DAY + 60)
    assert await expire_lapsed(house.box.pool, house.box.ids) == 1
    states = "SELECT state FROM deedbox.approval WHERE approval_id = ANY (%s) ORDER BY state"
    assert await house.database.rows(states, [approval_id, other]) == [("expired",), ("rejected",)]
    house.server.faults.clear()
    house.server.released.set()
    await sending


@proves("G-NOTICE")
async def test_a_mail_that_may_have_arrived_is_closed_and_the_approval_can_still_be_decided(house: House):
    ada = await house.person("Ada", "manager")
    _, approval_id = await house.waiting()
    house.server.faults["dot"] = "close"
    (mail,) = await house.speak()
    assert [state for _, _, state in await house.notices()] == ["unknown_closed"]
    assert await house.dispatcher().once() == 0
    # Its link works all the same, if it came.
    token = links_of(mail)[0].partition("?t=")[2]
    kept = await house.database.value("SELECT token_sha256 FROM deedbox.approval_token WHERE voided_at IS NULL")
    assert kept == hashlib.sha256(token.encode()).digest()
    house.server.faults.clear()
    await house.database.shift_clock(0.55 * DAY)
    (reminder,) = await house.speak()
    assert links_of(reminder) != links_of(mail)
    assert await approve(house, approval_id, ada, "manager") == "rejected"
    assert await house.database.value("SELECT count(*) FROM deedbox.alert") == 0


# Addresses, and what doctor says of them -----------------------------------------------------------------------------------


async def test_an_address_is_checked_kept_shown_and_taken_back(database: TestDatabase, tmp_path: Path):
    cli = Cli(database.owner_url, tmp_path)
    word = {"stdin": f"{PASSWORD}\n"}
    for bad in ("ada", "Ada <ada@people.example>", "ada@people.example, bo@people.example", "ada@[127.0.0.1]"):
        refused(await cli("users", "add", "Ada", "--role", "manager", "--email", bad, **word), 1, "mail address")
    assert (await cli("users", "add", "Ada", "--role", "manager", "--email", "ada@people.example", **word)).code == 0
    (line,) = (await cli("users", "list", "--json")).json()
    assert (line["name"], line["email"]) == ("Ada", "ada@people.example")
    refused(await cli("users", "email", "Ada", "nowhere"), 1, "mail address")
    refused(await cli("users", "email", "Nobody", "none"), 3, "no person")
    assert (await cli("users", "email", "Ada", "none")).code == 0
    assert (await cli("users", "list", "--json")).json()[0]["email"] is None
    details = await database.rows("SELECT detail::text FROM deedbox.audit_detail")
    assert not [row for row in details if "people.example" in str(row[0])]


def test_doctor_says_who_cannot_be_asked_and_of_what_nobody_is_told():
    smtp = SmtpConfig(host="mail.house.example", sender="desk@house.example")
    silent = list(voice(Settings(), None))
    assert [(what, verdict) for what, verdict, _, _ in silent] == [("asking", "note"), ("alert owners", "note")]
    mailed = Settings(smtp=smtp, notify_mail=True, alerts_to={"bug": ("ops@house.example",)})
    said = list(voice(mailed, App()))
    assert [(what, verdict) for what, verdict, _, _ in said] == [("asking", "ok"), ("alert owners", "note")]
    (wrong,) = list(voice(Settings(alerts_to={"default": ("chat:ops",)}), App()))[1:]
    assert (wrong[1], "chat" in wrong[2]) == ("missing", True)
    at = datetime(2026, 5, 14, tzinfo=UTC)
    people = [
        PrincipalLine("Ada", "person", ("manager",), 0, at, None, "ada@people.example"),
        PrincipalLine("Bo", "person", ("manager",), 0, at, None),
        PrincipalLine("Gone", "person", ("manager",), 0, at, at),
        PrincipalLine("Vi", "person", ("viewer",), 0, at, None),
    ]
    ((_, verdict, who, _),) = unreachable(mailed, people)
    assert (verdict, who) == ("note", "1 may decide and have no address: Bo")
    assert list(unreachable(Settings(), people)) == []
