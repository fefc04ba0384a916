"""The plans of the statements that run all the time, on a big database: found by index, and with a bounded number of pages.

Every statement is prepared and its plan is forced to be the generic one, as the driver's become after a few executions. That is
done three times: planned while the tables were empty and never again, planned on big tables before anybody took statistics (as
happens to a session that fell behind with the news of other sessions), and planned on fresh statistics. The tables hold 100,000
finished and 100,000 waiting jobs; with DEEDBOX_BIG=1 a million of each. DEEDBOX_SHOW_PLANS=1 with `pytest -s` prints figures.
"""

import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, LiteralString, cast
from uuid import UUID

import pytest
from psycopg import sql

from deedbox.model.fingerprint import sha256
from deedbox.store import (
    accept,
    callbacks,
    decision,
    delivery,
    doctor,
    lanes,
    model_calls,
    notices,
    outbox,
    prune,
    queue,
    reconcile,
    sweep,
    targets,
    tools,
    views,
    waits,
)
from deedbox.store.loader import statement, statements
from deedbox.store.packed import Packed
from deedbox.store.pool import Connection, connect
from deedbox.store.prune import DAY_S, Retention
from deedbox.store.reconcile import LookUps
from deedbox.store.targets import Breaker, Place
from tests.database import TestDatabase, through_a_pooler
from tests.guarantees import proves
from tests.stock import FILL, MANY, PREPARE, RARE, RUNNING, SUBJECT, Sample, sample

pytestmark = pytest.mark.anyio
SQUARE = 32 * 31 // 2
"""So many pairs that do not belong together are looked at by nobody who looks each of 32 rows up; a worker gives hundreds."""
SMALL_PAGES = 40
"""A relation of so few pages may be read from end to end: there is no shorter way."""

FILES = (
    "accept",
    "callbacks",
    "decision",
    "delivery",
    "doctor",
    "lanes",
    "model_calls",
    "notices",
    "outbox",
    "prune",
    "queue",
    "reconcile",
    "sweep",
    "switch",
    "targets",
    "tools",
    "views",
    "waits",
)
Call = Callable[[Connection], Awaitable[Any]]


@dataclass(frozen=True)
class Case:
    """One statement as the store runs it, and how many pages it may touch."""

    name: str
    pages: int
    query: str
    parameters: Mapping[str, Any]


