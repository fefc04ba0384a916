"""The checker after the chaos: database against callers, people and providers; one line for each thing that is wrong."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deedbox.operate import audit
from deedbox.store.pool import Pool
from tests.chaos.attempts import Attempts, attempts
from tests.chaos.load import Storm
from tests.chaos.people import Off
from tests.chaos.provider import Arrival, MovingProvider
from tests.chaos.weather import Frozen
from tests.failover.checker import Found, Reading, events, kept, read, stored_jobs

_LATE_S = 2.0
"""What a busy machine may add between a sender's last look at the switch and the provider's reading, in seconds."""

_AT_REST = {"unknown", "completed", "failed", "canceled"}

_EFFECTS = """
SELECT e.effect_id, e.job_id, e.target, e.slot, e.state, e.code, e.sender_closed,
       convert_from(p.body, 'UTF8')::jsonb #> '{payload,body}' AS body,
       coalesce(a.state = 'approved' AND e.digest = sha256(p.body) AND e.digest = ANY (a.effect_digests), false) AS approved,
       a.approval_id,
       ARRAY(SELECT r.source FROM deedbox.receipt r WHERE r.job_id = e.job_id AND r.effect_id = e.effect_id) AS sources,
       (SELECT count(DISTINCT r.provider_id) FROM deedbox.receipt r WHERE r.job_id = e.job_id AND r.effect_id = e.effect_id),
       (SELECT count(*) FROM deedbox.event v WHERE v.job_id = e.job_id AND v.type = 'effect.unknown'
            AND v.payload ->> 'effect_id' = e.effect_id::text) AS unknowns,
       (SELECT count(*) FROM deedbox.probe o WHERE o.effect_id = e.effect_id AND o.verdict = 'not_accepted') AS disproofs
FROM deedbox.effect e JOIN deedbox.proposal_effect p USING (proposal_effect_id)
LEFT JOIN deedbox.approval a ON a.approval_id = e.approval_id
"""


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect with all that is known of it; `approved` is about its approval and the digest of its very bytes."""

    effect_id: Any
    job_id: Any
    target: str
    slot: str
    state: str
    code: str | None
    sender_closed: bool
    body: Any
    approved: bool
    approval_id: Any
    sources: list[str]
    provider_ids: int
    unknowns: int
    disproofs: int


@dataclass(slots=True)
class Verdict:
    """What was found, and how each effect that nobody knew about ended."""

    found: Found = field(default_factory=Found)
    unknown: Counter[str] = field(default_factory=Counter[str])
    begun_on: int = 0
    """Sendings that had begun when the switch went off, and arrived after it."""
    switched: int = 0
    audited: int = 0
    attempts: Attempts = field(default_factory=Attempts)
    two_votes: int = 0
    """Approvals that two people gave."""


async def check(
    connection: Reading,
    app_url: str,
    storm: Storm,
    providers: Mapping[str, MovingProvider],
    offs: Sequence[Off],
    frozen: Sequence[Frozen],
    send_lease_s: float,
) -> Verdict:
    """Compare everything with everything. Needs a database that is at rest."""
    verdict = Verdict()
    faults = verdict.found.faults
    rows = await stored_jobs(connection)
    effects = [Effect(*row) for row in await read(connection, _EFFECTS)]
    verdict.found.jobs = len(rows)
    kept(rows, storm.calls, verdict.found)
    await events(connection, verdict.found)
    faults += await _keys(connection, len(rows))
    by_job: dict[Any, list[Effect]] = {}
    for effect in effects:
        by_job.setdefault(effect.job_id, []).append(effect)
    for row in rows:
        verdict.found.ends[row[4] or f"still {row[3]}"] += 1
        faults += _job(row, by_job.get(row[0], []), storm)
    faults += await _approvals(connection, storm)
    faults += await _votes(connection, storm, verdict)
    verdict.attempts = await attempts(connection)
    faults += verdict.attempts.faults
    _effects(effects, providers, verdict)
    await _switch(connection, verdict, providers, offs, frozen, send_lease_s)
    pool = Pool(app_url, "check", size=3)
    await pool.open(wait=True)
    try:
        chain = await audit.check(pool)
    finally:
        await pool.close()
    verdict.audited = chain.entries
    if not chain.whole:
        faults.append(f"the audit's chain is broken at entry {chain.first_broken}")
    return verdict


async def _keys(connection: Reading, jobs: int) -> list[str]:
    """Each key claims one job that is there, and each attempt ended once."""
    faults: list[str] = []
    claimed = await read(
        connection,
        "SELECT count(*), count(DISTINCT i.job_id), count(j.job_id)"
        " FROM deedbox.idempotency i LEFT JOIN deedbox.job j ON j.job_id = i.job_id",
    )
    if claimed[0] != (jobs, jobs, jobs):
        faults.append(f"{jobs} jobs, but keys, their jobs, those of them that are there: {claimed[0]}")
    twice = await read(
        connection,
        "SELECT job_id, attempt, count(*) FROM deedbox.attempt WHERE report = 'ended'"
        " GROUP BY job_id, attempt HAVING count(*) > 1",
    )
    faults += [f"job {row[0]}: attempt {row[1]} ended {row[2]} times" for row in twice]
    return faults


