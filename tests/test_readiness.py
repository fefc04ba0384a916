"""Readiness is a round trip through the queue: it sees what a ping does not, and leaves nothing behind."""

import pytest

from deedbox.operate import readiness
from deedbox.operate.readiness import Pulse, Readiness
from deedbox.store.pg_errors import StoreError
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import road
from tests.test_gate import make_app

pytestmark = pytest.mark.anyio
NO_PARTITION = """
DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'deedbox.event'::regclass
    LOOP EXECUTE 'DROP TABLE ' || name; END LOOP;
END $$
"""
TABLES = ("job", "job_payload", "queue", "event", "attempt", "result", "idempotency", "lane")


@proves("G-READY")
async def test_the_round_trip_leaves_nothing_behind(database: TestDatabase) -> None:
    async with road(database, make_app()) as one:
        assert await Readiness(one.pool, one.ids, "p", Pulse())() == {}
        for table in TABLES:
            counted = f"SELECT count(*) FROM deedbox.{table}"  # noqa: S608 -- names of this file
            assert await database.value(counted) == 0, table


@proves("G-READY")
@pytest.mark.parametrize(
    "breakage",
    [
        NO_PARTITION,
        "REVOKE INSERT ON deedbox.result FROM deedbox_app",
        "DROP SEQUENCE deedbox.fence_seq",
    ],
    ids=["no partition", "no right to settle", "no fences"],
)
async def test_what_a_ping_would_not_see(database: TestDatabase, breakage: str) -> None:
    async with road(database, make_app()) as one:
        ready = Readiness(one.pool, one.ids, "p", Pulse())
        await database.rows(breakage)
        if database.url == database.owner_url and "REVOKE" in breakage:
            pytest.skip("this server has one role for everything")
        with pytest.raises(StoreError):
            await ready()


async def test_a_worker_that_takes_no_work_is_told(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    async with road(database, make_app()) as one:
        pulse = Pulse()
        pulse.beat()
        assert await Readiness(one.pool, one.ids, "p", pulse)() == {}
        monkeypatch.setattr(readiness, "QUIET_S", -1.0)
        assert "not been able to claim" in (await Readiness(one.pool, one.ids, "p", pulse)())["worker"]
