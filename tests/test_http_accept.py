"""Accepting over HTTP: one job per key, the 202 and its headers, replays, waits, and documents."""

import asyncio
import hashlib
import json

import pytest

from deedbox.access import resolve_key
from deedbox.intake.request import Request
from deedbox.model.errors import DeedboxError
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import until
from tests.servers.api import api, form, part, problem_of

pytestmark = pytest.mark.anyio
NOTE = "/api/actions/note_thing/jobs"


@proves("G-ACCEPT-ONCE", "G-STORED-BEFORE-202", "G-REPLAY")
@pytest.mark.parametrize("deliveries", [10, 1000])
async def test_parallel_deliveries_of_one_key_make_one_job_and_one_lease(database: TestDatabase, deliveries: int) -> None:
    async with api(database) as one, one.client(connections=64) as client:

        async def deliver() -> tuple[int, str, bool]:
            response = await client.post(NOTE, json={"text": "once"}, headers={"Idempotency-Key": "one"})
            return response.status_code, response.json()["job_id"], "idempotent-replayed" in response.headers

        answers = await asyncio.gather(*(deliver() for _ in range(deliveries)))
        assert {status for status, _, _ in answers} == {202}
        assert len({job_id for _, job_id, _ in answers}) == 1
        assert sum(not replayed for _, _, replayed in answers) == 1
        assert (await one.stored())["job"] == 1
        one.road.start(one.road.worker("w1"))
        one.road.start(one.road.worker("w2"))
        shown = await client.get(f"/api/jobs/{answers[0][1]}", params={"wait": "20"})
        assert shown.json()["state"] == "completed"
        assert one.script.runs == 1
        assert await database.value("SELECT count(*) FROM deedbox.attempt") == 1


