-- name: alone
-- Wait until nobody prunes or migrates, and keep it so until this transaction ends.
SELECT pg_advisory_xact_lock(%(lock)s)

-- name: of_subject
-- The next jobs about a person, by id from a cursor on, and which of them have ended.
SELECT j.job_id, r.ended_at IS NOT NULL
FROM (
    SELECT job_id FROM deedbox.job
    WHERE tenant = %(tenant)s AND data_subject = %(subject)s AND job_id > %(after)s ORDER BY job_id LIMIT %(limit)s
) AS j
LEFT JOIN LATERAL (SELECT ended_at FROM deedbox.result WHERE job_id = j.job_id LIMIT 1) AS r ON true
ORDER BY j.job_id

-- name: erase_keys
-- Take the payload's hash from the keys of these jobs; the hash of the key stays, and a delivery of it is told that it was erased.
UPDATE deedbox.idempotency i SET erased = true, payload_sha256 = NULL
FROM deedbox.job j
WHERE j.job_id = ANY (%(jobs)s) AND j.job_id BETWEEN %(first)s AND %(last)s
    AND i.tenant = j.tenant AND i.action = j.action AND i.key_sha256 = j.key_sha256 AND i.job_id = j.job_id

-- name: erase_jobs
-- Take from these jobs the key as it was sent, the caller's run, and whom they were about.
UPDATE deedbox.job SET idempotency_key = NULL, caller_run = NULL, data_subject = NULL
WHERE job_id = ANY (%(jobs)s) AND job_id BETWEEN %(first)s AND %(last)s

-- name: erase_events
-- Take what was said from the events; that they were, and when, stays.
UPDATE deedbox.event SET payload = payload - '{message,reason,summary,value}'::text[]
WHERE job_id = ANY (%(jobs)s) AND job_id BETWEEN %(first)s AND %(last)s

-- name: erase_attempts
-- Take the sentences from the attempts; class and code stay.
UPDATE deedbox.attempt SET message = NULL
WHERE job_id = ANY (%(jobs)s) AND job_id BETWEEN %(first)s AND %(last)s AND message IS NOT NULL

-- name: erase_results
-- Take the sentences from the results; what was done and what was not stays, by connector, target, slot and receipt.
UPDATE deedbox.result SET message = NULL,
    not_done = (SELECT coalesce(jsonb_agg(one - 'message'), '[]') FROM jsonb_array_elements(not_done) AS one),
    declined = (SELECT coalesce(jsonb_agg(one - 'reason'), '[]') FROM jsonb_array_elements(declined) AS one)
WHERE job_id = ANY (%(jobs)s) AND job_id BETWEEN %(first)s AND %(last)s

-- name: erase_approvals
-- Take the reasons from the approvals; who decided, when, and on which digest stays.
UPDATE deedbox.approval SET reason = 'Erased.' WHERE job_id = ANY (%(jobs)s) AND reason IS NOT NULL

-- name: erase_links
-- Remove the links to these jobs' approvals.
DELETE FROM deedbox.approval_token
WHERE approval_id = ANY (ARRAY (SELECT approval_id FROM deedbox.approval WHERE job_id = ANY (%(jobs)s)))

-- name: erase_effects
-- Take the sentences from the effects.
UPDATE deedbox.effect SET message = NULL WHERE job_id = ANY (%(jobs)s) AND message IS NOT NULL

-- name: erase_receipts
-- Take the evidence from the receipts; the provider's id stays.
UPDATE deedbox.receipt SET evidence = '{}'
WHERE job_id = ANY (%(jobs)s) AND job_id BETWEEN %(first)s AND %(last)s

-- name: erase_probes
-- Take the evidence from the look-ups; what each said stays.
UPDATE deedbox.probe SET evidence = '{}'
WHERE effect_id = ANY (ARRAY (SELECT effect_id FROM deedbox.effect WHERE job_id = ANY (%(jobs)s)))

-- name: erase_calls
-- Take the payload's hash, the caller's run and the role that was claimed from the journal of calls.
UPDATE deedbox.call SET input_sha256 = NULL, caller_run = NULL, claimed_role = NULL, detail = NULL
WHERE job_id = ANY (%(jobs)s)

-- name: erase_tool_keys
-- Remove the keys as they were sent from what equal calls of tools are held together by.
DELETE FROM deedbox.tool_key k
USING deedbox.job j
WHERE j.job_id = ANY (%(jobs)s) AND j.job_id BETWEEN %(first)s AND %(last)s
    AND k.key = j.idempotency_key AND k.tenant = j.tenant AND k.action = j.action

-- name: erase_tokens
-- Remove the tokens by which browsers may look at these jobs.
DELETE FROM deedbox.status_token WHERE job_id = ANY (%(jobs)s)

-- name: erase_alerts
-- Take the sentences from the alerts.
UPDATE deedbox.alert SET message = 'Erased.', closed_reason = CASE WHEN closed_reason IS NOT NULL THEN 'Erased.' END
WHERE job_id = ANY (%(jobs)s)

-- name: erase_details
-- Remove the details of what the audit says of these jobs, their approvals and their effects; the chain stays whole without.
DELETE FROM deedbox.audit_detail WHERE seq = ANY (ARRAY (
    SELECT a.seq FROM deedbox.audit a WHERE a.subject_id = ANY (ARRAY (
        SELECT unnest(%(jobs)s::uuid[])::text
        UNION ALL SELECT approval_id::text FROM deedbox.approval WHERE job_id = ANY (%(jobs)s)
        UNION ALL SELECT effect_id::text FROM deedbox.effect WHERE job_id = ANY (%(jobs)s)
    ))
))
