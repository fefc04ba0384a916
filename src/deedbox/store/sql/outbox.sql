-- name: next_due
-- Seconds until some effect may go out, zero where one may now, and until some target that holds effects back may let one
-- through; no row where none is pending.
SELECT greatest(0, extract(epoch FROM not_before - deedbox.clock()))::float8, (
    SELECT min(nullif(greatest(
        extract(epoch FROM t.open_until - deedbox.clock()),
        CASE t.breaker WHEN 'open' THEN extract(epoch FROM t.breaker_until - deedbox.clock())
                       WHEN 'half_open' THEN extract(epoch FROM t.probe_until - deedbox.clock()) END,
        (1 - t.tokens) / t.rate_per_s - extract(epoch FROM deedbox.clock() - t.tokens_at), 0
    ), 0))
    FROM deedbox.target t WHERE (t.gated OR t.open_until IS NOT NULL OR t.failures > 0) AND NOT t.paused
)::float8
FROM deedbox.effect WHERE state IN ({{effect.lease}}) ORDER BY not_before LIMIT 1

-- name: hold
-- Hold both roots of the switch shared until the transaction ends, in one order: whoever turns anything off, and whoever changes
-- a target, takes a root exclusively first, so a lease that comes after has a fresh snapshot, narrowing rows included, and a
-- lease in progress is waited for. Then take each gated target that may let something through now, unless another lease has
-- it: the next statement, whose snapshot is taken after these locks, sees all that was leased for it.
WITH roots AS MATERIALIZED (
    SELECT switch_id FROM deedbox.switch WHERE switch_id IN ('acts', 'notices') ORDER BY switch_id FOR SHARE
)
SELECT t.tenant, t.connector, t.target, t.order_by
FROM deedbox.target t
WHERE (SELECT count(*) FROM roots) >= 0
    AND t.gated AND NOT t.paused AND coalesce(t.open_until <= deedbox.clock(), true)
    AND CASE t.breaker WHEN 'closed' THEN true WHEN 'open' THEN t.breaker_until <= deedbox.clock()
                       ELSE t.probe_until <= deedbox.clock() END
    AND (t.rate_per_s IS NULL OR t.tokens IS NULL
         OR t.tokens + t.rate_per_s * extract(epoch FROM deedbox.clock() - t.tokens_at) >= 1)
ORDER BY t.tenant, t.connector, t.target
FOR UPDATE OF t SKIP LOCKED

