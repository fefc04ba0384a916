-- name: declare
-- Keep what a connector declares of a target, so that sweep, which knows no connectors, decides the same.
INSERT INTO deedbox.target (tenant, connector, target, capability, native_key_ttl, visibility_lag)
VALUES (%(tenant)s, %(connector)s, %(target)s, %(capability)s, make_interval(secs => %(ttl_s)s), make_interval(secs => %(lag_s)s))
ON CONFLICT (tenant, connector, target) DO UPDATE
SET capability = EXCLUDED.capability, native_key_ttl = EXCLUDED.native_key_ttl, visibility_lag = EXCLUDED.visibility_lag

-- name: slow
-- Send nothing more to a target for a while, because it said so.
INSERT INTO deedbox.target AS t (tenant, connector, target, open_until)
VALUES (%(tenant)s, %(connector)s, %(target)s, deedbox.clock() + make_interval(secs => %(wait_s)s))
ON CONFLICT (tenant, connector, target) DO UPDATE SET open_until = greatest(t.open_until, EXCLUDED.open_until)

-- name: went_well
-- The target answered. A closed breaker forgets the failures before it; a half-open one closes, if this was what it let through.
UPDATE deedbox.target
SET failures = 0, failing_at = NULL,
    breaker = 'closed', breaker_at = CASE breaker WHEN 'closed' THEN breaker_at ELSE deedbox.clock() END,
    breaker_until = NULL, breaker_opens = 0, breaker_why = NULL, probe_effect = NULL, probe_until = NULL
WHERE tenant = %(tenant)s AND connector = %(connector)s AND target IN (%(target)s, '*')
    AND (breaker = 'closed' AND failures > 0 OR breaker = 'half_open' AND probe_effect = %(effect_id)s)

-- name: went_badly
-- The target did not answer, or not in a way that tells. A closed breaker counts what follows one another within the window and
-- opens at the given number; a half-open one opens again if this was what it let through, for longer each time. An open one takes
-- no notice of what was on its way before. Returns whether it opened from closed now, and for how many seconds.
INSERT INTO deedbox.target AS t (tenant, connector, target, failures, failing_at, breaker, breaker_at, breaker_until, breaker_opens,
                                 breaker_why)
SELECT %(tenant)s, %(connector)s, %(target)s, 1, deedbox.clock(), b.breaker, deedbox.clock(), b.until, (b.until IS NOT NULL)::integer,
       CASE WHEN b.until IS NOT NULL THEN %(why)s END
FROM (SELECT CASE WHEN %(most)s <= 1 THEN 'open' ELSE 'closed' END AS breaker,
             CASE WHEN %(most)s <= 1 THEN deedbox.clock() + make_interval(secs => %(open_s)s) END AS until) AS b
ON CONFLICT (tenant, connector, target) DO UPDATE
SET failures = CASE WHEN t.breaker <> 'closed' THEN t.failures
                    WHEN t.failing_at > deedbox.clock() - make_interval(secs => %(window_s)s) THEN t.failures + 1 ELSE 1 END,
    failing_at = deedbox.clock(),
    (breaker, breaker_at, breaker_until, breaker_opens, breaker_why, probe_effect, probe_until) = (
        SELECT CASE WHEN opens THEN 'open' ELSE t.breaker END,
               CASE WHEN opens THEN deedbox.clock() ELSE t.breaker_at END,
               CASE WHEN opens THEN deedbox.clock() + make_interval(secs => least(
                        %(open_s)s * 2::float8 ^ least(t.breaker_opens, 30), %(longest_s)s)) ELSE t.breaker_until END,
               t.breaker_opens + opens::integer, CASE WHEN opens THEN %(why)s ELSE t.breaker_why END,
               CASE WHEN NOT opens THEN t.probe_effect END, CASE WHEN NOT opens THEN t.probe_until END
        FROM (SELECT CASE t.breaker
            WHEN 'closed' THEN %(most)s <= CASE
                WHEN t.failing_at > deedbox.clock() - make_interval(secs => %(window_s)s) THEN t.failures + 1 ELSE 1 END
            WHEN 'half_open' THEN t.probe_effect = %(effect_id)s ELSE false END) AS o (opens)
    )
RETURNING breaker = 'open' AND breaker_at = deedbox.clock() AND breaker_opens = 1,
          extract(epoch FROM breaker_until - deedbox.clock())::float8

-- name: let_another
-- What a half-open breaker let through came back without having been sent: it may let another through at once.
UPDATE deedbox.target SET probe_until = deedbox.clock()
WHERE tenant = %(tenant)s AND connector = %(connector)s AND target IN (%(target)s, '*') AND breaker = 'half_open'
    AND probe_effect = %(effect_id)s

