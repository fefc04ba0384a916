-- name: lock_job_of
-- Lock the queue row of an approval's job. No row: the approval is unknown or another tenant's, or its job has ended.
SELECT job_id, state FROM deedbox.queue
WHERE job_id = (SELECT job_id FROM deedbox.approval WHERE approval_id = %(approval_id)s AND tenant = %(tenant)s) FOR UPDATE

-- name: lock_job
-- Lock a job's queue row; the first lock of everyone who decides, cancels or ends.
SELECT state, round, attempt, attempts_allowed, last_seq, action_version
FROM deedbox.queue WHERE job_id = %(job_id)s FOR UPDATE

-- name: standing
-- All that a decision by one person is checked against, by the database's clock: the approval, who voted, how the job's other
-- approvals stand, and the says that others handed to this person, those that count first. Whoever decides has locked the queue
-- row before, so that nothing of it changes until the commit, and locks the approval with it.
SELECT a.approval_id, a.job_id, a.tenant, a.state, a.digest, a.audience, a.allowed, a.quorum, a.group_name, a.proposal_id,
       a.purpose, a.expires_at <= deedbox.clock(), a.decided_at, p.name, j.subject, j.action, cardinality(a.effect_digests), a.consequence,
       a.required_role, a.editors, a.policy_version, a.superseded_by, a.reason, a.expires_at, j.action_version, j.replaces,
       ARRAY (SELECT v.principal_id FROM deedbox.vote v WHERE v.approval_id = a.approval_id ORDER BY v.voted_at, v.principal_id),
       ARRAY (SELECT coalesce(v.for_principal, v.principal_id) FROM deedbox.vote v WHERE v.approval_id = a.approval_id
              ORDER BY v.voted_at, v.principal_id),
       ARRAY (SELECT o.state FROM deedbox.approval o
              WHERE o.job_id = a.job_id AND o.purpose = a.purpose AND o.approval_id <> a.approval_id),
       EXISTS (SELECT FROM deedbox.effect e WHERE e.job_id = a.job_id AND e.kind = 'act'),
       (SELECT coalesce(jsonb_agg(to_jsonb(one)), '[]') FROM (
           SELECT d.from_principal AS holder, h.name,
                  ARRAY (SELECT g.role FROM deedbox."grant" g WHERE g.principal_id = h.principal_id) AS roles,
                  d.withdrawn_at IS NOT NULL OR coalesce(d.until <= deedbox.clock(), false) AS over,
                  least(d.withdrawn_at, d.until) AS ends
           FROM deedbox.delegation d
           JOIN deedbox.principal h ON h.principal_id = d.from_principal AND h.disabled_at IS NULL
           WHERE d.to_principal = %(principal_id)s AND d.tenant = a.tenant AND coalesce(d.approval_id = a.approval_id, true)
           ORDER BY over, d.delegation_id DESC LIMIT 50
       ) AS one)
FROM deedbox.approval a
JOIN deedbox.job j ON j.job_id = a.job_id
LEFT JOIN deedbox.principal p ON p.principal_id = a.decided_by
WHERE a.approval_id = %(approval_id)s AND a.tenant = %(tenant)s

-- name: vote
-- Keep a vote that decides nothing yet; the row of one person, and the say of one person, each once.
INSERT INTO deedbox.vote (approval_id, principal_id, decision, digest, how, voted_at, for_principal)
VALUES (%(approval_id)s, %(principal_id)s, %(decision)s, %(digest)s, %(how)s, deedbox.clock(), %(for_principal)s)
RETURNING voted_at