-- name: key_effects
-- Write down by what a held target orders its next effects: the value at a JSON pointer of each payload. In the order of the
-- outbox and bounded. One that somebody holds is passed by, and a lease takes nothing that comes after it.
WITH next AS (
    SELECT e.effect_id FROM deedbox.effect e
    WHERE (e.tenant, e.connector, e.target) = (%(tenant)s, %(connector)s, %(target)s) AND e.order_key = ''
        AND CASE WHEN e.state IN ({{effect.late_receipt}}) THEN true END
    ORDER BY e.order_key, e.effect_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
UPDATE deedbox.effect e
SET order_key = ':' || coalesce(convert_from(p.body, 'UTF8')::jsonb -> 'payload' #>> %(path)s::text[], '')
FROM next, deedbox.proposal_effect p
WHERE e.effect_id = next.effect_id AND p.proposal_effect_id = e.proposal_effect_id AND p.body IS NOT NULL

-- part: may_leave
-- Whether an effect may go out as far as it and the switch are concerned. Each is a question of its own and no join, so that
-- the index gives the oldest first and the search ends at the limit, however many wait behind it.
        e.state IN ({{effect.lease}}) AND e.not_before <= deedbox.clock() AND e.not_after > deedbox.clock()
        AND e.connector = ANY (%(connectors)s)
        AND (e.kind = 'notice' OR %(environment_on)s)
        AND coalesce(CASE e.kind
            WHEN 'act' THEN (SELECT is_on FROM switches WHERE switch_id = 'acts' AND whole)
            WHEN 'notice' THEN (SELECT is_on FROM switches WHERE switch_id = 'notices' AND whole)
        END, false)
        AND 0 = (
            SELECT count(*) FROM switches s
            WHERE s.kind = e.kind AND NOT s.is_on AND (s.tenant IS NULL OR s.tenant = e.tenant)
                AND (s.action IS NULL OR s.action = e.action) AND (s.connector IS NULL OR s.connector = e.connector)
                AND (s.target IS NULL OR s.target = e.target)
        )
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

-- part: switches
-- The rows of the switch, held shared.
WITH switches AS MATERIALIZED (
    SELECT switch_id, kind, tenant, action, connector, target, is_on,
           -- A root is one for all, and of its kind; a row that says otherwise is no root, and without one it is off.
           num_nonnulls(tenant, action, connector, target) = 0
               AND kind = CASE switch_id WHEN 'acts' THEN 'act' ELSE 'notice' END AS whole
    FROM deedbox.switch ORDER BY switch_id FOR SHARE

-- part: take
-- Take of the candidates as many as there are ids for events, and write those.
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

-- part: answer
-- What a dispatcher needs of each that was leased.
SELECT m.effect_id, m.job_id, m.tenant, m.action, m.kind, m.connector, m.target, m.slot, m.attempt, m.fence, p.body,
       t.capability, extract(epoch FROM t.native_key_ttl)::float8,
       0 < (
           SELECT count(*) FROM gate g
           WHERE g.troubled AND (g.tenant, g.connector) = (m.tenant, m.connector) AND g.target IN (m.target, '*')
       )
FROM moved m
JOIN deedbox.proposal_effect p ON p.proposal_effect_id = m.proposal_effect_id
LEFT JOIN deedbox.target t ON (t.tenant, t.connector, t.target) = (m.tenant, m.connector, m.target)

-- name: lease
-- Lease up to `limit` effects that may go out now. One statement reads all that must stand: both halves of the switch (rows
-- FOR SHARE, the environment's as a parameter), the target, the times, the predecessor, the approval or verdict, and the digest of
-- the very bytes that will be sent. Queue rows are locked before effects, each skipped where someone holds it. A leased act writes
-- its event; a notice writes none. Of gated targets it takes nothing: that is for `lease_gated`, which takes ten times as long to
-- plan and is asked only where the transaction holds such a target.
{{part.switches}}
), gate AS MATERIALIZED (
    -- The targets that do not simply let through.
    SELECT t.tenant, t.connector, t.target, t.gated OR coalesce(t.open_until > deedbox.clock(), false) AS shut,
           t.failures > 0 OR t.breaker <> 'closed' AS troubled
    FROM deedbox.target t WHERE t.gated OR t.open_until IS NOT NULL OR t.failures > 0
), candidate AS MATERIALIZED (
    SELECT e.effect_id, e.job_id, e.kind, e.not_before
    FROM deedbox.effect e
    WHERE {{part.may_leave}}
        AND (e.tenant, e.connector, e.target) NOT IN (SELECT g.tenant, g.connector, g.target FROM gate g WHERE g.shut)
        AND (e.tenant, e.connector) NOT IN (SELECT g.tenant, g.connector FROM gate g WHERE g.shut AND g.target = '*')
    ORDER BY e.not_before
    LIMIT %(limit)s * 4
{{part.take}}
)
{{part.answer}}

-- name: lease_gated
-- The same, and of the gated targets that this transaction holds no more than their rate, their order and their breaker allow. What
-- such a target may let through is chosen first, by the target's own index; then the oldest of all that may go. That index has a
-- CASE for its predicate, so that it serves those alone who ask with the same one, and never the scan by age.
{{part.switches}}
), gate AS MATERIALIZED (
    -- The targets that do not simply let through, and how many each lets through in this statement.
    SELECT t.tenant, t.connector, t.target, t.order_by, t.breaker,
           t.gated OR coalesce(t.open_until > deedbox.clock(), false) AS shut,
           t.failures > 0 OR t.breaker <> 'closed' AS troubled, fill.tokens,
           CASE WHEN h.target IS NULL OR t.paused OR coalesce(t.open_until > deedbox.clock(), false) THEN 0 ELSE least(
               CASE t.breaker WHEN 'closed' THEN %(limit)s WHEN 'open' THEN (t.breaker_until <= deedbox.clock())::integer
                              ELSE (t.probe_until <= deedbox.clock())::integer END,
               coalesce(floor(fill.tokens), %(limit)s), %(limit)s
           ) END::integer AS budget
    FROM deedbox.target t
    LEFT JOIN unnest(%(held_tenant)s::text[], %(held_connector)s::text[], %(held_target)s::text[])
        AS h (tenant, connector, target) ON (h.tenant, h.connector, h.target) = (t.tenant, t.connector, t.target)
    CROSS JOIN LATERAL (SELECT CASE WHEN t.rate_per_s IS NOT NULL THEN least(
        coalesce(t.burst, greatest(1, t.rate_per_s)),
        coalesce(t.tokens + t.rate_per_s * greatest(0, extract(epoch FROM deedbox.clock() - t.tokens_at)),
                 coalesce(t.burst, greatest(1, t.rate_per_s)))
    ) END) AS fill (tokens)
    WHERE t.gated OR t.open_until IS NOT NULL OR t.failures > 0
), chosen AS MATERIALIZED (
    -- Of targets with an order: the first of each that has not ended, where it may leave.
    SELECT c.effect_id FROM gate g CROSS JOIN LATERAL (
        WITH RECURSIVE head AS (
            (SELECT x.order_key, x.effect_id FROM deedbox.effect x
             WHERE (x.tenant, x.connector, x.target) = (g.tenant, g.connector, g.target)
                 AND x.order_key >= CASE g.order_by WHEN 'target' THEN '' ELSE ':' END
                 AND CASE WHEN x.state IN ({{effect.late_receipt}}) THEN true END
             ORDER BY x.order_key, x.effect_id LIMIT 1)
            UNION ALL
            SELECT n.order_key, n.effect_id FROM head CROSS JOIN LATERAL (
                SELECT x.order_key, x.effect_id FROM deedbox.effect x
                WHERE (x.tenant, x.connector, x.target) = (g.tenant, g.connector, g.target) AND x.order_key > head.order_key
                    AND CASE WHEN x.state IN ({{effect.late_receipt}}) THEN true END
                ORDER BY x.order_key, x.effect_id LIMIT 1
            ) AS n
        )
        SELECT e.effect_id FROM (SELECT effect_id FROM head LIMIT 1000) AS heads JOIN deedbox.effect e USING (effect_id)
        WHERE CASE WHEN {{part.may_leave}} THEN true END
            AND (g.order_by = 'target' OR e.effect_id < ALL (
                SELECT x.effect_id FROM deedbox.effect x
                WHERE (x.tenant, x.connector, x.target) = (g.tenant, g.connector, g.target) AND x.order_key = ''
                    AND CASE WHEN x.state IN ({{effect.late_receipt}}) THEN true END
                ORDER BY x.order_key, x.effect_id LIMIT 1
            ))
        ORDER BY e.effect_id LIMIT g.budget
    ) AS c
    WHERE g.shut AND g.budget > 0 AND g.target <> '*' AND g.order_by IS NOT NULL
    UNION ALL
    -- Of the others: the oldest.
    SELECT c.effect_id FROM gate g CROSS JOIN LATERAL (
        SELECT e.effect_id FROM deedbox.effect e
        WHERE (e.tenant, e.connector, e.target) = (g.tenant, g.connector, g.target) AND e.order_key = ''
            AND CASE WHEN e.state IN ({{effect.late_receipt}}) THEN true END AND {{part.may_leave}}
        ORDER BY e.order_key, e.effect_id LIMIT g.budget
    ) AS c
    WHERE g.shut AND g.budget > 0 AND g.target <> '*' AND g.order_by IS NULL
), chosen_of_all AS MATERIALIZED (
    -- Of a connector that is gated as a whole: the oldest that their own targets let through.
    SELECT c.effect_id FROM gate g CROSS JOIN LATERAL (
        SELECT e.effect_id FROM deedbox.effect e
        WHERE (e.tenant, e.connector) = (g.tenant, g.connector) AND {{part.may_leave}}
            AND ((e.tenant, e.connector, e.target) NOT IN (SELECT o.tenant, o.connector, o.target FROM gate o WHERE o.shut)
                 OR e.effect_id IN (SELECT effect_id FROM chosen))
            AND (g.order_by IS NULL OR NOT EXISTS (
                SELECT FROM deedbox.effect x
                WHERE (x.tenant, x.connector, x.target) = (e.tenant, e.connector, e.target) AND x.order_key = e.order_key
                    AND x.effect_id < e.effect_id AND CASE WHEN x.state IN ({{effect.late_receipt}}) THEN true END
            ))
        ORDER BY e.not_before LIMIT g.budget
    ) AS c
    WHERE g.shut AND g.budget > 0 AND g.target = '*'
), candidate AS MATERIALIZED (
    SELECT e.effect_id, e.job_id, e.kind, e.not_before
    FROM deedbox.effect e
    WHERE {{part.may_leave}}
        AND ((e.tenant, e.connector, e.target) NOT IN (SELECT g.tenant, g.connector, g.target FROM gate g WHERE g.shut)
             OR e.effect_id IN (SELECT effect_id FROM chosen))
        AND ((e.tenant, e.connector) NOT IN (SELECT g.tenant, g.connector FROM gate g WHERE g.shut AND g.target = '*')
             OR e.effect_id IN (SELECT effect_id FROM chosen_of_all))
    ORDER BY e.not_before
    LIMIT %(limit)s * 4
{{part.take}}
), spent AS (
    -- What was taken from gated targets, whose rows this transaction has had since before it looked. A breaker that was open
    -- lets one through, and is half open until it is known how that one ended.
    UPDATE deedbox.target t
    SET tokens = CASE WHEN t.rate_per_s IS NOT NULL THEN g.tokens - g.many END, tokens_at = deedbox.clock(),
        breaker = CASE WHEN t.breaker = 'closed' THEN 'closed' ELSE 'half_open' END,
        probe_effect = CASE WHEN t.breaker <> 'closed' THEN g.one END,
        probe_until = CASE WHEN t.breaker <> 'closed' THEN deedbox.clock() + make_interval(secs => %(lease_s)s) END
    FROM (
        SELECT g.tenant, g.connector, g.target, g.tokens, count(*) AS many, (array_agg(m.effect_id))[1] AS one
        FROM gate g JOIN moved m ON (m.tenant, m.connector) = (g.tenant, g.connector) AND g.target IN (m.target, '*')
        WHERE g.shut GROUP BY g.tenant, g.connector, g.target, g.tokens
    ) AS g
    WHERE (t.tenant, t.connector, t.target) = (g.tenant, g.connector, g.target)
)
{{part.answer}}

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
UPDATE deedbox.effect SET state = 'unknown', code = %(code)s, message = %(message)s, look_ups = 0,
       look_up_at = deedbox.clock(), alarm_at = deedbox.clock(), updated_at = deedbox.clock()
WHERE effect_id = %(effect_id)s AND doubtful AND state IN ({{effect.doubt}}) RETURNING effect_id

-- name: refuse
-- Permanently not accepted, or tried often enough.
UPDATE deedbox.effect SET state = 'failed', fence = NULL, sender = NULL, lease_until = NULL, phase = %(phase)s,
       class = %(class)s, code = %(code)s, message = %(message)s, updated_at = deedbox.clock()
WHERE effect_id = %(effect_id)s AND fence = %(fence)s AND state IN ({{effect.refuse}}) RETURNING effect_id

-- name: lose_track
-- May have been accepted, and nothing here can tell. The provider is asked by a schedule that begins at once, and a person is
-- reminded if that does not end it.
UPDATE deedbox.effect SET state = 'unknown', fence = NULL, sender = NULL, lease_until = NULL, phase = %(phase)s,
       class = %(class)s, code = %(code)s, message = %(message)s, sender_closed = %(closed)s, look_ups = 0,
       look_up_at = deedbox.clock(), alarm_at = deedbox.clock(), updated_at = deedbox.clock()
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
     -- IS NOT TRUE: without statistics the index on not_after looked as good as the one on what is hindered, and is nearly all.
     WHERE state IN ({{effect.expire}}) AND (after_slot IS NOT NULL OR doubtful) AND (not_after <= deedbox.clock()) IS NOT TRUE
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
