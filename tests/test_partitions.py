"""Partitions: made ahead without anybody waiting, and dropped only when nothing in them is open or kept any longer."""

import asyncio
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
import pytest

from deedbox.intake.request import Request
from deedbox.intake.submit import Intake
from deedbox.operate.doctor import read_growth
from deedbox.store import prune
from deedbox.store.ids import IdSource
from deedbox.store.migrate import MONTHS_AHEAD, PARTITIONED
from deedbox.store.prune import DAY_S, Retention
from deedbox.store.transaction import transaction
from deedbox.sweep.prune import Pruning
from tests.builders import Planned, outbox_on
from tests.database import TestDatabase
from tests.growth import make_app, pruning, until_blocked, working
from tests.guarantees import proves
from tests.road import road

pytestmark = pytest.mark.anyio


async def partitions(database: TestDatabase) -> set[str]:
    """The names of all partitions."""
    return {
        str(row[0])
        for row in await database.rows(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent IN (SELECT oid FROM pg_class WHERE relkind = 'p')"
        )
    }


@proves("G-PARTITION-AHEAD")
async def test_the_months_ahead_are_made_by_sweep_with_the_rights_of_the_application(database: TestDatabase) -> None:
    async with road(database, make_app()) as one:
        at_first = await partitions(database)
        assert (await read_growth(one.pool)).ahead == MONTHS_AHEAD
        # Beyond the last month that there is, whatever day this is: four months have 123 days at most.
        await database.shift_clock(124 * DAY_S)
        assert (await read_growth(one.pool)).ahead < MONTHS_AHEAD
        made = await pruning(one).make_partitions()
        assert len(made) >= 2 * len(PARTITIONED)
        assert await partitions(database) == at_first | {f"deedbox.{name}" for name in made}
        assert (await read_growth(one.pool)).ahead == MONTHS_AHEAD
        assert await pruning(one).make_partitions() == []
        # A job of that month finds its place, and what stands there is indexed as anywhere.
        ids = await IdSource.read(one.pool)
        intake = Intake(one.pool, ids, one.app.actions, public_url="http://127.0.0.1:8484", max_waiting=10)
        job = await intake.submit(Request(one.caller, "echo_note", {"text": "a"}, "k", "http"))
        place = str(await database.value("SELECT tableoid::regclass::text FROM deedbox.job WHERE job_id = %s", job.job_id))
        assert place.removeprefix("deedbox.") in made
        indexes = "SELECT count(*) FROM pg_index WHERE indisvalid AND indrelid = %s::regclass"
        assert await database.value(indexes, place) == await database.value(indexes, "deedbox.job")
        assert await database.value("SELECT bool_and(indisvalid) FROM pg_index WHERE indrelid = 'deedbox.job'::regclass")


@proves("G-PARTITION-AHEAD")
async def test_nobody_waits_while_a_partition_is_made(database: TestDatabase) -> None:
    async with working(database) as one:
        await database.shift_clock(93 * DAY_S)
        async with transaction(one.pool) as connection:
            name = await prune.make_next_partition(connection)
            assert name is not None
            cursor = await connection.execute(
                "SELECT mode FROM pg_locks JOIN pg_class c ON c.oid = relation WHERE pid = pg_backend_pid() AND relname = %s",
                [name.rsplit("_", 2)[0]],
            )
            assert {row[0] for row in await cursor.fetchall()} <= {"AccessShareLock", "ShareUpdateExclusiveLock"}
            job = await one.submit("echo_note", {"text": "a"}, "k")
            await one.until(job.job_id, "completed")
        assert f"deedbox.{name}" in await partitions(database)


async def test_one_process_prunes_at_a_time(database: TestDatabase) -> None:
    async with road(database, make_app()) as one, transaction(one.pool) as connection:
        assert await prune.elect(connection)
        await database.shift_clock(93 * DAY_S)
        assert await pruning(one).make_partitions() == []
        assert not await pruning(one).turn()


@dataclass(frozen=True)
class Obstacle:
    """Something that keeps a month: how it is built, and what is said of it."""

    planned: Planned
    said: str
    state: str = "dispatching"
    end: bool = True
    open_groups: tuple[str, ...] = ()
    unknown: bool = False


OBSTACLES = [
    Obstacle(Planned(), "a job has not ended", end=False),
    Obstacle(Planned(kind="notice", authority="verdict"), "an effect has not ended", unknown=True),
    Obstacle(Planned(), "an approval is open", open_groups=("late",)),
]