-- name: settle
-- End a pending approval, with the vote that does it where a person decides: its links are void, the job's event says so, and
-- where this was the job's last open approval and something was authorised, the job moves on and a second event says that. The
-- queue row is locked by the same transaction. No row: it was not pending. No number: the job does not wait for anybody.
WITH ended AS (
    UPDATE deedbox.approval SET state = %(state)s, decided_at = deedbox.clock(), decided_by = %(decided_by)s::uuid,
           decided_how = %(how)s, reason = %(reason)s, superseded_by = %(superseded_by)s::uuid
    WHERE approval_id = %(approval_id)s AND state IN ({{approval.approve}})
    RETURNING approval_id, job_id, decided_at
), v AS (
    INSERT INTO deedbox.vote (approval_id, principal_id, decision, digest, how, voted_at, for_principal)
    SELECT approval_id, %(decided_by)s::uuid, %(vote)s::text, %(digest)s::bytea, %(how)s::text, decided_at, %(for_principal)s::uuid
    FROM ended WHERE %(vote)s::text IS NOT NULL
), voided AS (
    UPDATE deedbox.approval_token t SET voided_at = deedbox.clock()
    FROM ended WHERE t.approval_id = ended.approval_id AND t.voided_at IS NULL
), hushed AS (
    -- What was still to be said of it is not. What is being leased at this moment is waited for, and is then no longer pending.
    UPDATE deedbox.effect SET state = 'canceled', code = 'approval_decided', message = 'The approval has ended.', updated_at = deedbox.clock()
    WHERE effect_id = ANY (ARRAY (SELECT n.effect_id FROM deedbox.notice n JOIN ended USING (approval_id)))
        -- A CASE: each row is found by its id, and not by an index of all that are pending.
        AND kind = 'notice' AND NOT doubtful AND CASE WHEN state IN ({{effect.cancel}}) THEN true END
), moved AS (
    UPDATE deedbox.queue q
    SET state = coalesce(%(job_state)s::text, q.state), last_seq = q.last_seq + 1 + (%(job_state)s::text IS NOT NULL)::integer,
        -- What was to run later still is; whatever else was held goes on at once.
        run_at = CASE WHEN %(job_state)s::text = 'queued' THEN q.run_at ELSE deedbox.clock() END,
        due = %(job_state)s::text IS DISTINCT FROM 'queued' OR q.run_at <= deedbox.clock(), updated_at = deedbox.clock()
    FROM ended WHERE q.job_id = ended.job_id AND q.state IN ({{job.approve}})
    RETURNING q.job_id, q.last_seq, q.round
), e AS (
    INSERT INTO deedbox.event (job_id, seq, event_id, type, round, at, payload)
    SELECT job_id, last_seq - (%(job_state)s::text IS NOT NULL)::integer, %(event_id)s::uuid, 'job.decided', round, deedbox.clock(),
           %(event)s::jsonb FROM moved
    UNION ALL
    SELECT job_id, last_seq, %(next_event_id)s::uuid, 'job.' || %(job_state)s::text, round, deedbox.clock(), '{}'::jsonb
    FROM moved WHERE %(job_state)s::text IS NOT NULL
)
SELECT decided_at, (SELECT last_seq FROM moved) FROM ended

-- name: end_approval
-- End a pending approval without a person's decision, and void its links; the guard refuses any other source.
WITH voided AS (
    UPDATE deedbox.approval_token SET voided_at = deedbox.clock() WHERE approval_id = %(approval_id)s AND voided_at IS NULL
), hushed AS (
    -- What was still to be said of it is not. What is being leased at this moment is waited for, and is then no longer pending.
    UPDATE deedbox.effect SET state = 'canceled', code = 'approval_decided', message = 'The approval has ended.', updated_at = deedbox.clock()
    WHERE effect_id = ANY (ARRAY (SELECT effect_id FROM deedbox.notice WHERE approval_id = %(approval_id)s))
        -- A CASE: each row is found by its id, and not by an index of all that are pending.
        AND kind = 'notice' AND NOT doubtful AND CASE WHEN state IN ({{effect.cancel}}) THEN true END
)
UPDATE deedbox.approval SET state = %(state)s, decided_at = deedbox.clock(), decided_by = %(decided_by)s,
       decided_how = %(how)s, reason = %(reason)s
WHERE approval_id = %(approval_id)s AND state IN ({{approval.withdraw}})
RETURNING decided_at

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
            FROM deedbox.approval a WHERE a.job_id = gone.job_id AND a.state IN ('rejected', 'expired')),
           attempt, attempts_allowed, round, last_seq + 1, deedbox.clock()
    FROM gone
)
INSERT INTO deedbox.event (job_id, seq, event_id, type, round, at, payload)
SELECT job_id, last_seq + 1, %(event_id)s, 'job.failed', round, deedbox.clock(), %(event)s::jsonb FROM gone
