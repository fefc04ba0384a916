-- name: effects
-- What a group of a proposal holds, in order; the content of one that was pruned is empty.
SELECT connector, target, slot, position, summary, coalesce(body, '{"payload":{}}'::bytea), digest, after_slot FROM deedbox.proposal_effect
WHERE job_id = %(job_id)s AND proposal_id = %(proposal_id)s AND group_name = %(group_name)s ORDER BY position

-- name: basis
-- What a proposal was judged by: the facts of its attempt, its draft, and the role it was asked for with.
SELECT p.facts, p.output, j.role FROM deedbox.proposal p JOIN deedbox.job j ON j.job_id = p.job_id
WHERE p.job_id = %(job_id)s AND p.proposal_id = %(proposal_id)s

-- name: revise
-- Keep the next revision of a proposal: the same draft and facts, under the policy that judged it anew.
INSERT INTO deedbox.proposal (job_id, proposal_id, attempt_id, revision, output, facts, policy_version, created_at)
SELECT job_id, %(proposal_id)s, attempt_id,
       (SELECT max(revision) + 1 FROM deedbox.proposal WHERE job_id = %(job_id)s), output, facts, %(policy_version)s, deedbox.clock()
FROM deedbox.proposal WHERE job_id = %(job_id)s AND proposal_id = %(former_id)s
RETURNING revision

-- name: take_place
-- The new approval takes the place of the former one: who edited, until when it waits, and the says handed on in it.
WITH former AS (
    SELECT approval_id, expires_at, editors FROM deedbox.approval WHERE approval_id = %(former_id)s
), d AS (
    UPDATE deedbox.delegation SET approval_id = %(approval_id)s WHERE approval_id = %(former_id)s
)
UPDATE deedbox.approval a
SET supersedes = former.approval_id, expires_at = former.expires_at,
    editors = CASE WHEN %(editor)s = ANY (former.editors) THEN former.editors ELSE former.editors || %(editor)s::uuid END
FROM former WHERE a.approval_id = %(approval_id)s
RETURNING a.digest

-- name: former
-- What an approval took the place of, and who edited it, first to last.
SELECT s.proposal_id, s.group_name, s.job_id, s.approval_id, s.decided_at,
       ARRAY (SELECT p.name FROM unnest(a.editors) WITH ORDINALITY AS e (principal_id, n) JOIN deedbox.principal p USING (principal_id)
              ORDER BY e.n)
FROM deedbox.approval a JOIN deedbox.approval s ON s.approval_id = a.supersedes
WHERE a.approval_id = %(approval_id)s
