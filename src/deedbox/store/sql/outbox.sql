-- name: next_due
-- Seconds until some effect may go out, zero where one may now; no row where none is pending.
SELECT greatest(0, extract(epoch FROM not_before - deedbox.clock()))::float8
FROM deedbox.effect WHERE state IN ({{effect.lease}}) ORDER BY not_before LIMIT 1

-- name: lease
-- Lease up to `limit` effects that may go out now. One statement reads all that must stand: both halves of the switch (rows
-- FOR SHARE, the environment's as a parameter), the target, the times, the predecessor, the approval or verdict, and the
-- digest of the very bytes that will be sent. Queue rows are locked before effects, each skipped where someone holds it.
-- A leased act writes its event; a notice writes none. Everything that is asked of a candidate is a question of its own and no
-- join, so that the index gives the oldest first and the search ends at the limit, however many wait behind it.
WITH switches AS MATERIALIZED (
    SELECT switch_id, kind, tenant, action, connector, target, is_on FROM deedbox.switch ORDER BY switch_id FOR SHARE
), candidate AS MATERIALIZED (
    SELECT e.effect_id, e.job_id, e.kind, e.not_before
    FROM deedbox.effect e
    WHERE e.state IN ({{effect.lease}}) AND e.not_before <= deedbox.clock() AND e.not_after > deedbox.clock()
        AND e.connector = ANY (%(connectors)s)
        AND (e.kind = 'notice' OR %(environment_on)s)
        AND coalesce(CASE e.kind
            WHEN 'act' THEN (SELECT is_on FROM switches WHERE switch_id = 'acts')
            WHEN 'notice' THEN (SELECT is_on FROM switches WHERE switch_id = 'notices')
        END, false)
        AND 0 = (
            SELECT count(*) FROM switches s
            WHERE s.kind = e.kind AND NOT s.is_on AND (s.tenant IS NULL OR s.tenant = e.tenant)
                AND (s.action IS NULL OR s.action = e.action) AND (s.connector IS NULL OR s.connector = e.connector)
                AND (s.target IS NULL OR s.target = e.target)
        )
        AND coalesce((
            SELECT NOT t.paused AND coalesce(t.open_until <= deedbox.clock(), true) FROM deedbox.target t
            WHERE (t.tenant, t.connector, t.target) = (e.tenant, e.connector, e.target)
        ), true)
        AND (e.after_slot IS NULL OR EXISTS (
            SELECT FROM deedbox.effect x WHERE x.job_id = e.job_id AND x.slot = e.after_slot AND x.state = 'completed'
        ))
        -- What may have been done is sent again only while the provider still knows its key, and will for the whole sending.
        AND (NOT e.doubtful OR coalesce((
            SELECT t.capability = 'native_key'
                AND e.first_sent_at + t.native_key_ttl > deedbox.clock() + make_interval(secs => %(lease_s)s)
            FROM deedbox.target t WHERE (t.tenant, t.connector, t.target) = (e.tenant, e.connector, e.target)
        ), false))
        AND coalesce(CASE
            WHEN e.approval_id IS NOT NULL THEN (
                SELECT a.state = 'approved' AND e.digest = ANY (a.effect_digests)
                FROM deedbox.approval a WHERE a.approval_id = e.approval_id
            )
            ELSE (
                SELECT v.decision IN ('allow', 'delay', 'sample') AND e.digest = ANY (v.effect_digests)
                FROM deedbox.verdict v WHERE v.verdict_id = e.verdict_id
            )
        END, false)
        AND e.digest = (
            SELECT sha256(p.body) FROM deedbox.proposal_effect p WHERE p.proposal_effect_id = e.proposal_effect_id
        )
    ORDER BY e.not_before
    LIMIT %(limit)s * 4
), held AS MATERIALIZED (
    -- No more than can be sent: what is locked here, others pass by.
    SELECT q.job_id FROM deedbox.queue q
    WHERE q.job_id IN (SELECT job_id FROM candidate WHERE kind = 'act')
    ORDER BY q.job_id
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
), picked AS MATERIALIZED (
    SELECT e.effect_id FROM candidate c JOIN deedbox.effect e USING (effect_id)
    -- A CASE, here and below: each row is found by its id, and not by an index of everything that waits.
    WHERE (c.kind = 'notice' OR c.job_id IN (SELECT job_id FROM held)) AND CASE
        WHEN e.state IN ({{effect.lease}}) AND e.not_before <= deedbox.clock() AND e.not_after > deedbox.clock() THEN true
    END
    ORDER BY c.not_before, c.effect_id
    LIMIT %(limit)s
    FOR UPDATE OF e SKIP LOCKED
), numbered AS (
    SELECT effect_id, row_number() OVER () AS n FROM picked
), moved AS (
    UPDATE deedbox.effect e
    SET state = 'sending', attempt = e.attempt + 1, fence = nextval('deedbox.fence_seq'), sender = %(sender)s,
        lease_until = deedbox.clock() + make_interval(secs => %(lease_s)s),
        first_sent_at = coalesce(e.first_sent_at, deedbox.clock()), phase = NULL, class = NULL, code = NULL, message = NULL,
        sender_closed = false, updated_at = deedbox.clock()
    FROM numbered
    JOIN unnest(%(event_id)s::uuid[]) WITH ORDINALITY AS ids (event_id, n) USING (n)
    WHERE e.effect_id = numbered.effect_id AND CASE WHEN e.state IN ({{effect.lease}}) THEN true END
    RETURNING e.effect_id, e.job_id, e.tenant, e.action, e.kind, e.connector, e.target, e.slot, e.attempt, e.fence,
              e.proposal_effect_id, ids.event_id
), counted AS (
    SELECT effect_id, job_id, connector, slot, attempt, event_id, count(*) OVER (PARTITION BY job_id) AS many,
           row_number() OVER (PARTITION BY job_id ORDER BY effect_id) AS place
    FROM moved WHERE kind = 'act'
), raised AS (
    UPDATE deedbox.queue q SET last_seq = q.last_seq + c.many
    FROM (SELECT DISTINCT job_id, many FROM counted) AS c
    WHERE q.job_id = c.job_id
    RETURNING q.job_id, q.last_seq, q.round
), told AS (
    INSERT INTO deedbox.event (job_id, seq, event_id, type, round, at, payload)
    SELECT c.job_id, r.last_seq - c.many + c.place, c.event_id, 'effect.sending', r.round, deedbox.clock(),
           jsonb_build_object('effect_id', c.effect_id, 'connector', c.connector, 'slot', c.slot, 'attempt', c.attempt)
    FROM counted c JOIN raised r USING (job_id)
)
SELECT m.effect_id, m.job_id, m.tenant, m.action, m.kind, m.connector, m.target, m.slot, m.attempt, m.fence, p.body,
       t.capability, extract(epoch FROM t.native_key_ttl)::float8
FROM moved m
JOIN deedbox.proposal_effect p ON p.proposal_effect_id = m.proposal_effect_id
LEFT JOIN deedbox.target t ON (t.tenant, t.connector, t.target) = (m.tenant, m.connector, m.target)

-- name: declare_target
-- Keep what a connector declares of a target, so that sweep, which knows no connectors, decides the same.
INSERT INTO deedbox.target (tenant, connector, target, capability, native_key_ttl)
VALUES (%(tenant)s, %(connector)s, %(target)s, %(capability)s, make_interval(secs => %(ttl_s)s))
ON CONFLICT (tenant, connector, target) DO UPDATE
SET capability = EXCLUDED.capability, native_key_ttl = EXCLUDED.native_key_ttl

-- name: slow_target
-- Send nothing more to a target for a while, because it said so; only for targets that have a row.
UPDATE deedbox.target SET open_until = greatest(open_until, deedbox.clock() + make_interval(secs => %(wait_s)s))
WHERE (tenant, connector, target) = (%(tenant)s, %(connector)s, %(target)s)

-- name: lock_effect
-- Lock an effect, after its job's queue row, and read what any move out of its state is decided by.
SELECT e.effect_id, e.job_id, e.tenant, e.kind, e.connector, e.target, e.slot, e.state, e.attempt, e.fence, e.sender_closed,
       coalesce(t.capability, 'blind'),
       coalesce(t.capability = 'native_key' AND e.first_sent_at + t.native_key_ttl > deedbox.clock(), false),
       coalesce(e.lease_until <= deedbox.clock(), false), e.not_after <= deedbox.clock(),
       extract(epoch FROM deedbox.clock() - e.updated_at)::float8,
       coalesce(extract(epoch FROM t.visibility_lag), 0)::float8, e.phase, e.doubtful
FROM deedbox.effect e
LEFT JOIN deedbox.target t ON (t.tenant, t.connector, t.target) = (e.tenant, e.connector, e.target)
WHERE e.effect_id = %(effect_id)s
FOR UPDATE OF e

-- name: deliver
-- The sender that holds the fence has a receipt.
UPDATE deedbox.effect SET state = 'completed', fence = NULL, sender = NULL, lease_until = NULL, phase = %(phase)s,
       updated_at = deedbox.clock()
WHERE effect_id = %(effect_id)s AND fence = %(fence)s AND state IN ({{effect.deliver}}) RETURNING effect_id

-- name: late_receipt
-- A sender that was replaced has a receipt: the effect has happened, whatever became of the lease.
UPDATE deedbox.effect SET state = 'completed', fence = NULL, sender = NULL, lease_until = NULL, phase = %(phase)s,
       class = NULL, code = NULL, message = NULL, updated_at = deedbox.clock()
WHERE effect_id = %(effect_id)s AND state IN ({{effect.late_receipt}}) RETURNING effect_id

-- name: confirm
-- A look-up found it, or a person showed evidence.
UPDATE deedbox.effect SET state = 'completed', class = NULL, code = NULL, message = NULL, updated_at = deedbox.clock()
WHERE effect_id = %(effect_id)s AND state IN ({{effect.confirm}}) RETURNING effect_id

-- name: retry
-- Surely not accepted: due again after a wait.
UPDATE deedbox.effect SET state = 'pending', fence = NULL, sender = NULL, lease_until = NULL, phase = %(phase)s,
       class = %(class)s, code = %(code)s, message = %(message)s,
       not_before = deedbox.clock() + make_interval(secs => %(wait_s)s), updated_at = deedbox.clock()
WHERE effect_id = %(effect_id)s AND fence = %(fence)s AND state IN ({{effect.retry}}) RETURNING effect_id

-- name: give_back
-- Nothing was dialled, because the switch went off or the lease grew old: the attempt does not count.
UPDATE deedbox.effect SET state = 'pending', fence = NULL, sender = NULL, lease_until = NULL, attempt = attempt - 1,
       first_sent_at = CASE WHEN attempt > 1 THEN first_sent_at END, code = %(code)s, updated_at = deedbox.clock()
WHERE effect_id = %(effect_id)s AND fence = %(fence)s AND state IN ({{effect.retry}}) RETURNING effect_id

-- name: resend_same_key
-- May have been accepted, and the target still knows the key: the same key again cannot act twice.
UPDATE deedbox.effect SET state = 'pending', fence = NULL, sender = NULL, lease_until = NULL, phase = %(phase)s,
       class = %(class)s, code = %(code)s, message = %(message)s, sender_closed = %(closed)s, doubtful = true,
       not_before = deedbox.clock() + make_interval(secs => %(wait_s)s), updated_at = deedbox.clock()
WHERE effect_id = %(effect_id)s AND fence = %(fence)s AND state IN ({{effect.resend_same_key}}) RETURNING effect_id

-- name: doubt
-- It may have been accepted, and cannot be sent again any more without acting twice.
UPDATE deedbox.effect SET state = 'unknown', code = %(code)s, message = %(message)s, updated_at = deedbox.clock()
WHERE effect_id = %(effect_id)s AND doubtful AND state IN ({{effect.doubt}}) RETURNING effect_id

-- name: refuse
-- Permanently not accepted, or tried often enough.
UPDATE deedbox.effect SET state = 'failed', fence = NULL, sender = NULL, lease_until = NULL, phase = %(phase)s,
       class = %(class)s, code = %(code)s, message = %(message)s, updated_at = deedbox.clock()
WHERE effect_id = %(effect_id)s AND fence = %(fence)s AND state IN ({{effect.refuse}}) RETURNING effect_id

-- name: lose_track
-- May have been accepted, and nothing here can tell.
UPDATE deedbox.effect SET state = 'unknown', fence = NULL, sender = NULL, lease_until = NULL, phase = %(phase)s,
       class = %(class)s, code = %(code)s, message = %(message)s, sender_closed = %(closed)s, updated_at = deedbox.clock()
WHERE effect_id = %(effect_id)s AND fence = %(fence)s AND state IN ({{effect.lose_track}}) RETURNING effect_id

-- name: close_notice
-- A notice that may have arrived: nobody reconciles our own mail.
UPDATE deedbox.effect SET state = 'unknown_closed', fence = NULL, sender = NULL, lease_until = NULL, phase = %(phase)s,
       class = %(class)s, code = %(code)s, message = %(message)s, sender_closed = %(closed)s, updated_at = deedbox.clock()
WHERE effect_id = %(effect_id)s AND fence = %(fence)s AND state IN ({{effect.close_notice}}) RETURNING effect_id

-- name: disprove
-- It is certain that nothing arrived: due again.
UPDATE deedbox.effect SET state = 'pending', not_before = deedbox.clock(), first_sent_at = NULL, doubtful = false,
       updated_at = deedbox.clock()
WHERE effect_id = %(effect_id)s AND state IN ({{effect.disprove}}) RETURNING effect_id

-- name: expire
-- Its time passed before it was sent.
UPDATE deedbox.effect SET state = 'failed', code = %(code)s, message = %(message)s, updated_at = deedbox.clock()
WHERE effect_id = %(effect_id)s AND NOT doubtful AND state IN ({{effect.expire}}) RETURNING effect_id

-- name: abandon
-- A person gives it up; the reason is kept.
UPDATE deedbox.effect SET state = 'failed', code = %(code)s, message = %(message)s, updated_at = deedbox.clock()
WHERE effect_id = %(effect_id)s AND (state = 'unknown' OR NOT doubtful) AND state IN ({{effect.abandon}}) RETURNING effect_id

-- name: cancel
-- Withdrawn before anything was sent.
UPDATE deedbox.effect SET state = 'canceled', code = %(code)s, message = %(message)s, updated_at = deedbox.clock()
WHERE effect_id = %(effect_id)s AND NOT doubtful AND state IN ({{effect.cancel}}) RETURNING effect_id

-- name: add_receipt
-- Keep what a provider, a look-up or a person answered; never changed afterwards. The same id again is the same receipt.
INSERT INTO deedbox.receipt (job_id, receipt_id, effect_id, provider_id, evidence, phase, source, by_principal, stored_at)
VALUES (%(job_id)s, %(receipt_id)s, %(effect_id)s, %(provider_id)s, %(evidence)s::jsonb, %(phase)s, %(source)s,
        %(by_principal)s, deedbox.clock())
ON CONFLICT (job_id, receipt_id) DO NOTHING

-- name: add_probe
-- Keep that somebody asked, and what was said.
INSERT INTO deedbox.probe (probe_id, job_id, effect_id, verdict, evidence, by_principal, probed_at)
VALUES (%(probe_id)s, %(job_id)s, %(effect_id)s, %(verdict)s, %(evidence)s::jsonb, %(by_principal)s, deedbox.clock())

-- name: lapsed_sendings
-- Sendings whose lease ran out, paged by key so that some that cannot be moved never hide the rest.
SELECT effect_id, job_id FROM deedbox.effect
WHERE state IN ({{effect.lose_track}}) AND lease_until <= deedbox.clock() AND effect_id > %(after)s
ORDER BY effect_id LIMIT %(limit)s

-- name: unsendable
-- Pending effects whose time passed, whose predecessor ended without being done or will never be authorised, or which may have been
-- done and whose key the provider has forgotten, paged by key.
SELECT e.effect_id, e.job_id
FROM (
    (SELECT * FROM deedbox.effect WHERE state IN ({{effect.expire}}) AND not_after <= deedbox.clock()
     ORDER BY not_after OFFSET 0)
    UNION ALL
    (SELECT * FROM deedbox.effect
     WHERE state IN ({{effect.expire}}) AND (after_slot IS NOT NULL OR doubtful) AND not_after > deedbox.clock()
     ORDER BY effect_id OFFSET 0)
) AS e
LEFT JOIN deedbox.target t ON (t.tenant, t.connector, t.target) = (e.tenant, e.connector, e.target)
WHERE e.effect_id > %(after)s
    AND (e.not_after <= deedbox.clock() OR (e.doubtful AND NOT coalesce(
        t.capability = 'native_key' AND e.first_sent_at + t.native_key_ttl > deedbox.clock(), false)) OR (e.after_slot IS NOT NULL AND EXISTS (
        SELECT FROM deedbox.effect x WHERE x.job_id = e.job_id AND x.slot = e.after_slot AND x.state IN ('failed', 'canceled')
    )) OR (e.after_slot IS NOT NULL AND NOT EXISTS (
        SELECT FROM deedbox.effect x WHERE x.job_id = e.job_id AND x.slot = e.after_slot
    ) AND EXISTS (
        -- Every group of the job has been decided.
        SELECT FROM deedbox.queue q WHERE q.job_id = e.job_id AND q.state = 'dispatching'
    )))
ORDER BY e.effect_id LIMIT %(limit)s
