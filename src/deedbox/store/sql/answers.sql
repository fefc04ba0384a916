-- name: find
-- The jobs that somebody may see and means by a word: the id of a job, an effect, an approval or a call, the key of a call, the
-- caller's own run, or what a provider calls the thing. Each with what the word is, and the effect where it names one. Of an id that
-- a provider gives to everything the first thousand are looked at: it names nothing.
WITH named AS (
    SELECT job_id, 'job' AS found_as, NULL::uuid AS effect_id FROM deedbox.job WHERE job_id = %(id)s
    UNION ALL
    SELECT job_id, 'effect', effect_id FROM deedbox.effect WHERE effect_id = %(id)s
    UNION ALL
    SELECT job_id, 'approval', NULL FROM deedbox.approval WHERE approval_id = %(id)s
    UNION ALL
    SELECT job_id, 'call', NULL FROM deedbox.call WHERE call_id = %(id)s AND job_id IS NOT NULL
    UNION ALL
    (SELECT job_id, 'provider', effect_id FROM deedbox.receipt
     WHERE hashtextextended(provider_id, 0) = hashtextextended(%(what)s, 0) AND provider_id = %(what)s LIMIT 1000)
    UNION ALL
    SELECT job_id, 'caller_run', NULL FROM deedbox.job WHERE tenant = %(tenant)s AND caller_run = %(what)s
    UNION ALL
    SELECT i.job_id, 'key', NULL
    FROM (SELECT DISTINCT action FROM deedbox.lane WHERE tenant = %(tenant)s) AS known
    CROSS JOIN LATERAL (
        SELECT job_id FROM deedbox.idempotency
        WHERE tenant = %(tenant)s AND action = known.action AND key_sha256 = %(key_sha256)s LIMIT 1
    ) AS i
)
SELECT DISTINCT ON (n.job_id, n.effect_id) n.job_id, n.found_as, n.effect_id
FROM named n
CROSS JOIN LATERAL (SELECT tenant, subject FROM deedbox.job WHERE job_id = n.job_id LIMIT 1) AS j
WHERE j.tenant = %(tenant)s AND (j.subject = %(subject)s OR %(sees_all)s)
ORDER BY n.job_id DESC, n.effect_id, n.found_as LIMIT %(limit)s

-- name: request
-- Who asked for a job, by which call, and where it stands.
SELECT j.job_id, j.action, j.action_version AS version, j.idempotency_key AS key, encode(j.key_sha256, 'hex') AS key_sha256,
       j.key_source, p.name AS asked_by, p.kind AS asked_by_kind, j.role, j.source, j.caller_run, j.trace, j.created_at,
       coalesce(q.state, r.state) AS state, coalesce(q.round, r.round) AS round, r.ended_at, r.code,
       j.parent_job_id, j.replaces, coalesce(i.erased, false) AS erased,
       (SELECT count(*) FROM deedbox.call c WHERE c.job_id = j.job_id AND c.status = 'replayed') AS replays
FROM (SELECT * FROM deedbox.job WHERE job_id = %(job_id)s LIMIT 1) AS j
LEFT JOIN LATERAL (SELECT * FROM deedbox.queue WHERE job_id = j.job_id LIMIT 1) AS q ON true
LEFT JOIN LATERAL (SELECT * FROM deedbox.result WHERE job_id = j.job_id LIMIT 1) AS r ON true
LEFT JOIN deedbox.idempotency i ON i.tenant = j.tenant AND i.action = j.action AND i.key_sha256 = j.key_sha256
LEFT JOIN deedbox.principal p ON p.principal_id = j.subject

-- name: key
-- What a key is bound to, and whether its job is one that the reader may see; NULL where the job's own records are gone.
SELECT i.job_id, i.erased, i.final_state, i.created_at, i.expires_at,
       CASE WHEN j.job_id IS NOT NULL THEN j.subject = %(subject)s OR %(sees_all)s END
FROM deedbox.idempotency i
LEFT JOIN LATERAL (SELECT job_id, subject FROM deedbox.job WHERE job_id = i.job_id LIMIT 1) AS j ON true
WHERE i.tenant = %(tenant)s AND i.action = %(action)s AND i.key_sha256 = %(key_sha256)s

