-- name: card
-- One approval with its job, its proposal and who decided, for a principal of the same tenant.
SELECT a.approval_id, a.job_id, a.action, j.action_version, a.state, a.digest, j.idempotency_key, j.key_source, s.name,
       a.rule, a.policy_version, a.expires_at, a.audience, a.quorum, a.decided_at, d.name, a.reason, a.superseded_by,
       p.output, p.facts, p.proposal_id, a.group_name, j.subject, a.expires_at <= deedbox.clock(), q.state,
       (SELECT pruned_at FROM deedbox.result WHERE job_id = a.job_id)
FROM deedbox.approval a
JOIN deedbox.job j ON j.job_id = a.job_id
LEFT JOIN deedbox.principal s ON s.principal_id = j.subject
LEFT JOIN deedbox.principal d ON d.principal_id = a.decided_by
LEFT JOIN deedbox.proposal p ON p.job_id = a.job_id AND p.proposal_id = a.proposal_id
LEFT JOIN deedbox.queue q ON q.job_id = a.job_id
WHERE a.approval_id = %(approval_id)s AND a.tenant = %(tenant)s

-- name: effects
-- The exact effects of a group, in order; one whose content was pruned has an empty payload.
SELECT connector, target, slot, summary, coalesce(body, '{"payload":{}}'::bytea) FROM deedbox.proposal_effect
WHERE job_id = %(job_id)s AND proposal_id = %(proposal_id)s AND group_name = %(group_name)s ORDER BY position

-- name: votes
-- Who voted, first to last.
SELECT p.name, v.decision, v.voted_at FROM deedbox.vote v JOIN deedbox.principal p USING (principal_id)
WHERE v.approval_id = %(approval_id)s ORDER BY v.voted_at

-- name: documents
-- The uploads a job carries.
SELECT document_id, name FROM deedbox.job_document WHERE job_id = %(job_id)s ORDER BY document_id

-- name: held_input
-- What an approval is about and which rule asked for it; with the arguments of the job where they are what it is about.
SELECT a.purpose, a.rule, CASE a.purpose WHEN 'input' THEN p.input END
FROM deedbox.approval a LEFT JOIN deedbox.job_payload p ON p.job_id = a.job_id
WHERE a.approval_id = %(approval_id)s

-- name: announced
-- Effects of a tenant that a verdict lets out when their window has passed, the next to leave first.
SELECT e.effect_id, e.job_id, e.action, p.summary, e.connector, e.target, e.slot, v.opens_at,
       extract(epoch FROM v.opens_at - deedbox.clock())::float8, v.rule, s.name, j.subject
FROM deedbox.effect e
JOIN deedbox.verdict v ON v.verdict_id = e.verdict_id
JOIN deedbox.proposal_effect p ON p.proposal_effect_id = e.proposal_effect_id
JOIN deedbox.job j ON j.job_id = e.job_id
LEFT JOIN deedbox.principal s ON s.principal_id = j.subject
WHERE e.state IN ({{effect.cancel}}) AND e.not_before > deedbox.clock() AND v.opens_at > deedbox.clock() AND e.tenant = %(tenant)s
ORDER BY e.not_before, e.effect_id LIMIT %(limit)s

-- name: inbox
-- What waits for people of a tenant, the nearest deadline first.
SELECT a.approval_id, a.action, j.action_version, s.name, a.expires_at, extract(epoch FROM a.expires_at - deedbox.clock())::float8,
       a.audience, a.quorum, (SELECT count(*) FROM deedbox.vote v WHERE v.approval_id = a.approval_id), j.subject,
       CASE a.purpose WHEN 'input' THEN ARRAY ['Runs ' || replace(a.action, '_', ' ') || ' with what was asked for.']
       ELSE (SELECT coalesce(array_agg(e.summary ORDER BY e.position), '{}') FROM deedbox.proposal_effect e
             WHERE e.job_id = a.job_id AND e.proposal_id = a.proposal_id AND e.group_name = a.group_name) END
FROM deedbox.approval a
JOIN deedbox.job j ON j.job_id = a.job_id
LEFT JOIN deedbox.principal s ON s.principal_id = j.subject
WHERE a.tenant = %(tenant)s AND a.state = 'pending' AND a.expires_at > deedbox.clock()
ORDER BY a.expires_at, a.approval_id LIMIT %(limit)s
