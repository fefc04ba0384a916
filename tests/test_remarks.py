"""Beside deciding: what people say of an approval, from which they look away, and lists of their own, at every door."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from deedbox.access import add_key
from deedbox.gate.asking import Asking, ask
from deedbox.gate.remarks import snooze
from deedbox.model.errors import DeedboxError
from deedbox.store import prune
from deedbox.store.prune import DAY_S
from deedbox.store.transaction import transaction
from tests.builders import Outbox, ScriptedConnector, principal
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.commands import Cli, refused
from tests.servers.console import field_of, log_in
from tests.servers.installed import PASSWORD, House, house

pytestmark = pytest.mark.anyio
WORDS = "Is the amount of marjoram right?"


@dataclass
class Desk:
    """An installation with people, and a job that waits for managers for a day."""

    site: House
    box: Outbox
    job_id: UUID
    approval_id: UUID
    digest: str

    async def events(self) -> list[tuple[object, ...]]:
        """Type and payload of the job's events beside its first."""
        query = "SELECT type, payload FROM deedbox.event WHERE job_id = %s AND seq > 1 ORDER BY seq"
        return await self.site.database.rows(query, self.job_id)


@pytest.fixture
async def desk(database: TestDatabase) -> AsyncIterator[Desk]:
    async with house(database) as site:
        for name, role in (("Ada", "manager"), ("Bo", "manager"), ("Vi", "viewer"), ("Op", "operator")):
            await site.person(name, role)
        subject = principal(site.installation.ids, "operator")
        await database.rows(
            "INSERT INTO deedbox.principal (principal_id, tenant, kind, name) VALUES (%s, 'default', 'service', 'caller')",
            subject.principal_id,
        )
        box = Outbox(database, site.installation.pool, site.installation.ids, ScriptedConnector(), UUID(subject.principal_id))
        built = await box.build(state="awaiting_human", open_groups=["default"])
        ((approval_id, digest),) = await database.rows(
            "SELECT approval_id, encode(digest, 'hex') FROM deedbox.approval WHERE job_id = %s", built.job_id
        )
        yield Desk(site, box, built.job_id, UUID(str(approval_id)), str(digest))


async def deadline(desk: Desk) -> datetime:
    query = "SELECT expires_at FROM deedbox.approval WHERE approval_id = %s"
    return cast("datetime", await desk.site.database.value(query, desk.approval_id))


async def listed(desk: Desk, name: str, show: str) -> list[dict[str, Any]]:
    async with desk.site.api(await desk.site.session(name)) as client:
        answer = await client.get("/api/approvals", params={"show": show})
        assert answer.status_code == 200, answer.text
        return answer.json()["approvals"]


@proves("G-REMARKS")
async def test_what_people_say_is_on_the_card_at_every_door_and_in_no_event(desk: Desk, tmp_path: Path):
    path = f"/approvals/{desk.approval_id}"
    async with desk.site.browser() as client:
        await log_in(client)
        csrf = field_of((await client.get(path)).text, "csrf")
        answer = await client.post(f"{path}/comment", data={"csrf": csrf, "text": WORDS})
        assert (answer.status_code, answer.headers["location"]) == (303, path)
        assert (await client.post(f"{path}/comment", data={"csrf": csrf, "text": " "})).status_code == 400
        assert (await client.post(f"{path}/comment", data={"csrf": "no", "text": "x"})).status_code == 403
    async with desk.site.api(await desk.site.session("Vi")) as client:
        assert (await client.post(f"/api{path}/comments", json={"text": "It is."})).status_code == 200
        assert (await client.post(f"/api{path}/comments", json={"text": "x" * 2001})).status_code == 400
    cli = Cli(desk.site.database.owner_url, tmp_path)
    said = await cli("approvals", "comment", str(desk.approval_id), "--as", "Bo", "--text", "Thanks.", stdin=f"{PASSWORD}\n")
    assert said.code == 0, said.err
    async with desk.site.api(await desk.site.session("Ada")) as client:
        card = (await client.get(f"/api{path}")).json()
    told = [("Ada", WORDS), ("Vi", "It is."), ("Bo", "Thanks.")]
    assert [(one["name"], one["text"]) for one in card["comments"]] == told
    assert WORDS in (await cli("approvals", "show", str(desk.approval_id))).out.replace("\n", " ")
    events = await desk.events()
    assert [event[0] for event in events] == ["job.commented"] * 3
    assert WORDS not in str(events)
    assert [(entry[1], entry[2]) for entry in await desk.site.told("comment")] == [
        ("Ada", "page"),
        ("Vi", "api"),
        ("Bo", "cli"),
    ]


