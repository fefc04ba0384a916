"""What a step left behind, as the database tells it: every row, and every move in the order in which it was made.

The moves are noted by triggers that only this test's database has, so that a step of several moves hides none of them.
"""

from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection

NOTES = """
CREATE SCHEMA seen;
CREATE TABLE seen.move (
    n bigint GENERATED ALWAYS AS IDENTITY, kind text NOT NULL, id uuid NOT NULL, was text, became text, fence bigint,
    attempt integer
);
CREATE FUNCTION seen.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    o jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END;
    w jsonb := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END;
BEGIN
    IF TG_OP <> 'UPDATE' OR (o->>'state', o->>'fence', o->>'attempt') IS DISTINCT FROM (w->>'state', w->>'fence', w->>'attempt')
    THEN
        INSERT INTO seen.move (kind, id, was, became, fence, attempt)
        VALUES (TG_ARGV[0], (coalesce(w, o)->>TG_ARGV[1])::uuid, o->>'state', w->>'state', (w->>'fence')::bigint,
                (coalesce(w, o)->>'attempt')::integer);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER seen AFTER INSERT OR UPDATE OR DELETE ON deedbox.queue
    FOR EACH ROW EXECUTE FUNCTION seen.note('job', 'job_id');
CREATE TRIGGER seen AFTER INSERT OR UPDATE ON deedbox.approval
    FOR EACH ROW EXECUTE FUNCTION seen.note('approval', 'approval_id');
CREATE TRIGGER seen AFTER INSERT OR UPDATE ON deedbox.effect
    FOR EACH ROW EXECUTE FUNCTION seen.note('effect', 'effect_id');
CREATE TRIGGER seen AFTER INSERT OR UPDATE ON deedbox.result
    FOR EACH ROW EXECUTE FUNCTION seen.note('result', 'job_id');
"""

# Children before parents; what is not here (people, lanes, the audit) outlives an example.
TABLES = (
    "vote approval_token effect verdict approval proposal_effect proposal receipt probe alert call step attempt event result"
    " queue job_payload job idempotency target"
)
FORGET = "".join(f"DELETE FROM deedbox.{table};" for table in TABLES.split()) + "DELETE FROM seen.move;"  # noqa: S608 -- the names stand above

LOOK = """
SELECT json_build_object(
    'now', deedbox.clock(),
    'jobs', (SELECT coalesce(json_agg(r), '[]') FROM (
        SELECT job_id, action, idempotency_key AS key FROM deedbox.job ORDER BY job_id) AS r),
    'keys', (SELECT coalesce(json_agg(r), '[]') FROM (
        SELECT action, job_id, final_state FROM deedbox.idempotency ORDER BY job_id) AS r),
    'queue', (SELECT coalesce(json_agg(r), '[]') FROM (
        SELECT job_id, state, attempt, attempts_allowed, round, attempt_id, fence, lease_until <= deedbox.clock() AS lapsed,
               cancel_requested, last_seq FROM deedbox.queue ORDER BY job_id) AS r),
    'results', (SELECT coalesce(json_agg(r), '[]') FROM (
        SELECT job_id, state, attempt, round, last_seq, code FROM deedbox.result ORDER BY job_id) AS r),
    'events', (SELECT coalesce(json_agg(r), '[]') FROM (
        SELECT job_id, seq, type, round FROM deedbox.event ORDER BY job_id, seq) AS r),
    'approvals', (SELECT coalesce(json_agg(r), '[]') FROM (
        SELECT approval_id, job_id, state, encode(digest, 'hex') AS digest, quorum,
               (SELECT coalesce(json_agg(encode(d, 'hex')), '[]') FROM unnest(effect_digests) AS d) AS effect_digests,
               (SELECT count(DISTINCT principal_id) FROM deedbox.vote v WHERE v.approval_id = a.approval_id
                    AND v.decision = 'approve' AND v.digest = a.digest
                    AND v.principal_id <> (SELECT subject FROM deedbox.job j WHERE j.job_id = a.job_id)) AS approvers
        FROM deedbox.approval a ORDER BY approval_id) AS r),
    'effects', (SELECT coalesce(json_agg(r), '[]') FROM (
        SELECT effect_id, job_id, state, target, slot, encode(digest, 'hex') AS digest, approval_id, verdict_id, attempt, fence,
               (SELECT count(*) FROM deedbox.receipt c WHERE c.effect_id = e.effect_id) AS receipts,
               (SELECT count(DISTINCT by_principal) FROM deedbox.probe p
                WHERE p.effect_id = e.effect_id AND p.verdict = 'not_accepted') AS doubters
        FROM deedbox.effect e ORDER BY effect_id) AS r),
    'moves', (SELECT coalesce(json_agg(r), '[]') FROM (
        SELECT n, kind, id, was, became, fence, attempt FROM seen.move WHERE n > %s ORDER BY n) AS r)
)
"""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A job that has not ended; `lapsed` is by the database's clock, None without a lease."""

    job_id: str
    state: str
    attempt: int
    attempts_allowed: int
    round: int
    attempt_id: str | None
    fence: int | None
    lapsed: bool | None
    cancel_requested: bool
    last_seq: int


