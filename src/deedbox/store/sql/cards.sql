-- name: card
-- One approval with its job, its proposal and who decided, for a principal of the same tenant.
SELECT a.approval_id, a.job_id, a.action, j.action_version, a.state, a.digest, j.idempotency_key, j.key_source, s.name,
       a.rule, a.policy_version, a.expires_at, a.audience, a.quorum, a.decided_at, d.name, a.reason, a.superseded_by,
       p.output, p.facts, p.proposal_id, a.group_name, j.subject, a.expires_at <= deedbox.clock(), q.state,
       (SELECT pruned_at FROM deedbox.result WHERE job_id = a.job_id), t.name,
       extract(epoch FROM a.expires_at - deedbox.clock())::float8
FROM deedbox.approval a
JOIN deedbox.job j ON j.job_id = a.job_id
LEFT JOIN deedbox.principal t ON t.principal_id = j.through
LEFT JOIN deedbox.principal s ON s.principal_id = j.subject
LEFT JOIN deedbox.principal d ON d.principal_id = a.decided_by
LEFT JOIN deedbox.proposal p ON p.job_id = a.job_id AND p.proposal_id = a.proposal_id
LEFT JOIN deedbox.queue q ON q.job_id = a.job_id
WHERE a.approval_id = %(approval_id)s AND a.tenant = %(tenant)s

-- name: votes
-- Who voted, first to last, and whose say it was where that was another's.
SELECT p.name, v.decision, v.voted_at, f.name
FROM deedbox.vote v JOIN deedbox.principal p USING (principal_id)
LEFT JOIN deedbox.principal f ON f.principal_id = v.for_principal
WHERE v.approval_id = %(approval_id)s ORDER BY v.voted_at

-- name: documents
-- The uploads a job carries.
SELECT document_id, name FROM deedbox.job_document WHERE job_id = %(job_id)s ORDER BY document_id

-- name: held_input
-- What an approval is about and which rule asked for it; with the arguments of the job where they are what it is about.
SELECT a.purpose, a.rule, CASE a.purpose WHEN 'input' THEN p.input END
FROM deedbox.approval a LEFT JOIN deedbox.job_payload p ON p.job_id = a.job_id
WHERE a.approval_id = %(approval_id)s

-- name: sent
-- What became of what an approval let out, in the order it was proposed, with the provider's id of what was accepted.
SELECT e.slot, e.connector, e.target, e.state, r.provider_id, r.stored_at
FROM deedbox.effect e
JOIN deedbox.proposal_effect p ON p.proposal_effect_id = e.proposal_effect_id
LEFT JOIN LATERAL (
    SELECT provider_id, stored_at FROM deedbox.receipt
    WHERE job_id = e.job_id AND effect_id = e.effect_id ORDER BY receipt_id LIMIT 1
) AS r ON true
WHERE e.job_id = %(job_id)s AND e.approval_id = %(approval_id)s AND e.kind = 'act'
ORDER BY p.position, e.effect_id

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
-- What waits for people of a tenant, the nearest deadline first, with all that says whether this person may decide it.
SELECT a.approval_id, a.action, j.action_version, s.name, a.expires_at, extract(epoch FROM a.expires_at - deedbox.clock())::float8,
       a.audience, a.quorum, j.subject, a.consequence, a.required_role, a.editors, a.policy_version, a.digest, a.purpose,
       ARRAY (SELECT v.principal_id FROM deedbox.vote v WHERE v.approval_id = a.approval_id),
       ARRAY (SELECT coalesce(v.for_principal, v.principal_id) FROM deedbox.vote v WHERE v.approval_id = a.approval_id),
       CASE a.purpose WHEN 'input' THEN ARRAY ['Runs ' || replace(a.action, '_', ' ') || ' with what was asked for.']
       ELSE (SELECT coalesce(array_agg(e.summary ORDER BY e.position), '{}') FROM deedbox.proposal_effect e
             WHERE e.job_id = a.job_id AND e.proposal_id = a.proposal_id AND e.group_name = a.group_name) END,
       t.name, a.state, NULL::text, NULL::timestamptz
FROM deedbox.approval a
JOIN deedbox.job j ON j.job_id = a.job_id
LEFT JOIN deedbox.principal s ON s.principal_id = j.subject
LEFT JOIN deedbox.principal t ON t.principal_id = j.through
WHERE a.tenant = %(tenant)s AND a.state = 'pending' AND a.expires_at > deedbox.clock()
ORDER BY a.expires_at, a.approval_id LIMIT %(limit)s

-- name: voted
-- What a person has decided, or voted on, the newest first: the same columns, with the vote and when it was given.
SELECT a.approval_id, a.action, j.action_version, s.name, a.expires_at, extract(epoch FROM a.expires_at - deedbox.clock())::float8,
       a.audience, a.quorum, j.subject, a.consequence, a.required_role, a.editors, a.policy_version, a.digest, a.purpose,
       ARRAY (SELECT o.principal_id FROM deedbox.vote o WHERE o.approval_id = a.approval_id),
       ARRAY (SELECT coalesce(o.for_principal, o.principal_id) FROM deedbox.vote o WHERE o.approval_id = a.approval_id),
       CASE a.purpose WHEN 'input' THEN ARRAY ['Runs ' || replace(a.action, '_', ' ') || ' with what was asked for.']
       ELSE (SELECT coalesce(array_agg(e.summary ORDER BY e.position), '{}') FROM deedbox.proposal_effect e
             WHERE e.job_id = a.job_id AND e.proposal_id = a.proposal_id AND e.group_name = a.group_name) END,
       t.name, a.state, v.decision, v.voted_at
FROM (SELECT * FROM deedbox.vote WHERE principal_id = %(principal_id)s ORDER BY voted_at DESC LIMIT %(limit)s) AS v
JOIN deedbox.approval a ON a.approval_id = v.approval_id
JOIN deedbox.job j ON j.job_id = a.job_id
LEFT JOIN deedbox.principal s ON s.principal_id = j.subject
LEFT JOIN deedbox.principal t ON t.principal_id = j.through
WHERE a.tenant = %(tenant)s
ORDER BY v.voted_at DESC

-- name: handed
-- The says that are handed to a person at this moment, in one approval or in all, with their holders' roles.
SELECT d.approval_id, jsonb_build_object(
           'holder', h.principal_id, 'name', h.name, 'over', false, 'ends', d.until,
           'roles', ARRAY (SELECT g.role FROM deedbox."grant" g WHERE g.principal_id = h.principal_id))
FROM deedbox.delegation d
JOIN deedbox.principal h ON h.principal_id = d.from_principal AND h.disabled_at IS NULL
WHERE d.to_principal = %(principal_id)s AND d.tenant = %(tenant)s AND d.withdrawn_at IS NULL
    AND coalesce(d.until > deedbox.clock(), true)
ORDER BY d.delegation_id DESC LIMIT %(limit)s
