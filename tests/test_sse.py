"""Following a job: server-sent events that resume without gap or repeat, pages of JSON, and the listener behind them."""

import asyncio
import json
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from deedbox.operate.follow import Follow
from deedbox.store.pool import Pool
from deedbox.store.tell import tell
from deedbox.store.wakeup import Wakeup
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import until
from tests.servers.api import Api, api, problem_of

pytestmark = pytest.mark.anyio
SLOW = "/api/actions/note_slowly/jobs"
STREAM = {"Accept": "text/event-stream"}


async def frames(response: httpx2.Response, most: int = 100) -> list[dict[str, str]]:
    """The frames of a stream until it ends or there are enough; comments come as `comment`."""
    found: list[dict[str, str]] = []
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line:
            name, _, value = line.partition(": ") if not line.startswith(":") else ("comment", "", line[2:])
            fields[name] = value
        elif fields:
            if "retry" not in fields:
                found.append(fields)
            fields = {}
        if len(found) >= most:
            break
    return found


async def slow_job(one: Api, client: httpx2.AsyncClient, text: str = "a\nb") -> str:
    """A job that runs and waits for the test: where its events are."""
    response = await client.post(SLOW, json={"text": text})
    one.road.start(one.road.worker())
    await asyncio.wait_for(one.script.started.wait(), 20)
    return response.json()["events_url"]


@proves("G-SSE-RESUME")
async def test_a_stream_resumed_after_its_last_id_has_no_gap_and_no_repeat(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        where = await slow_job(one, client)
        async with client.stream("GET", where, headers=STREAM) as first:
            assert first.headers["content-type"].startswith("text/event-stream")
            assert first.headers["cache-control"] == "no-store"
            seen = await frames(first, most=2)
        resumed = asyncio.create_task(_whole(client, where, seen[-1]["id"]))
        one.script.go.set()
        seen += await resumed
        assert [int(frame["id"]) for frame in seen] == list(range(1, len(seen) + 1))
        types = [frame["event"] for frame in seen]
        assert types == ["job.queued", "job.started", "job.progress", "job.partial", "job.progress", "job.completed"]
        for frame in seen:
            event: dict[str, Any] = json.loads(frame["data"])
            assert set(event) == {"event_id", "seq", "type", "job_id", "round", "attempt_id", "timestamp", "payload"}
            assert (str(event["seq"]), event["type"]) == (frame["id"], frame["event"])
        # From every place the rest is the same; after the end there is nothing to reconnect for.
        for place in range(len(seen)):
            assert await _whole(client, where, str(place)) == seen[place:]
        ended = await client.get(where, headers={**STREAM, "Last-Event-ID": seen[-1]["id"]})
        assert (ended.status_code, ended.content) == (204, b"")


async def _whole(client: httpx2.AsyncClient, where: str, last: str) -> list[dict[str, str]]:
    async with client.stream("GET", where, headers={**STREAM, "Last-Event-ID": last}) as response:
        assert response.status_code == 200
        return await frames(response)


async def test_a_quiet_stream_says_that_it_lives_and_ends_with_its_key(database: TestDatabase) -> None:
    async with api(database, keep_alive_s=0.1) as one, one.client() as client:
        where = await slow_job(one, client)
        async with client.stream("GET", where, headers={**STREAM, "Last-Event-ID": "4"}) as response:
            assert [frame["comment"] for frame in await frames(response, most=2)] == ["keep-alive", "keep-alive"]
        async with client.stream("GET", where, headers={**STREAM, "Last-Event-ID": "4"}) as response:
            await database.rows("UPDATE deedbox.api_key SET revoked_at = deedbox.clock()")
            assert all("comment" in frame for frame in await frames(response, most=1000))
        one.script.go.set()


async def test_a_stream_lets_go_when_the_server_stops(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        where = await slow_job(one, client)
        async with client.stream("GET", where, headers=STREAM) as response:
            waiting = asyncio.create_task(client.get(where.removesuffix("/events"), params={"wait": "20"}))
            reading = asyncio.create_task(frames(response))
            one.stopping.set()
            assert len(await asyncio.wait_for(reading, 10)) >= 1
            assert (await asyncio.wait_for(waiting, 10)).json()["state"] == "running"
        one.script.go.set()


async def test_pages_of_json_follow_as_well(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        where = await slow_job(one, client)
        page = (await client.get(where, params={"after": "1"}, headers={"Accept": "application/json"})).json()
        assert [event["seq"] for event in page["events"]] == list(range(2, page["next_after"] + 1))
        assert (page["state"], page["complete"]) == ("running", False)
        wait = {"after": str(page["next_after"]), "wait": "20"}
        waiting = asyncio.create_task(client.get(where, params=wait, headers={"Accept": "application/json, */*;q=0.1"}))
        one.script.go.set()
        more = (await waiting).json()
        assert more["events"][0]["seq"] == page["next_after"] + 1
        await client.get(where.removesuffix("/events"), params={"wait": "20"})
        last = (await client.get(where, params={"after": "0"}, headers={"Accept": "application/json"})).json()
        assert (last["complete"], last["next_after"]) == (True, len(last["events"]))
        for bad in ("x", "-1", "1.5", "9" * 30):
            response = await client.get(where, headers={**STREAM, "Last-Event-ID": bad})
            assert problem_of(response) == (400, "invalid_header", ["/Last-Event-ID"])


async def test_a_listener_hears_after_its_connection_was_cut_and_wakes_everybody_once_it_is_back(
    database: TestDatabase,
) -> None:
    pool = Pool(database.url, "test", size=2)
    await pool.open()
    wakeup = Wakeup(database.direct_url, ping_s=0.1)
    running = asyncio.create_task(wakeup.run())
    try:
        await wakeup.ready()
        queue, job_id = wakeup.event("deedbox_queue"), uuid4()
        async with wakeup.job(job_id) as mine, wakeup.job(uuid4()) as other:
            await tell(pool, jobs=[uuid4() for _ in range(450)] + [job_id, job_id], queue=True)
            await asyncio.wait_for(mine.wait(), 10)
            await asyncio.wait_for(queue.wait(10), 10)
            assert not other.is_set()
            assert not queue.is_set()
            mine.clear()
            await database.rows(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'deedbox wakeup'"
                " AND datname = current_database()"
            )
            # Whatever was said while nobody listened is lost: so everybody is woken to look.
            await asyncio.wait_for(other.wait(), 20)
            assert mine.is_set()
            assert wakeup.connections == 2
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await pool.close()


async def test_a_listener_that_hears_nothing_although_nothing_failed_is_replaced(database: TestDatabase) -> None:
    wakeup = Wakeup(database.direct_url, ping_s=0.05, answer_s=0.2)
    running = asyncio.create_task(wakeup.run())
    try:
        await wakeup.ready()
        # What a pooler in transaction mode does to a listener: the session no longer listens, and no call fails.
        wakeup.ping_channel += "_elsewhere"

        async def connections() -> int:
            return wakeup.connections

        await until(connections, lambda count: count >= 2)
        await wakeup.ready()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_waiting_needs_no_listener(database: TestDatabase) -> None:
    async with api(database) as one:
        deaf = Follow(one.views, poll_s=0.05)
        job_id = (await one.road.submit("note_thing", {"text": "a"}, "k")).job_id
        waiting = asyncio.create_task(deaf.job(one.road.caller, job_id, 20))
        one.road.start(one.road.worker())
        view = await waiting
        assert view is not None
        assert (view.state, view.result) == ("completed", {"text": "a"})