-- name: effects
-- The acts of a job, or one of them, with what authorised each and what is known of it from providers, look-ups and people.
SELECT e.effect_id, e.connector, e.target, e.slot, e.state, e.attempt AS sendings, e.first_sent_at, e.updated_at, e.not_before,
       e.code, e.message, e.approval_id, e.verdict_id,
       (SELECT coalesce(jsonb_agg(jsonb_build_object('provider_id', c.provider_id, 'source', c.source, 'by', p.name,
            'stored_at', c.stored_at) ORDER BY c.receipt_id), '[]')
        FROM deedbox.receipt c LEFT JOIN deedbox.principal p ON p.principal_id = c.by_principal
        WHERE c.job_id = e.job_id AND c.effect_id = e.effect_id) AS receipts
FROM deedbox.effect e
WHERE e.job_id = %(job_id)s AND e.kind = 'act' AND (%(effect_id)s::uuid IS NULL OR e.effect_id = %(effect_id)s)
ORDER BY e.effect_id

-- name: approvals
-- The approvals of a job, or the one that authorised an effect, with every vote.
SELECT a.approval_id, a.purpose, a.group_name AS "group", a.state, d.name AS decided_by, a.decided_how, a.decided_at, a.reason,
       a.rule, a.policy_version, encode(a.digest, 'hex') AS digest, a.requested_at, a.expires_at, a.quorum, a.audience,
       (SELECT coalesce(jsonb_agg(jsonb_build_object('by', p.name, 'decision', v.decision, 'how', v.how, 'at', v.voted_at)
            ORDER BY v.voted_at), '[]')
        FROM deedbox.vote v LEFT JOIN deedbox.principal p USING (principal_id) WHERE v.approval_id = a.approval_id) AS votes
FROM deedbox.approval a LEFT JOIN deedbox.principal d ON d.principal_id = a.decided_by
WHERE a.job_id = %(job_id)s AND (%(effect_id)s::uuid IS NULL OR a.approval_id = (
    SELECT approval_id FROM deedbox.effect WHERE effect_id = %(effect_id)s))
ORDER BY a.approval_id

-- name: verdicts
-- What the policy said of a job's groups, where that and no person authorised or refused them.
SELECT v.verdict_id, v.group_name AS "group", v.decision, v.rule, v.policy_version, v.decided_at
FROM deedbox.verdict v
WHERE v.job_id = %(job_id)s AND v.decision <> 'hold' AND (%(effect_id)s::uuid IS NULL OR v.verdict_id = (
    SELECT verdict_id FROM deedbox.effect WHERE effect_id = %(effect_id)s))
ORDER BY v.verdict_id

-- name: attempts
-- The attempts of a job that ended, with the models each asked, and whether what was proposed came from it.
SELECT a.attempt_id, a.attempt, a.round, a.move, a.build, a.ended_at, a.model AS models, a.prompt_version, a.validation, a.repairs,
       EXISTS (SELECT FROM deedbox.proposal p WHERE p.job_id = a.job_id AND p.attempt_id = a.attempt_id) AS proposed
FROM deedbox.attempt a
WHERE a.job_id = %(job_id)s AND a.report = 'ended' ORDER BY a.ended_at, a.attempt

-- name: parents
-- The jobs above one, from the one within which it was called up to the first, at most twenty: the way back to whoever asked.
WITH RECURSIVE up AS (
    SELECT j.parent_job_id AS job_id, 1 AS step FROM deedbox.job j WHERE j.job_id = %(job_id)s AND j.parent_job_id IS NOT NULL
    UNION ALL
    SELECT above.parent_job_id, up.step + 1
    FROM up CROSS JOIN LATERAL (SELECT parent_job_id FROM deedbox.job WHERE job_id = up.job_id LIMIT 1) AS above
    WHERE above.parent_job_id IS NOT NULL AND up.step < 20
)
SELECT up.job_id, j.action, p.name AS asked_by, s.name AS through, j.role, j.source, j.caller_run, j.trace, j.created_at,
       coalesce(q.state, r.state) AS state
