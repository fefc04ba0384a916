"""The table of faults is whole, and the faults that no other file meets."""

import ast
import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args
from uuid import UUID

import pytest

from deedbox.connectors import Slack, Smtp, Telegram
from deedbox.extend.announce import Announces
from deedbox.gate import words
from deedbox.gate.links import filled, mint
from deedbox.gate.notices import LINK
from deedbox.model.alarms import Saying
from deedbox.model.lease import Lease
from deedbox.model.policy import hold
from deedbox.sweep.service import Sweep
from tests.builders import Outbox, Planned, outbox_on
from tests.database import TestDatabase
from tests.faults import SECTIONS
from tests.road import road
from tests.ruled import app_with, approvals, ask, say

if TYPE_CHECKING:
    from deedbox.store.ids import IdSource

TESTS = Path(__file__).resolve().parent


@pytest.fixture
async def box(database: TestDatabase) -> AsyncIterator[Outbox]:
    async with outbox_on(database) as made:
        yield made


def test_every_fault_has_a_test_and_every_test_is_there() -> None:
    named = {test for faults in SECTIONS.values() for fault in faults for test in fault.tests}
    found: set[str] = set()
    for file in {test.partition("::")[0] for test in named}:
        tree = ast.parse((TESTS / f"{file}.py").read_text(encoding="utf-8"))
        nodes: Iterable[ast.AST] = tree.body
        found |= {f"{file}::{node.name}" for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    assert named - found == set()
    assert all(fault.tests for faults in SECTIONS.values() for fault in faults)


@pytest.mark.anyio
@pytest.mark.parametrize("channel", [Smtp(), Slack(), Telegram()], ids=lambda one: type(one).__name__)
async def test_no_link_of_any_channel_says_a_decision(box: Outbox, channel: Announces) -> None:
    built = await box.build(state="awaiting_human", open_groups=["default"])
    approval_id = cast(
        "UUID", await box.database.value("SELECT approval_id FROM deedbox.approval WHERE job_id = %s", built.job_id)
    )
    wanted = words.Wanted("send_note", "effects", "caller", datetime(2026, 5, 14, tzinfo=UTC), 1, ["manager"])
    alarm = words.Alarm("bug", "It failed.", built.job_id, None, datetime(2026, 5, 14, tzinfo=UTC), 7200.0)
    said = [words.approval(saying, wanted) for saying in get_args(Saying)]
    said += [
        words.alert("alert.opened", alarm, "https://desk.example"),
        words.alert("alert.reminder", alarm, "https://desk.example"),
    ]
    for subject, body in said:
        link = await mint(box.pool, "https://desk.example", approval_id)
        assert link is not None
        payload = filled(channel.announcement("somewhere", subject, body), {LINK: link})
        found = re.findall(r"https?://\S+", str(payload).replace("\\n", " "))
        assert found
        for url in found:
            path, _, query = url.partition("https://desk.example")[2].rstrip("'\"},").partition("?")
            assert path in {"/alerts", f"/approvals/{approval_id}"}
            assert re.fullmatch(r"(t=[A-Za-z0-9_-]{43})?", query)


@pytest.mark.anyio
async def test_a_wait_for_a_person_is_no_run_time(database: TestDatabase) -> None:
    made = app_with(hold(expires="7d"), max_runtime="5s")
    async with road(database, made) as one:
        job_id = await ask(one)
        approval = (await approvals(one, job_id))["default"]
        await one.stop_all()
        # A thousand times the run time, and longer than any lease.
        await database.shift_clock(6 * 86400)
        await Sweep(one.pool, one.ids, Lease(2.0)).round()
        assert await one.state(job_id) == "awaiting_human"
        assert await say(one, approval) == "approved"
        assert await one.state(job_id) == "dispatching"


@pytest.mark.anyio
async def test_a_hold_is_there_whole_or_not_at_all(database: TestDatabase) -> None:
    await database.rows(
        "CREATE FUNCTION public.in_the_way() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'something ran between' USING ERRCODE = '57014'; END $$"
    )
    await database.rows(
        "CREATE TRIGGER in_the_way BEFORE INSERT ON deedbox.approval FOR EACH ROW EXECUTE FUNCTION public.in_the_way()"
    )
    async with road(database, app_with(hold())) as one:
        job_id = (await one.submit("refund_customer", {}, "k")).job_id
        one.start(one.worker())
        seen: list[tuple[object, ...]] = []
        while not seen:
            seen = await database.rows("SELECT 1 FROM deedbox.queue WHERE job_id = %s AND attempt > 0", job_id)
        half = (
            "SELECT (SELECT count(*) FROM deedbox.proposal), (SELECT count(*) FROM deedbox.approval),"
            " (SELECT count(*) FROM deedbox.queue WHERE state = 'awaiting_human')"
        )
        assert await database.rows(half) == [(0, 0, 0)]
        await database.rows("DROP TRIGGER in_the_way ON deedbox.approval")
        one.start(Sweep(one.pool, one.ids, Lease(2.0)))
        await one.until(job_id, "awaiting_human", within=60)
        assert await database.rows(half) == [(1, 1, 1)]


@dataclass
class Reserved:
    """Ids that were taken before others, and are used after them."""

    kept: list[UUID]

    def new(self) -> UUID:
        """The next of them."""
        return self.kept.pop(0)


@pytest.mark.anyio
async def test_what_commits_late_under_a_lower_id_is_sent_all_the_same(box: Outbox) -> None:
    lower = cast("IdSource", cast("Any", Reserved([box.ids.new() for _ in range(20)])))
    higher = await box.build(Planned("higher"))
    assert await box.dispatcher().once() == 1
    late = await replace(box, ids=lower).build(Planned("lower"))
    assert late.effect_id < higher.effect_id
    assert await box.dispatcher().once() == 1
    assert [order.slot for order in box.connector.sent] == ["higher", "lower"]