def _job(row: tuple[Any, ...], effects: Sequence[Effect], storm: Storm) -> Iterator[str]:
    """Whether the end of a job is the one that its effects, its approval and what people asked for lead to."""
    job_id, _, key, live, ended, code, output, given = row
    about = f"{key} (job {job_id})"
    if (live is None) == (ended is None):
        yield f"{about}: is {live} and has the result {ended}"
    if str(job_id) in storm.canceled and ended != "canceled":
        yield f"{about}: its cancel was confirmed, and it is {ended or live}"
    states = Counter(effect.state for effect in effects)
    if live is not None and not (live == "dispatching" and states["unknown"] and not states.keys() - _AT_REST):
        yield f"{about}: still {live} with effects {dict(states)}"
    if ended == "completed" and output["number"] != given["number"]:
        yield f"{about}: has the result of another"
    if ended == "canceled" and str(job_id) not in storm.cancels:
        yield f"{about}: canceled, and nobody asked for it"
    if str(job_id) in storm.closed and (ended, code) != ("failed_terminal", "closed"):
        yield f"{about}: its close was confirmed, and it is {ended or live} {code or ''}"
    if code == "closed" and str(job_id) not in storm.closes:
        yield f"{about}: closed, and nobody asked for it"
    if ended is not None and not _fits(ended, code, states, len(given.get("targets", []))):
        yield f"{about}: {ended} {code or ''} with effects {dict(states)}"


def _fits(ended: str, code: str | None, states: Counter[str], planned: int) -> bool:
    """Whether a job may end so with effects in these states; `planned` is how many its input leads to."""
    if ended == "completed":
        return states["completed"] == states.total() == planned
    if ended == "canceled":
        return states["canceled"] == states.total()
    if code in {"rejected", "closed"}:
        return not states
    done = states["completed"] > 0
    return states.total() == planned and states["failed"] > 0 and code == ("partially_done" if done else "undelivered")


async def _approvals(connection: Reading, storm: Storm) -> list[str]:
    """No decision without somebody who sent it, and none lost that was confirmed."""
    faults: list[str] = []
    stored = {str(row[0]): row[1] for row in await read(connection, "SELECT approval_id, state FROM deedbox.approval")}
    words = {"approved": "approve", "rejected": "reject"}
    for approval_id, state in stored.items():
        if state in words and words[state] not in storm.tried.get(approval_id, set()):
            faults.append(f"approval {approval_id}: {state}, and nobody said so")
        if state not in {*words, "withdrawn"}:
            faults.append(f"approval {approval_id}: {state}")
    for approval_id, decision in storm.confirmed.items():
        if words.get(stored.get(approval_id, "")) != decision:
            faults.append(f"approval {approval_id}: {decision} was confirmed, and it is {stored.get(approval_id)}")
    return faults


async def _votes(connection: Reading, storm: Storm, verdict: Verdict) -> Iterator[str]:
    """Each approval has the votes of as many people as it needs, of its very digest, and those people sent them."""
    faults: list[str] = []
    rows = await read(
        connection,
        "SELECT a.approval_id::text, a.state, a.quorum, coalesce(array_agg(ARRAY[p.name, v.decision]) FILTER (WHERE v.digest"
        " = a.digest), '{}'), count(*) FILTER (WHERE v.digest <> a.digest) FROM deedbox.approval a"
        " LEFT JOIN deedbox.vote v USING (approval_id) LEFT JOIN deedbox.principal p USING (principal_id)"
        " GROUP BY a.approval_id",
    )
    stored: set[tuple[str, str, str]] = set()
    for approval_id, state, quorum, votes, foreign in rows:
        stored |= {(approval_id, name, decision) for name, decision in votes}
        approvers = {name for name, decision in votes if decision == "approve"}
        verdict.two_votes += state == "approved" and quorum > 1
        if state == "approved" and len(approvers) < quorum:
            faults.append(f"approval {approval_id}: approved by {sorted(approvers)}, {quorum} are needed")
        if foreign:
            faults.append(f"approval {approval_id}: {foreign} votes are of another digest")
    faults += [f"approval {one[0]}: {one[1]} did not say {one[2]}" for one in stored - storm.votes]
    faults += [f"approval {one[0]}: that {one[1]} said {one[2]} was confirmed, and is lost" for one in storm.kept - stored]
    return iter(faults)