-- name: pause
-- Send nothing more to a target until it is resumed.
INSERT INTO deedbox.target (tenant, connector, target, paused, paused_by, pause_reason, paused_at)
VALUES (%(tenant)s, %(connector)s, %(target)s, true, %(by)s, %(reason)s, deedbox.clock())
ON CONFLICT (tenant, connector, target) DO UPDATE
SET paused = true, paused_by = EXCLUDED.paused_by, pause_reason = EXCLUDED.pause_reason, paused_at = EXCLUDED.paused_at

-- name: resume
-- Let a target go on: it is not paused, its breaker is closed and nothing is counted against it.
UPDATE deedbox.target
SET paused = false, paused_by = NULL, pause_reason = NULL, paused_at = NULL, disabled_at = NULL, disabled_reason = NULL,
    open_until = NULL, failures = 0, failing_at = NULL,
    breaker = 'closed', breaker_at = CASE breaker WHEN 'closed' THEN breaker_at ELSE deedbox.clock() END, breaker_until = NULL,
    breaker_opens = 0, breaker_why = NULL, probe_effect = NULL, probe_until = NULL
WHERE (tenant, connector, target) = (%(tenant)s, %(connector)s, %(target)s)
RETURNING target

-- name: limit
-- Set how fast and in what order a target is sent to. What settings say does not undo what a person said.
INSERT INTO deedbox.target AS t (tenant, connector, target, rate_per_s, burst, order_by, limited_by)
VALUES (%(tenant)s, %(connector)s, %(target)s, %(rate_per_s)s, %(burst)s, %(order_by)s, %(by)s)
ON CONFLICT (tenant, connector, target) DO UPDATE
SET rate_per_s = EXCLUDED.rate_per_s, burst = EXCLUDED.burst, order_by = EXCLUDED.order_by, limited_by = EXCLUDED.limited_by,
    tokens = NULL, tokens_at = NULL
WHERE (t.rate_per_s, t.burst, t.order_by) IS DISTINCT FROM (EXCLUDED.rate_per_s, EXCLUDED.burst, EXCLUDED.order_by)
    AND (EXCLUDED.limited_by <> 'settings' OR coalesce(t.limited_by, 'settings') = 'settings')
    OR t.limited_by IS DISTINCT FROM EXCLUDED.limited_by AND EXCLUDED.limited_by <> 'settings'
RETURNING target

-- name: forget_keys
-- A target orders by something else from now on: what waits there is looked at anew.
UPDATE deedbox.effect SET order_key = ''
WHERE (tenant, connector, target) = (%(tenant)s, %(connector)s, %(target)s) AND order_key > ''
    AND CASE WHEN state IN ({{effect.late_receipt}}) THEN true END

-- name: listed
-- The targets of a tenant that something is known of or that something is on its way to, with how many effects are in each state
-- that has not ended, counted up to a bound.
WITH known AS (
    SELECT tenant, connector, target FROM deedbox.target WHERE tenant = %(tenant)s
    UNION
    SELECT %(tenant)s, connector, target FROM unnest(%(connectors)s::text[], %(targets)s::text[]) AS given (connector, target)
    UNION
    SELECT tenant, connector, target FROM (
        SELECT tenant, connector, target FROM deedbox.effect
        WHERE tenant = %(tenant)s AND CASE WHEN state IN ({{effect.late_receipt}}) THEN true END ORDER BY tenant, connector, target LIMIT 10000
    ) AS open
)
SELECT k.connector, k.target, coalesce(t.capability, 'blind'), coalesce(t.paused, false), t.paused_by, t.pause_reason, t.paused_at,
       CASE WHEN t.open_until > deedbox.clock() THEN t.open_until END, t.rate_per_s, t.burst, t.order_by, t.limited_by,
       coalesce(t.breaker, 'closed'), t.breaker_at, t.breaker_until, t.breaker_why, t.probe_effect, coalesce(t.failures, 0),
       o.pending, o.sending, o.unknown
FROM known k
LEFT JOIN deedbox.target t USING (tenant, connector, target)
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE state = 'pending') AS pending, count(*) FILTER (WHERE state = 'sending') AS sending,
           count(*) FILTER (WHERE state = 'unknown') AS unknown
    FROM (
        SELECT e.state FROM deedbox.effect e
        WHERE e.tenant = k.tenant AND e.connector = k.connector AND (k.target IN (e.target, '*'))
            AND CASE WHEN e.state IN ({{effect.late_receipt}}) THEN true END LIMIT 10000
    ) AS few
) AS o
WHERE (%(connector)s::text IS NULL OR k.connector = %(connector)s) AND (%(target)s::text IS NULL OR k.target = %(target)s)
ORDER BY k.connector, k.target LIMIT %(limit)s
