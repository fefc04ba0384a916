-- name: take_up
-- Begin a new round of a parked job: more attempts are allowed, the count of those made never goes back. `redelivery` says that
-- the caller's own repeated delivery asks, which has to wait and is counted. No row: not parked, too early or too often.
WITH moved AS (
    UPDATE deedbox.queue
    SET state = 'queued', due = true, run_at = deedbox.clock(), round = round + 1, attempts_allowed = attempt + coalesce(%(attempts)s::integer, greatest(1, attempts_allowed / round)),
        redeliveries = redeliveries + %(redelivery)s::boolean::integer, takeovers = 0, cancel_requested = false,
        last_seq = last_seq + 1, updated_at = deedbox.clock()
    WHERE job_id = %(job_id)s AND state IN ({{job.take_up}})
        AND (NOT %(redelivery)s OR (redeliveries < %(most)s AND updated_at <= deedbox.clock() - make_interval(secs => %(wait_s)s)))
    RETURNING job_id, last_seq, round
), e AS (
    INSERT INTO deedbox.event (job_id, seq, event_id, type, round, at, payload)
    SELECT job_id, last_seq, %(event_id)s, 'job.queued', round, deedbox.clock(), %(event)s::jsonb FROM moved
)
SELECT round FROM moved

-- name: original
-- What a replacement is checked against.
SELECT j.action, j.idempotency_key, j.key_sha256, coalesce(q.state, r.state) AS state
FROM deedbox.job j
LEFT JOIN deedbox.queue q ON q.job_id = j.job_id
LEFT JOIN deedbox.result r ON r.job_id = j.job_id
WHERE j.job_id = %(job_id)s

-- name: repeats
-- Effects of an approval's group that the job it replaces has done already, or may have done: same connector, target and slot.
SELECT now.slot, was.state, was.effect_id, (
    SELECT provider_id FROM deedbox.receipt WHERE job_id = was.job_id AND effect_id = was.effect_id ORDER BY receipt_id LIMIT 1)
FROM deedbox.approval a
JOIN deedbox.job j ON j.job_id = a.job_id
JOIN deedbox.proposal_effect now ON now.proposal_id = a.proposal_id AND now.job_id = a.job_id AND now.group_name = a.group_name
JOIN deedbox.effect was ON was.job_id = j.replaces AND was.connector = now.connector AND was.target = now.target
    AND was.slot = now.slot AND (was.state IN ('sending', 'unknown', 'completed') OR was.doubtful)
WHERE a.approval_id = %(approval_id)s
ORDER BY now.position

-- name: before
-- The effects of the job that a job replaces, each with its first receipt; one row without an effect where it had none.
SELECT o.job_id, coalesce(q.state, r.state, 'gone'), e.slot, e.connector, e.target, e.state, c.provider_id, c.stored_at
FROM deedbox.job j
JOIN LATERAL (SELECT job_id FROM deedbox.job WHERE job_id = j.replaces LIMIT 1) AS o ON true
LEFT JOIN LATERAL (SELECT state FROM deedbox.queue WHERE job_id = o.job_id LIMIT 1) AS q ON true
LEFT JOIN LATERAL (SELECT state FROM deedbox.result WHERE job_id = o.job_id LIMIT 1) AS r ON true
LEFT JOIN deedbox.effect e ON e.job_id = o.job_id AND e.kind = 'act'
LEFT JOIN LATERAL (
    SELECT provider_id, stored_at FROM deedbox.receipt
    WHERE job_id = e.job_id AND effect_id = e.effect_id ORDER BY receipt_id LIMIT 1
) AS c ON true
WHERE j.job_id = %(job_id)s ORDER BY e.effect_id