@proves("G-REMARKS")
async def test_who_may_not_read_it_and_what_is_decided_takes_no_word(desk: Desk):
    path = f"/api/approvals/{desk.approval_id}"
    pool, ids = desk.site.installation.pool, desk.site.installation.ids
    key = await add_key(pool, ids, "default", "robot", ["manager"], "test")
    async with desk.site.api(key) as client:
        for verb, body in (("comments", {"text": "x"}), ("snooze", {"until": None})):
            assert (await client.post(f"{path}/{verb}", json=body)).json()["code"] == "person_required"
    await desk.site.database.rows("INSERT INTO deedbox.tenant (tenant) VALUES ('other')")
    await desk.site.person("Eve", "manager", tenant="other")
    with pytest.raises(DeedboxError, match="no such approval"):
        await snooze(pool, ids, principal(ids, "manager", tenant="other"), desk.approval_id, for_s=60.0, how="api")
    async with desk.site.api(await desk.site.session("Ada")) as client:
        given = {"decision": "reject", "digest": desk.digest, "reason": "no"}
        assert (await client.post(f"{path}/decision", json=given)).status_code == 200
        assert (await client.post(f"{path}/comments", json={"text": "x"})).json()["code"] == "already_decided"
        assert (await client.post(f"{path}/snooze", json={"until": None})).json()["code"] == "already_decided"
    assert await desk.site.told("comment", "snooze") == []


