-- name: claim
-- Lease at most `limit` jobs that are due, lanes in the order given: in each at most `room`, the first by priority and age from
-- where the last claim ended, skipping what others hold. Each gets a new attempt, a fence that was never used before, and a lease
-- from the database clock; its payload comes along. A lane that was paused meanwhile gives nothing. A row is changed where it was
-- locked: one that somebody else had just changed is left for the next claim.
WITH serve AS (
    SELECT s.*, l.tenant, l.action FROM json_to_recordset(%(serve)s::json)
        AS s (lane_id bigint, version integer, cap float8, room integer, from_priority smallint, from_job_id uuid)
    CROSS JOIN LATERAL (
        SELECT tenant, action FROM deedbox.lane WHERE lane_id = s.lane_id AND NOT paused LIMIT 1
    ) AS l
), picked AS (
    SELECT q.at, serve.cap, serve.tenant, serve.action
    FROM serve
    CROSS JOIN LATERAL (
        SELECT ctid AS at FROM deedbox.queue
        WHERE lane_id = serve.lane_id AND state IN ({{job.claim}}) AND due AND action_version = serve.version
            AND (priority, job_id) >= (serve.from_priority, serve.from_job_id)
        ORDER BY priority, job_id
        LIMIT serve.room
        FOR UPDATE SKIP LOCKED
    ) AS q
    LIMIT %(limit)s
), numbered AS (
    SELECT at, cap, tenant, action, row_number() OVER () AS n FROM picked
), moved AS (
    UPDATE deedbox.queue q
    SET state = 'running', attempt = q.attempt + 1, attempt_id = (%(attempt_id)s::uuid[])[numbered.n],
        fence = nextval('deedbox.fence_seq'), worker = %(worker)s, started_at = deedbox.clock(),
        lease_until = deedbox.clock() + make_interval(secs => %(lease)s),
        lease_cap = deedbox.clock() + make_interval(secs => numbered.cap),
        last_seq = q.last_seq + 1, updated_at = deedbox.clock()
    FROM numbered
    WHERE q.ctid = numbered.at AND q.state IN ({{job.claim}})
    RETURNING q.job_id, q.lane_id, q.priority, q.attempt, q.attempts_allowed, q.round, q.attempt_id, q.fence,
              q.cancel_requested, numbered.tenant, numbered.action, q.action_version, q.last_seq,
              (%(event_id)s::uuid[])[numbered.n] AS event_id
), e AS (
    INSERT INTO deedbox.event (job_id, seq, event_id, type, round, attempt_id, at, payload)
    SELECT job_id, last_seq, event_id, 'job.started', round, attempt_id, deedbox.clock(), jsonb_build_object('attempt', attempt)
    FROM moved
)
SELECT m.job_id, m.lane_id, m.priority, m.attempt, m.attempts_allowed, m.round, m.attempt_id, m.fence, m.cancel_requested,
       m.tenant, m.action, m.action_version, p.input::text
FROM moved m
LEFT JOIN LATERAL (SELECT input FROM deedbox.job_payload WHERE job_id = m.job_id LIMIT 1) AS p ON true

-- name: renew
-- Prolong every lease this process still holds, never past its cap, and bring back the cancel flags. A lease that lapsed or
-- went to someone else does not come back: it is lost.
UPDATE deedbox.queue q
SET lease_until = least(q.lease_cap, deedbox.clock() + make_interval(secs => %(lease)s))
FROM json_to_recordset(%(held)s::json) AS held (job_id uuid, attempt_id uuid, fence bigint)
WHERE q.job_id = held.job_id AND q.attempt_id = held.attempt_id AND q.fence = held.fence
    AND q.state IN ({{job.renew}}) AND q.lease_until > deedbox.clock()
RETURNING q.attempt_id, q.cancel_requested

-- name: flags
-- Which of the attempts held here are asked to stop.
SELECT q.attempt_id
FROM json_to_recordset(%(held)s::json) AS held (job_id uuid, attempt_id uuid)
CROSS JOIN LATERAL (
    SELECT attempt_id, cancel_requested FROM deedbox.queue WHERE job_id = held.job_id LIMIT 1
) AS q
WHERE q.attempt_id = held.attempt_id AND q.cancel_requested

-- name: lock_attempts
-- Lock, in one order, the rows whose attempt still holds its fence; what does not come back is stale.
SELECT q.job_id, q.attempt_id, q.attempt, q.attempts_allowed, q.round, q.last_seq, q.cancel_requested, q.started_at
FROM deedbox.queue q
JOIN json_to_recordset(%(held)s::json) AS held (job_id uuid, attempt_id uuid, fence bigint)
    ON q.job_id = held.job_id AND q.attempt_id = held.attempt_id AND q.fence = held.fence