async def test_the_202_says_where_to_ask_and_its_job_is_committed(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        response = await client.post(NOTE, json={"number": 7}, headers={"Idempotency-Key": "k"})
        assert response.status_code == 202
        body = response.json()
        where = f"{one.url}/api/jobs/{body['job_id']}"
        assert body == {
            "job_id": body["job_id"],
            "status": "queued",
            "status_url": where,
            "events_url": f"{where}/events",
        }
        assert response.headers["location"] == where
        assert int(response.headers["retry-after"]) >= 1
        assert "idempotent-replayed" not in response.headers
        assert await one.stored() == {
            "job": 1,
            "job_payload": 1,
            "queue": 1,
            "event": 1,
            "idempotency": 1,
            "document": 0,
            "job_document": 0,
            "result": 0,
        }
        assert (await client.get(where)).json()["state"] == "queued"


@proves("G-REPLAY", "G-KEY-BOUND")
async def test_a_payload_is_the_same_whoever_has_read_it(database: TestDatabase) -> None:
    same = '{"text":"\\u00e9 😀","number":3,"anything":{"z":[1.0,-0.0,1e2],"a":{"é":0.25}}}'
    other = same.replace("0.25", "0.26")
    async with api(database) as one, one.client() as client:
        sent = {"Idempotency-Key": "k", "Content-Type": "application/json"}
        first = (await client.post(NOTE, content=same.encode(), headers=sent)).json()["job_id"]
        principal = await resolve_key(one.road.pool, one.key)
        assert principal is not None
        again = await one.road.intake.submit(Request(principal, "note_thing", json.loads(same), "k", "http"))
        assert (str(again.job_id), again.replayed) == (first, True)
        with pytest.raises(DeedboxError) as refused:
            await one.road.intake.submit(Request(principal, "note_thing", json.loads(other), "k", "http"))
        assert refused.value.code == "key_reused"
        assert problem_of(await client.post(NOTE, content=other.encode(), headers=sent))[:2] == (422, "key_reused")


@proves("G-REPLAY")
async def test_a_replay_has_the_same_body_with_the_state_of_now(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        first = await client.post(NOTE, json={"text": "a"}, headers={"Idempotency-Key": "k"})
        one.road.start(one.road.worker())
        await client.get(first.headers["location"], params={"wait": "20"})
        # Quoted, with escapes, is the same key; so is the payload spelt in another order, with escapes and blanks.
        again = await client.post(
            NOTE, content=b' {"text" : "\\u0061" } ', headers={"Idempotency-Key": '"k"', "Content-Type": "application/json"}
        )
        assert again.status_code == 202
        assert again.headers["idempotent-replayed"] == "true"
        assert again.json() == {**first.json(), "status": "completed"}
        assert again.headers["location"] == first.headers["location"]


async def test_equal_payloads_spelt_differently_are_one(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        spellings = [
            b'{"number":1,"text":"\xc3\xa9","anything":{"a":1,"b":[1.5]}}',
            b'{"text":"\\u00e9","anything":{"b":[1.50],"a":1.0},"number":1.0}',
            b'\n{ "anything":{"b":[15e-1],"a":1e0},\t"number":1,"text":"\\u00E9" }\n',
        ]
        headers = {"Idempotency-Key": "k", "Content-Type": "application/json; charset=UTF-8"}
        answers = [await client.post(NOTE, content=text, headers=headers) for text in spellings]
        assert len({answer.json()["job_id"] for answer in answers}) == 1
        assert (await one.stored())["job"] == 1


@proves("G-KEY-BOUND")
async def test_a_key_with_another_payload_is_refused_also_while_the_first_runs(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        path, key = "/api/actions/note_slowly/jobs", {"Idempotency-Key": "k"}
        first = await client.post(path, json={"text": "a"}, headers=key)
        assert problem_of(await client.post(path, json={"text": "b"}, headers=key))[:2] == (422, "key_reused")
        one.road.start(one.road.worker())
        await asyncio.wait_for(one.script.started.wait(), 20)
        assert problem_of(await client.post(path, json={"text": "b"}, headers=key))[:2] == (422, "key_reused")
        one.script.go.set()
        shown = await client.get(first.headers["location"], params={"wait": "20"})
        assert shown.json()["state"] == "completed"
        assert problem_of(await client.post(path, json={}, headers=key))[:2] == (422, "key_reused")
        # Null, absent and empty are different payloads; a stranger's equal one is refused with the same answer.
        assert problem_of(await client.post(path, json={"text": "a", "anything": None}, headers=key))[:2] == (422, "key_reused")
        async with one.client(one.foreign_key) as stranger:
            assert problem_of(await stranger.post(path, json={"text": "a"}, headers=key))[:2] == (422, "key_reused")
        assert (await one.stored())["job"] == 1
        assert await database.value("SELECT count(*) FROM deedbox.call WHERE error_code = 'key_reused'") == 5


@pytest.mark.parametrize(
    ("sent", "same"),
    [('"a b"', "a b"), ('"a\\"b\\\\"', 'a"b\\'), ("a b", "a b"), ('a"b', 'a"b'), ("x" * 255, "x" * 255)],
)
async def test_keys_are_quoted_or_bare(database: TestDatabase, sent: str, same: str) -> None:
    async with api(database) as one, one.client() as client:
        response = await client.post(NOTE, json={}, headers={"Idempotency-Key": sent})
        assert response.status_code == 202
        assert await database.value("SELECT idempotency_key FROM deedbox.job") == same


async def test_prefer_wait_answers_with_the_job_when_it_ended_in_time(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        one.road.start(one.road.worker())
        headers = {"Idempotency-Key": "k", "Prefer": "wait=20"}
        response = await client.post(NOTE, json={"text": "now"}, headers=headers)
        assert response.status_code == 200
        assert response.headers["preference-applied"] == "wait=20"
        assert (response.json()["state"], response.json()["result"]) == ("completed", {"text": "now"})
        again = await client.post(NOTE, json={"text": "now"}, headers=headers)
        assert (again.status_code, again.headers["idempotent-replayed"]) == (200, "true")
        failed = await client.post(NOTE, json={"text": "refuse"}, headers={**headers, "Idempotency-Key": "k2"})
        assert (failed.status_code, failed.json()["state"]) == (200, "failed_terminal")
        assert failed.json()["failure"] == {
            "class": "caller_error",
            "code": "no_such_customer",
            "message": "There is no such customer.",
        }
        assert "result" not in failed.json()


async def test_prefer_wait_falls_back_to_202_and_respond_async_does_not_wait(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        headers = {"Idempotency-Key": "k", "Prefer": "wait=0.2"}
        late = await client.post(NOTE, json={}, headers=headers)
        assert (late.status_code, late.json()["status"]) == (202, "queued")
        assert "preference-applied" not in late.headers
        at_once = await client.post(NOTE, json={}, headers={"Idempotency-Key": "k", "Prefer": "respond-async, other=1"})
        assert (at_once.status_code, at_once.headers["preference-applied"]) == (202, "respond-async")
        malformed = await client.post(NOTE, json={}, headers={"Idempotency-Key": "k", "Prefer": "wait=soon"})
        assert malformed.status_code == 202


async def test_trace_and_run_are_kept_and_a_broken_trace_is_dropped(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        headers = {"Idempotency-Key": "k", "traceparent": trace, "Deedbox-Caller-Run": "run 1/u"}
        await client.post(NOTE, json={}, headers=headers)
        await client.post(NOTE, json={}, headers={"Idempotency-Key": "k2", "traceparent": trace.upper()})
        rows = await database.rows("SELECT trace, caller_run FROM deedbox.job ORDER BY job_id")
        assert rows == [(trace, "run 1/u"), (None, None)]
        page = (await client.get("/api/jobs", params={"caller_run": "run 1/u"})).json()
        assert len(page["jobs"]) == 1
        for bad in ("", "x" * 201, "tab\there", "ü"):
            run = {b"Idempotency-Key": b"k3", b"Deedbox-Caller-Run": bad.encode()}
            response = await client.post(NOTE, json={}, headers=run)
            assert problem_of(response) == (400, "invalid_header", ["/Deedbox-Caller-Run"])


@proves("G-STORED-BEFORE-202")
async def test_a_document_is_stored_before_the_202_and_results_link_to_it(database: TestDatabase) -> None:
    content = bytes(range(256)) * 40 + b"\r\n--bound\r\n--boundless"
    async with api(database) as one, one.client() as client:
        body, headers = form(
            [
                part("title", "Käse".encode()),
                part("input", b'{"pages": 3}', media_type="application/json"),
                part(
                    "file",
                    content.replace(b"--bound\r\n", b"--bond\r\n"),
                    file="Prüfung %22A%22.pdf",
                    media_type="application/pdf",
                ),
                part("more", b"one", file="C:\\dir\\1.txt", media_type="text/plain"),
                part("more", b"two", file="2.txt"),
                part("unused", b"", file=""),
            ]
        )
        content = content.replace(b"--bound\r\n", b"--bond\r\n")
        response = await client.post("/api/actions/read_paper/jobs", content=body, headers=headers)
        assert response.status_code == 202, response.text
        assert await database.value("SELECT count(*) FROM deedbox.document") == 3
        one.road.start(one.road.worker())
        job = (await client.get(response.headers["location"], params={"wait": "20"})).json()
        assert job["result"] == {"text": f'Prüfung "A".pdf: {len(content)}'}
        assert [document["name"] for document in job["documents"]] == ['Prüfung "A".pdf', "1.txt", "2.txt"]
        assert job["documents"][0]["sha256"] == hashlib.sha256(content).hexdigest()
        stored = json.loads(str(await database.value("SELECT input::text FROM deedbox.job_payload")))
        assert (stored["title"], stored["pages"], stored["file"]["size"]) == ("Käse", 3, len(content))

        got = await client.get(job["documents"][0]["url"])
        assert (got.status_code, got.content) == (200, content)
        assert got.headers["content-type"] == "application/pdf"
        assert got.headers["content-disposition"] == "attachment; filename*=UTF-8''Pr%C3%BCfung%20%22A%22.pdf"
        assert got.headers["x-content-type-options"] == "nosniff"
        assert got.headers["content-security-policy"] == "default-src 'none'; sandbox"
        async with one.client(one.foreign_key) as stranger:
            foreign = await stranger.get(job["documents"][0]["url"])
            unknown = await stranger.get("/api/documents/0197f2a8-0000-7000-8000-0000000000d0")
            assert problem_of(foreign)[:2] == (404, "not_found")
            assert foreign.content == unknown.content

        # The same form under another boundary is the same payload.
        again = await client.post(
            "/api/actions/read_paper/jobs",
            data={"title": "Käse", "input": '{"pages": 3}'},
            files=[
                ("more", ("1.txt", b"one")),
                ("more", ("2.txt", b"two")),
                ("file", ('Prüfung "A".pdf', content, "application/pdf")),
            ],
        )
        assert (again.json()["job_id"], again.headers["idempotent-replayed"]) == (response.json()["job_id"], "true")
        assert await database.value("SELECT count(*) FROM deedbox.job_document") == 3


async def test_who_hangs_up_while_waiting_leaves_the_job_alone(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        headers = {"Idempotency-Key": "k", "Prefer": "wait=20"}
        waiting = asyncio.create_task(client.post(NOTE, json={"text": "a"}, headers=headers))
        await until(one.stored, lambda stored: stored["job"] == 1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        one.road.start(one.road.worker())
        async with one.client() as other:
            again = await other.post(NOTE, json={"text": "a"}, headers=headers)
        assert (again.status_code, again.json()["state"]) == (200, "completed")