@dataclass(frozen=True, slots=True)
class ResultRow:
    """A job that has ended."""

    job_id: str
    state: str
    attempt: int
    round: int
    last_seq: int
    code: str | None


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event."""

    job_id: str
    seq: int
    type: str
    round: int


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """An approval; `approvers` counts the people other than the requester who approved exactly this digest."""

    approval_id: str
    job_id: str
    state: str
    digest: str
    quorum: int
    effect_digests: list[str]
    approvers: int


@dataclass(frozen=True, slots=True)
class EffectRow:
    """An effect; `doubters` counts who said that nothing arrived."""

    effect_id: str
    job_id: str
    state: str
    target: str
    slot: str
    digest: str
    approval_id: str | None
    verdict_id: str | None
    attempt: int
    fence: int | None
    receipts: int
    doubters: int


@dataclass(frozen=True, slots=True)
class MoveRow:
    """One change of a row, in the order of the changes: the state before (None: it was made) and after (None: it went)."""

    n: int
    kind: str
    id: str
    was: str | None
    became: str | None
    fence: int | None
    attempt: int | None


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything at one moment, and the moves since the moment before."""

    now: str
    jobs: dict[str, tuple[str, str | None]]
    keys: list[tuple[str, str, str | None]]
    queue: dict[str, QueueRow]
    results: dict[str, ResultRow]
    events: dict[str, list[EventRow]]
    approvals: dict[str, ApprovalRow]
    effects: dict[str, EffectRow]
    moves: list[MoveRow]

    def state(self, job_id: str) -> str:
        """The state of a job, live or ended."""
        return self.queue[job_id].state if job_id in self.queue else self.results[job_id].state

    def effects_of(self, job_id: str) -> list[EffectRow]:
        """The effects of a job."""
        return [effect for effect in self.effects.values() if effect.job_id == job_id]


NOTHING = Seen("", {}, [], {}, {}, {}, {}, {}, [])


async def look(connection: AsyncConnection[Any], after: int) -> Seen:
    """Read everything, and the moves with a number above `after`."""
    cursor = await connection.execute(LOOK, [after])
    row = await cursor.fetchone()
    assert row is not None
    told: dict[str, Any] = row[0]
    rows: dict[str, list[dict[str, Any]]] = told
    events: dict[str, list[EventRow]] = {}
    for item in rows["events"]:
        events.setdefault(item["job_id"], []).append(EventRow(**item))
    return Seen(
        now=str(told["now"]),
        jobs={item["job_id"]: (item["action"], item["key"]) for item in rows["jobs"]},
        keys=[(item["action"], item["job_id"], item["final_state"]) for item in rows["keys"]],
        queue={item["job_id"]: QueueRow(**item) for item in rows["queue"]},
        results={item["job_id"]: ResultRow(**item) for item in rows["results"]},
        events=events,
        approvals={item["approval_id"]: ApprovalRow(**item) for item in rows["approvals"]},
        effects={item["effect_id"]: EffectRow(**item) for item in rows["effects"]},
        moves=[MoveRow(**item) for item in rows["moves"]],
    )
