-- name: accept
-- Insert every key that is new, and for those alone the job, its payload, its queue row in the state given, and its first event; the
-- call is journalled in the job. The commit tells the workers where `tells` says so and a job is new.
-- Returns how many were new, and which ones unless all were. Rows come sorted by key, so that two flushes cannot deadlock. The time
-- to wait for a rival's lock is set for this one transaction, before the first row is inserted.
WITH input AS (
    SELECT i.*
    FROM (SELECT set_config('lock_timeout', %(lock_timeout)s, true)) AS patience, unnest(%(jobs)s::deedbox.new_job[]) AS i
), new AS (
    INSERT INTO deedbox.idempotency (tenant, action, key_sha256, job_id, payload_sha256, expires_at)
    SELECT tenant, action, key_sha256, job_id, payload_sha256, deedbox.clock() + make_interval(secs => expires_s)
    FROM input
    ON CONFLICT (tenant, action, key_sha256) DO NOTHING
    RETURNING job_id
), fresh AS (
    SELECT input.* FROM input JOIN new USING (job_id)
), j AS (
    INSERT INTO deedbox.job (job_id, tenant, action, action_version, idempotency_key, key_sha256, key_source, subject, role,
                             source, caller_run, trace, callback, replaces, parent_job_id, through, data_subject, created_at)
    SELECT job_id, tenant, action, version, key, key_sha256, key_source, subject, role, source, caller_run, trace, callback,
           replaces, parent_job_id, through, data_subject, deedbox.clock()
    FROM fresh
), p AS (
    INSERT INTO deedbox.job_payload (job_id, input) SELECT job_id, input FROM fresh
), q AS (
    INSERT INTO deedbox.queue (job_id, lane_id, state, due, priority, action_version, run_at, deadline, attempts_allowed, last_seq)
    SELECT job_id, lane_id, %(state)s::text, coalesce(run_at::timestamptz <= deedbox.clock(), true), priority, version,
           coalesce(run_at::timestamptz, deedbox.clock()),
           least(deadline::timestamptz, deedbox.clock() + make_interval(secs => deadline_s)), attempts, 1
    FROM fresh
), e AS (
    INSERT INTO deedbox.event (job_id, seq, event_id, type, round, at, payload)
    SELECT job_id, 1, event_id, %(event_type)s::text, 1, deedbox.clock(), %(event)s::jsonb FROM fresh
), c AS (
    INSERT INTO deedbox.callback (job_id, tenant, action, target)
    SELECT job_id, tenant, action, callback FROM fresh WHERE callback IS NOT NULL
)
SELECT count(*), CASE WHEN count(*) < cardinality(%(jobs)s::deedbox.new_job[]) THEN array_agg(job_id) END,
       CASE WHEN count(*) > 0 AND %(tells)s::boolean THEN pg_notify('deedbox_queue', '') END
FROM new

-- name: existing
-- What the given keys are bound to now, with the state of each job. A second statement on purpose: the one that met a rival
-- cannot see what the rival committed while it waited.
SELECT i.tenant, i.action, i.key_sha256, i.job_id, i.payload_sha256, i.erased, j.subject,
       coalesce(q.state, r.state, i.final_state) AS state,
       -- The tombstone is written when the contents go, before the job's own row does.
       j.job_id IS NULL OR i.final_state IS NOT NULL AS pruned
FROM json_to_recordset(%(keys)s::json) AS k (tenant text, action text, key_sha256 bytea)
CROSS JOIN LATERAL (
    SELECT * FROM deedbox.idempotency
    WHERE tenant = k.tenant AND action = k.action AND key_sha256 = k.key_sha256 LIMIT 1
) AS i
LEFT JOIN LATERAL (SELECT job_id, subject FROM deedbox.job WHERE job_id = i.job_id LIMIT 1) AS j ON true
LEFT JOIN LATERAL (SELECT state FROM deedbox.queue WHERE job_id = i.job_id LIMIT 1) AS q ON true
LEFT JOIN LATERAL (SELECT state FROM deedbox.result WHERE job_id = i.job_id LIMIT 1) AS r ON true