class Recorder:
    """Stands between the store and a connection, and keeps what was asked of it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.seen: list[tuple[str, Mapping[str, Any]]] = []

    async def execute(self, query: LiteralString, parameters: Mapping[str, Any] | None = None) -> Any:
        """Run it, and keep it."""
        self.seen.append((query, parameters or {}))
        return await self._connection.execute(query, parameters)


def calls(one: Sample) -> Iterator[tuple[int, Call]]:
    """What the loops and the faces ask, each with the pages that one execution of its statements may touch."""
    reader = views.Reader("default", SUBJECT, sees_all=True)
    own = views.Reader("default", SUBJECT, sees_all=False)
    shares = [queue.Share(lane, 1, 60.0, 32) for lane in one.lanes]
    keep = Retention(contents_s=60.0, by_action={"do_1": 120.0})
    terms = accept.Terms("default", "do_1", 1, "new", SUBJECT, "operator", "http", one.lanes[0], attempts=5)
    news = [accept.NewJob(terms, job_id, None, sha256(job_id.bytes), sha256(b"x"), "{}") for job_id in one.new]
    events = one.new
    news.sort(key=lambda job: job.identity)
    yield 1000, lambda c: accept.accept(c, news, events)
    yield 1000, lambda c: accept.existing(c, news)
    yield 1500, lambda c: accept.waiting(c, one.lanes[0], 1001)
    yield 60, lambda c: lanes.ready(c, one.lanes)
    yield 120, lambda c: lanes.room(c, one.lanes)
    yield 1500, lambda c: queue.claim(c, shares, worker="w", lease_s=30, attempt_ids=one.new, event_ids=events)
    yield 600 + RUNNING, lambda c: queue.renew(c, one.lapsed, 30)
    yield 600, lambda c: queue.flags(c, one.lapsed)
    yield 600 + RUNNING, lambda c: queue.lock_attempts(c, one.lapsed)
    yield 600, lambda c: queue.settled(c, one.lapsed)
    yield 1000 + RUNNING, lambda c: queue.complete_attempts(c, _completed(one), worker="w", build="b")
    yield 100, lambda c: queue.end_attempts(c, [_ending(one.lapsed[0][0], one.new[0])])
    yield 100, lambda c: queue.move_attempts(c, [queue.Moving(one.lapsed[0][0], "queued", "job.retrying", one.new[0], {}, 1.0)])
    yield (
        3000,
        lambda c: outbox.lease(c, environment_on=True, connectors=["note"], sender="s", lease_s=60, event_ids=events[:16]),
    )
    yield 3000, lambda c: _lease_gated(c, events)
    yield 60, outbox.next_due
    yield 60, lambda c: c.execute(statement("waits", "gates"), {"tenant": "default", "effect_id": one.effect})
    yield 60, lambda c: c.execute(statement("waits", "facts"), {"tenant": "default", "effect_id": one.effect})
    yield 60, lambda c: reconcile.next_look_up(c, LookUps(), ["note"])
    yield 60, lambda c: reconcile.claim(c, LookUps(), ["note"], limit=16)
    yield 60, lambda c: reconcile.remind(c, after_s=3600, again_s=86400)
    yield 60, lambda c: targets.went_badly(c, Place("default", "note", "new"), one.effect, Breaker(), why="x")
    yield 60, lambda c: targets.went_well(c, Place("default", "note", "wall"), one.effect)
    kept = {"job_id": one.finished[0], "receipt_id": one.new[0], "effect_id": one.new[0], "provider_id": "p", "evidence": "{}"}
    more = {"phase": "answered", "source": "late", "by_principal": None}
    yield 60, lambda c: c.execute(statement("outbox", "add_receipt"), {**kept, **more})
    yield 2000, lambda c: delivery.deliver(c, _delivered(one))
    yield 1500, lambda c: delivery.finish(c, one.delivered, one.new)
    yield 60, lambda c: outbox.lock_effect(c, one.effect, one.waiting[0])
    yield 60, lambda c: c.execute(statement("outbox", "unsendable"), {"after": UUID(int=0), "limit": 500})
    yield 1000 + RUNNING, lambda c: sweep.rescue(c, events)
    yield 60, lambda c: sweep.promote(c, 500)
    yield 60, sweep.look
    yield 2000 + MANY // 500, lambda c: sweep.overdue(c, 500)
    yield 20 + MANY // 10, lambda c: sweep.dispatching_done(c, 500)
    yield 60, lambda c: decision.lapsed(c, 500)
    yield 200, lambda c: views.job(c, reader, one.finished[0])
    yield 200, lambda c: views.job(c, reader, one.waiting[0])
    yield 60, lambda c: views.pulse(c, reader, one.finished[0])
    yield 60, lambda c: views.outcome(c, reader, one.finished[0])
    yield 60, lambda c: views.events(c, reader, one.finished[0], after=0, limit=100)
    for pages, who in ((3000, reader), (1500, own), (1500, views.Reader("default", RARE, sees_all=False))):
        yield (
            pages,
            lambda c, who=who: views.jobs(
                c, who, action=None, state=None, key_sha256=None, caller_run=None, before=None, limit=50
            ),
        )
    yield 60 + 3 * views.MOST_COUNTED, views.measure
    yield 4000, lambda c: prune.contents(c, keep, UUID(int=0), 200)
    yield 1500, lambda c: prune.remove_contents(c, one.finished, key_s=DAY_S)
    yield 200 + MANY // 25, lambda c: prune.parked(c, keep, UUID(int=0), 200)
    yield 60, lambda c: prune.remove_expired_keys(c, 200)
    yield 60, lambda c: prune.remove_old_calls(c, DAY_S, 200)
    yield 60, lambda c: prune.remove_old_tools(c, DAY_S, 200)
    yield 60, lambda c: tools.parent(c, own, one.waiting[0])
    yield 60, lambda c: tools.turn(c, "default", "act", sha256(b"call"), key="k", call_id=one.new[0], window_s=60)
    yield 60, lambda c: tools.spend(c, one.waiting[0], 10)
    yield 200, lambda c: tools.journal(c, [_tool_row(one)])
    yield 60, lambda c: tools.journal(c, [_tool_row(one)], begun=True)
    yield 60, lambda c: model_calls.spent(c, one.finished[0], "EUR", except_part="agent", from_turn=1)
    yield 60, lambda c: model_calls.steps(c, one.finished[0], "dra")
    yield 60, lambda c: model_calls.drafted(c, one.finished[0], "model 0")
    yield 60, lambda c: model_calls.report(c, "default", 60.0)
    yield 60, lambda c: model_calls.journal(c, _asked(one))
    word = {"id": one.finished[0], "what": "p", "key_sha256": sha256(b"p"), "limit": 20}
    yield 8000, lambda c: c.execute(statement("answers", "find"), {**own.parameters, **word})
    yield 60, lambda c: c.execute(statement("answers", "parents"), {"job_id": one.finished[0]})
    yield 60, lambda c: c.execute(statement("answers", "children"), {"job_id": one.finished[0]})
    mine = {**own.parameters, "id": one.new[0], "jobs": list(one.finished[:20]), "limit": 20}
    yield 400, lambda c: c.execute(statement("answers", "calls"), mine)
    yield 1500, lambda c: prune.forget_records(c, one.month, UUID(int=0), 200)
    yield 200, lambda c: prune.in_the_way(c, one.month, DAY_S)
    yield 20000, lambda c: prune.misplaced(c, UUID(int=0), 1000)
    yield 20000, doctor.misplaced
    yield 300, lambda c: notices.forget_old(c, DAY_S, UUID(int=0), 200)
    yield 100, lambda c: notices.cancel_of_approval(c, one.new[0])
    every, of_job = callbacks.Which("default", "note"), callbacks.Which("default", "note", job_id=one.finished[0])
    yield 30000, lambda c: callbacks.page(c, one.waiting[0], 2000)
    yield 2000, lambda c: callbacks.take(c, one.waiting, ["desk"])
    yield 2000, lambda c: callbacks.mark(c, dict.fromkeys(one.waiting, 1), one.waiting)
    yield 1500, lambda c: callbacks.told(c, every, limit=100)
    yield 20 + MANY // 10, lambda c: callbacks.told(c, of_job, limit=100)
    yield 1500, lambda c: callbacks.again(c, every, limit=100)
    yield 20 + MANY // 10, lambda c: callbacks.again(c, of_job, limit=100)
    yield 60, lambda c: accept.held(c, "default", "do_1", 1001)
    yield 60, lambda c: waits.first(c, "default", "note", "wall")
    yield 60, lambda c: prune.remove_closed_alerts(c, DAY_S, 200)


async def _lease_gated(connection: Connection, events: list[UUID]) -> None:
    """A lease that holds a target with a rate, of which everything waits."""
    place = Place("default", "note", "wall")
    await targets.limit(connection, place, rate_per_s=100.0, burst=16, order_by=None, by="test")
    await outbox.lease(connection, environment_on=True, connectors=["note"], sender="s", lease_s=60, event_ids=events[:16])


def _completed(one: Sample) -> list[queue.Completed]:
    return [queue.Completed(held, {"text": "x"}, event, "{}", {}) for held, event in zip(one.lapsed, one.new, strict=True)]


def _tool_row(one: Sample) -> tools.ToolRow:
    said = ("mcp", "act", "answered", "success", "b", "valid", 1.0)
    return tools.ToolRow(one.new[1], "default", SUBJECT, *said, job_id=one.finished[0])


def _asked(one: Sample) -> model_calls.ModelCallRow:
    said = ("default", "do_1", "model", "default", "tiny", 1, 100, 10, 900)
    return model_calls.ModelCallRow(one.new[0], one.finished[0], one.new[1], *said)


def _delivered(one: Sample) -> list[delivery.Delivered]:
    pairs = zip(one.sending, one.new, strict=True)
    return [delivery.Delivered(*ids, 7, "note", new, new, "p", "{}", "answered") for ids, new in pairs]


def _ending(job_id: UUID, event_id: UUID) -> queue.Ending:
    return queue.Ending(job_id, "completed", "job.completed", event_id, {}, {"text": "x"})


async def cases(connection: Connection) -> list[Case]:
    """Every statement that these calls run, named by file and name, once each."""
    # Of the alerts the one that reads effects is among the calls.
    names = {
        text: f"{file}.{name}" for file in (*FILES, "alert", "answers", "packed") for name, text in statements(file).items()
    }
    found: dict[str, Case] = {}
    one = await sample(connection)
    for pages, call in calls(one):
        recorder = Recorder(connection)
        async with connection.transaction(force_rollback=True):
            await call(cast("Connection", recorder))
        for query, parameters in recorder.seen:
            name = names[query]
            number = sum(known.split("#")[0] == name for known in found)
            found[f"{name}#{number}"] = Case(f"{name}#{number}", pages, query, parameters)
    return list(found.values())


class Prepared:
    """A connection on which each case is a prepared statement with a generic plan."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def prepare(self, every: list[Case]) -> None:
        """Prepare all of them, and plan them as the tables are now."""
        await self._connection.execute("SET plan_cache_mode = force_generic_plan")
        for case in every:
            order: list[str] = []

            def place(match: re.Match[str], order: list[str] = order) -> str:
                if match["name"] not in order:
                    order.append(match["name"])
                return f"${order.index(match['name']) + 1}"

            text = re.sub(r"%\((?P<name>\w+)\)s", place, case.query).replace("%%", "%")
            await self._connection.execute(f'PREPARE "{case.name}" AS {text}'.encode())
            await self.explain(case)

    async def _spelt(self, file: str, value: Any) -> Any:
        if not isinstance(value, Packed):
            return value
        # What EXECUTE is given has to be spelt out.
        cursor = await self._connection.execute(
            "SELECT %s::deedbox.new_job[]::text" if file == "accept" else "SELECT %s::deedbox.ended_attempt[]::text", [value]
        )
        row = await cursor.fetchone()
        return row[0] if row else None

    async def explain(self, case: Case) -> dict[str, Any]:
        """Run it, undo it, and return the plan with what it touched."""
        used = dict.fromkeys(re.findall(r"%\((\w+)\)s", case.query))
        values = sql.SQL(", ").join(
            [sql.Literal(await self._spelt(case.name.split(".")[0], case.parameters[name])) for name in used]
        )
        execute = sql.SQL("EXECUTE {}({})" if used else "EXECUTE {}").format(sql.Identifier(case.name), values)
        async with self._connection.transaction(force_rollback=True):
            cursor = await self._connection.execute(sql.SQL("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) ") + execute)
            row = await cursor.fetchone()
        return cast("dict[str, Any]", row[0][0]["Plan"]) if row else {}


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A plan's nodes that ran."""
    if plan.get("Actual Loops", 0):
        yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


