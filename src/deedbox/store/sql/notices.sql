-- name: about
-- What a notice is about, and whether the approval among it still waits.
SELECT n.approval_id, a.state = 'pending'
FROM deedbox.notice n LEFT JOIN deedbox.approval a ON a.approval_id = n.approval_id
WHERE n.effect_id = %(effect_id)s

-- name: cancel_of_approval
-- Withdraw what has not been sent yet about an approval that this transaction has locked. What is being leased at this moment is
-- waited for, and is then no longer pending; its sender finds out before it dials.
UPDATE deedbox.effect SET state = 'canceled', code = %(code)s, message = %(message)s, updated_at = deedbox.clock()
WHERE effect_id = ANY (ARRAY (SELECT effect_id FROM deedbox.notice WHERE approval_id = %(approval_id)s))
    -- A CASE: each row is found by its id, and not by an index of all that are pending.
    AND kind = 'notice' AND NOT doubtful AND CASE WHEN state IN ({{effect.cancel}}) THEN true END

-- name: cancel_of_alert
-- Withdraw what has not been sent yet about an alert that is closed in this transaction.
UPDATE deedbox.effect SET state = 'canceled', code = 'alert_closed', message = 'A person has closed the alert.',
       updated_at = deedbox.clock()
WHERE effect_id = ANY (ARRAY (SELECT effect_id FROM deedbox.notice WHERE alert_id = %(alert_id)s))
    AND kind = 'notice' AND NOT doubtful AND CASE WHEN state IN ({{effect.cancel}}) THEN true END

-- name: old
-- Notices made so long ago, by id and bounded, that have ended.
SELECT n.effect_id
FROM deedbox.notice n JOIN deedbox.effect e ON e.effect_id = n.effect_id
WHERE n.effect_id > %(after)s AND n.effect_id < deedbox.first_id(deedbox.clock() - make_interval(secs => %(keep_s)s))
    AND e.state IN ('completed', 'failed', 'canceled', 'unknown_closed')
ORDER BY n.effect_id LIMIT %(limit)s

-- name: forget_effects
-- Remove these notices from the outbox.
DELETE FROM deedbox.effect WHERE effect_id = ANY (%(effects)s)

-- name: forget_bodies
-- Remove what they said.
DELETE FROM deedbox.proposal_effect WHERE proposal_effect_id = ANY (%(effects)s)

-- name: forget_verdicts
-- Remove what authorised them.
DELETE FROM deedbox.verdict WHERE job_id = ANY (%(effects)s)

-- name: forget_receipts
-- Remove what was answered to them.
DELETE FROM deedbox.receipt
WHERE job_id = ANY (%(effects)s) AND job_id BETWEEN %(first)s AND %(last)s

-- name: forget_notices
-- Remove why they were made.
DELETE FROM deedbox.notice WHERE effect_id = ANY (%(effects)s)

-- name: prune_of_jobs
-- Remove what was said about these jobs, with their other contents; what is still to be sent stays until it has ended.
UPDATE deedbox.proposal_effect p SET body = NULL, summary = 'Removed when its retention had passed.', pruned_at = deedbox.clock()
FROM deedbox.notice n JOIN deedbox.effect e ON e.effect_id = n.effect_id
WHERE n.job_id = ANY (%(jobs)s) AND p.proposal_effect_id = n.effect_id AND p.body IS NOT NULL
    AND e.state IN ('completed', 'failed', 'canceled', 'unknown_closed')
