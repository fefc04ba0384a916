"""Who claimed which attempt, and who let go of it, noted by the run's own database; and whether the journal tells the same.

A trigger that only this database has notes each claim and each end of one, with the name of the session that made it. So a
worker that ends an attempt which another holds is found, whatever the product itself writes about it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from tests.failover.checker import Reading, read

WATCH = """
CREATE SCHEMA watch;
CREATE TABLE watch.claim (
    job_id uuid NOT NULL, attempt_id uuid NOT NULL, attempt integer NOT NULL, round integer NOT NULL, fence bigint NOT NULL,
    worker text NOT NULL, by_whom text NOT NULL
);
CREATE TABLE watch.gone (attempt_id uuid NOT NULL, fence bigint NOT NULL, by_whom text NOT NULL);
CREATE FUNCTION watch.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF TG_OP <> 'INSERT' AND OLD.state = 'running'
        AND (TG_OP = 'DELETE' OR (NEW.state, NEW.attempt_id, NEW.fence) IS DISTINCT FROM (OLD.state, OLD.attempt_id, OLD.fence))
    THEN
        INSERT INTO watch.gone VALUES (OLD.attempt_id, OLD.fence, current_setting('application_name'));
    END IF;
    IF TG_OP <> 'DELETE' AND NEW.state = 'running'
        AND (TG_OP = 'INSERT' OR (NEW.state, NEW.attempt_id, NEW.fence) IS DISTINCT FROM (OLD.state, OLD.attempt_id, OLD.fence))
    THEN
        INSERT INTO watch.claim VALUES (NEW.job_id, NEW.attempt_id, NEW.attempt, NEW.round, NEW.fence, NEW.worker,
                                        current_setting('application_name'));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER watch AFTER INSERT OR UPDATE OR DELETE ON deedbox.queue FOR EACH ROW EXECUTE FUNCTION watch.note();
"""

_CLAIMS = """
SELECT c.job_id, c.attempt_id, c.attempt, c.round, c.fence, c.worker, c.by_whom, a.move, a.code, a.worker,
       ARRAY(SELECT g.by_whom FROM watch.gone g WHERE g.attempt_id = c.attempt_id AND g.fence = c.fence),
       EXISTS (SELECT FROM deedbox.attempt s WHERE s.job_id = c.job_id AND s.attempt_id = c.attempt_id AND s.report = 'stale'),
       CASE a.move WHEN 'complete' THEN (SELECT r.output ->> 'attempt' FROM deedbox.result r WHERE r.job_id = c.job_id)
       ELSE (SELECT p.output ->> 'attempt' FROM deedbox.proposal p WHERE p.job_id = c.job_id AND p.attempt_id = c.attempt_id)
       END::integer
FROM watch.claim c
LEFT JOIN deedbox.attempt a ON a.job_id = c.job_id AND a.attempt_id = c.attempt_id AND a.report = 'ended'
ORDER BY c.job_id, c.attempt, c.fence
"""

_UNCLAIMED = """
SELECT a.job_id, a.attempt_id, a.report, a.worker FROM deedbox.attempt a
WHERE NOT EXISTS (SELECT FROM watch.claim c WHERE c.attempt_id = a.attempt_id AND c.job_id = a.job_id)
"""

_TAKEN = "worker_lost"
"""The code under which sweep ends what a worker has lost."""
_LAST = frozenset({"complete", "hold", "authorize", "fail"})
"""Moves after which a round has no further attempt."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One attempt: who claimed it, how the journal says that it ended, and which sessions took it out of `running`.

    `told` is the number of the attempt that wrote the output which the database keeps of this one.
    """

    job_id: Any
    attempt_id: Any
    attempt: int
    round: int
    fence: int
    worker: str
    claimed_by: str
    move: str | None
    code: str | None
    ended_by: str | None
    left_by: list[str]
    stale: bool
    told: int | None


@dataclass(slots=True)
class Attempts:
    """How many attempts were claimed, how they ended, and how many reports came too late."""

    claims: int = 0
    moves: Counter[str] = field(default_factory=Counter[str])
    stale: int = 0
    faults: list[str] = field(default_factory=list[str])


async def attempts(connection: Reading) -> Attempts:
    """Compare what was noted with the journal. Needs a database in which nothing runs."""
    claims = [Claim(*row) for row in await read(connection, _CLAIMS)]
    found = Attempts(len(claims), Counter(claim.move or "none" for claim in claims), sum(claim.stale for claim in claims))
    fences = Counter(claim.fence for claim in claims)
    found.faults += [f"fence {fence}: given {count} times" for fence, count in fences.items() if count > 1]
    for job_id, of_job in groupby(claims, key=lambda claim: claim.job_id):
        found.faults += [f"job {job_id}: {said}" for said in _job(list(of_job))]
    found.faults += [
        f"job {job_id}: attempt {attempt_id} of {worker} is journalled as {report}, and nobody claimed it"
        for job_id, attempt_id, report, worker in await read(connection, _UNCLAIMED)
    ]
    return found


def _job(claims: Sequence[Claim]) -> Iterator[str]:
    """What is wrong with the attempts of one job, given in their order."""
    if [claim.attempt for claim in claims] != list(range(1, len(claims) + 1)):
        yield f"its attempts are numbered {[claim.attempt for claim in claims]}"
    if [claim.fence for claim in claims] != sorted(claim.fence for claim in claims):
        yield f"its fences went back: {[claim.fence for claim in claims]}"
    for place, claim in enumerate(claims):
        yield from (f"attempt {claim.attempt} {said}" for said in _claim(claim))
        if claim.move in _LAST and any(later.round == claim.round for later in claims[place + 1 :]):
            yield f"attempt {claim.attempt} ended round {claim.round} ({claim.move}), and others of it were claimed after it"


def _claim(claim: Claim) -> Iterator[str]:
    """What is wrong with one attempt."""
    if claim.claimed_by != f"deedbox {claim.worker}":
        yield f"is leased to {claim.worker} and was claimed by {claim.claimed_by}"
    if claim.move is None:
        yield f"of {claim.worker} was claimed and never ended"
        return
    if claim.ended_by != claim.worker:
        yield f"was held by {claim.worker}, and {claim.move} came from {claim.ended_by}"
    if len(claim.left_by) != 1:
        yield f"was ended {len(claim.left_by)} times, by {', '.join(claim.left_by) or 'nobody'}"
    if claim.code != _TAKEN and claim.left_by not in ([], [f"deedbox {claim.worker}"]):
        yield f"was held by {claim.worker}, and {' and '.join(claim.left_by)} made it {claim.move}"
    if claim.stale and claim.code != _TAKEN:
        yield f"was counted ({claim.move}) and refused as stale as well"
    if claim.told not in (None, claim.attempt):
        yield f"has the output of attempt {claim.told}"