async def wrong(prepared: Prepared, every: list[Case], big: frozenset[str], when: str) -> dict[tuple[str, str], str]:
    """What is wrong with which plan, in a sentence."""
    found: dict[tuple[str, str], str] = {}
    for case in every:
        plan = await prepared.explain(case)
        touched = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        if touched > case.pages:
            # What a session that fell behind with the news of others reads of the catalogue again is not the statement's.
            plan = await prepared.explain(case)
            touched = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        read = {node["Relation Name"] for node in nodes(plan) if node["Node Type"] == "Seq Scan"} & big
        if os.environ.get("DEEDBOX_SHOW_PLANS"):
            sys.stdout.write(f"{when}: {case.name}: {touched} of {case.pages} pages\n")
        if read:
            found[when, case.name] = f"reads {', '.join(sorted(read))} from end to end"
        elif touched > case.pages:
            found[when, case.name] = f"touches {touched} pages, {case.pages} at most"
        elif case.name.startswith("queue.") and any(
            node.get("Rows Removed by Join Filter", 0) * node["Actual Loops"] > SQUARE for node in nodes(plan)
        ):
            found[when, case.name] = "holds every row given against every other"
    return found


async def stay_awake(connection: Connection, until: asyncio.Event) -> None:
    """Take in what other sessions of the server tell of their changes: one that falls behind forgets all its plans."""
    while not until.is_set():
        await connection.execute("SELECT 1")
        try:
            async with asyncio.timeout(0.05):
                await until.wait()
        except TimeoutError:
            continue