-- name: keep_document
-- Store a document under its digest; the same bytes are stored once per tenant.
INSERT INTO deedbox.document (tenant, sha256, size, content)
VALUES (%(tenant)s, %(sha256)s, %(size)s, %(content)s) ON CONFLICT (tenant, sha256) DO NOTHING

-- name: link_document
-- Let a job show a document under a name; the id is what the input and the results link to.
INSERT INTO deedbox.job_document (document_id, job_id, tenant, sha256, name, media_type)
VALUES (%(document_id)s, %(job_id)s, %(tenant)s, %(sha256)s, %(name)s, %(media_type)s)

-- name: lane
-- The id of a lane, made when it is new.
WITH made AS (
    INSERT INTO deedbox.lane (queue, action, tenant) VALUES (%(queue)s, %(action)s, %(tenant)s)
    ON CONFLICT (queue, action, tenant) DO NOTHING RETURNING lane_id
)
SELECT lane_id FROM made
UNION ALL
SELECT lane_id FROM deedbox.lane WHERE queue = %(queue)s AND action = %(action)s AND tenant = %(tenant)s
LIMIT 1

-- name: waiting
-- How many jobs wait in a lane, counted no further than the limit.
SELECT count(*) FROM (
    SELECT FROM deedbox.queue WHERE lane_id = %(lane_id)s AND state = 'queued' AND due LIMIT %(limit)s
) AS counted

-- name: held
-- How many jobs of an action wait for a yes to their arguments, counted no further than the limit.
SELECT count(*) FROM (
    SELECT FROM deedbox.approval
    WHERE tenant = %(tenant)s AND action = %(action)s AND state = 'pending' AND purpose = 'input' LIMIT %(limit)s
) AS counted

-- name: journal_call
-- A call that stored no job: a replay, a conflict or a refusal.
INSERT INTO deedbox.call (call_id, called_at, tenant, subject, role, source, action, job_id, key_sha256, input_sha256, trace,
                          caller_run, status, error_code, through)
SELECT call_id, deedbox.clock(), tenant, subject, role, source, action, job_id, key_sha256, input_sha256, trace, caller_run,
       status, error_code, through
FROM json_to_recordset(%(calls)s::json) AS c (
    call_id uuid, tenant text, subject uuid, role text, source text, action text, job_id uuid, key_sha256 bytea,
    input_sha256 bytea, trace text, caller_run text, status text, error_code text, through uuid
)

-- name: parent
-- Whom a job runs for, with the roles and rights of today. Where a service asked for a person, both must be there and what
-- counts is what both hold.
SELECT j.subject, p.name, p.kind, p.disabled_at IS NOT NULL OR s.disabled_at IS NOT NULL, j.trace,
       ARRAY(SELECT g.role FROM deedbox."grant" g WHERE g.principal_id = j.subject
             AND (j.through IS NULL OR g.role IN (SELECT o.role FROM deedbox."grant" o WHERE o.principal_id = j.through))),
       ARRAY(SELECT v.verb FROM unnest(deedbox.verbs_of(j.subject)) AS v (verb)
             WHERE j.through IS NULL OR v.verb = ANY (deedbox.verbs_of(j.through))),
       s.principal_id, s.name
FROM deedbox.job j JOIN deedbox.principal p ON p.principal_id = j.subject
LEFT JOIN deedbox.principal s ON s.principal_id = j.through
WHERE j.job_id = %(job_id)s AND j.tenant = %(tenant)s

-- name: bound_to
-- The job a key is bound to.
SELECT job_id FROM deedbox.idempotency
WHERE tenant = %(tenant)s AND action = %(action)s AND key_sha256 = %(key_sha256)s
