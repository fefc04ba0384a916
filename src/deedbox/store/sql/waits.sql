-- name: facts
-- All that a lease reads of one pending effect, each for itself, so that what holds it back can be named. The environment's half
-- is as the living dispatchers published it.
SELECT e.kind, e.connector, e.target, e.after_slot, e.doubtful, e.not_before, e.not_after,
       e.not_before > deedbox.clock() AS early, e.not_after <= deedbox.clock() AS late,
       (SELECT x.state FROM deedbox.effect x WHERE x.job_id = e.job_id AND x.slot = e.after_slot LIMIT 1) AS predecessor,
       (SELECT jsonb_build_object('is_on', s.is_on, 'by', s.changed_by, 'why', s.reason) FROM deedbox.switch s
        WHERE s.switch_id = CASE e.kind WHEN 'act' THEN 'acts' ELSE 'notices' END) AS root,
       (SELECT coalesce(jsonb_agg(jsonb_build_object('tenant', s.tenant, 'action', s.action, 'connector', s.connector,
                                                     'target', s.target, 'by', s.changed_by, 'why', s.reason)), '[]')
        FROM deedbox.switch s
        WHERE s.kind = e.kind AND NOT s.is_on AND s.switch_id NOT IN ('acts', 'notices')
            AND (s.tenant IS NULL OR s.tenant = e.tenant) AND (s.action IS NULL OR s.action = e.action)
            AND (s.connector IS NULL OR s.connector = e.connector) AND (s.target IS NULL OR s.target = e.target)) AS narrowed,
       (SELECT count(*) FROM deedbox.process p WHERE p.stopped_at IS NULL AND 'dispatch' = ANY (p.roles)) AS dispatchers,
       (SELECT count(*) FROM deedbox.process p WHERE p.stopped_at IS NULL AND 'dispatch' = ANY (p.roles)
            AND p.environment_switch) AS environment_on,
       coalesce((SELECT t.capability = 'native_key' AND e.first_sent_at + t.native_key_ttl > deedbox.clock()
                 FROM deedbox.target t WHERE (t.tenant, t.connector, t.target) = (e.tenant, e.connector, e.target)), false)
           AS key_lives,
       coalesce(CASE WHEN e.approval_id IS NOT NULL
           THEN (SELECT a.state = 'approved' AND e.digest = ANY (a.effect_digests) FROM deedbox.approval a
                 WHERE a.approval_id = e.approval_id)
           ELSE (SELECT v.decision IN ('allow', 'delay', 'sample') AND e.digest = ANY (v.effect_digests)
                 FROM deedbox.verdict v WHERE v.verdict_id = e.verdict_id) END, false)
           AND coalesce(e.digest = (SELECT sha256(p.body) FROM deedbox.proposal_effect p
                                    WHERE p.proposal_effect_id = e.proposal_effect_id), false) AS authorised
FROM deedbox.effect e
WHERE e.effect_id = %(effect_id)s AND e.tenant = %(tenant)s
    -- A CASE: it is found by its id, and not by an index of everything that waits.
    AND CASE WHEN e.state IN ({{effect.lease}}) THEN true END

-- name: gates
-- The rows that an effect's target is held back by, its own and that of its whole connector, and where the target goes in order
-- the first effect before it that has not ended.
SELECT t.target, t.paused, t.paused_by, t.pause_reason,
       CASE WHEN t.open_until > deedbox.clock() THEN t.open_until END AS slowed_until,
       t.rate_per_s, t.burst, t.rate_per_s IS NOT NULL AND t.tokens + t.rate_per_s
           * extract(epoch FROM deedbox.clock() - t.tokens_at) < 1 AS spent,
       t.breaker, t.breaker_until, t.breaker_why, t.probe_effect, t.order_by, h.effect_id AS head, h.state AS head_state
FROM deedbox.effect e
JOIN deedbox.target t ON (t.tenant, t.connector) = (e.tenant, e.connector) AND t.target IN (e.target, '*')
LEFT JOIN LATERAL (
    SELECT x.effect_id, x.state FROM deedbox.effect x
    WHERE (x.tenant, x.connector, x.target) = (e.tenant, e.connector, e.target) AND x.order_key = e.order_key
        AND x.effect_id < e.effect_id AND CASE WHEN x.state IN ({{effect.late_receipt}}) THEN true END
    ORDER BY x.order_key, x.effect_id LIMIT 1
) AS h ON t.order_by IS NOT NULL
WHERE e.effect_id = %(effect_id)s AND e.tenant = %(tenant)s
ORDER BY t.target

-- name: first
-- The effect that has waited longest to go to a target, as its index knows it.
SELECT effect_id FROM deedbox.effect
WHERE (tenant, connector, target) = (%(tenant)s, %(connector)s, %(target)s)
    AND CASE WHEN state IN ({{effect.late_receipt}}) THEN true END AND CASE WHEN state IN ({{effect.lease}}) THEN true END
ORDER BY order_key, effect_id LIMIT 1
