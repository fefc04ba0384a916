"""The checker: reads the database and the provider at the end, and says what was lost, doubled or left lying."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeAlias

import psycopg

from tests.failover.load import Call

Reading: TypeAlias = psycopg.AsyncConnection[tuple[Any, ...]]

_ENDING = {"completed": "job.completed", "failed_terminal": "job.failed", "canceled": "job.canceled"}


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
        await events(connection, found)
        await _effects(connection, list(performed), found)
        approved = {
            str(row[0]) for row in await read(connection, "SELECT approval_id FROM deedbox.approval WHERE state = 'approved'")
        }
        found.faults += [f"approval {one}: its decision is lost" for one in set(decided) - approved]
    return found


async def read(connection: Reading, query: str, *parameters: object) -> list[tuple[Any, ...]]:
    """The rows of a query."""
    return await (await connection.execute(query.encode(), list(parameters))).fetchall()


async def stored_jobs(connection: Reading) -> list[tuple[Any, ...]]:
    """Every job: id, action, key, state in the queue, state, code and output of its result, input."""
    return await read(
        connection,
        "SELECT j.job_id, j.action, j.idempotency_key, q.state, r.state, r.code, r.output, p.input"
        " FROM deedbox.job j LEFT JOIN deedbox.queue q USING (job_id) LEFT JOIN deedbox.result r USING (job_id)"
        " LEFT JOIN deedbox.job_payload p USING (job_id)",
    )


async def _jobs(connection: Reading, calls: list[Call], found: Found) -> None:
    """Every 202 is a job, every job has a key that was sent, and ended exactly once."""
    rows = await stored_jobs(connection)
    found.jobs = len(rows)
    kept(rows, calls, found)
    for job_id, _, key, live, ended, code, output, given in rows:
        found.ends[ended or "none"] += 1
        if live is not None or ended is None:
            found.faults.append(f"{key}: job {job_id} is {live} and has the result {ended}")
        elif ended != "completed":
            found.faults.append(f"{key}: {ended} {code}")
        elif output["number"] != given["number"]:
            found.faults.append(f"{key}: has the result of another")


def kept(rows: Sequence[tuple[Any, ...]], calls: Sequence[Call], found: Found) -> None:
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


async def events(connection: Reading, found: Found) -> None:
    """No gap in a job's numbers, and each of its rounds over with exactly one ending event, after which nothing follows."""
    places = {
        row[0]: (row[1], row[2])
        for row in await read(
            connection,
            "SELECT job_id, state, last_seq FROM deedbox.queue UNION ALL SELECT job_id, state, last_seq FROM deedbox.result",
        )
    }
    rows = await read(connection, "SELECT job_id, seq, round, type FROM deedbox.event ORDER BY job_id, seq")
    told = 0
    for job_id, of_job in groupby(rows, key=lambda row: row[0]):
        told += 1
        lines = list(of_job)
        state, last_seq = places.get(job_id, ("", 0))
        if [line[1] for line in lines] != list(range(1, len(lines) + 1)) or last_seq != len(lines):
            found.faults.append(f"job {job_id}: {len(lines)} events, the last is number {lines[-1][1]} of {last_seq}")
        found.faults += [f"job {job_id}: {said}" for said in _rounds(lines, state)]
    if told != found.jobs:
        found.faults.append(f"{told} jobs have events, {found.jobs} are there")
    lost = await read(connection, "SELECT count(*) FROM deedbox.attempt WHERE code = 'worker_lost'")
    found.rescued = lost[0][0]


def _rounds(lines: Sequence[tuple[Any, ...]], state: str) -> list[str]:
    """What is wrong with the ends of a job's rounds, by its events in their order and its state."""
    wrong: list[str] = []
    rounds = [[line[3] for line in group] for _, group in groupby(lines, key=lambda line: line[2])]
    if [number for number, _ in groupby(line[2] for line in lines)] != list(range(1, len(rounds) + 1)):
        wrong.append("its rounds are not in order")
    last = _ENDING.get(state) or ("job.failed" if state == "failed_retryable" else None)
    for number, types in enumerate(rounds, 1):
        endings = [name for name in types if name in _ENDING.values()]
        wanted = ["job.failed"] if number < len(rounds) else [last] if last else []
        if endings != wanted or (endings and types[-1] != endings[-1]):
            wrong.append(f"round {number} of {len(rounds)} ({state or 'nowhere'}) has the final events {endings}")
    return wrong


async def _effects(connection: Reading, performed: list[str], found: Found) -> None:
    """Each effect was performed at most once, what says completed was, and nothing was performed that is not stored."""
    done = Counter(performed)
    found.performed = len(performed)
    rows = await read(
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
    posts = await read(connection, "SELECT count(*) FROM deedbox.job WHERE action = 'post_piece'")
    if posts[0][0] != len(rows):
        found.faults.append(f"{posts[0][0]} jobs that post, {len(rows)} effects")