FROM up
LEFT JOIN LATERAL (SELECT * FROM deedbox.job WHERE job_id = up.job_id LIMIT 1) AS j ON true
LEFT JOIN LATERAL (SELECT state FROM deedbox.queue WHERE job_id = up.job_id LIMIT 1) AS q ON true
LEFT JOIN LATERAL (SELECT state FROM deedbox.result WHERE job_id = up.job_id LIMIT 1) AS r ON true
LEFT JOIN deedbox.principal p ON p.principal_id = j.subject
LEFT JOIN deedbox.principal s ON s.principal_id = j.through
ORDER BY up.step

-- name: children
-- The jobs that were called within one, the first hundred, each with what providers call the things that it did.
SELECT c.job_id, c.action, coalesce(q.state, r.state) AS state, c.created_at, c.source,
       (SELECT coalesce(jsonb_agg(DISTINCT x.provider_id), '[]') FROM deedbox.receipt x WHERE x.job_id = c.job_id) AS external_ids
FROM (SELECT * FROM deedbox.job WHERE parent_job_id = %(job_id)s ORDER BY job_id LIMIT 100) AS c
LEFT JOIN LATERAL (SELECT state FROM deedbox.queue WHERE job_id = c.job_id LIMIT 1) AS q ON true
LEFT JOIN LATERAL (SELECT state FROM deedbox.result WHERE job_id = c.job_id LIMIT 1) AS r ON true
ORDER BY c.job_id

-- name: calls
-- The calls that somebody may see and means: one by its id, refused ones too, or those of jobs, the last of each. The call that made
-- a job is its own line of the job, under the job's id. Newest first.
SELECT c.call_id, c.called_at, p.name AS asked_by, s.name AS through, c.role, c.claimed_role, c.source, c.action, c.job_id,
       c.parent_job_id, c.attempt_id, c.approval_id, encode(c.key_sha256, 'hex') AS key_sha256,
       encode(c.input_sha256, 'hex') AS input_sha256, c.trace, c.caller_run, c.status, c.error_code, c.duration_ms, c.detail
FROM (
    SELECT call_id, called_at, tenant, subject, role, claimed_role, source, action, job_id, parent_job_id, attempt_id, approval_id,
           key_sha256, input_sha256, trace, caller_run, status, error_code, duration_ms, detail, through
    FROM deedbox.call WHERE call_id = %(id)s
    UNION ALL
    SELECT l.call_id, l.called_at, l.tenant, l.subject, l.role, l.claimed_role, l.source, l.action, l.job_id, l.parent_job_id,
           l.attempt_id, l.approval_id, l.key_sha256, l.input_sha256, l.trace, l.caller_run, l.status, l.error_code, l.duration_ms,
           l.detail, l.through
    FROM unnest(%(jobs)s::uuid[]) AS wanted (job_id)
    CROSS JOIN LATERAL (
        SELECT * FROM deedbox.call WHERE job_id = wanted.job_id ORDER BY call_id DESC LIMIT %(limit)s
    ) AS l
    UNION ALL
    SELECT j.job_id, j.created_at, j.tenant, j.subject, j.role, NULL, j.source, j.action, j.job_id, j.parent_job_id, NULL, NULL,
           j.key_sha256, i.payload_sha256, j.trace, j.caller_run, 'accepted', NULL, NULL, NULL, j.through
    FROM unnest(%(jobs)s::uuid[]) AS wanted (job_id)
    CROSS JOIN LATERAL (SELECT * FROM deedbox.job WHERE job_id = wanted.job_id LIMIT 1) AS j
    LEFT JOIN LATERAL (
        SELECT payload_sha256 FROM deedbox.idempotency
        WHERE tenant = j.tenant AND action = j.action AND key_sha256 = j.key_sha256 LIMIT 1
    ) AS i ON true
) AS c
LEFT JOIN LATERAL (SELECT name FROM deedbox.principal WHERE principal_id = c.subject LIMIT 1) AS p ON true
LEFT JOIN LATERAL (SELECT name FROM deedbox.principal WHERE principal_id = c.through LIMIT 1) AS s ON true
WHERE c.tenant = %(tenant)s AND (c.subject = %(subject)s AND (%(through)s::uuid IS NULL OR c.through = %(through)s) OR %(sees_all)s)
ORDER BY c.called_at DESC, c.call_id DESC LIMIT %(limit)s
