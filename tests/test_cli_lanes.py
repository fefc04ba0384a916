"""Lanes and rounds through the real command line and the API."""

from pathlib import Path
from typing import Any

import pytest

from tests.database import TestDatabase
from tests.road import road
from tests.servers.api import PERSON_TOKEN, api, problem_of
from tests.servers.commands import PASSWORD, Cli, refused
from tests.test_rounds import Script, parked

pytestmark = pytest.mark.anyio


async def test_a_parked_job_is_taken_up_and_closed_and_its_lane_held_back(database: TestDatabase, tmp_path: Path) -> None:
    cli = Cli(database.owner_url, tmp_path)
    script = Script()
    async with road(database, script.app) as one:
        job_id = await parked(one)
        await one.stop_all()
    said = {"stdin": f"{PASSWORD}\n"}
    assert (await cli("users", "add", "Ada", "--role", "manager", **said)).code == 0
    why = ("--as", "Ada", "--reason", "The provider is back.")
    (lane,) = (await cli("lanes", "list", "--json")).json()
    assert (lane["action"], lane["waiting"], lane["running"], lane["paused"]) == ("ask_provider", 0, 0, False)
    number = str(lane["lane_id"])
    assert (await cli("lanes", "pause", number, *why, **said)).out == "paused\n"
    assert (await cli("lanes", "limit", number, "3", *why, **said)).out == "at most 3 at once\n"
    taken = await cli("jobs", "take-up", str(job_id), *why, **said)
    assert (taken.code, taken.out) == (0, "queued again, round 2\n")
    refused(await cli("jobs", "take-up", str(job_id), *why, **said), 1, "The job is queued")
    refused(await cli("jobs", "close", str(job_id), *why, **said), 1, "The job is queued")
    (lane,) = (await cli("lanes", "list", "--json")).json()
    assert (lane["waiting"], lane["paused"], lane["max_running"]) == (1, True, 3)
    assert (await cli("lanes", "resume", number, *why, **said)).out == "goes on\n"
    assert (await cli("lanes", "limit", number, "none", *why, **said)).out == "no limit\n"
    refused(await cli("lanes", "limit", number, "many", *why, **said), 2, "MOST")
    refused(await cli("lanes", "pause", "999", *why, **said), 3, "no such lane")
    limited = await cli("lanes", "limit-action", "ask_provider", "2", *why, **said)
    assert limited.out == "at most 2 at once over all lanes of ask_provider\n"
    (lane,) = (await cli("lanes", "list", "--json")).json()
    assert (lane["max_running"], lane["action_max_running"]) == (None, 2)
    assert (await cli("lanes", "limit-action", "ask_provider", "none", *why, **said)).out.startswith("no limit over all")
    (lane,) = (await cli("lanes", "list", "--json")).json()
    assert lane["action_max_running"] is None
    refused(await cli("lanes", "limit-action", "ask_nobody", "2", *why, **said), 3, "No lane of such an action")
    assert await database.value("SELECT count(*) FROM deedbox.audit WHERE verb = 'limit_action'") == 2
    verbs = [row[0] for row in await database.rows("SELECT verb FROM deedbox.audit WHERE verb = 'change_lane'")]
    assert verbs == ["change_lane"] * 4


async def test_lanes_and_rounds_over_http(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        made = await client.post("/api/actions/note_thing/jobs", json={}, headers={"Idempotency-Key": "k"})
        (lane,) = (await client.get("/api/lanes")).json()["lanes"]
        where = f"/api/lanes/{lane['lane_id']}"
        assert (await client.put(where, json={"limit": 2, "reason": "slowly"})).json()["max_running"] == 2
        assert (await client.put(where, json={"paused": True, "reason": "stop"})).json()["paused"] is True
        for bad in ({"limit": "2", "reason": "x"}, {"limit": -2, "reason": "x"}, {"limit": 2}, {"limit": 99999, "reason": "x"}):
            assert problem_of(await client.put(where, json=bad))[:2] == (400, "invalid_input")
        everywhere = "/api/lanes/actions/note_thing"
        assert problem_of(await client.put(everywhere, json={"limit": 1, "reason": "x"}))[:2] == (403, "permission_denied")
        for nobody in ("/api/lanes/999", "/api/lanes/x", f"/api/lanes/{'9' * 40}"):
            assert problem_of(await client.put(nobody, json={"reason": "x"}))[:2] == (404, "not_found")
        job = f"/api/jobs/{made.json()['job_id']}"
        for verb in ("retry", "close"):
            assert problem_of(await client.post(f"{job}/{verb}", json={"reason": "again"}))[:2] == (409, "illegal_move")
            assert problem_of(await client.post(f"{job}/{verb}", json={}))[:2] == (400, "invalid_input")
        correction: dict[str, Any] = {"input": {}, "key": "other", "reason": "A typo."}
        assert problem_of(await client.post(f"{job}/replacement", json=correction))[:2] == (409, "illegal_move")
        for name in ("Deedbox-Run-At", "Deedbox-Deadline", "Deedbox-Priority"):
            for value in ("soon", "-1", "2030-01-01T00:00:00", "1001", "2030-13-01T00:00:00Z"):
                headers = {"Idempotency-Key": "b", name: value}
                answer = problem_of(await client.post("/api/actions/note_thing/jobs", json={}, headers=headers))
                assert answer == (400, "invalid_header", [f"/{name}"]), (name, value)
        headers = {"Idempotency-Key": "c", "Deedbox-Run-At": "2999-01-01T00:00:00+02:00", "Deedbox-Priority": "7"}
        later = await client.post("/api/actions/note_thing/jobs", json={}, headers=headers)
        shown = (await client.get(later.headers["location"])).json()
        assert shown["next_attempt_at"] == "2998-12-31T22:00:00Z"
        assert await database.value("SELECT priority FROM deedbox.queue WHERE NOT due") == 7


async def test_an_action_is_limited_over_all_tenants_over_http(database: TestDatabase) -> None:
    async with api(database) as one:
        async with one.client() as client:
            await client.post("/api/actions/note_thing/jobs", json={}, headers={"Idempotency-Key": "k"})
        async with one.client(PERSON_TOKEN) as client:
            everywhere = "/api/lanes/actions/note_thing"
            changed = (await client.put(everywhere, json={"limit": 1, "reason": "their server is small"})).json()
            assert (changed["action"], changed["max_running"], changed["lanes"][0]["action_max_running"]) == (
                "note_thing",
                1,
                1,
            )
            assert (await client.put(everywhere, json={"limit": -1, "reason": "it grew"})).json()["max_running"] is None
            for bad in ({"reason": "x"}, {"limit": -2, "reason": "x"}, {"limit": 1}, {"limit": 99999, "reason": "x"}):
                assert problem_of(await client.put(everywhere, json=bad))[:2] == (400, "invalid_input")
            nowhere = await client.put("/api/lanes/actions/note_nothing", json={"limit": 1, "reason": "x"})
            assert problem_of(nowhere)[:2] == (404, "not_found")
