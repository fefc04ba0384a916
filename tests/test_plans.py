"""The plans of the statements that run all the time, on a big database: found by index, and with a bounded number of pages.

Every statement is prepared and its plan is forced to be the generic one, as the driver's become after a few executions. That is
done twice: planned while the tables were empty and never again, and planned on fresh statistics. The tables hold 100,000
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
from deedbox.store import accept, decision, delivery, doctor, lanes, outbox, prune, queue, sweep, views
from deedbox.store.loader import statement, statements
from deedbox.store.pool import Connection, connect
from deedbox.store.prune import DAY_S, Retention
from tests.database import TestDatabase, through_a_pooler
from tests.guarantees import proves

pytestmark = pytest.mark.anyio
MANY = 1_000_000 if os.environ.get("DEEDBOX_BIG") == "1" else 100_000
RUNNING = MANY // 1000
"""How many jobs run. It does not grow with what waits, so a plan may look at all of them."""
SMALL_PAGES = 40
"""A relation of so few pages may be read from end to end: there is no shorter way."""

SUBJECT = UUID(int=7)
RARE = UUID(int=8)
"""Somebody who asked for three jobs, the oldest of all."""
FILES = ("accept", "decision", "delivery", "doctor", "lanes", "outbox", "prune", "queue", "sweep", "switch", "views")
Call = Callable[[Connection], Awaitable[Any]]

# What does not hold yet, by when it was planned, with what is to be done about it; it has to fail, or its line goes.
_SORT = "sorts all that is there before the limit, until statistics are taken"
KNOWN: dict[tuple[str, str], str] = {
    ("empty", "views.jobs#0"): _SORT,
}

# Job n of a kind (0 finished, 1 waiting) and what belongs to it have ids that can be told from n. Finished jobs are two hours
# old and waiting ones one. Of a hundred waiting jobs one is for later, one dispatches two effects, one is parked, one has a
# deadline in the past and one in the future; of a thousand one runs under a lease that has lapsed. Of five that dispatch, one
# has both effects on the wire, and one has both behind it.
PREPARE = (
    """CREATE FUNCTION public.nth(kind integer, n bigint, part integer DEFAULT 0) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
        SELECT (lpad(to_hex((%(base)s + kind * 3600000 + n)::bigint), 12, '0') || '7' || lpad(to_hex(part), 3, '0')
                || '8' || substr(md5(kind::text || ':' || n::text), 1, 15))::uuid $$""",
    "INSERT INTO deedbox.lane (queue, action, tenant) SELECT 'default', 'do_' || n, 'default' FROM generate_series(0, 9) AS n",
    "UPDATE deedbox.lane SET max_running = 5 WHERE action = 'do_2'",
    "INSERT INTO deedbox.action_limit (action, max_running) VALUES ('do_1', 5)",
    "UPDATE deedbox.switch SET is_on = true",
)
FILL = (
    """INSERT INTO deedbox.idempotency (tenant, action, key_sha256, job_id, payload_sha256)
       SELECT 'default', 'do_' || n %% 10, sha256((k || ':' || n)::bytea), public.nth(k, n), sha256('x')
       FROM generate_series(0, 1) AS k, generate_series(1, %(many)s) AS n""",
    """INSERT INTO deedbox.job (job_id, tenant, action, action_version, key_sha256, key_source, subject, role, source,
                              created_at)
       SELECT public.nth(k, n), 'default', 'do_' || n %% 10, 1, sha256((k || ':' || n)::bytea), 'header',
              CASE WHEN k = 0 AND n <= 3 THEN %(rare)s WHEN n %% 5 = 0 THEN %(subject)s ELSE gen_random_uuid() END, 'operator',
              'http', deedbox.clock()
       FROM generate_series(0, 1) AS k, generate_series(1, %(many)s) AS n""",
    """INSERT INTO deedbox.job_payload (job_id, input) SELECT public.nth(k, n), jsonb_build_object('text', md5(n::text))
       FROM generate_series(0, 1) AS k, generate_series(1, %(many)s) AS n""",
    """INSERT INTO deedbox.event (job_id, seq, event_id, type, round, at, payload)
       SELECT public.nth(0, n), s, gen_random_uuid(), 'job.started', 1, deedbox.clock(), '{}'
       FROM generate_series(1, %(many)s) AS n, generate_series(1, 3) AS s""",
    """INSERT INTO deedbox.attempt (job_id, attempt_id, report, attempt, round, move, worker, build, ended_at)
       SELECT public.nth(0, n), public.nth(0, n, 1), 'ended', 1, 1, 'complete', 'w', 'b', deedbox.clock()
       FROM generate_series(1, %(many)s) AS n""",
    """INSERT INTO deedbox.result (job_id, state, output, attempt, attempts_allowed, round, last_seq, ended_at)
       SELECT public.nth(0, n), 'completed', jsonb_build_object('text', md5(n::text)), 1, 5, 1, 3, deedbox.clock()
       FROM generate_series(1, %(many)s) AS n""",
    """INSERT INTO deedbox.queue (job_id, lane_id, state, due, action_version, run_at, deadline, attempt, attempts_allowed,
                                  last_seq, attempt_id, fence, worker, started_at, lease_until, lease_cap)
       SELECT public.nth(1, n), l.lane_id,
              CASE WHEN n %% 1000 = 6 THEN 'running' ELSE CASE n %% 100 WHEN 2 THEN 'dispatching' WHEN 3 THEN 'failed_retryable'
              ELSE 'queued' END END,
              n %% 100 <> 1, 1, deedbox.clock() + (n %% 100 = 1)::integer * interval '1 day',
              CASE n %% 100 WHEN 4 THEN deedbox.clock() - interval '1 s' WHEN 5 THEN deedbox.clock() + interval '1 day' END,
              (n %% 1000 = 6)::integer, 5, 1, lease.*
       FROM generate_series(1, %(many)s) AS n
       JOIN deedbox.lane l ON l.action = 'do_' || n %% 10
       LEFT JOIN LATERAL (SELECT public.nth(1, n, 1), 7, 'w', deedbox.clock(), deedbox.clock() - interval '1 s', deedbox.clock()
       ) AS lease ON n %% 1000 = 6""",
    """INSERT INTO deedbox.proposal (job_id, proposal_id, output, policy_version, created_at)
       SELECT public.nth(k, n), public.nth(k, n, 2), '{"text": "x"}', 'v1', deedbox.clock()
       FROM generate_series(0, 1) AS k, generate_series(1, %(many)s) AS n WHERE n %% 100 = 2""",
    """INSERT INTO deedbox.proposal_effect (proposal_effect_id, job_id, proposal_id, group_name, position, connector, target,
                                            slot, summary, body, digest)
       SELECT public.nth(k, n, 10 + s), public.nth(k, n), public.nth(k, n, 2), 'default', s, 'note', 'wall', 'slot' || s,
              'Writes.', (k || ':' || n || ':' || s)::bytea, sha256((k || ':' || n || ':' || s)::bytea)
       FROM generate_series(0, 1) AS k, generate_series(1, %(many)s) AS n, generate_series(1, 2) AS s WHERE n %% 100 = 2""",
    """INSERT INTO deedbox.approval (approval_id, job_id, tenant, action, proposal_id, purpose, group_name, state, digest,
                                     effect_digests, policy_version, rule, audience, requested_at, expires_at, decided_at,
                                     decided_by, decided_how)
       SELECT public.nth(k, n, 3), public.nth(k, n), 'default', 'do_2', public.nth(k, n, 2), 'effects', 'default', 'approved',
              sha256('x'), ARRAY[sha256((k || ':' || n || ':1')::bytea), sha256((k || ':' || n || ':2')::bytea)], 'v1', 'hold',
              '{manager}', deedbox.clock(), deedbox.clock() + interval '1 day', deedbox.clock(), %(subject)s, 'test'
       FROM generate_series(0, 1) AS k, generate_series(1, %(many)s) AS n WHERE n %% 100 = 2""",
    """INSERT INTO deedbox.effect (effect_id, job_id, tenant, action, kind, proposal_effect_id, connector, target, slot, digest,
                                   approval_id, state, not_before, not_after, fence, sender, lease_until)
       SELECT public.nth(k, n, 20 + s), public.nth(k, n), 'default', 'do_2', 'act', public.nth(k, n, 10 + s), 'note', 'wall',
              'slot' || s, sha256((k || ':' || n || ':' || s)::bytea), public.nth(k, n, 3),
              CASE WHEN k = 0 OR n %% 500 = 302 THEN 'completed' WHEN sent.fence = 7 THEN 'sending' ELSE 'pending' END,
              deedbox.clock() - n * interval '1 ms', deedbox.clock() + interval '1 day', sent.*
       FROM generate_series(0, 1) AS k
       CROSS JOIN generate_series(1, %(many)s) AS n
       CROSS JOIN generate_series(1, 2) AS s
       LEFT JOIN LATERAL (SELECT 7, 's', deedbox.clock() + interval '1 day') AS sent (fence, sender, lease_until)
           ON k = 1 AND n %% 500 = 102
       WHERE n %% 100 = 2""",
)


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


@dataclass(frozen=True)
class Sample:
    """A few ids of each kind, and who asks."""

    finished: list[UUID]
    waiting: list[UUID]
    lapsed: list[tuple[UUID, UUID, int]]
    effect: UUID
    sending: list[tuple[UUID, UUID]]
    delivered: list[UUID]
    lanes: list[int]
    new: list[UUID]
    month: Any


async def sample(connection: Connection) -> Sample:
    """Read the samples; the ids are known before the rows are there."""

    async def ids(kind: int, first: int, step: int = 1, part: int = 0) -> list[UUID]:
        cursor = await connection.execute(
            "SELECT public.nth(%s, n, %s) FROM generate_series(%s::bigint, %s + 31 * %s, %s::bigint) AS n",
            [kind, part, first, first, step, step],
        )
        return [row[0] for row in await cursor.fetchall()]

    lapsed = zip(await ids(1, 1006, 1000), await ids(1, 1006, 1000, 1), [7] * 32, strict=True)
    cursor = await connection.execute("SELECT lane_id FROM deedbox.lane ORDER BY lane_id")
    rows = await cursor.fetchall()
    cursor = await connection.execute("SELECT date_trunc('month', deedbox.clock() AT TIME ZONE 'UTC')::date")
    month = await cursor.fetchone()
    return Sample(
        finished=await ids(0, MANY // 2),
        waiting=await ids(1, MANY // 2),
        lapsed=list(lapsed),
        effect=(await ids(1, 102, 100, 21))[0],
        sending=list(zip(await ids(1, 602, 500), await ids(1, 602, 500, 21), strict=True)),
        delivered=await ids(1, 302, 500),
        lanes=[row[0] for row in rows],
        new=await ids(2, 1),
        month=month[0] if month else None,
    )


def calls(one: Sample) -> Iterator[tuple[int, Call]]:
    """What the loops and the faces ask, each with the pages that one execution of its statements may touch."""
    reader = views.Reader("default", SUBJECT, sees_all=True)
    own = views.Reader("default", SUBJECT, sees_all=False)
    shares = [queue.Share(lane, 1, 60.0, 32) for lane in one.lanes]
    keep = Retention(contents_s=60.0, by_action={"do_1": 120.0})
    news = [
        accept.NewJob(
            job_id=job_id,
            tenant="default",
            action="do_1",
            version=1,
            key=None,
            key_sha256=sha256(job_id.bytes),
            key_source="new",
            payload_sha256=sha256(b"x"),
            subject=SUBJECT,
            role="operator",
            source="http",
            input_json="{}",
            lane_id=one.lanes[0],
            attempts=5,
        )
        for job_id in one.new
    ]
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
    yield 60, outbox.next_due
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
    yield 1500, lambda c: prune.forget_records(c, one.month, UUID(int=0), 200)
    yield 200, lambda c: prune.in_the_way(c, one.month, DAY_S)
    yield 20000, lambda c: prune.misplaced(c, UUID(int=0), 1000)
    yield 20000, doctor.misplaced


def _completed(one: Sample) -> list[queue.Completed]:
    return [queue.Completed(held, {"text": "x"}, event, "{}", {}) for held, event in zip(one.lapsed, one.new, strict=True)]


def _delivered(one: Sample) -> list[delivery.Delivered]:
    return [
        delivery.Delivered(job_id, effect_id, 7, "note", new, new, "p", "{}", "answered")
        for (job_id, effect_id), new in zip(one.sending, one.new, strict=True)
    ]


def _ending(job_id: UUID, event_id: UUID) -> queue.Ending:
    return queue.Ending(job_id, "completed", "job.completed", event_id, {}, {"text": "x"})


async def cases(connection: Connection) -> list[Case]:
    """Every statement that these calls run, named by file and name, once each."""
    names = {text: f"{file}.{name}" for file in FILES for name, text in statements(file).items()}
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

    async def explain(self, case: Case) -> dict[str, Any]:
        """Run it, undo it, and return the plan with what it touched."""
        used = dict.fromkeys(re.findall(r"%\((\w+)\)s", case.query))
        values = sql.SQL(", ").join(sql.Literal(case.parameters[name]) for name in used)
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
        read = {node["Relation Name"] for node in nodes(plan) if node["Node Type"] == "Seq Scan"} & big
        if os.environ.get("DEEDBOX_SHOW_PLANS"):
            sys.stdout.write(f"{when}: {case.name}: {touched} of {case.pages} pages\n")
        if read:
            found[when, case.name] = f"reads {', '.join(sorted(read))} from end to end"
        elif touched > case.pages:
            found[when, case.name] = f"touches {touched} pages, {case.pages} at most"
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
        await owner.execute("ANALYZE")
        anew = Prepared(fresh)
        await anew.prepare(every)
        found |= await wrong(anew, every, big, "fresh")
    finally:
        for connection in (owner, old, fresh):
            await connection.close()
    unexpected = {key: said for key, said in found.items() if key not in KNOWN}
    assert not unexpected, "\n".join(f"{name}, planned on {when} tables, {said}" for (when, name), said in unexpected.items())
    assert set(found) == set(KNOWN), "these plans are fine now: remove them from KNOWN"
