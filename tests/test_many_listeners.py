"""Hundreds of listeners of one process, woken by one LISTEN connection: each gets every event once, in order, and the end."""

import asyncio

import pytest

from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.api import api

pytestmark = pytest.mark.anyio
LISTENERS = 300


@proves("G-MANY-LISTENERS")
async def test_hundreds_of_streams_share_one_listening_connection(database: TestDatabase) -> None:
    async with api(database) as one, one.client(connections=LISTENERS + 10) as client:
        made = await client.post("/api/actions/note_thing/jobs", json={"text": "a"}, headers={"Idempotency-Key": "k"})
        where = f"/api/jobs/{made.json()['job_id']}/events"
        listening = asyncio.Semaphore(0)

        async def follow() -> list[str]:
            seen: list[str] = []
            async with client.stream("GET", where, headers={"Accept": "text/event-stream"}) as response:
                assert response.status_code == 200
                async for line in response.aiter_lines():
                    if line.startswith("id:"):
                        seen.append(line.removeprefix("id:").strip())
                        if len(seen) == 1:
                            listening.release()
            return seen

        followers = [asyncio.create_task(follow()) for _ in range(LISTENERS)]
        for _ in range(LISTENERS):
            await listening.acquire()
        count = (
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'deedbox wakeup' AND datname = current_database()"
        )
        assert await database.value(count) == 1
        one.road.start(one.road.worker())
        heard = await asyncio.gather(*followers)
        assert {tuple(seen) for seen in heard} == {("1", "2", "3")}
