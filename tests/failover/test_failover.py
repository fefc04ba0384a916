"""The leader is killed under load: a slice of `make failover` with one kill, and the rig's own parts."""

import re
from pathlib import Path
from uuid import uuid4

import pytest

from tests.database import TestDatabase
from tests.failover.app import app
from tests.failover.checker import check
from tests.failover.cluster import TEMPLATES
from tests.failover.house import Size
from tests.failover.load import Call
from tests.failover.programs import reason_not_to_run
from tests.failover.run import Plan, run
from tests.failover.watch import Look, Outage, judge
from tests.guarantees import proves
from tests.road import road

ROOT = Path(__file__).resolve().parents[2]


@proves("G-FAILOVER")
@pytest.mark.anyio
async def test_no_202_is_lost_and_nothing_is_done_twice_when_the_leader_is_killed() -> None:
    reason = reason_not_to_run()
    if reason is not None:
        pytest.skip(reason)
    report = await run(Plan(("machine",), per_s=8, calm_s=1.5, size=Size()))
    assert report.faults == [], "\n".join(report.lines())
    assert report.accepted == report.found.jobs > 50
    assert report.found.performed > 10
    assert [one.leaderless_s > 0 for one in report.outages] == [True]


@pytest.mark.anyio
async def test_the_checker_finds_what_was_lost_doubled_or_kept_from_the_caller(database: TestDatabase) -> None:
    async with road(database, app) as one:
        kept = await one.submit("work_piece", {"number": 1}, "piece-1")
        one.start(one.worker())
        await one.until(kept.job_id, "completed")
        call = Call("piece-1", "work_piece", {"number": 1}, str(kept.job_id))
        assert (await check(database.owner_url, [call], [], [])).faults == []
        other, nobody = str(uuid4()), str(uuid4())
        wrong = Call("piece-1", "work_piece", {"number": 2}, str(kept.job_id))
        never = Call("piece-3", "work_piece", {"number": 3})
        lost = Call("piece-2", "work_piece", {"number": 2}, other)
        found = await check(database.owner_url, [wrong, never, lost], [nobody], [nobody, nobody])
        assert found.faults == [
            "piece-1: stored as something else",
            "piece-3: never accepted",
            f"piece-2: lost, its 202 named {other}",
            f"effect {nobody}: performed and not stored",
            f"approval {nobody}: its decision is lost",
        ]
        assert len((await check(database.owner_url, [], [], [])).faults) == 1
        await one.submit("work_piece", {"number": 4}, "piece-4")
        await one.stop_all()
        await database.rows("DELETE FROM deedbox.event WHERE seq = 2")
        assert any("events, the last is number" in fault for fault in (await check(database.owner_url, [call], [], [])).faults)


def _looks(*answers: tuple[float, bool]) -> list[Look]:
    return [Look(began, began + 0.5, yes) for began, yes in answers]


def test_who_says_ready_while_nothing_can_be_written_is_found_out() -> None:
    writes = _looks((8, True), (9.6, False), (11, False), (14, False), (16, True))
    outage = Outage("pg0", "machine", killed_at=9.5)
    judge(outage, writes, {"api": _looks((8, True), (11, True), (12, False), (17, True))})
    assert (outage.said_ready, outage.said_not_ready) == (1, 1)
    assert outage.leaderless_s == 7
    assert outage.ready_after_s == 1


def test_who_is_never_ready_again_is_found_out() -> None:
    with pytest.raises(LookupError):
        judge(Outage("pg0", "machine", 9.5), _looks((10, False), (16, True)), {"api": _looks((8, True), (17, False))})


def test_every_name_of_the_templates_is_told_in_the_docs() -> None:
    docs = (ROOT / "docs" / "failover.md").read_text(encoding="utf-8")
    names = {name for path in TEMPLATES.iterdir() for name in re.findall(r"\$\{(\w+)\}", path.read_text(encoding="utf-8"))}
    told = {name if not re.match(r"NODE\d_", name) else re.sub(r"NODE\d", "NODE1", name) for name in names}
    assert not sorted(name for name in told if f"`{name}`" not in docs)


def test_a_password_never_stands_in_a_template() -> None:
    lines = [line for path in TEMPLATES.iterdir() for line in path.read_text(encoding="utf-8").splitlines()]
    given = [line for line in lines if re.match(r"\s+password: ", line)]
    assert len(given) == 3
    assert all("${" in line for line in given)
