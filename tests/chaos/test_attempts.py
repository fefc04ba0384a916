"""The checker of attempts, checked: what it notes, and that it sees a worker which ends what another holds."""

from typing import Any, LiteralString, cast

import psycopg
import pytest

from deedbox.model.lease import Lease
from deedbox.store import loader, queue
from deedbox.store.queue import Completed
from deedbox.store.transaction import autocommit
from deedbox.sweep.service import Sweep
from tests.chaos.attempts import WATCH, attempts
from tests.chaos.broken import without_fence
from tests.database import TestDatabase
from tests.road import Road, road
from tests.test_lanes import Work, lane_of, submit

pytestmark = pytest.mark.anyio


async def claim(one: Road, worker: str) -> queue.Claimed:
    """One job, claimed by a session that is called as that worker's sessions are."""
    ids = one.ids.many(2)
    async with autocommit(one.pool) as connection:
        await connection.execute(f"SET application_name = 'deedbox {worker}'".encode())
        share = queue.Share(await lane_of(one), 1, 60.0, 1)
        (claimed,) = await queue.claim(connection, [share], worker=worker, lease_s=1, attempt_ids=ids[:1], event_ids=ids[1:])
    return claimed


async def complete(one: Road, claimed: queue.Claimed, worker: str) -> bool:
    """Whether the worker could end that attempt."""
    held = (claimed.job_id, claimed.attempt_id, claimed.fence)
    done = Completed(held, {"number": 1, "attempt": claimed.attempt}, one.ids.new(), "{}", {})
    async with autocommit(one.pool) as connection:
        await connection.execute(f"SET application_name = 'deedbox {worker}'".encode())
        return all(await queue.complete_attempts(connection, [done], worker=worker, build="b"))


async def taken_over(one: Road) -> tuple[queue.Claimed, queue.Claimed]:
    """An attempt whose lease has run out, and the one that has taken its place."""
    async with await psycopg.AsyncConnection[Any].connect(one.database.owner_url, autocommit=True) as connection:
        await connection.execute(WATCH)
    await submit(one, one.caller, 1)
    first = await claim(one, "w1")
    await one.database.shift_clock(60)
    assert await Sweep(one.pool, one.ids, Lease(2.0)).rescue() == 1
    return first, await claim(one, "w2")


async def found(one: Road) -> list[str]:
    async with await psycopg.AsyncConnection[Any].connect(one.database.owner_url, autocommit=True) as connection:
        return (await attempts(connection)).faults


async def test_what_went_as_it_should_is_no_fault(database: TestDatabase) -> None:
    async with road(database, Work().app) as one:
        first, second = await taken_over(one)
        assert not await complete(one, first, "w1")
        assert "was claimed and never ended" in "; ".join(await found(one))
        assert await complete(one, second, "w2")
        assert await found(one) == []


async def test_a_worker_that_ends_what_another_holds_is_found(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = loader.statements("queue")
    for name, broken in without_fence().items():
        monkeypatch.setitem(loaded, name, cast("LiteralString", broken))
    async with road(database, Work().app) as one:
        first, _ = await taken_over(one)
        await complete(one, first, "w1")
        said = "; ".join(await found(one))
    assert "attempt 2 was held by w2, and complete came from w1" in said
    assert "was held by w2, and deedbox w1 made it complete" in said
    assert "attempt 2 has the output of attempt 1" in said