@proves("G-SNOOZE")
async def test_one_looks_away_for_oneself_alone_and_it_comes_back_before_its_deadline(desk: Desk, tmp_path: Path):
    path = f"/approvals/{desk.approval_id}"
    async with desk.site.browser() as client:
        await log_in(client)
        page = (await client.get(path)).text
        assert 'value="4"' in page
        assert 'value="24"' not in page
        answer = await client.post(f"{path}/snooze", data={"csrf": field_of(page, "csrf"), "hours": "4"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert "Nothing waits" in (await client.get("/")).text
        assert "snoozed until" in (await client.get("/?show=snoozed")).text
        assert "Put it back" in (await client.get(path)).text
    assert [len(await listed(desk, "Ada", show)) for show in ("all", "mine", "groups", "snoozed")] == [0, 0, 0, 1]
    assert [len(await listed(desk, "Bo", show)) for show in ("all", "mine", "groups", "snoozed")] == [1, 1, 1, 0]
    await desk.site.database.shift_clock(4 * 3600 + 1)
    assert [len(await listed(desk, "Ada", show)) for show in ("all", "mine", "snoozed")] == [1, 1, 0]
    assert [event[0] for event in await desk.events()] == ["job.snoozed"]
    cli = Cli(desk.site.database.owner_url, tmp_path)
    command = ("approvals", "snooze", str(desk.approval_id), "--as", "Bo")
    ends = await deadline(desk)
    soon = (ends - timedelta(seconds=5)).isoformat()
    assert (await cli(*command, "--until", soon, stdin=f"{PASSWORD}\n")).code == 0
    back = await cli(*command, stdin=f"{PASSWORD}\n")
    assert "in your list again" in back.out
    refused(await cli(*command, "--until", "2026-05-14T16:30:00", stdin=f"{PASSWORD}\n"), 1, "zone")


@proves("G-SNOOZE")
@pytest.mark.parametrize(("late_s", "fits"), [(-1.0, True), (0.0, False), (1.0, False)])
async def test_nobody_looks_away_past_the_deadline(desk: Desk, late_s: float, *, fits: bool):
    ends = await deadline(desk)
    until = (ends + timedelta(seconds=late_s)).isoformat()
    path = f"/api/approvals/{desk.approval_id}/snooze"
    async with desk.site.api(await desk.site.session("Ada")) as client:
        answer = await client.post(path, json={"until": until})
        assert (answer.status_code, await desk.events() != []) == ((200, True) if fits else (400, False))
        assert (await client.post(path, json={"until": "2020-01-01T00:00:00Z"})).status_code == 400
        assert (await client.post(path, json={"until": "2026-05-14T16:30:00"})).status_code == 400


@proves("G-SNOOZE")
async def test_who_looks_away_is_not_reminded_and_sees_again_what_lapses_within_the_hour(desk: Desk):
    database, pool, ids = desk.site.database, desk.site.installation.pool, desk.site.installation.ids
    await database.rows("UPDATE deedbox.principal SET email = lower(name) || '@people.example' WHERE kind = 'person'")
    ends = await deadline(desk)
    async with desk.site.api(await desk.site.session("Ada")) as client:
        until = (ends - timedelta(minutes=5)).isoformat()
        assert (await client.post(f"/api/approvals/{desk.approval_id}/snooze", json={"until": until})).status_code == 200

    class Post(ScriptedConnector):
        def announcement(self, target: str, subject: str, body: str) -> dict[str, str]:
            return {"to": target, "text": f"{subject}{body}"}

    async with transaction(pool) as connection:
        assert await ask(connection, ids, Asking(Post()), 10) == 1
    told = await database.rows("SELECT target FROM deedbox.effect WHERE kind = 'notice'")
    assert told == [("bo@people.example",)]
    await database.shift_clock(86400 - 1800)
    assert [len(await listed(desk, "Ada", show)) for show in ("all", "soon")] == [0, 1]


@proves("G-OWN-LISTS")
async def test_lists_of_ones_own_at_every_door(desk: Desk, tmp_path: Path):
    cli = Cli(desk.site.database.owner_url, tmp_path)
    counts = {
        name: [len(await listed(desk, name, show)) for show in ("all", "mine", "groups", "soon")] for name in ("Ada", "Vi")
    }
    assert counts == {"Ada": [1, 1, 1, 0], "Vi": [1, 0, 0, 0]}
    async with desk.site.api(await desk.site.session("Ada")) as client:
        given = {"decision": "reject", "digest": desk.digest, "reason": "no"}
        assert (await client.post(f"/api/approvals/{desk.approval_id}/decision", json=given)).status_code == 200
        assert (await client.get("/api/approvals", params={"show": "everything"})).status_code == 400
    (line,) = await listed(desk, "Ada", "decided")
    assert (line["state"], line["decision"], line["may_decide"]) == ("rejected", "reject", False)
    assert await listed(desk, "Bo", "decided") == []
    async with desk.site.browser() as client:
        await log_in(client)
        assert "you said reject" in (await client.get("/?show=decided")).text
        assert (await client.get("/?show=everything")).status_code == 200
    shown = await cli("approvals", "list", "--show", "decided", "--as", "Ada", "--json", stdin=f"{PASSWORD}\n")
    assert [one["decision"] for one in shown.json()] == ["reject"]
    refused(await cli("approvals", "list", "--show", "mine"), 2, "--as")
    refused(await cli("approvals", "list", "--show", "everything"), 2, "one of")


async def test_the_card_and_the_list_name_the_service_that_called_for_a_person(desk: Desk):
    service = await desk.site.database.value("SELECT principal_id FROM deedbox.principal WHERE name = 'caller'")
    person = await desk.site.database.value("SELECT principal_id FROM deedbox.principal WHERE name = 'Op'")
    query = "UPDATE deedbox.job SET subject = %s, through = %s WHERE job_id = %s"
    await desk.site.database.rows(query, person, service, desk.job_id)
    (line,) = await listed(desk, "Ada", "all")
    assert (line["asked_by"], line["asked_through"]) == ("Op", "caller")
    async with desk.site.browser() as client:
        await log_in(client)
        assert "through <bdi>caller</bdi>" in (await client.get("/")).text
        assert "in whose name <bdi>caller</bdi> called" in (await client.get(f"/approvals/{desk.approval_id}")).text


async def test_who_canceled_is_kept_with_the_approval_the_end_and_the_timeline(desk: Desk):
    async with desk.site.api(await desk.site.session("Ada")) as client:
        answer = await client.post(f"/api/jobs/{desk.job_id}/cancel", json={"reason": "asked for twice"})
        assert answer.status_code == 200, answer.text
        card = (await client.get(f"/api/approvals/{desk.approval_id}")).json()
        assert (card["state"], card["decided_by"], card["reason"]) == ("withdrawn", "Ada", "asked for twice")
    ((kind, payload),) = await desk.events()
    assert (kind, cast("dict[str, str]", payload)["by"]) == ("job.canceled", "Ada")
    timeline = await desk.site.installation.views.timeline(principal(desk.box.ids, "viewer"), desk.job_id)
    assert timeline is not None
    assert [(one.what, one.detail["by"]) for one in timeline if one.kind == "verb"] == [("cancel", "Ada")]


async def test_words_go_with_the_contents_and_closed_alerts_with_the_records(desk: Desk):
    database, pool = desk.site.database, desk.site.installation.pool
    async with desk.site.api(await desk.site.session("Ada")) as client:
        assert (await client.post(f"/api/approvals/{desk.approval_id}/comments", json={"text": WORDS})).status_code == 200
        assert (await client.post(f"/api/jobs/{desk.job_id}/cancel", json={"reason": "twice"})).status_code == 200
    await database.rows(
        "INSERT INTO deedbox.alert (alert_id, tenant, cause, message, closed_at, closed_by, closed_reason)"
        " SELECT gen_random_uuid(), 'default', 'bug', 'x', deedbox.clock() - make_interval(days => d), principal_id, 'seen'"
        " FROM generate_series(1, 4) AS d, deedbox.principal WHERE name = 'Ada'"
    )
    await database.rows(
        "INSERT INTO deedbox.alert (alert_id, tenant, cause, message) VALUES (gen_random_uuid(), 'default', 'bug', 'x')"
    )
    async with transaction(pool) as connection:
        await prune.remove_contents(connection, [desk.job_id], key_s=DAY_S)
        assert await prune.remove_closed_alerts(connection, 2.5 * DAY_S, 1) == 1
        assert await prune.remove_closed_alerts(connection, 2.5 * DAY_S, 10) == 1
    assert await database.value("SELECT count(*) FROM deedbox.approval_comment") == 0
    assert await database.value("SELECT count(*) FROM deedbox.alert") == 3
