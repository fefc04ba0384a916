-- name: look
-- What a round would find, in one statement that finds nothing cheaply: each column is one kind of repair, and the last the
-- seconds until the next job becomes due.
SELECT EXISTS (SELECT FROM deedbox.queue WHERE state IN ({{job.rescue}}) AND lease_until <= deedbox.clock()),
       EXISTS (SELECT FROM deedbox.queue WHERE state = 'queued' AND NOT due AND run_at <= deedbox.clock()),
       EXISTS (SELECT FROM deedbox.approval WHERE state IN ({{approval.expire}}) AND expires_at <= deedbox.clock()),
       EXISTS (SELECT FROM deedbox.queue WHERE deadline <= deedbox.clock()),
       EXISTS (SELECT FROM deedbox.effect WHERE state IN ({{effect.lose_track}}) AND lease_until <= deedbox.clock()),
       -- The orders pin the indexes, however small the table was when the statement was planned.
       coalesce((SELECT not_after FROM deedbox.effect WHERE state IN ({{effect.expire}}) ORDER BY not_after LIMIT 1)
                <= deedbox.clock(), false)
       OR coalesce((SELECT true FROM deedbox.effect WHERE state IN ({{effect.expire}}) AND (after_slot IS NOT NULL OR doubtful)
                    ORDER BY effect_id LIMIT 1), false),
       EXISTS (SELECT FROM deedbox.queue WHERE state = 'dispatching'),
       coalesce((SELECT alarm_at FROM deedbox.effect WHERE state IN ({{effect.confirm}}) AND alarm_at IS NOT NULL
                 ORDER BY alarm_at LIMIT 1) <= deedbox.clock() - make_interval(secs => %(remind_after_s)s), false),
       (SELECT greatest(0, extract(epoch FROM run_at - deedbox.clock()))::float8 FROM deedbox.queue
        WHERE state = 'queued' AND NOT due ORDER BY run_at LIMIT 1)

-- name: lapsed
-- Jobs whose lease ran out, in order and bounded, whether they can be taken back or not.
SELECT job_id FROM deedbox.queue
WHERE state IN ({{job.rescue}}) AND lease_until <= deedbox.clock() AND job_id > %(after)s
ORDER BY job_id LIMIT %(limit)s

-- name: rescue
-- Take back jobs whose lease ran out, in order behind the one given and bounded: queued again where attempts are left, else
-- parked; canceled where that was asked. The dead attempt is journalled and counts. Returns how often each was taken over.
WITH lost AS (
    SELECT job_id, attempt_id, attempt, attempts_allowed, round, worker, started_at, cancel_requested
    FROM deedbox.queue
    WHERE state IN ({{job.rescue}}) AND lease_until <= deedbox.clock() AND job_id > %(after)s
    ORDER BY job_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), ids AS (
    SELECT lost.*, e.event_id,
           CASE WHEN cancel_requested THEN 'cancel' WHEN attempt < attempts_allowed THEN 'rescue' ELSE 'give_up' END AS move
    FROM (SELECT lost.*, row_number() OVER (ORDER BY job_id) AS n FROM lost) AS lost
    JOIN unnest(%(event_id)s::uuid[]) WITH ORDINALITY AS e (event_id, n) USING (n)
), kept AS (
    UPDATE deedbox.queue q
    SET state = CASE ids.move WHEN 'rescue' THEN 'queued' ELSE 'failed_retryable' END, due = true, run_at = deedbox.clock(),
        attempt_id = NULL, fence = NULL, worker = NULL, started_at = NULL, lease_until = NULL, lease_cap = NULL,
        takeovers = q.takeovers + 1, last_seq = q.last_seq + 1, updated_at = deedbox.clock()
    FROM ids WHERE q.job_id = ids.job_id AND ids.move IN ('rescue', 'give_up')
    RETURNING q.job_id, q.last_seq, q.takeovers
), gone AS (
    DELETE FROM deedbox.queue q USING ids WHERE q.job_id = ids.job_id AND ids.move = 'cancel'
    RETURNING q.job_id, q.last_seq + 1 AS last_seq
), r AS (
    INSERT INTO deedbox.result (job_id, state, class, code, message, attempt, attempts_allowed, round, last_seq, ended_at)
    SELECT job_id, 'canceled', 'canceled', 'canceled', 'The job was canceled while it ran.', attempt, attempts_allowed, round,
           gone.last_seq, deedbox.clock()
    FROM gone JOIN ids USING (job_id)
), a AS (
    INSERT INTO deedbox.attempt (job_id, attempt_id, report, attempt, round, move, class, code, message, worker, build, started_at, ended_at)
    SELECT job_id, attempt_id, 'ended', attempt, round, move, 'lost', 'worker_lost',
           'The worker was lost: its lease ran out.', worker, '', started_at, deedbox.clock()
    FROM ids ON CONFLICT DO NOTHING
), e AS (
    INSERT INTO deedbox.event (job_id, seq, event_id, type, round, attempt_id, at, payload)
    SELECT ids.job_id, coalesce(kept.last_seq, gone.last_seq), ids.event_id,
           CASE ids.move WHEN 'rescue' THEN 'job.retrying' WHEN 'cancel' THEN 'job.canceled' ELSE 'job.failed' END,
           ids.round, ids.attempt_id, deedbox.clock(),
           jsonb_build_object('attempt', ids.attempt, 'class', 'lost', 'code', 'worker_lost', 'message',
                              'The worker was lost: its lease ran out.')
           || CASE ids.move WHEN 'rescue' THEN jsonb_build_object('next_attempt_in_ms', 0)
                            WHEN 'give_up' THEN jsonb_build_object('retryable', true) ELSE '{}' END
    FROM ids LEFT JOIN kept USING (job_id) LEFT JOIN gone USING (job_id)
)
SELECT ids.job_id, ids.move, coalesce(kept.takeovers, 0) FROM ids LEFT JOIN kept USING (job_id)

-- name: promote
-- Make due what was waiting for its time, in order and bounded.
WITH ripe AS (
    SELECT job_id FROM deedbox.queue WHERE state = 'queued' AND NOT due AND run_at <= deedbox.clock()
    ORDER BY run_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
UPDATE deedbox.queue q SET due = true FROM ripe WHERE q.job_id = ripe.job_id RETURNING q.job_id

-- name: overdue
-- Jobs whose deadline has passed and which can still be stopped, the oldest deadline first.
SELECT job_id FROM deedbox.queue
WHERE deadline <= deedbox.clock() AND (state IN ({{job.cancel}}) OR (state IN ({{job.cancel_attempt}}) AND NOT cancel_requested))
ORDER BY deadline LIMIT %(limit)s

-- name: dispatching_done
-- Jobs that are dispatching although all their effects have ended: whoever ended the last one died before it could say so.
SELECT q.job_id FROM deedbox.queue q
WHERE q.state = 'dispatching' AND NOT EXISTS (
    SELECT FROM deedbox.effect e WHERE e.job_id = q.job_id AND e.kind = 'act'
        AND e.state NOT IN ('completed', 'failed', 'canceled', 'unknown_closed')
) ORDER BY q.job_id LIMIT %(limit)s