WHERE q.state IN ({{job.complete}})
ORDER BY q.job_id
FOR UPDATE OF q

-- name: complete_attempts
-- End attempts that proposed nothing, each under its own fence, in one statement that is a transaction of its own: the queue row
-- goes, one result comes, the attempt is journalled and the last event written. They come sorted by job, so that rows are locked
-- in one order. Returns how many ended, and which ones unless all did. Another one is stale, or its row was just changed by somebody
-- else, which the way for everything out of the ordinary finds out.
WITH input AS MATERIALIZED (
    SELECT i.* FROM unnest(%(ended)s::deedbox.ended_attempt[]) AS i
), mine AS MATERIALIZED (
    -- One look-up for each, in the order given: joined as sets, every row was held against every other.
    SELECT q.at, q.started_at, i.output, i.event_id, i.event, i.journal
    FROM input i
    CROSS JOIN LATERAL (
        SELECT ctid AS at, started_at FROM deedbox.queue
        -- The state not as the index of running rows has it: that would be read instead, with all its dead entries.
        WHERE job_id = i.job_id AND attempt_id = i.attempt_id AND fence = i.fence AND coalesce(state, '') IN ({{job.complete}})
        LIMIT 1
        FOR UPDATE
    ) AS q
), gone AS (
    DELETE FROM deedbox.queue q USING mine
    WHERE q.ctid = mine.at
    RETURNING q.job_id, q.attempt, q.attempts_allowed, q.round, q.attempt_id, q.last_seq + 1 AS seq, mine.started_at, mine.output,
              mine.event_id, mine.event, mine.journal
), r AS (
    INSERT INTO deedbox.result (job_id, state, output, attempt, attempts_allowed, round, last_seq, ended_at)
    SELECT job_id, 'completed', output, attempt, attempts_allowed, round, seq, deedbox.clock() FROM gone
), a AS (
    INSERT INTO deedbox.attempt (job_id, attempt_id, report, attempt, round, move, worker, build, started_at, ended_at, model,
                                 prompt_version, validation, usage, repairs)
    SELECT job_id, attempt_id, 'ended', attempt, round, 'complete', %(worker)s, %(build)s, started_at, deedbox.clock(),
           journal -> 'model', journal ->> 'prompt_version', journal ->> 'validation', journal -> 'usage',
           (journal ->> 'repairs')::integer
    FROM gone
), e AS (
    INSERT INTO deedbox.event (job_id, seq, event_id, type, round, attempt_id, at, payload)
    SELECT job_id, seq, event_id, 'job.completed', round, attempt_id, deedbox.clock(), event FROM gone
)
SELECT count(*), CASE WHEN count(*) < cardinality(%(ended)s::deedbox.ended_attempt[]) THEN array_agg(attempt_id) END FROM gone

-- name: settled
-- Which attempts were settled by the worker that held them, and how: a commit whose answer was lost is found here.
SELECT a.attempt_id, a.move
FROM json_to_recordset(%(held)s::json) AS held (job_id uuid, attempt_id uuid)
CROSS JOIN LATERAL (
    SELECT attempt_id, move FROM deedbox.attempt
    WHERE job_id = held.job_id AND attempt_id = held.attempt_id AND report = 'ended' LIMIT 1
) AS a
WHERE a.move IN ('complete', 'hold', 'authorize', 'back_off', 'exhaust', 'fail', 'cancel')

-- name: end_attempts
-- End locked jobs: the queue row goes, one result comes, and the last event.
WITH input AS (
    SELECT * FROM json_to_recordset(%(endings)s::json) AS i (
        job_id uuid, state text, output jsonb, class text, code text, message text, event_type text, event_id uuid, event jsonb
    )
), gone AS (
    DELETE FROM deedbox.queue q USING input i WHERE q.job_id = i.job_id AND q.job_id = ANY (ARRAY (SELECT job_id FROM input))
    RETURNING q.job_id, q.attempt, q.attempts_allowed, q.round, q.attempt_id, q.last_seq
), r AS (
    INSERT INTO deedbox.result (job_id, state, output, class, code, message, attempt, attempts_allowed, round, last_seq, ended_at)
    SELECT job_id, i.state, i.output, i.class, i.code, i.message, g.attempt, g.attempts_allowed, g.round, g.last_seq + 1,
           deedbox.clock()
    FROM gone g JOIN input i USING (job_id)
)
INSERT INTO deedbox.event (job_id, seq, event_id, type, round, attempt_id, at, payload)
SELECT job_id, g.last_seq + 1, i.event_id, i.event_type, g.round, g.attempt_id, deedbox.clock(), i.event
FROM gone g JOIN input i USING (job_id)

