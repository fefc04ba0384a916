-- name: list_effects
-- The ledger of a tenant, newest first, below a key; all states where none is named.
SELECT e.effect_id, e.job_id, e.action, e.kind, e.connector, e.target, e.slot, e.state, e.attempt, e.phase, e.class, e.code,
       e.message, e.sender_closed, e.not_before, e.not_after, e.first_sent_at, e.updated_at,
       extract(epoch FROM deedbox.clock() - e.updated_at)::float8 AS age_s, p.summary, coalesce(p.body, '{"payload":{}}'::bytea) AS body, e.approval_id, e.verdict_id,
       e.look_ups, e.look_up_at
FROM deedbox.effect e JOIN deedbox.proposal_effect p ON p.proposal_effect_id = e.proposal_effect_id
WHERE e.tenant = %(tenant)s AND (%(state)s::text IS NULL OR e.state = %(state)s)
    AND (%(effect_id)s::uuid IS NULL OR e.effect_id = %(effect_id)s)
    AND (%(before)s::uuid IS NULL OR e.effect_id < %(before)s)
ORDER BY e.effect_id DESC LIMIT %(limit)s

-- name: receipts
-- What is known of an effect from providers, look-ups and people, oldest first.
SELECT receipt_id, provider_id, evidence, phase, source, by_principal, stored_at
FROM deedbox.receipt WHERE job_id = %(job_id)s AND effect_id = %(effect_id)s ORDER BY receipt_id

-- name: probes
-- Who asked about an effect and what was said, oldest first.
SELECT o.probe_id, o.verdict, o.evidence, o.by_principal, p.name AS by_name, o.probed_at
FROM deedbox.probe o LEFT JOIN deedbox.principal p ON p.principal_id = o.by_principal
WHERE o.effect_id = %(effect_id)s ORDER BY o.probe_id
