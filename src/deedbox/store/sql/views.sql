-- part: standing
-- A job with its row in the queue, or what it ended with.
FROM (SELECT * FROM deedbox.job WHERE job_id = %(job_id)s LIMIT 1) AS j
LEFT JOIN LATERAL (SELECT * FROM deedbox.queue WHERE job_id = j.job_id LIMIT 1) AS q ON true
LEFT JOIN LATERAL (SELECT * FROM deedbox.result WHERE job_id = j.job_id LIMIT 1) AS r ON true

-- part: seen
-- Where a principal may see the job, and it has not been pruned: who may not cannot tell the two apart.
WHERE j.tenant = %(tenant)s AND (j.subject = %(subject)s AND (%(through)s::uuid IS NULL OR j.through = %(through)s) OR %(sees_all)s)
    AND coalesce(q.state, r.state) IS NOT NULL

-- name: job
-- One job as a principal may see it, all of it in one snapshot. No row: unknown, foreign or pruned, which nobody can tell apart.
SELECT j.job_id, j.action, j.action_version, coalesce(q.state, r.state), coalesce(q.round, r.round),
       coalesce(q.attempt, r.attempt), coalesce(q.attempts_allowed, r.attempts_allowed), coalesce(q.last_seq, r.last_seq),
       coalesce(q.cancel_requested, false), j.created_at,
       greatest(q.updated_at, r.ended_at, (
           SELECT e.at FROM deedbox.event e WHERE e.job_id = j.job_id AND e.seq = coalesce(q.last_seq, r.last_seq))),
       CASE WHEN q.state = 'queued' AND (q.attempt > 0 OR q.run_at > deedbox.clock()) THEN q.run_at END,
       (SELECT e.payload FROM deedbox.event e
        WHERE e.job_id = j.job_id AND e.type = 'job.progress' ORDER BY e.seq DESC LIMIT 1),
       (SELECT e.payload FROM deedbox.event e
        WHERE e.job_id = j.job_id AND e.type = 'job.partial' ORDER BY e.seq DESC LIMIT 1),
       (SELECT jsonb_build_object('class', a.class, 'code', a.code, 'message', a.message) FROM deedbox.attempt a
        WHERE a.job_id = j.job_id AND a.report = 'ended' AND a.class IS NOT NULL ORDER BY a.ended_at DESC, a.attempt DESC LIMIT 1),
       CASE WHEN r.code IS NOT NULL THEN jsonb_build_object('class', r.class, 'code', r.code, 'message', r.message) END,
       r.output, coalesce(r.done, '[]'), coalesce(r.not_done, '[]'), coalesce(r.declined, '[]'),
       (SELECT coalesce(jsonb_agg(jsonb_build_object(
            'approval_id', a.approval_id, 'purpose', a.purpose, 'group', a.group_name, 'state', a.state,
            'expires_at', a.expires_at, 'decided_at', a.decided_at, 'reason', a.reason) ORDER BY a.approval_id), '[]')
        FROM deedbox.approval a WHERE a.job_id = j.job_id),
       (SELECT coalesce(jsonb_agg(jsonb_build_object(
            'effect_id', e.effect_id, 'connector', e.connector, 'target', e.target, 'slot', e.slot, 'state', e.state,
            'attempt', e.attempt, 'code', e.code, 'message', e.message, 'provider_id', (
                SELECT c.provider_id FROM deedbox.receipt c WHERE c.job_id = e.job_id AND c.effect_id = e.effect_id
                ORDER BY c.receipt_id LIMIT 1)) ORDER BY p.position, e.effect_id), '[]')
        FROM deedbox.effect e JOIN deedbox.proposal_effect p USING (proposal_effect_id)
        WHERE e.job_id = j.job_id AND e.kind = 'act'),
       (SELECT coalesce(jsonb_agg(jsonb_build_object(
            'document_id', d.document_id, 'name', d.name, 'media_type', d.media_type, 'size', c.size,
            'sha256', encode(d.sha256, 'hex')) ORDER BY d.document_id), '[]')
        FROM deedbox.job_document d JOIN deedbox.document c ON c.tenant = d.tenant AND c.sha256 = d.sha256
        WHERE d.job_id = j.job_id),
       j.replaces, (SELECT coalesce(array_agg(x.job_id ORDER BY x.job_id), '{}') FROM deedbox.job x WHERE x.replaces = j.job_id),
       j.parent_job_id, q.deadline, r.pruned_at, j.subject,
       (SELECT jsonb_build_object('calls', sum(m.calls), 'requests', sum(m.requests), 'input_tokens', sum(m.input_tokens),
            'output_tokens', sum(m.output_tokens), 'tool_calls', sum(m.tool_calls),
            'cost', coalesce(jsonb_object_agg(m.currency, trim_scale(m.cost)::text) FILTER (WHERE m.currency IS NOT NULL), '{}'),
            'unpriced', coalesce(sum(m.calls) FILTER (WHERE m.currency IS NULL), 0))
        FROM (SELECT c.currency, count(*) AS calls, sum(c.requests) AS requests, sum(c.input_tokens) AS input_tokens,
                     sum(c.output_tokens) AS output_tokens, sum(c.tool_calls) AS tool_calls, sum(c.cost) AS cost
              FROM deedbox.model_call c WHERE c.job_id = j.job_id GROUP BY c.currency) AS m
        HAVING count(*) > 0)
{{part.standing}}
{{part.seen}}

