-- name: propose
-- Keep what an attempt proposed, whole and for good.
INSERT INTO deedbox.proposal (job_id, proposal_id, attempt_id, output, facts, policy_version, created_at)
VALUES (%(job_id)s, %(proposal_id)s, %(attempt_id)s, %(output)s::jsonb, %(facts)s::jsonb, %(policy_version)s, deedbox.clock())

-- name: propose_effects
-- Keep the exact bytes of each proposed effect; the schema checks that the digest is theirs.
INSERT INTO deedbox.proposal_effect (proposal_effect_id, job_id, proposal_id, group_name, position, connector, target, slot,
                                     summary, body, digest)
SELECT id, %(job_id)s, %(proposal_id)s, group_name, position, connector, target, slot, summary, body, digest
FROM unnest(%(id)s::uuid[], %(group_name)s::text[], %(position)s::integer[], %(connector)s::text[], %(target)s::text[],
            %(slot)s::text[], %(summary)s::text[], %(body)s::bytea[], %(digest)s::bytea[])
    AS e (id, group_name, position, connector, target, slot, summary, body, digest)

-- name: give_verdict
-- What the policy said of a group, with its version.
INSERT INTO deedbox.verdict (verdict_id, job_id, proposal_id, group_name, decision, rule, policy_version, effect_digests, decided_at)
VALUES (%(verdict_id)s, %(job_id)s, %(proposal_id)s, %(group_name)s, %(decision)s, %(rule)s, %(policy_version)s,
        %(effect_digests)s::bytea[], deedbox.clock())

-- name: request_approval
-- Hold a group for a person, bound to the digest of exactly its effects.
INSERT INTO deedbox.approval (approval_id, job_id, tenant, action, proposal_id, purpose, group_name, state, digest, effect_digests,
                              policy_version, rule, audience, quorum, requested_at, expires_at)
VALUES (%(approval_id)s, %(job_id)s, %(tenant)s, %(action)s, %(proposal_id)s, 'effects', %(group_name)s, 'pending', %(digest)s,
        %(effect_digests)s::bytea[], %(policy_version)s, %(rule)s, %(audience)s::text[], %(quorum)s, deedbox.clock(),
        deedbox.clock() + make_interval(secs => %(expires_s)s))

-- name: enqueue_approved
-- Put exactly the effects of an approved group on the outbox: those whose digests the approval names. Ids come from the caller.
INSERT INTO deedbox.effect (effect_id, job_id, tenant, action, kind, proposal_effect_id, connector, target, slot, digest,
                            approval_id, state, not_before, not_after)
SELECT ids.effect_id, p.job_id, a.tenant, a.action, 'act', p.proposal_effect_id, p.connector, p.target, p.slot, p.digest,
       a.approval_id, 'pending', deedbox.clock(), deedbox.clock() + make_interval(secs => %(not_after_s)s)
FROM deedbox.approval a
JOIN (
    SELECT *, row_number() OVER (ORDER BY position) AS n FROM deedbox.proposal_effect
    WHERE job_id = %(job_id)s AND proposal_id = %(proposal_id)s AND group_name = %(group_name)s
) AS p ON p.digest = ANY (a.effect_digests)
JOIN unnest(%(effect_id)s::uuid[]) WITH ORDINALITY AS ids (effect_id, n) USING (n)
WHERE a.approval_id = %(approval_id)s AND a.state = 'approved'
RETURNING effect_id

-- name: plant
-- Put one allowed effect of a proposal on the outbox for a test of the switch, whose transaction is rolled back.
INSERT INTO deedbox.effect (effect_id, job_id, tenant, action, kind, proposal_effect_id, connector, target, slot, digest,
                            verdict_id, state, not_before, not_after)
SELECT %(effect_id)s, p.job_id, %(tenant)s, %(action)s, 'act', p.proposal_effect_id, p.connector, p.target, p.slot, p.digest,
       v.verdict_id, 'pending', deedbox.clock(), deedbox.clock() + interval '1 hour'
FROM deedbox.proposal_effect p JOIN deedbox.verdict v ON v.proposal_id = p.proposal_id AND v.decision = 'allow'
WHERE p.proposal_effect_id = %(proposal_effect_id)s