def _effects(effects: Sequence[Effect], providers: Mapping[str, MovingProvider], verdict: Verdict) -> None:
    """Each effect against the books of its provider."""
    known = {str(effect.effect_id): effect for effect in effects}
    for name, provider in providers.items():
        times = Counter(str(note["key"]) for note in provider.performed)
        verdict.found.performed += sum(times.values())
        arrivals: dict[str, list[Arrival]] = {}
        for arrival in provider.arrivals:
            arrivals.setdefault(arrival.key, []).append(arrival)
        for effect_id in arrivals:
            if effect_id not in known or known[effect_id].target != name:
                verdict.found.faults.append(f"effect {effect_id}: arrived at {name}, and is not stored so")
        for note in provider.performed:
            effect = known.get(str(note["key"]))
            if effect is not None and note["body"] != effect.body:
                verdict.found.faults.append(f"effect {effect.effect_id}: {note['body']} was performed, not what was approved")
        things = Counter((note["body"]["number"], note["body"]["slot"]) for note in provider.performed)
        for effect in effects:
            if effect.target != name:
                continue
            effect_id = str(effect.effect_id)
            verdict.found.effects[effect.state] += 1
            allowed = 1 + effect.disproofs
            count = max(times[effect_id], things[effect.body["number"], effect.slot])
            said = list(_effect(effect, count, allowed, arrivals.get(effect_id, [])))
            verdict.found.faults += [f"effect {effect_id} at {name}: {line}" for line in said]
            if effect.unknowns:
                evidence = "/".join(sorted({source for source in effect.sources if source != "sender"}))
                verdict.unknown[f"{name} {effect.state}{' by ' + evidence if evidence else ''}"] += 1


def _effect(effect: Effect, times: int, allowed: int, arrivals: Sequence[Arrival]) -> Iterator[str]:
    """What is wrong with one effect; `times` is how often its provider did it."""
    if not effect.approved:
        yield f"{effect.state} without an approval that stands for its bytes"
    if times > 1:
        yield f"performed {times} times" + (f", disproved {allowed - 1} times" if allowed > 1 else "")
    if effect.state == "completed" and (times, effect.provider_ids) != (1, 1):
        yield f"completed, {times} times performed, receipts for {effect.provider_ids} things"
    if times and effect.state in {"failed", "canceled", "pending", "sending"}:
        yield f"{effect.state} ({effect.code}), and yet performed"
    if effect.state not in _AT_REST:
        yield f"still {effect.state}"
    # A native key makes every answer come again; elsewhere what was lost once is known by evidence alone.
    lost = any(arrival.acted and not arrival.told for arrival in arrivals)
    if effect.target != "keyed" and lost and not effect.unknowns:
        yield f"{effect.state}: its answer was lost, and it was never unknown"
    if effect.target != "keyed" and lost and effect.state == "completed" and not {"look_up", "human"} & set(effect.sources):
        yield f"completed without evidence: its answer was lost, and its receipts come from {effect.sources}"


async def _switch(
    connection: Reading,
    verdict: Verdict,
    providers: Mapping[str, MovingProvider],
    offs: Sequence[Off],
    frozen: Sequence[Frozen],
    send_lease_s: float,
) -> None:
    """No sending begins while the switch is off, and what arrives meanwhile had begun before."""
    offset, error = await _clock(connection)
    begun: dict[str, list[float]] = {}
    rows = await read(
        connection,
        "SELECT payload ->> 'effect_id', extract(epoch FROM at)::float8 FROM deedbox.event WHERE type = 'effect.sending'",
    )
    for effect_id, at in rows:
        begun.setdefault(effect_id, []).append(float(at) - offset)
    turned_on = [
        float(row[0]) - offset
        for row in await read(connection, "SELECT extract(epoch FROM at)::float8 FROM deedbox.audit WHERE verb = 'switch_on'")
    ]
    arrivals = [arrival for provider in providers.values() for arrival in provider.arrivals]
    faults = verdict.found.faults
    for off in offs:
        since, until = off.since + error, off.until - error
        # A request to turn it on that had no answer may have been obeyed later than the next one to turn it off.
        if any(since < at < until for at in turned_on):
            continue
        verdict.switched += 1
        faults += [
            f"effect {effect_id}: its sending began {at - off.since:.3f} s after the switch was off"
            for effect_id, times in begun.items()
            for at in times
            if since < at < until
        ]
        for arrival in arrivals:
            if not since < arrival.at < until:
                continue
            verdict.begun_on += 1
            late_s = arrival.at - off.since
            stood = any(one.name.startswith("dispatch") and one.since < arrival.at and one.until > off.since for one in frozen)
            if not any(at <= since for at in begun.get(arrival.key, [])):
                faults.append(f"effect {arrival.key}: arrived {late_s:.3f} s after the switch was off and had not begun before")
            elif late_s > send_lease_s + _LATE_S and not stood:
                faults.append(f"effect {arrival.key}: arrived {late_s:.3f} s after the switch was off")


async def _clock(connection: Reading) -> tuple[float, float]:
    """What to take from the database's clock to get this machine's monotonic one, and by how much that may be wrong."""
    best = (0.0, float("inf"))
    for _ in range(10):
        before = time.monotonic()
        rows = await read(connection, "SELECT extract(epoch FROM clock_timestamp())::float8")
        after = time.monotonic()
        if after - before < best[1]:
            best = (float(rows[0][0]) - (before + after) / 2, after - before)
    return best[0], best[1] + 0.005
