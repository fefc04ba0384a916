"""Asking and steering over HTTP: jobs, waits, cancels, decisions, the switch, effects, and a database that is away."""

import asyncio
from datetime import datetime
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from deedbox.dispatch.loop import Dispatcher
from deedbox.operate.follow import Follow
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.api import FAULTY_TOKEN, PERSON_TOKEN, Api, api, problem_of, reader

pytestmark = pytest.mark.anyio
NOTE = "/api/actions/note_thing/jobs"
SLOW = "/api/actions/note_slowly/jobs"
SEND = "/api/actions/send_note/jobs"
UNKNOWN = "0197f2a8-0000-7000-8000-00000000b001"


@proves("G-FOREIGN-404")
async def test_a_foreign_job_answers_exactly_as_one_that_does_not_exist(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client, one.client(one.foreign_key) as stranger:
        mine = (await client.post(NOTE, json={}, headers={"Idempotency-Key": "k"})).json()["job_id"]
        for path in ("/api/jobs/{}", "/api/jobs/{}?wait=20", "/api/jobs/{}/events", "/api/jobs/{}/events?after=1"):
            foreign = await stranger.get(path.format(mine))
            assert problem_of(foreign)[:2] == (404, "not_found")
            for other in (UNKNOWN, "x", "0", mine.replace("-", ""), "{" + mine + "}", "%00", "'", "9" * 400):
                unknown = await stranger.get(path.format(other))
                assert (unknown.status_code, unknown.content) == (foreign.status_code, foreign.content)
        foreign = await stranger.post(f"/api/jobs/{mine}/cancel")
        assert problem_of(foreign)[:2] == (404, "not_found")
        assert (await stranger.post(f"/api/jobs/{UNKNOWN}/cancel")).content == foreign.content
        assert (await stranger.get("/api/jobs")).json() == {"jobs": [], "cursor": None}
        assert (await client.get(f"/api/jobs/{mine}")).json()["state"] == "queued"
        # A person who may read sees it, one of another tenant does not.
        person = await reader(database, one.road)
        assert await one.views.job(person, UUID(mine)) is not None
        await database.rows("INSERT INTO deedbox.tenant (tenant) VALUES ('other')")
        elsewhere = type(person)(person.principal_id, "other", person.name, person.kind, person.roles, person.method)
        assert await one.views.job(elsewhere, UUID(mine)) is None
        assert await one.views.timeline(elsewhere, UUID(mine)) is None


async def test_a_job_shows_how_it_stands_while_it_runs_and_after(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        where = (await client.post(SLOW, json={"text": "long"})).headers["location"]
        queued = await client.get(where)
        assert int(queued.headers["retry-after"]) >= 1
        assert (queued.json()["attempts"], queued.json()["max_attempts"]) == (0, 3)
        one.road.start(one.road.worker())
        await asyncio.wait_for(one.script.started.wait(), 20)
        running = (await client.get(where)).json()
        assert (running["state"], running["attempts"]) == ("running", 1)
        assert running["progress"] == {"step": 1, "total_steps": 2, "message": "half of it"}
        assert running["partial"] == {"draft": True, "value": {"text": "l"}}
        assert "result" not in running
        assert datetime.fromisoformat(running["updated_at"]) >= datetime.fromisoformat(running["created_at"])
        waiting = asyncio.create_task(client.get(where, params={"wait": "20"}))
        await asyncio.sleep(0)
        one.script.go.set()
        done = (await waiting).json()
        assert (done["state"], done["result"], done["partial"]) == ("completed", {"text": "long"}, None)
        ended = await client.get(where)
        assert "retry-after" not in ended.headers
        head = await client.head(where, params={"wait": "20"})
        assert (head.status_code, head.content) == (200, b"")


async def test_bad_parameters_are_refused_with_a_pointer(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        where = (await client.post(NOTE, json={}, headers={"Idempotency-Key": "k"})).headers["location"]
        for bad in ("", "soon", "-1", "NaN", "1e3", "9" * 400, "\u0663"):
            assert problem_of(await client.get(where, params={"wait": bad})) == (400, "invalid_parameter", ["/wait"])
            response = await client.get(f"{where}/events", params={"after": bad})
            assert problem_of(response) == (400, "invalid_parameter", ["/after"])
        for name in ("action", "key", "caller_run"):
            response = await client.get("/api/jobs", params={name: "a\x00b"})
            assert problem_of(response) == (400, "invalid_parameter", [f"/{name}"])
        for name, bad in (("state", "nowhere"), ("cursor", "%%%"), ("cursor", "AAAA"), ("cursor", "ü")):
            assert problem_of(await client.get("/api/jobs", params={name: bad}))[:2] == (400, "invalid_parameter")


async def test_jobs_are_listed_in_pages_without_gap_or_repeat(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        made = [(await client.post(NOTE, json={}, headers={"Idempotency-Key": f"k{n}"})).json()["job_id"] for n in range(7)]
        await client.post(SLOW, json={})
        seen: list[str] = []
        cursor: str | None = None
        while True:
            query = {"limit": "3", "action": "note_thing", "state": "queued"} | ({"cursor": cursor} if cursor else {})
            page = (await client.get("/api/jobs", params=query)).json()
            seen += [line["job_id"] for line in page["jobs"]]
            cursor = page["cursor"]
            if cursor is None:
                break
        assert seen == made[::-1]
        by_key = (await client.get("/api/jobs", params={"key": "k3"})).json()["jobs"]
        assert [line["job_id"] for line in by_key] == [made[3]]


@proves("G-CANCEL")
async def test_a_job_is_canceled_or_the_refusal_says_why(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        queued = (await client.post(NOTE, json={}, headers={"Idempotency-Key": "k"})).headers["location"]
        canceled = await client.post(f"{queued}/cancel", json={"reason": "not needed"})
        assert (canceled.status_code, canceled.json()["state"]) == (200, "canceled")
        assert problem_of(await client.post(f"{queued}/cancel"))[:2] == (409, "illegal_move")
        bad = await client.post(f"{queued}/cancel", json={"reason": 1, "more": 2})
        assert problem_of(bad) == (400, "invalid_input", ["/reason", "/more"])
        slow = (await client.post(SLOW, json={})).headers["location"]
        one.road.start(one.road.worker())
        await asyncio.wait_for(one.script.started.wait(), 20)
        asked = await client.post(f"{slow}/cancel")
        assert (asked.status_code, asked.json()["cancel_requested"]) == (202, True)
        assert (await client.get(slow, params={"wait": "20"})).json()["state"] == "canceled"


async def _held(one: Api) -> tuple[str, str]:
    """A job that waits for a person: where it is asked about, and its approval's id."""
    async with one.client() as client:
        headers = {"Idempotency-Key": "k", "Prefer": "wait=20"}
        response = await client.post(SEND, json={"text": "hello"}, headers=headers)
        assert (response.status_code, response.json()["status"]) == (202, "awaiting_human")
        where = response.headers["location"]
        job = (await client.get(where)).json()
        assert job["partial"] is None  # drafts of what is held are not for callers
        return where, job["approvals"][0]["approval_id"]


async def test_who_waits_is_told_of_a_hold_that_came_before_the_first_look(database: TestDatabase) -> None:
    async with api(database) as one:
        one.road.start(one.road.worker())
        job_id = (await one.road.submit("send_note", {"text": "hello"}, "k")).job_id
        await one.road.until(job_id, "awaiting_human")
        follow = Follow(one.views, one.wakeup)
        view = await asyncio.wait_for(follow.job(one.road.caller, job_id, 20, known="queued"), 10)
        assert view is not None
        assert view.state == "awaiting_human"
        # Who knows of the hold waits for what comes after it.
        waiting = asyncio.create_task(follow.job(one.road.caller, job_id, 20))
        async with one.client(PERSON_TOKEN) as person:
            where = f"/api/approvals/{view.approvals[0].approval_id}"
            digest = (await person.get(where)).json()["digest"]
            no = {"decision": "reject", "digest": digest, "reason": "not like this"}
            assert (await person.post(f"{where}/decision", json=no)).status_code == 200
        ended = await asyncio.wait_for(waiting, 10)
        assert ended is not None
        assert ended.state == "failed_terminal"


@proves("G-PERSON-DECIDES")
async def test_a_person_decides_over_the_api_and_a_service_never(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client, one.client(None) as nobody:
        one.road.start(one.road.worker())
        where, approval_id = await _held(one)
        card_path = f"/api/approvals/{approval_id}"
        wrong = await nobody.post("/api/login", json={"name": "approver", "password": "wrong"})
        assert problem_of(wrong)[:2] == (401, "unauthenticated")
        opened = (await nobody.post("/api/login", json={"name": "approver", "password": "secret word"})).json()
        assert (opened["token"], opened["principal"]["roles"]) == (PERSON_TOKEN, ["manager"])
        async with one.client(opened["token"]) as person:
            listed = (await person.get("/api/approvals")).json()["approvals"]
            assert [line["approval_id"] for line in listed] == [approval_id]
            card = (await person.get(card_path)).json()
            assert card["may_decide"] is True
            assert (await person.get(f"/api/approvals/{UNKNOWN}")).status_code == 404
            good = {"decision": "approve", "digest": card["digest"]}
            assert problem_of(await client.post(f"{card_path}/decision", json=good))[:2] == (403, "person_required")
            for bad in (
                {"decision": "approve"},
                {**good, "decision": "yes"},
                {**good, "decision": True},
                {**good, "digest": "0"},
                {**good, "extra": 1},
            ):
                assert problem_of(await person.post(f"{card_path}/decision", json=bad))[:2] == (400, "invalid_input")
            other = {**good, "digest": "0" * 64}
            assert problem_of(await person.post(f"{card_path}/decision", json=other))[:2] == (409, "approval_changed")
            assert (await client.get(where)).json()["state"] == "awaiting_human"
            done = await person.post(f"{card_path}/decision", json=good)
            assert (done.status_code, done.json()["state"]) == (200, "approved")
            assert problem_of(await person.post(f"{card_path}/decision", json=good))[:2] == (409, "already_decided")
        job = (await client.get(where)).json()
        assert (job["state"], job["effects"][0]["state"], job["approvals"][0]["state"]) == (
            "dispatching",
            "pending",
            "approved",
        )


@proves("G-SWITCH-OFF")
async def test_the_switch_and_the_ledger_are_worked_over_the_api(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client, one.client(PERSON_TOKEN) as person:
        one.road.start(one.road.worker())
        where, approval_id = await _held(one)
        digest = (await person.get(f"/api/approvals/{approval_id}")).json()["digest"]
        await person.post(f"/api/approvals/{approval_id}/decision", json={"decision": "approve", "digest": digest})
        one.road.start(Dispatcher(one.road.pool, one.road.ids, one.road.app.connectors, environment_on=True))
        assert (await client.get("/api/switch")).json()["is_on"] is False
        assert problem_of(await client.put("/api/switch", json={"on": True, "reason": "go"}))[:2] == (403, "person_required")
        for bad in ({"on": "true", "reason": "go"}, {"on": 1, "reason": "go"}, {"on": True}):
            assert problem_of(await person.put("/api/switch", json=bad))[:2] == (400, "invalid_input")
        effect = (await person.get("/api/effects", params={"state": "pending"})).json()["effects"][0]
        effect_path = f"/api/effects/{effect['effect_id']}"
        assert problem_of(await client.post(f"{effect_path}/abandon", json={"reason": "x"}))[:2] == (403, "person_required")
        assert problem_of(await person.post(f"{effect_path}/confirm", json={}))[:2] == (400, "invalid_input")
        assert problem_of(await person.post(f"{effect_path}/resend", json={}))[:2] == (404, "not_found")
        assert problem_of(await person.get("/api/effects", params={"before": "x"})) == (400, "invalid_parameter", ["/before"])
        assert (await person.put("/api/switch", json={"on": True, "reason": "go"})).json()["is_on"] is True
        job = (await client.get(where, params={"wait": "20"})).json()
        assert job["state"] == "completed"
        assert job["effects"][0]["state"] == "completed"
        assert job["effects"][0]["provider_id"] == job["done"][0]["provider_id"]
        shown = (await person.get(effect_path)).json()
        assert (shown["state"], len(shown["receipts"])) == ("completed", 1)
        timeline = await one.views.timeline(one.road.approver, UUID(job["job_id"]))
        assert timeline is not None
        kinds = [entry.kind for entry in timeline]
        assert {"call", "event", "attempt", "approval", "vote", "receipt", "effect"} <= set(kinds)
        assert kinds[0] == "call"
        assert [entry.at for entry in timeline] == sorted(entry.at for entry in timeline)


async def test_health_readiness_and_figures_need_no_key(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client, one.client(None) as nobody:
        await client.post(NOTE, json={}, headers={"Idempotency-Key": "k"})
        assert (await nobody.get("/healthz")).json() == {"status": "ok"}
        assert (await nobody.get("/readyz")).json() == {"status": "ready", "missing": {}}
        figures = (await nobody.get("/metrics")).text
        assert 'deedbox_jobs{state="queued"} 1.0' in figures
        assert "deedbox_accept_seconds_bucket" in figures
        one.stopping.set()
        assert (await nobody.get("/readyz")).status_code == 503


async def test_while_the_database_is_away_callers_are_told_to_come_again(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        where = (await client.post(NOTE, json={}, headers={"Idempotency-Key": "k"})).headers["location"]
        waiting = asyncio.create_task(client.get(where, params={"wait": "20"}))
        await one.road.pool.close()
        for response in (
            await client.get(where),
            await client.post(NOTE, json={}, headers={"Idempotency-Key": "k2"}),
            await client.get("/api/jobs"),
            await waiting,
        ):
            assert problem_of(response)[:2] == (503, "unavailable")
            assert int(response.headers["retry-after"]) >= 1
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/metrics")).status_code == 200


async def test_an_unexpected_failure_says_nothing_of_the_inside(database: TestDatabase) -> None:
    async with api(database) as one, one.client(FAULTY_TOKEN) as client:
        response = await client.post(NOTE, json={}, headers={"Idempotency-Key": "k"})
        assert problem_of(response)[:2] == (500, "internal")
        assert "inside" not in response.text
        assert (await client.get("/healthz")).status_code == 200


async def test_the_access_log_holds_the_template_and_never_path_or_query(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        with capture_logs() as lines:
            job_id = (await client.post(NOTE, json={}, headers={"Idempotency-Key": "secret-key"})).json()["job_id"]
            await client.get(f"/api/jobs/{job_id}", params={"wait": "0", "token": "secret-query"})
            await client.get("/secret-path", params={"t": "secret-query"})
        seen = [(line["route"], line["status"], line.get("job_id")) for line in lines if line["event"] == "request"]
        assert seen == [
            ("/api/actions/{action}/jobs", 202, job_id),
            ("/api/jobs/{job_id}", 200, job_id),
            ("unmatched", 404, None),
        ]
        assert "secret" not in str(lines)
        assert one.key not in str(lines)
