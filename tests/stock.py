"""Many jobs of every kind, written past the product, and ids of a few of them, for tests of plans."""

import os
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from deedbox.store.pool import Connection

MANY = 1_000_000 if os.environ.get("DEEDBOX_BIG") == "1" else 100_000
RUNNING = MANY // 1000
"""How many jobs run. It does not grow with what waits, so a plan may look at all of them."""
SUBJECT = UUID(int=7)
RARE = UUID(int=8)
"""Somebody who asked for three jobs, the oldest of all."""

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
    # Every finished job asked a model, two hours ago, and kept the step in which it did.
    """INSERT INTO deedbox.model_call (call_id, job_id, attempt_id, tenant, action, part, endpoint, model, requests,
                                       input_tokens, output_tokens, duration_ms, cost, currency, called_at)
       SELECT public.nth(0, n, 30), public.nth(0, n), public.nth(0, n, 1), 'default', 'do_' || n %% 10, 'model', 'default',
              'tiny', 1, 100, 10, 900, 0.001, 'EUR', deedbox.clock() - interval '2 hours'
       FROM generate_series(1, %(many)s) AS n""",
    """INSERT INTO deedbox.step (job_id, name, attempt_id, input_sha256, value)
       SELECT public.nth(0, n), 'draft', public.nth(0, n, 1), sha256('x'), '{}' FROM generate_series(1, %(many)s) AS n""",
    # A provider that gives one and the same id to everything.
    """INSERT INTO deedbox.receipt (job_id, receipt_id, effect_id, provider_id, evidence, phase, source, stored_at)
       SELECT public.nth(0, n), public.nth(0, n, 31), public.nth(0, n, 21), 'p', '{}', 'answered', 'sender', deedbox.clock()
       FROM generate_series(1, %(many)s) AS n""",
    # Half of what waits is told by callback; of what was sent the ledger of notices has a line each.
    """INSERT INTO deedbox.callback (job_id, tenant, action, target)
       SELECT public.nth(1, n), 'default', 'do_' || n %% 10, 'desk' FROM generate_series(1, %(many)s, 2) AS n""",
    """INSERT INTO deedbox.notice (effect_id, template, once, job_id)
       SELECT public.nth(k, n, 20 + s), 'callback', k || ':' || n || ':' || s, public.nth(k, n)
       FROM generate_series(0, 1) AS k, generate_series(1, %(many)s) AS n, generate_series(1, 2) AS s WHERE n %% 100 = 2""",
)


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