-- name: move_attempts
-- Move locked jobs that stay in the queue: back to queued with a wait, parked, held or dispatching. One that is queued has an
-- attempt left: where a drain gave back its last one, another is allowed. One that only waited is not counted against the job.
WITH input AS (
    SELECT * FROM json_to_recordset(%(movings)s::json) AS i (
        job_id uuid, state text, wait_s float8, waited boolean, event_type text, event_id uuid, event jsonb
    )
), moved AS (
    UPDATE deedbox.queue q
    SET state = i.state, due = coalesce(i.wait_s, 0) <= 0,
        attempts_allowed = CASE i.state WHEN 'queued' THEN greatest(q.attempts_allowed + i.waited::integer, q.attempt + 1)
            ELSE q.attempts_allowed END,
        run_at = deedbox.clock() + make_interval(secs => coalesce(i.wait_s, 0)),
        attempt_id = NULL, fence = NULL, worker = NULL, started_at = NULL, lease_until = NULL, lease_cap = NULL,
        last_seq = q.last_seq + 1, updated_at = deedbox.clock()
    FROM input i, (
        SELECT job_id, attempt_id FROM deedbox.queue WHERE job_id = ANY (ARRAY (SELECT job_id FROM input))
    ) AS before
    WHERE q.job_id = i.job_id AND before.job_id = q.job_id AND q.job_id = ANY (ARRAY (SELECT job_id FROM input))
    RETURNING q.job_id, q.last_seq, q.round, before.attempt_id
)
INSERT INTO deedbox.event (job_id, seq, event_id, type, round, attempt_id, at, payload)
SELECT job_id, m.last_seq, i.event_id, i.event_type, m.round, m.attempt_id, deedbox.clock(), i.event
FROM moved m JOIN input i USING (job_id)

-- name: journal_attempts
-- Keep what became of each attempt; a report that came twice is kept once.
INSERT INTO deedbox.attempt (job_id, attempt_id, report, attempt, round, move, class, code, message, worker, build, started_at,
                             ended_at, model, prompt_version, validation, usage, repairs)
SELECT job_id, attempt_id, report, attempt, round, move, class, code, message, %(worker)s, %(build)s, started_at,
       deedbox.clock(), model, prompt_version, validation, usage, repairs
FROM json_to_recordset(%(attempts)s::json) AS i (
    job_id uuid, attempt_id uuid, report text, attempt integer, round integer, move text, class text, code text, message text,
    started_at timestamptz, model jsonb, prompt_version text, validation text, usage jsonb, repairs integer
)
ON CONFLICT DO NOTHING

-- name: add_event
-- Append an event of a running attempt, only while it holds its fence. No row: the lease is lost.
WITH moved AS (
    UPDATE deedbox.queue SET last_seq = last_seq + 1
    WHERE job_id = %(job_id)s AND attempt_id = %(attempt_id)s AND fence = %(fence)s AND state = 'running'
    RETURNING job_id, last_seq, round, attempt_id
)
INSERT INTO deedbox.event (job_id, seq, event_id, type, round, attempt_id, at, payload)
SELECT job_id, last_seq, %(event_id)s, %(type)s, round, attempt_id, deedbox.clock(), %(payload)s::jsonb FROM moved
RETURNING seq

-- name: last_step
-- The last step of its progress that a job has reported.
SELECT (payload ->> 'step')::integer FROM deedbox.event
WHERE job_id = %(job_id)s AND type = 'job.progress' ORDER BY seq DESC LIMIT 1

-- name: read_step
-- A checkpoint, whoever wrote it.
SELECT input_sha256, value::text FROM deedbox.step WHERE job_id = %(job_id)s AND name = %(name)s

-- name: write_step
-- Store a checkpoint, only while the attempt holds its fence. No row: the lease is lost, or the step exists.
WITH held AS (
    SELECT job_id FROM deedbox.queue
    WHERE job_id = %(job_id)s AND attempt_id = %(attempt_id)s AND fence = %(fence)s AND state = 'running'
    FOR UPDATE
)
INSERT INTO deedbox.step (job_id, name, attempt_id, input_sha256, value)
SELECT job_id, %(name)s, %(attempt_id)s, %(input_sha256)s, %(value)s::jsonb FROM held
ON CONFLICT DO NOTHING
RETURNING job_id

-- name: read_document
-- A document's bytes, for a job that carries it.
SELECT d.content FROM deedbox.job_document jd
JOIN deedbox.document d ON d.tenant = jd.tenant AND d.sha256 = jd.sha256
WHERE jd.document_id = %(document_id)s AND jd.job_id = %(job_id)s