@proves("G-PLANS")
async def test_no_statement_reads_a_big_table_from_end_to_end(database: TestDatabase) -> None:
    if through_a_pooler():
        pytest.skip("prepared statements are what is looked at, and the pooler keeps none")
    base = int(str(await database.value("SELECT (extract(epoch FROM deedbox.clock()) * 1000)::bigint"))) - 7_200_000
    owner = await connect(database.owner_url, "fill")
    old = await connect(database.url, "old plans", prepare=False)
    fresh = await connect(database.url, "fresh plans", prepare=False)
    try:
        await owner.execute("SET statement_timeout = 0")
        await owner.execute("SET synchronous_commit = off")
        for text in PREPARE:
            await owner.execute(text.replace("%(base)s", str(base)).encode())
        # Statistics stay as they are until this test takes them.
        cursor = await owner.execute(
            "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'deedbox'::regnamespace"
        )
        for (name,) in await cursor.fetchall():
            await owner.execute(f"ALTER TABLE {name} SET (autovacuum_enabled = false)".encode())
        every = await cases(old)
        stale = Prepared(old)
        await stale.prepare(every)
        filled = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(stay_awake(old, filled))
            for text in FILL:
                await owner.execute(cast("LiteralString", text), {"many": MANY, "subject": SUBJECT, "rare": RARE})
            filled.set()
        cursor = await owner.execute(
            "SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'deedbox'::regnamespace"
            " AND pg_relation_size(oid) > %s * 8192",
            [SMALL_PAGES],
        )
        big = frozenset(row[0] for row in await cursor.fetchall())
        assert {name.rstrip("0123456789_") for name in big} >= {"job", "queue", "event", "result", "idempotency", "effect"}
        found = await wrong(stale, every, big, "empty")
        await old.execute("DISCARD PLANS")
        found |= await wrong(stale, every, big, "grown")
        await owner.execute("ANALYZE")
        anew = Prepared(fresh)
        await anew.prepare(every)
        found |= await wrong(anew, every, big, "fresh")
    finally:
        for connection in (owner, old, fresh):
            await connection.close()
    assert not found, "\n".join(f"{name}, planned on {when} tables, {said}" for (when, name), said in found.items())
