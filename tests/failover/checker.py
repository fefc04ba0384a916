"""The checker: reads the database and the provider at the end, and says what was lost, doubled or left lying."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import psycopg

from tests.failover.load import Call

_FINAL = ("job.completed", "job.failed", "job.canceled")


@dataclass(slots=True)
class Found:
    """Counts, and one line for each fault."""

    jobs: int = 0
    ends: Counter[str] = field(default_factory=Counter[str])
    effects: Counter[str] = field(default_factory=Counter[str])
    performed: int = 0
    rescued: int = 0
    faults: list[str] = field(default_factory=list[str])


async def waiting(url: str) -> dict[str, int]:
    """How many jobs are not over, by state."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=2) as connection:
        cursor = await connection.execute("SELECT state, count(*) FROM deedbox.queue GROUP BY state")
        return {row[0]: row[1] for row in await cursor.fetchall()}


async def check(url: str, calls: Iterable[Call], decided: Iterable[str], performed: Iterable[str]) -> Found:
    """Compare what was answered and performed with what is stored.

    `calls` are those with their 202s, `decided` the approvals whose decision was confirmed, `performed` the key of each thing
    that the provider did, as often as it did it.
    """
    found = Found()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=5) as connection:
        await _jobs(connection, list(calls), found)
        await _events(connection, found)
        await _effects(connection, list(performed), found)
        approved = {
            str(row[0]) for row in await _rows(connection, "SELECT approval_id FROM deedbox.approval WHERE state = 'approved'")
        }
        found.faults += [f"approval {one}: its decision is lost" for one in set(decided) - approved]
    return found


async def _rows(connection: "psycopg.AsyncConnection[tuple[Any, ...]]", query: str) -> list[tuple[Any, ...]]:
    return await (await connection.execute(query.encode())).fetchall()


async def _jobs(connection: "psycopg.AsyncConnection[tuple[Any, ...]]", calls: list[Call], found: Found) -> None:
    """Every 202 is a job, every job has a key that was sent, and ended exactly once."""
    rows = await _rows(
        connection,
        "SELECT j.job_id, j.action, j.idempotency_key, q.state, r.state, r.code, r.output, p.input"
        " FROM deedbox.job j LEFT JOIN deedbox.queue q USING (job_id) LEFT JOIN deedbox.result r USING (job_id)"
        " LEFT JOIN deedbox.job_payload p USING (job_id)",
    )
    found.jobs = len(rows)
    _kept(rows, calls, found)
    for job_id, _, key, live, ended, code, output, given in rows:
        found.ends[ended or "none"] += 1
        if live is not None or ended is None:
            found.faults.append(f"{key}: job {job_id} is {live} and has the result {ended}")
        elif ended != "completed":
            found.faults.append(f"{key}: {ended} {code}")
        elif output["number"] != given["number"]:
            found.faults.append(f"{key}: has the result of another")


def _kept(rows: list[tuple[Any, ...]], calls: list[Call], found: Found) -> None:
    """Compare the calls with the jobs: each call is one job, as it was sent, and no job is there that nobody was told of."""
    by_id = {str(row[0]): row for row in rows}
    for call in calls:
        if call.job_id is None:
            found.faults.append(f"{call.key}: never accepted")
        elif call.job_id not in by_id:
            found.faults.append(f"{call.key}: lost, its 202 named {call.job_id}")
        elif by_id[call.job_id][1:3] != (call.action, call.key) or by_id[call.job_id][7]["number"] != call.body["number"]:
            found.faults.append(f"{call.key}: stored as something else")
    times = Counter((row[1], row[2]) for row in rows)
    found.faults += [f"{key}: {count} jobs" for (_, key), count in times.items() if count != 1]
    told = {call.job_id for call in calls}
    found.faults += [f"job {one}: nobody was told of it" for one in by_id if one not in told]


async def _events(connection: "psycopg.AsyncConnection[tuple[Any, ...]]", found: Found) -> None:
    """One final event per job, and no gap in its numbers."""
    final = ", ".join(f"'{name}'" for name in _FINAL)
    rows = await _rows(
        connection,
        f"SELECT job_id, count(*), max(seq), count(*) FILTER (WHERE type IN ({final}) AND payload->>'retryable' IS DISTINCT"  # noqa: S608 -- names from above
        " FROM 'true') FROM deedbox.event GROUP BY job_id",
    )
    for job_id, count, last, finals in rows:
        if count != last:
            found.faults.append(f"job {job_id}: {count} events, the last is number {last}")
        if finals != 1:
            found.faults.append(f"job {job_id}: {finals} final events")
    if len(rows) != found.jobs:
        found.faults.append(f"{len(rows)} jobs have events, {found.jobs} are there")
    lost = await _rows(connection, "SELECT count(*) FROM deedbox.attempt WHERE code = 'worker_lost'")
    found.rescued = lost[0][0]


async def _effects(connection: "psycopg.AsyncConnection[tuple[Any, ...]]", performed: list[str], found: Found) -> None:
    """Each effect was performed at most once, what says completed was, and nothing was performed that is not stored."""
    done = Counter(performed)
    found.performed = len(performed)
    rows = await _rows(
        connection,
        "SELECT effect_id, state, (SELECT count(DISTINCT provider_id) FROM deedbox.receipt r WHERE r.effect_id = e.effect_id)"
        " FROM deedbox.effect e",
    )
    for effect_id, state, receipts in rows:
        found.effects[state] += 1
        times = done[str(effect_id)]
        if times > 1:
            found.faults.append(f"effect {effect_id}: performed {times} times")
        if state == "completed" and (times, receipts) != (1, 1):
            found.faults.append(f"effect {effect_id}: completed, {times} times performed, {receipts} receipts")
        if state in {"failed", "canceled"} and times:
            found.faults.append(f"effect {effect_id}: {state}, and yet performed")
    stored = {str(row[0]) for row in rows}
    found.faults += [f"effect {one}: performed and not stored" for one in done if one not in stored]
    posts = await _rows(connection, "SELECT count(*) FROM deedbox.job WHERE action = 'post_piece'")
    if posts[0][0] != len(rows):
        found.faults.append(f"{posts[0][0]} jobs that post, {len(rows)} effects")
