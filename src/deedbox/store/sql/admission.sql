-- name: propose
-- Keep what an attempt proposed, whole and for good.
INSERT INTO deedbox.proposal (job_id, proposal_id, attempt_id, output, facts, policy_version, created_at)
VALUES (%(job_id)s, %(proposal_id)s, %(attempt_id)s, %(output)s::jsonb, %(facts)s::jsonb, %(policy_version)s, deedbox.clock())

-- name: propose_effects
-- Keep the exact bytes of each proposed effect; the schema checks that the digest is theirs.
INSERT INTO deedbox.proposal_effect (proposal_effect_id, job_id, proposal_id, group_name, position, connector, target, slot,
                                     summary, body, digest, after_slot)
SELECT id, %(job_id)s, %(proposal_id)s, group_name, position, connector, target, slot, summary, body, digest, after_slot
FROM unnest(%(id)s::uuid[], %(group_name)s::text[], %(position)s::integer[], %(connector)s::text[], %(target)s::text[],
            %(slot)s::text[], %(summary)s::text[], %(body)s::bytea[], %(digest)s::bytea[], %(after_slot)s::text[])
    AS e (id, group_name, position, connector, target, slot, summary, body, digest, after_slot)

-- name: give_verdict
-- What the policy said of a group, with its version; a window of cancelling begins now.
INSERT INTO deedbox.verdict (verdict_id, job_id, proposal_id, group_name, decision, rule, policy_version, effect_digests, decided_at,
                             wanted, drawn, opens_at)
VALUES (%(verdict_id)s, %(job_id)s, %(proposal_id)s, %(group_name)s, %(decision)s, %(rule)s, %(policy_version)s,
        %(effect_digests)s::bytea[], deedbox.clock(), %(wanted)s, %(drawn)s::boolean,
        deedbox.clock() + make_interval(secs => %(window_s)s::float8))

-- name: request_approval
-- Hold a group for a person, bound to the digest of exactly its effects.
INSERT INTO deedbox.approval (approval_id, job_id, tenant, action, proposal_id, purpose, group_name, state, digest, effect_digests,
                              policy_version, rule, audience, quorum, requested_at, expires_at, sampled_by, consequence,
                              required_role)
VALUES (%(approval_id)s, %(job_id)s, %(tenant)s, %(action)s, %(proposal_id)s, 'effects', %(group_name)s, 'pending', %(digest)s,
        %(effect_digests)s::bytea[], %(policy_version)s, %(rule)s, %(audience)s::text[], %(quorum)s, deedbox.clock(),
        deedbox.clock() + make_interval(secs => %(expires_s)s), %(sampled_by)s, %(consequence)s, %(required_role)s)

-- name: enqueue_approved
-- Put exactly the effects of an approved group on the outbox: those whose digests the approval names. Ids come from the caller.
INSERT INTO deedbox.effect (effect_id, job_id, tenant, action, kind, proposal_effect_id, connector, target, slot, digest,
                            approval_id, state, not_before, not_after, after_slot)
SELECT ids.effect_id, p.job_id, a.tenant, a.action, 'act', p.proposal_effect_id, p.connector, p.target, p.slot, p.digest,
       a.approval_id, 'pending', deedbox.clock(), deedbox.clock() + make_interval(secs => %(not_after_s)s), p.after_slot
FROM deedbox.approval a
JOIN (
    SELECT *, row_number() OVER (ORDER BY position) AS n FROM deedbox.proposal_effect
    WHERE job_id = %(job_id)s AND proposal_id = %(proposal_id)s AND group_name = %(group_name)s
) AS p ON p.digest = ANY (a.effect_digests)
JOIN unnest(%(effect_id)s::uuid[]) WITH ORDINALITY AS ids (effect_id, n) USING (n)
WHERE a.approval_id = %(approval_id)s AND a.state = 'approved'
RETURNING effect_id

-- name: enqueue_let_out
-- Put exactly the effects of a group that a verdict lets out on the outbox: those whose digests the verdict names, none before its
-- window of cancelling has passed. Ids come from the caller.
INSERT INTO deedbox.effect (effect_id, job_id, tenant, action, kind, proposal_effect_id, connector, target, slot, digest,
                            verdict_id, state, not_before, not_after, after_slot)
SELECT ids.effect_id, p.job_id, j.tenant, j.action, 'act', p.proposal_effect_id, p.connector, p.target, p.slot, p.digest,
       v.verdict_id, 'pending', coalesce(v.opens_at, deedbox.clock()),
       coalesce(v.opens_at, deedbox.clock()) + make_interval(secs => %(not_after_s)s), p.after_slot