-- name: pulse
-- The state of a job that a principal may see, and the number of its last event.
SELECT coalesce(q.state, r.state), coalesce(q.last_seq, r.last_seq)
{{part.standing}}
{{part.seen}}

-- name: outcome
-- The same of a job that somebody waits for, with what it came to once it has completed. From the three rows that pulse reads: all
-- of a job is a dozen more look-ups, which a caller of a tool that has answered does not need.
SELECT coalesce(q.state, r.state), j.action, j.action_version, j.subject, r.output, coalesce(r.done, '[]'), coalesce(r.declined, '[]')
{{part.standing}}
{{part.seen}}

-- name: events
-- The events of a job after a number, in order and bounded, with the job's state and last number in the same snapshot. A job
-- that has nothing newer comes as one row without an event. No row: unknown or foreign.
SELECT j.action, coalesce(q.state, r.state), coalesce(q.last_seq, r.last_seq),
       e.seq, e.event_id, e.type, e.round, e.attempt_id, e.at, e.payload
{{part.standing}}
LEFT JOIN LATERAL (
    SELECT * FROM deedbox.event WHERE job_id = j.job_id AND seq > %(after)s ORDER BY seq LIMIT %(limit)s
) AS e ON true
{{part.seen}}
ORDER BY e.seq

-- name: document
-- A stored upload, for whoever may see the job that carries it.
SELECT d.name, d.media_type, d.sha256, c.content
FROM deedbox.job_document d
JOIN deedbox.job j ON j.job_id = d.job_id
JOIN deedbox.document c ON c.tenant = d.tenant AND c.sha256 = d.sha256
WHERE d.document_id = %(document_id)s AND d.tenant = %(tenant)s AND j.tenant = %(tenant)s
    AND (j.subject = %(subject)s AND (%(through)s::uuid IS NULL OR j.through = %(through)s) OR %(sees_all)s)

-- name: jobs
-- A page of the jobs of a tenant, newest first, below a key. A filter that is null lets everything pass.
SELECT j.job_id, j.action, coalesce(q.state, r.state), coalesce(q.round, r.round), coalesce(q.attempt, r.attempt),
       j.created_at, greatest(q.updated_at, r.ended_at), p.name, j.source, j.caller_run
