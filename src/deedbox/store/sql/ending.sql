-- name: effects_of_job
-- The acts of a job in the order they were proposed, with the first receipt of each.
SELECT e.effect_id, e.connector, e.target, e.slot, e.state, e.class, e.code, e.message, r.provider_id
FROM deedbox.effect e
JOIN deedbox.proposal_effect p ON p.proposal_effect_id = e.proposal_effect_id
LEFT JOIN LATERAL (
    SELECT provider_id FROM deedbox.receipt WHERE job_id = e.job_id AND effect_id = e.effect_id ORDER BY stored_at LIMIT 1
) AS r ON true
WHERE e.job_id = %(job_id)s AND e.kind = 'act' ORDER BY p.position, e.effect_id

-- name: declined_groups
-- The groups of a job that a person or the clock declined.
SELECT group_name, state, reason FROM deedbox.approval
WHERE job_id = %(job_id)s AND purpose = 'effects' AND state IN ('rejected', 'expired') ORDER BY approval_id

-- name: end_job
-- End a job that is locked: the queue row goes, one result comes with the last proposal's output where it is completed, and
-- the last event. No row: some other state was found.
WITH gone AS (
    DELETE FROM deedbox.queue
    WHERE job_id = %(job_id)s AND state IN ({{job.cancel}}, {{job.cancel_effects}}, {{job.close}})
    -- The round of a parked job has had its last event; what ends it now is a round of its own.
    RETURNING job_id, attempt, attempts_allowed, round + (state = 'failed_retryable')::integer AS round, last_seq
), r AS (
    INSERT INTO deedbox.result (job_id, state, output, class, code, message, done, not_done, declined, attempt,
                                attempts_allowed, round, last_seq, ended_at)
    SELECT job_id, %(state)s,
           CASE WHEN %(state)s = 'completed' THEN (
               SELECT output FROM deedbox.proposal WHERE job_id = %(job_id)s ORDER BY revision DESC, proposal_id DESC LIMIT 1
           ) END,
           %(class)s, %(code)s, %(message)s, %(done)s::jsonb, %(not_done)s::jsonb, %(declined)s::jsonb, attempt,
           attempts_allowed, round, last_seq + 1, deedbox.clock()
    FROM gone
)
INSERT INTO deedbox.event (job_id, seq, event_id, type, round, at, payload)
SELECT job_id, last_seq + 1, %(event_id)s, %(event_type)s, round, deedbox.clock(), %(event)s::jsonb FROM gone
RETURNING seq

-- name: open_approvals
-- Lock the approvals of a job that are still open, in one order.
SELECT approval_id FROM deedbox.approval
WHERE job_id = %(job_id)s AND state IN ({{approval.withdraw}}) ORDER BY approval_id FOR UPDATE

-- name: lock_effects
-- Lock all acts of a job, in one order, after its queue row. One that waits to be sent again, and may have been done, says so.
SELECT effect_id, slot, CASE WHEN state = 'pending' AND doubtful THEN 'perhaps done' ELSE state END
FROM deedbox.effect WHERE job_id = %(job_id)s AND kind = 'act' ORDER BY effect_id FOR UPDATE

-- name: ask_to_stop
-- Tell the worker that runs a job to stop; it, or sweep after it, ends the job.
UPDATE deedbox.queue SET cancel_requested = true, updated_at = deedbox.clock()
WHERE job_id = %(job_id)s AND state IN ({{job.cancel_attempt}}) RETURNING job_id
