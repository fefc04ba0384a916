-- name: job_of
-- Which job an approval belongs to, read before anything is locked.
SELECT job_id FROM deedbox.approval WHERE approval_id = %(approval_id)s AND tenant = %(tenant)s

-- name: lock_job
-- Lock a job's queue row; the first lock of everyone who decides, cancels or ends.
SELECT state, round, attempt, attempts_allowed, last_seq, action_version
FROM deedbox.queue WHERE job_id = %(job_id)s FOR UPDATE

-- name: lock_approval
-- Lock an approval and read what a decision is checked against, by the database's clock.
SELECT a.approval_id, a.job_id, a.state, a.digest, a.audience, a.allowed, a.quorum, a.group_name, a.proposal_id, a.purpose,
       a.expires_at <= deedbox.clock() AS lapsed, a.decided_at, p.name, j.subject, j.action, cardinality(a.effect_digests)
FROM deedbox.approval a
JOIN deedbox.job j ON j.job_id = a.job_id
LEFT JOIN deedbox.principal p ON p.principal_id = a.decided_by
WHERE a.approval_id = %(approval_id)s
FOR UPDATE OF a

-- name: vote
-- One vote per person; a second one by the same person changes nothing.
INSERT INTO deedbox.vote (approval_id, principal_id, decision, digest, how, voted_at)
VALUES (%(approval_id)s, %(principal_id)s, %(decision)s, %(digest)s, %(how)s, deedbox.clock())
ON CONFLICT (approval_id, principal_id) DO NOTHING RETURNING approval_id

-- name: count_votes
-- How many distinct people approved.
SELECT count(*) FROM deedbox.vote WHERE approval_id = %(approval_id)s AND decision = 'approve'

-- name: end_approval
-- End a pending approval; the guard refuses any other source.
UPDATE deedbox.approval SET state = %(state)s, decided_at = deedbox.clock(), decided_by = %(decided_by)s,
       decided_how = %(how)s, reason = %(reason)s
WHERE approval_id = %(approval_id)s AND state IN ({{approval.approve}})
RETURNING decided_at

-- name: void_tokens
-- A decision voids every link.
UPDATE deedbox.approval_token SET voided_at = deedbox.clock() WHERE approval_id = %(approval_id)s AND voided_at IS NULL

-- name: other_approvals
-- The states of all approvals of a job.
SELECT state FROM deedbox.approval WHERE job_id = %(job_id)s

-- name: move_job
-- Move a job that is held; the row is locked by the same transaction.
UPDATE deedbox.queue SET state = %(state)s, due = true, run_at = deedbox.clock(), updated_at = deedbox.clock()
WHERE job_id = %(job_id)s AND state IN ({{job.approve}})

-- name: add_event
-- Append an event of a job whose queue row this transaction has locked.
WITH moved AS (
    UPDATE deedbox.queue SET last_seq = last_seq + 1 WHERE job_id = %(job_id)s RETURNING last_seq, round
)
INSERT INTO deedbox.event (job_id, seq, event_id, type, round, at, payload)
SELECT %(job_id)s, last_seq, %(event_id)s, %(type)s, round, deedbox.clock(), %(payload)s::jsonb FROM moved

-- name: lapsed
-- Pending approvals whose time is over, oldest first.
SELECT approval_id, tenant FROM deedbox.approval
WHERE state IN ({{approval.expire}}) AND expires_at <= deedbox.clock() ORDER BY expires_at LIMIT %(limit)s

-- name: mint_token
-- Keep the digest of a link's token; it opens nothing by itself and lapses with the approval. A decision in progress is waited
-- for, so that it voids every link there is: none is made behind it.
WITH waiting AS MATERIALIZED (
    SELECT approval_id, audience, expires_at FROM deedbox.approval
    WHERE approval_id = %(approval_id)s AND state = 'pending' FOR SHARE
)
INSERT INTO deedbox.approval_token (token_sha256, approval_id, purpose, audience, expires_at)
SELECT %(token_sha256)s, approval_id, 'decide', array_to_string(audience, ','), expires_at FROM waiting RETURNING approval_id

-- name: decline_job
-- End a held job of which nothing was authorised: the queue row goes, the result and the last event come.
WITH gone AS (
    DELETE FROM deedbox.queue WHERE job_id = %(job_id)s AND state IN ({{job.decline}})
    RETURNING job_id, attempt, attempts_allowed, round, last_seq
), r AS (
    INSERT INTO deedbox.result (job_id, state, class, code, message, declined, attempt, attempts_allowed, round, last_seq, ended_at)
    SELECT job_id, 'failed_terminal', 'denied', %(code)s, %(message)s,
           (SELECT coalesce(jsonb_agg(jsonb_build_object('group', group_name, 'state', state, 'reason', reason)), '[]')
            FROM deedbox.approval a WHERE a.job_id = gone.job_id),
           attempt, attempts_allowed, round, last_seq + 1, deedbox.clock()
    FROM gone
)
INSERT INTO deedbox.event (job_id, seq, event_id, type, round, at, payload)
SELECT job_id, last_seq + 1, %(event_id)s, 'job.failed', round, deedbox.clock(), %(event)s::jsonb FROM gone

-- name: now
-- The database's clock.
SELECT deedbox.clock()