FROM (
    SELECT * FROM deedbox.job
    WHERE job_id < coalesce(%(before)s::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    ORDER BY job_id DESC
    -- No limit at all, but one that the planner cannot know: it thinks of a tenth, and walks along the key even without statistics.
    LIMIT nullif(%(limit)s::bigint, %(limit)s::bigint)
) AS j
LEFT JOIN LATERAL (SELECT * FROM deedbox.queue WHERE job_id = j.job_id LIMIT 1) AS q ON true
LEFT JOIN LATERAL (SELECT * FROM deedbox.result WHERE job_id = j.job_id LIMIT 1) AS r ON true
LEFT JOIN LATERAL (SELECT name FROM deedbox.principal WHERE principal_id = j.subject LIMIT 1) AS p ON true
WHERE j.tenant = %(tenant)s
    AND (%(action)s::text IS NULL OR j.action = %(action)s)
    AND (%(state)s::text IS NULL OR coalesce(q.state, r.state) = %(state)s)
    AND (%(key_sha256)s::bytea IS NULL OR j.key_sha256 = %(key_sha256)s)
    AND (%(caller_run)s::text IS NULL OR j.caller_run = %(caller_run)s)
    AND coalesce(q.state, r.state) IS NOT NULL
ORDER BY j.job_id DESC LIMIT %(limit)s

-- name: own_jobs
-- The same page for somebody who sees no jobs but their own: along the index of those, so that jobs of others cost nothing.
SELECT j.job_id, j.action, coalesce(q.state, r.state), coalesce(q.round, r.round), coalesce(q.attempt, r.attempt),
       j.created_at, greatest(q.updated_at, r.ended_at), p.name, j.source, j.caller_run
FROM (
    SELECT * FROM deedbox.job
    WHERE tenant = %(tenant)s AND subject = %(subject)s AND (%(through)s::uuid IS NULL OR through = %(through)s)
        AND job_id < coalesce(%(before)s::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    ORDER BY job_id DESC
    OFFSET 0
) AS j
LEFT JOIN LATERAL (SELECT * FROM deedbox.queue WHERE job_id = j.job_id LIMIT 1) AS q ON true
LEFT JOIN LATERAL (SELECT * FROM deedbox.result WHERE job_id = j.job_id LIMIT 1) AS r ON true
LEFT JOIN LATERAL (SELECT name FROM deedbox.principal WHERE principal_id = j.subject LIMIT 1) AS p ON true
WHERE (%(action)s::text IS NULL OR j.action = %(action)s)
    AND (%(state)s::text IS NULL OR coalesce(q.state, r.state) = %(state)s)
    AND (%(key_sha256)s::bytea IS NULL OR j.key_sha256 = %(key_sha256)s)
    AND (%(caller_run)s::text IS NULL OR j.caller_run = %(caller_run)s)
    AND coalesce(q.state, r.state) IS NOT NULL
ORDER BY j.job_id DESC LIMIT %(limit)s

-- name: timeline
-- Everything that is kept about one job in the order it happened, from the call to the receipts. Replays come as one line.
WITH j AS (
    SELECT job_id FROM deedbox.job
    WHERE job_id = %(job_id)s AND tenant = %(tenant)s
        AND (subject = %(subject)s AND (%(through)s::uuid IS NULL OR through = %(through)s) OR %(sees_all)s)
)
SELECT at, kind, what, detail FROM (
    SELECT c.called_at AS at, 0 AS rank, 0::bigint AS n, 'call' AS kind, c.status AS what,
           jsonb_build_object('call_id', c.call_id, 'by', p.name, 'through', s.name, 'role', c.role, 'source', c.source, 'caller_run', c.caller_run,
                              'trace', c.trace) AS detail
    FROM j JOIN deedbox.every_call c USING (job_id) LEFT JOIN deedbox.principal p ON p.principal_id = c.subject
    LEFT JOIN deedbox.principal s ON s.principal_id = c.through
    WHERE c.status <> 'replayed'
    UNION ALL
    SELECT min(c.called_at), 1, 0, 'call', 'replayed', jsonb_build_object('count', count(*), 'last_at', max(c.called_at))
    FROM j JOIN deedbox.call c USING (job_id) WHERE c.status = 'replayed' HAVING count(*) > 0
    UNION ALL
    SELECT e.at, 2, e.seq, 'event', e.type,
           jsonb_build_object('seq', e.seq, 'round', e.round, 'attempt_id', e.attempt_id, 'payload', e.payload)
    FROM j JOIN deedbox.event e USING (job_id)
    UNION ALL
    SELECT a.ended_at, 3, a.attempt, 'attempt', a.move,
           jsonb_build_object('attempt_id', a.attempt_id, 'attempt', a.attempt, 'report', a.report, 'worker', a.worker,
                              'build', a.build, 'started_at', a.started_at, 'class', a.class, 'code', a.code,
                              'message', a.message, 'model', a.model, 'repairs', a.repairs, 'usage', a.usage)
    FROM j JOIN deedbox.attempt a USING (job_id)
    UNION ALL
    SELECT m.called_at, 3, m.turn, 'model', coalesce(m.code, 'answered'),
           jsonb_build_object('part', m.part, 'turn', m.turn, 'endpoint', m.endpoint, 'model', m.model, 'attempt_id', m.attempt_id,
                              'requests', m.requests, 'input_tokens', m.input_tokens, 'output_tokens', m.output_tokens,
                              'tool_calls', m.tool_calls, 'repairs', m.repairs, 'duration_ms', m.duration_ms,
                              'cost', trim_scale(m.cost)::text, 'currency', m.currency)
    FROM j JOIN deedbox.model_call m USING (job_id)
    UNION ALL
    SELECT a.requested_at, 4, 0, 'approval', 'requested',
           jsonb_build_object('approval_id', a.approval_id, 'group', a.group_name, 'purpose', a.purpose, 'audience', a.audience,
                              'expires_at', a.expires_at, 'digest', encode(a.digest, 'hex'), 'rule', a.rule)
    FROM j JOIN deedbox.approval a USING (job_id)
    UNION ALL
    SELECT v.voted_at, 5, 0, 'vote', v.decision,
           jsonb_build_object('approval_id', v.approval_id, 'by', p.name, 'for', h.name, 'how', v.how,
                              'digest', encode(v.digest, 'hex'))
    FROM j JOIN deedbox.approval a USING (job_id) JOIN deedbox.vote v USING (approval_id)
    LEFT JOIN deedbox.principal p USING (principal_id)
    LEFT JOIN deedbox.principal h ON h.principal_id = v.for_principal
    UNION ALL
    SELECT a.decided_at, 6, 0, 'approval', a.state,
           jsonb_build_object('approval_id', a.approval_id, 'by', p.name, 'how', a.decided_how, 'reason', a.reason)
    FROM j JOIN deedbox.approval a USING (job_id) LEFT JOIN deedbox.principal p ON p.principal_id = a.decided_by
    WHERE a.decided_at IS NOT NULL
    UNION ALL
    SELECT c.stored_at, 7, 0, 'receipt', c.source,
           jsonb_build_object('receipt_id', c.receipt_id, 'effect_id', c.effect_id, 'provider_id', c.provider_id,
                              'phase', c.phase, 'evidence', c.evidence, 'by', p.name)
    FROM j JOIN deedbox.receipt c USING (job_id) LEFT JOIN deedbox.principal p ON p.principal_id = c.by_principal
    UNION ALL
    SELECT b.probed_at, 8, 0, 'probe', b.verdict,
           jsonb_build_object('probe_id', b.probe_id, 'effect_id', b.effect_id, 'evidence', b.evidence, 'by', p.name)
    FROM j JOIN deedbox.probe b USING (job_id) LEFT JOIN deedbox.principal p ON p.principal_id = b.by_principal
    UNION ALL
    SELECT f.updated_at, 9, 0, 'effect', f.state,
           jsonb_build_object('effect_id', f.effect_id, 'kind', f.kind, 'connector', f.connector, 'target', f.target,
                              'slot', f.slot, 'attempt', f.attempt, 'phase', f.phase, 'class', f.class, 'code', f.code,
                              'message', f.message, 'first_sent_at', f.first_sent_at, 'approval_id', f.approval_id,
                              'verdict_id', f.verdict_id)
    FROM j JOIN deedbox.effect f USING (job_id)
    UNION ALL
    SELECT d.at, 10, d.seq, 'verb', d.verb, jsonb_build_object('by', d.actor, 'how', d.door)
    FROM j JOIN deedbox.audit d ON d.subject_id = j.job_id::text
    WHERE d.subject_kind = 'job' AND d.verb IN ('cancel', 'take_up', 'close', 'replace')
) AS entry ORDER BY at, rank, n

-- name: measure
-- What waits: jobs that have not ended by state, counted one by one as far as `most` of each kind. Beyond that a kind is what the
-- planner last saw in its index, less what of the same index was counted, and never less than `most`.
WITH counted AS (
    SELECT 'queue_ready' AS place, 'queued' AS state, count(*) AS n
    FROM (SELECT FROM deedbox.queue WHERE state = 'queued' AND due LIMIT %(most)s) AS x
    UNION ALL
    SELECT 'queue_not_yet', 'queued', count(*)
    FROM (SELECT FROM deedbox.queue WHERE state = 'queued' AND NOT due LIMIT %(most)s) AS x
    UNION ALL
    SELECT 'queue_running', 'running', count(*) FROM (SELECT FROM deedbox.queue WHERE state = 'running' LIMIT %(most)s) AS x
    UNION ALL
    SELECT 'queue_parked', 'awaiting_human', count(*)
    FROM (SELECT FROM deedbox.queue WHERE state = 'awaiting_human' LIMIT %(most)s) AS x
    UNION ALL
    SELECT 'queue_parked', 'dispatching', count(*)
    FROM (SELECT FROM deedbox.queue WHERE state = 'dispatching' LIMIT %(most)s) AS x
    UNION ALL
    SELECT 'queue_parked', 'failed_retryable', count(*)
    FROM (SELECT FROM deedbox.queue WHERE state = 'failed_retryable' LIMIT %(most)s) AS x
)
SELECT state, sum(CASE WHEN n < %(most)s THEN n ELSE greatest(n, (
    SELECT reltuples FROM pg_class WHERE oid = to_regclass('deedbox.' || place)
) - (SELECT coalesce(sum(o.n), 0) FROM counted o WHERE o.place = c.place AND o.state <> c.state)) END)::bigint
FROM counted c GROUP BY state

-- name: oldest
-- The age in seconds of the oldest job that is due: of all where there are no more than `most`; else of the first hundred by age
-- in each lane and priority, which come before the rest of theirs.
WITH RECURSIVE head AS (
    (SELECT lane_id, priority FROM deedbox.queue WHERE state = 'queued' AND due ORDER BY lane_id, priority LIMIT 1)
    UNION ALL
    SELECT n.lane_id, n.priority FROM head h CROSS JOIN LATERAL (
        SELECT lane_id, priority FROM deedbox.queue
        WHERE state = 'queued' AND due AND (lane_id, priority) > (h.lane_id, h.priority)
        ORDER BY lane_id, priority LIMIT 1
    ) AS n
)
SELECT greatest(0, extract(epoch FROM deedbox.clock() - min(run_at)))::float8
FROM (
    (SELECT run_at FROM deedbox.queue WHERE state = 'queued' AND due ORDER BY lane_id, priority, job_id LIMIT %(most)s)
    UNION ALL
    SELECT f.run_at FROM (SELECT lane_id, priority FROM head LIMIT 1000) AS h CROSS JOIN LATERAL (
        SELECT run_at FROM deedbox.queue
        WHERE lane_id = h.lane_id AND priority = h.priority AND state = 'queued' AND due ORDER BY job_id LIMIT 100
    ) AS f
) AS due

-- name: measure_effects
-- Effects that have not ended, by state, counted and estimated in the same way.
WITH counted AS (
    SELECT 'effect_pending' AS place, 'pending' AS state, count(*) AS n
    FROM (SELECT FROM deedbox.effect WHERE state = 'pending' LIMIT %(most)s) AS x
    UNION ALL
    SELECT 'effect_sending', 'sending', count(*) FROM (SELECT FROM deedbox.effect WHERE state = 'sending' LIMIT %(most)s) AS x
    UNION ALL
    SELECT 'effect_unknown', 'unknown', count(*) FROM (SELECT FROM deedbox.effect WHERE state = 'unknown' LIMIT %(most)s) AS x
)
SELECT state, CASE WHEN n < %(most)s THEN n ELSE greatest(n, (
    SELECT reltuples FROM pg_class WHERE oid = to_regclass('deedbox.' || place)
))::bigint END FROM counted
