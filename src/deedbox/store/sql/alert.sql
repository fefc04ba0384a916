-- name: open_alerts
-- Open alerts, each once: while one is open the same cause adds nothing. The tenant is the one that is named, else the job's, or
-- its effect's where the records of the job have just gone. Every alert there is comes from here.
INSERT INTO deedbox.alert (alert_id, tenant, cause, job_id, effect_id, message)
SELECT i.alert_id, t.tenant, i.cause, i.job_id, i.effect_id, i.message
FROM json_to_recordset(%(alerts)s::json) AS i (alert_id uuid, job_id uuid, effect_id uuid, cause text, message text, tenant text)
CROSS JOIN LATERAL (
    (SELECT i.tenant WHERE i.tenant IS NOT NULL)
    UNION ALL
    (SELECT tenant FROM deedbox.job WHERE job_id = i.job_id LIMIT 1)
    UNION ALL
    (SELECT tenant FROM deedbox.effect WHERE effect_id = i.effect_id LIMIT 1)
    LIMIT 1
) AS t
ON CONFLICT DO NOTHING

-- name: open_once
-- Open an alert about a job unless one with the same cause and the same words is open in its tenant.
INSERT INTO deedbox.alert (alert_id, tenant, cause, job_id, effect_id, message)
SELECT %(alert_id)s, j.tenant, %(cause)s, j.job_id, %(effect_id)s, %(message)s
FROM deedbox.job j
WHERE j.job_id = %(job_id)s AND NOT EXISTS (
    SELECT FROM deedbox.alert a
    WHERE a.tenant = j.tenant AND a.cause = %(cause)s AND a.message = %(message)s AND a.closed_at IS NULL
)
ON CONFLICT DO NOTHING

-- name: living
-- How many people of a tenant have a role of an audience and one that may decide, and are not disabled.
SELECT count(*) FROM deedbox.principal p
WHERE p.tenant = %(tenant)s AND p.kind = 'person' AND p.disabled_at IS NULL
    AND EXISTS (SELECT FROM deedbox."grant" g WHERE g.principal_id = p.principal_id AND g.role = ANY (%(audience)s::text[]))
    AND EXISTS (SELECT FROM deedbox."grant" g WHERE g.principal_id = p.principal_id AND g.role = ANY (%(deciding)s::text[]))

-- name: retried_before
-- Whether an earlier attempt of this round was tried again for the same class of failure.
SELECT EXISTS (
    SELECT FROM deedbox.attempt
    WHERE job_id = %(job_id)s AND round = %(round)s AND class = %(class)s AND move = 'back_off'
)

-- name: listed
-- Alerts of a tenant, the newest first, below a key: open ones, closed ones, or all.
SELECT a.alert_id, a.cause, a.message, a.job_id, a.effect_id, a.owner, a.opened_at,
       extract(epoch FROM deedbox.clock() - a.opened_at)::float8, a.told, a.closed_at, p.name, a.closed_reason
FROM deedbox.alert a LEFT JOIN deedbox.principal p ON p.principal_id = a.closed_by
WHERE a.tenant = %(tenant)s AND (%(open)s::boolean IS NULL OR (a.closed_at IS NULL) = %(open)s)
    AND (%(alert_id)s::uuid IS NULL OR a.alert_id = %(alert_id)s)
    AND (%(before)s::uuid IS NULL OR a.alert_id < %(before)s)
ORDER BY a.alert_id DESC LIMIT %(limit)s

-- name: close
-- Close an open alert of a tenant. No row: there is none, or it is closed.
UPDATE deedbox.alert SET closed_at = deedbox.clock(), closed_by = %(closed_by)s, closed_reason = %(reason)s, notify_at = NULL
WHERE alert_id = %(alert_id)s AND tenant = %(tenant)s AND closed_at IS NULL
RETURNING cause, job_id, effect_id

-- name: open_causes
-- How many alerts are open, by cause, over all tenants.
SELECT cause, count(*) FROM deedbox.alert WHERE closed_at IS NULL GROUP BY cause

-- name: unknown_long
-- Tell people again of effects that have been unknown for longer than a bound, once in each period, in order behind the one given
-- and bounded; with how many wait behind each where their target goes in order. Returns them.
WITH old AS (
    SELECT effect_id FROM deedbox.effect
    WHERE state IN ({{effect.confirm}}) AND alarm_at <= deedbox.clock() - make_interval(secs => %(after_s)s)
    ORDER BY alarm_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), moved AS (
    UPDATE deedbox.effect e SET alarm_at = deedbox.clock() + make_interval(secs => %(again_s)s - %(after_s)s)
    FROM old WHERE e.effect_id = old.effect_id
    RETURNING e.effect_id, e.job_id, e.tenant, e.connector, e.target, e.slot, e.order_key, e.updated_at
), told AS (
    INSERT INTO deedbox.alert (alert_id, tenant, cause, job_id, effect_id, message)
    SELECT gen_random_uuid(), m.tenant, 'effect_unknown_long', m.job_id, m.effect_id,
           'Nobody knows for ' || CASE WHEN m.updated_at > deedbox.clock() - interval '2 hours'
               THEN greatest(1, floor(extract(epoch FROM deedbox.clock() - m.updated_at) / 60)) || ' min'
               ELSE floor(extract(epoch FROM deedbox.clock() - m.updated_at) / 3600) || ' h' END
           || ' whether ' || m.slot || ' was accepted by ' || m.connector || ':' || m.target
           || CASE WHEN behind.many > 0 THEN '; ' || behind.many || ' wait behind it' ELSE '' END || '.'
    FROM moved m
    CROSS JOIN LATERAL (
        SELECT count(*) AS many FROM (
            SELECT FROM deedbox.effect x
            WHERE (x.tenant, x.connector, x.target, x.order_key) = (m.tenant, m.connector, m.target, m.order_key)
                AND x.effect_id > m.effect_id AND CASE WHEN x.state IN ({{effect.late_receipt}}) THEN true END
                AND EXISTS (SELECT FROM deedbox.target t WHERE (t.tenant, t.connector) = (x.tenant, x.connector)
                                AND t.target IN (x.target, '*') AND t.order_by IS NOT NULL)
            LIMIT 10000
        ) AS few
    ) AS behind
    ON CONFLICT DO NOTHING
)
SELECT effect_id FROM moved