@proves("G-PARTITION-DROP")
@pytest.mark.parametrize("obstacle", OBSTACLES, ids=lambda one: one.said.replace(" ", "-"))
async def test_a_month_is_kept_while_anything_in_it_is_open(database: TestDatabase, obstacle: Obstacle) -> None:
    async with outbox_on(database) as one:
        built = await one.build(obstacle.planned, state=obstacle.state, open_groups=obstacle.open_groups)
        if obstacle.end:
            await end(database, built.job_id)
        if not obstacle.unknown:
            await finish_effects(database)
        month = str(await database.value("SELECT date_trunc('month', deedbox.clock() AT TIME ZONE 'UTC')::date"))
        await database.shift_clock(500 * DAY_S)
        pruner = Pruning(one.pool, one.ids, Retention())
        assert not any(name.endswith(month[:7].replace("-", "_")) for name in await pruner.drop_partitions())
        assert await database.value("SELECT count(*) FROM deedbox.job") == 1
        # The database itself refuses, whoever asks for it.
        for parent in PARTITIONED:
            said = await database.value("SELECT deedbox.drop_partition(%s, %s::date, '1 day')", parent, month)
            assert said == obstacle.said
        # What was in the way goes, and so does the month.
        await finish_effects(database)
        await database.rows(
            "UPDATE deedbox.approval SET state = 'withdrawn', decided_at = deedbox.clock() WHERE state = 'pending'"
        )
        if not obstacle.end:
            await end(database, built.job_id, back_s=500 * DAY_S)
        dropped = await Pruning(one.pool, one.ids, Retention()).drop_partitions()
        assert {f"{parent}_{month[:7].replace('-', '_')}" for parent in PARTITIONED} <= set(dropped)
        for table in ("job", "effect", "approval", "verdict", "proposal_effect", "event", "vote", "probe"):
            query = f"SELECT count(*) FROM deedbox.{table}"  # noqa: S608 -- the names stand above
            assert await database.value(query) == 0
        assert await database.value("SELECT count(*) FROM deedbox.idempotency") == 1


async def finish_effects(database: TestDatabase) -> None:
    """Let every effect end."""
    await database.rows("UPDATE deedbox.effect SET state = 'completed' WHERE state = 'pending'")


async def end(database: TestDatabase, job_id: UUID, *, back_s: float = 0) -> None:
    """End a job by hand, so many seconds ago."""
    await database.rows("DELETE FROM deedbox.queue WHERE job_id = %s", job_id)
    await database.rows(
        "INSERT INTO deedbox.result (job_id, state, attempt, attempts_allowed, round, last_seq, ended_at)"
        " VALUES (%s, 'completed', 1, 5, 1, 1, deedbox.clock() - make_interval(secs => %s))",
        job_id,
        back_s,
    )


@proves("G-PARTITION-DROP")
async def test_contents_and_late_ends_keep_a_month_and_the_retention_is_the_database_s_too(database: TestDatabase) -> None:
    async with working(database) as one:
        job = await one.submit("echo_note", {"text": "a"}, "k")
        await one.until(job.job_id, "completed")
        await one.stop_all()
        month = await database.value("SELECT date_trunc('month', deedbox.clock() AT TIME ZONE 'UTC')::date")
        said = await database.value("SELECT deedbox.drop_partition('job', %s::date, '0')", month)
        assert said == "its retention has not passed"
        await database.shift_clock(500 * DAY_S)
        await pruning(one).drop_partitions()
        assert await database.value("SELECT count(*) FROM deedbox.job") == 1
        await database.rows("DELETE FROM deedbox.job_payload")
        await database.rows("UPDATE deedbox.result SET ended_at = deedbox.clock() - interval '399 days'")
        await pruning(one).drop_partitions()
        assert await database.value("SELECT count(*) FROM deedbox.job") == 1
        await database.rows("UPDATE deedbox.result SET ended_at = deedbox.clock() - interval '401 days'")
        assert await pruning(one).drop_partitions()
        assert await database.value("SELECT count(*) FROM deedbox.job") == 0


@proves("G-PARTITION-DROP")
async def test_a_drop_that_meets_a_reader_gives_way_and_comes_back(database: TestDatabase) -> None:
    async with working(database) as one:
        job = await one.submit("echo_note", {"text": "a"}, "k")
        await one.until(job.job_id, "completed")
        await database.shift_clock(500 * DAY_S)
        await database.rows("DELETE FROM deedbox.job_payload")
        pruner = pruning(one)
        await pruner.make_partitions()
        async with await psycopg.AsyncConnection[Any].connect(database.owner_url) as reader:
            await reader.execute("SELECT count(*) FROM deedbox.job")
            dropping = asyncio.create_task(pruner.drop_partitions())
            await until_blocked(database)
            # Queued behind the drop, and through as soon as it has given way.
            other = await one.submit("echo_note", {"text": "b"}, "k2")
            dropped = await dropping
            assert not any(name.startswith("job_") for name in dropped)
            await one.until(other.job_id, "completed")
            await reader.rollback()
        assert any(name.startswith("job_") for name in await pruner.drop_partitions())
