-- name: parent
-- The job within which a tool is called, as its caller may see it: its action, and its state while it has not ended.
SELECT j.action, q.state
FROM (SELECT * FROM deedbox.job WHERE job_id = %(job_id)s LIMIT 1) AS j
LEFT JOIN LATERAL (SELECT state FROM deedbox.queue WHERE job_id = j.job_id LIMIT 1) AS q ON true
WHERE j.tenant = %(tenant)s AND (j.subject = %(subject)s AND (%(through)s::uuid IS NULL OR j.through = %(through)s) OR %(sees_all)s)

-- name: turn
-- The key of a call that has none of its own: that of an equal call before it while the window lasts, else the one proposed. Equal
-- calls wait for one another here, so that they agree. A job that ended without success and before anything was proposed gives its
-- key up, so that the call can be made again; what a person or the policy refused, and what was done in part, does not.
-- With the state of the key's job, where it has one, and whether this call is the one that took the key.
WITH mine AS (
    INSERT INTO deedbox.tool_key AS k (tenant, action, call_sha256, key, until, call_id)
    VALUES (%(tenant)s, %(action)s, %(call_sha256)s, %(key)s, deedbox.clock() + make_interval(secs => %(window_s)s), %(call_id)s)
    ON CONFLICT (tenant, action, call_sha256) DO UPDATE SET (key, until, call_id) = (
        SELECT CASE WHEN same.holds THEN k.key ELSE excluded.key END, CASE WHEN same.holds THEN k.until ELSE excluded.until END,
               CASE WHEN same.holds THEN k.call_id ELSE excluded.call_id END
        FROM (SELECT k.until > deedbox.clock() AND NOT EXISTS (
            SELECT FROM deedbox.idempotency i
            JOIN deedbox.result r ON r.job_id = i.job_id
            WHERE i.tenant = k.tenant AND i.action = k.action AND i.key_sha256 = sha256(convert_to(k.key, 'UTF8'))
                AND r.state <> 'completed'
                AND coalesce(r.code, '') NOT IN ('rejected', 'approval_expired', 'policy_denied', 'abstained')
                AND NOT EXISTS (SELECT FROM deedbox.effect e WHERE e.job_id = i.job_id)
        ) AS holds) AS same
    )
    RETURNING key, call_id
)
SELECT m.key, coalesce(q.state, r.state, i.final_state), m.call_id = %(call_id)s
FROM mine m
LEFT JOIN deedbox.idempotency i
    ON i.tenant = %(tenant)s AND i.action = %(action)s AND i.key_sha256 = sha256(convert_to(m.key, 'UTF8'))
LEFT JOIN LATERAL (SELECT state FROM deedbox.queue WHERE job_id = i.job_id LIMIT 1) AS q ON true
LEFT JOIN LATERAL (SELECT state FROM deedbox.result WHERE job_id = i.job_id LIMIT 1) AS r ON true

-- name: spend
-- Count one more call of a job, unless it has made as many as it may. No row: it has.
INSERT INTO deedbox.tool_budget AS b (parent_job_id, calls, last_at) VALUES (%(parent_job_id)s, 1, deedbox.clock())
ON CONFLICT (parent_job_id) DO UPDATE SET calls = b.calls + 1, last_at = deedbox.clock() WHERE b.calls < %(most)s
RETURNING calls

-- name: journal
-- Keep calls of tools as they were answered, each with what its job had come to by then: attempt, approval, and the ids that
-- providers gave.
INSERT INTO deedbox.call (call_id, called_at, tenant, subject, role, claimed_role, source, action, job_id, parent_job_id,
                          attempt_id, approval_id, key_sha256, input_sha256, trace, caller_run, status, error_code, duration_ms,
                          detail, through)
SELECT c.call_id, deedbox.clock(), c.tenant, c.subject, c.role, c.claimed_role, c.source, c.action, c.job_id,
       coalesce(c.parent_job_id, j.parent_job_id), a.attempt_id, p.approval_id, coalesce(c.key_sha256, j.key_sha256),
       c.input_sha256, c.trace, c.caller_run, c.status, c.error_code, c.duration_ms,
       jsonb_strip_nulls(jsonb_build_object(
           'answer', c.answer, 'state', c.state, 'build', coalesce(a.build, c.build), 'prompt_version', a.prompt_version,
           'validation', coalesce(a.validation, c.validation), 'repairs', a.repairs, 'class', coalesce(a.class, r.class),
           'object_id', c.object_id, 'external_ids', x.ids)),
       c.through
FROM json_to_recordset(%(calls)s::json) AS c (
    call_id uuid, tenant text, subject uuid, role text, claimed_role text, source text, action text, job_id uuid,
    parent_job_id uuid, key_sha256 bytea, input_sha256 bytea, trace text, caller_run text, status text, error_code text,
    duration_ms float8, answer text, state text, build text, validation text, object_id text, through uuid
)
LEFT JOIN LATERAL (SELECT key_sha256, parent_job_id FROM deedbox.job WHERE job_id = c.job_id LIMIT 1) AS j ON true
LEFT JOIN LATERAL (SELECT class FROM deedbox.result WHERE job_id = c.job_id LIMIT 1) AS r ON true
LEFT JOIN LATERAL (
    SELECT attempt_id, build, prompt_version, validation, repairs, class FROM deedbox.attempt
    WHERE job_id = c.job_id AND report = 'ended' ORDER BY attempt DESC LIMIT 1
) AS a ON true
LEFT JOIN LATERAL (
    SELECT approval_id FROM deedbox.approval WHERE job_id = c.job_id ORDER BY approval_id DESC LIMIT 1
) AS p ON true
LEFT JOIN LATERAL (
    SELECT jsonb_agg(DISTINCT provider_id) AS ids FROM deedbox.receipt WHERE job_id = c.job_id
) AS x ON true

-- name: journal_begun
-- Keep calls of tools that were answered as soon as their jobs were queued: nothing has come of those yet, so nothing is looked up.
INSERT INTO deedbox.call (call_id, called_at, tenant, subject, role, claimed_role, source, action, job_id, parent_job_id, key_sha256,
                          input_sha256, trace, caller_run, status, duration_ms, detail, through)
SELECT c.call_id, deedbox.clock(), c.tenant, c.subject, c.role, c.claimed_role, c.source, c.action, c.job_id, c.parent_job_id,
       c.key_sha256, c.input_sha256, c.trace, c.caller_run, c.status, c.duration_ms,
       jsonb_build_object('answer', c.answer, 'state', c.state, 'build', c.build, 'validation', c.validation), c.through
FROM json_to_recordset(%(calls)s::json) AS c (
    call_id uuid, tenant text, subject uuid, role text, claimed_role text, source text, action text, job_id uuid,
    parent_job_id uuid, key_sha256 bytea, input_sha256 bytea, trace text, caller_run text, status text, duration_ms float8,
    answer text, state text, build text, validation text, through uuid
)