FROM deedbox.verdict v
JOIN deedbox.job j ON j.job_id = v.job_id
JOIN (
    SELECT *, row_number() OVER (ORDER BY position) AS n FROM deedbox.proposal_effect
    WHERE job_id = %(job_id)s AND proposal_id = %(proposal_id)s AND group_name = %(group_name)s
) AS p ON p.digest = ANY (v.effect_digests)
JOIN unnest(%(effect_id)s::uuid[]) WITH ORDINALITY AS ids (effect_id, n) USING (n)
WHERE v.verdict_id = %(verdict_id)s AND v.decision IN ('allow', 'delay', 'sample')
RETURNING effect_id

-- name: hold_input
-- Hold a job that was accepted to wait for a person: the approval of its arguments, bound to their digest.
INSERT INTO deedbox.approval (approval_id, job_id, tenant, action, purpose, group_name, state, digest, effect_digests, policy_version,
                              rule, audience, quorum, requested_at, expires_at)
VALUES (%(approval_id)s, %(job_id)s, %(tenant)s, %(action)s, 'input', 'input', 'pending', %(digest)s, '{}', %(policy_version)s,
        'hold_input', %(audience)s::text[], %(quorum)s, deedbox.clock(), deedbox.clock() + make_interval(secs => %(expires_s)s))

-- name: claim_notices
-- Keep why these notices are made; one that was made before under the same name is left out. Whoever makes the same at the same
-- moment waits for the end of the other's transaction.
INSERT INTO deedbox.notice (effect_id, template, once, job_id, approval_id, alert_id, principal_id)
SELECT i.effect_id, i.template, i.once, i.job_id, i.approval_id, i.alert_id, i.principal_id
FROM json_to_recordset(%(notices)s::json) AS i (effect_id uuid, template text, once text, job_id uuid, approval_id uuid,
                                                alert_id uuid, principal_id uuid)
ON CONFLICT (once) DO NOTHING RETURNING effect_id

-- name: authorise_notices
-- The built-in verdict of each notice, over the exact bytes that will be sent, and those bytes.
WITH given AS (
    SELECT * FROM json_to_recordset(%(notices)s::json)
        AS i (effect_id uuid, verdict_id uuid, template text, connector text, target text, summary text, body bytea, digest bytea)
), judged AS (
    INSERT INTO deedbox.verdict (verdict_id, job_id, group_name, decision, rule, policy_version, effect_digests, decided_at)
    SELECT verdict_id, effect_id, template, 'allow', 'system.notice', %(policy_version)s, ARRAY[digest], deedbox.clock() FROM given
)
INSERT INTO deedbox.proposal_effect (proposal_effect_id, job_id, group_name, position, connector, target, slot, summary, body, digest)
SELECT effect_id, effect_id, template, 0, connector, target, template, summary, body, digest FROM given

-- name: enqueue_notices
-- Put notices on the outbox. Each is its own job_id: no job's history, partition or lock is touched by it.
INSERT INTO deedbox.effect (effect_id, job_id, tenant, action, kind, proposal_effect_id, connector, target, slot, digest, verdict_id,
                            state, not_before, not_after)
SELECT effect_id, effect_id, tenant, action, 'notice', effect_id, connector, target, template, digest, verdict_id, 'pending',
       deedbox.clock() + make_interval(secs => not_before_s), deedbox.clock() + make_interval(secs => not_after_s)
FROM json_to_recordset(%(notices)s::json)
    AS i (effect_id uuid, verdict_id uuid, tenant text, action text, template text, connector text, target text, digest bytea,
          not_before_s float8, not_after_s float8)

-- name: plant
-- Put one allowed effect of a proposal on the outbox for a test of the switch, whose transaction is rolled back.
INSERT INTO deedbox.effect (effect_id, job_id, tenant, action, kind, proposal_effect_id, connector, target, slot, digest,
                            verdict_id, state, not_before, not_after)
SELECT %(effect_id)s, p.job_id, %(tenant)s, %(action)s, 'act', p.proposal_effect_id, p.connector, p.target, p.slot, p.digest,
       v.verdict_id, 'pending', deedbox.clock(), deedbox.clock() + interval '1 hour'
FROM deedbox.proposal_effect p JOIN deedbox.verdict v ON v.proposal_id = p.proposal_id AND v.decision = 'allow'
WHERE p.proposal_effect_id = %(proposal_effect_id)s
