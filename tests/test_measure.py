"""What `/metrics` tells of what waits: exact while there is little, bounded and near the truth when there is much."""

import pytest

from deedbox.model.lifecycle import JOB
from deedbox.store import views
from deedbox.store.transaction import autocommit
from tests.database import TestDatabase
from tests.road import Road, road
from tests.test_lanes import Work

pytestmark = pytest.mark.anyio

QUEUED = """
INSERT INTO deedbox.queue (job_id, lane_id, state, due, priority, action_version, run_at, attempts_allowed)
SELECT gen_random_uuid(), l.lane_id, %s, %s, %s::smallint, 1, deedbox.clock() - %s::float8 * interval '1 s', 5
FROM deedbox.lane l, generate_series(1, %s::integer) WHERE l.action = %s
"""


async def put(
    one: Road, state: str, count: int, *, due: bool = True, priority: int = 100, age_s: float = 0, lane: str = "do_a"
) -> None:
    """Rows of the queue in a state."""
    await one.database.rows(
        "INSERT INTO deedbox.lane (queue, action, tenant) VALUES ('default', %s, 'default') ON CONFLICT DO NOTHING", lane
    )
    await one.database.rows(QUEUED, state, due, priority, age_s, count, lane)


async def measured(one: Road) -> tuple[dict[str, int], float, dict[str, int]]:
    """What is measured now."""
    async with autocommit(one.pool) as connection:
        return await views.measure(connection)


async def test_little_is_counted_exactly(database: TestDatabase) -> None:
    async with road(database, Work().app) as one:
        jobs, oldest, effects = await measured(one)
        assert jobs.keys() == set(JOB.states) - set(JOB.ended)
        assert (set(jobs.values()), oldest, effects) == ({0}, 0.0, {"pending": 0, "sending": 0, "unknown": 0})
        await put(one, "queued", 3, age_s=5)
        await put(one, "queued", 2, due=False, age_s=-100)
        await put(one, "failed_retryable", 4, age_s=900)
        await put(one, "dispatching", 1, age_s=900)
        jobs, oldest, _ = await measured(one)
        assert jobs == {"queued": 5, "running": 0, "awaiting_human": 0, "dispatching": 1, "failed_retryable": 4}
        assert 5 <= oldest < 60


async def test_much_is_estimated_and_what_starves_is_seen(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "MOST_COUNTED", 20)
    async with road(database, Work().app) as one:
        await put(one, "queued", 500)
        await put(one, "failed_retryable", 300)
        await put(one, "dispatching", 7)
        jobs, _, _ = await measured(one)
        assert jobs["queued"] >= 20
        await database.rows("ANALYZE deedbox.queue")
        # Behind five hundred urgent ones, and in a lane of its own.
        await put(one, "queued", 1, priority=1000, age_s=3600)
        await put(one, "queued", 1, lane="do_b", age_s=7200)
        jobs, oldest, _ = await measured(one)
        assert abs(jobs["queued"] - 500) <= 50
        assert abs(jobs["failed_retryable"] - 300) <= 50
        assert jobs["dispatching"] == 7
        assert 7200 <= oldest < 7300
        await database.rows(
            "DELETE FROM deedbox.queue WHERE lane_id = (SELECT lane_id FROM deedbox.lane WHERE action = 'do_b')"
        )
        _, oldest, _ = await measured(one)
        assert 3600 <= oldest < 3700
