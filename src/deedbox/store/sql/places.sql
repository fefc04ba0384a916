-- name: roles
-- The role under which each of these jobs was asked for.
SELECT job_id, role FROM deedbox.job WHERE job_id = ANY (%(jobs)s::uuid[])

-- name: open_days
-- Make sure that each rule has a row for today, in the order of the keys, and say which day it is (UTC). What is older than two
-- months tells nothing any more.
WITH today AS (
    SELECT (deedbox.clock() AT TIME ZONE 'UTC')::date AS day
), input AS (
    SELECT DISTINCT tenant, action, rule FROM json_to_recordset(%(wanted)s::json) AS i (tenant text, action text, rule text)
), old AS (
    DELETE FROM deedbox.rule_day WHERE ctid = ANY (ARRAY (
        SELECT d.ctid FROM deedbox.rule_day d JOIN input i USING (tenant, action, rule), today
        WHERE d.day < today.day - 60 FOR UPDATE OF d SKIP LOCKED
    ))
), made AS (
    INSERT INTO deedbox.rule_day (tenant, action, rule, day, used)
    SELECT tenant, action, rule, today.day, 0 FROM input, today ORDER BY tenant, action, rule
    ON CONFLICT DO NOTHING
)
SELECT day FROM today

-- name: lock_days
-- Lock the rules' rows of a day in the order of the keys, and read what bounds each: the places used, whether it is valid still,
-- and what persons said of the latest of its sample. An edit is no agreement.
SELECT d.tenant, d.action, d.rule, d.used, i.valid_until > deedbox.clock(), t.asked::integer, t.agreed::integer, i.identity
FROM deedbox.rule_day d
JOIN json_to_recordset(%(wanted)s::json) AS i (tenant text, action text, rule text, identity text, valid_until timestamptz)
    USING (tenant, action, rule)
CROSS JOIN LATERAL (
    SELECT count(*) AS asked, count(*) FILTER (WHERE state = 'approved') AS agreed
    FROM (
        SELECT state FROM deedbox.approval a
        WHERE a.tenant = i.tenant AND a.action = i.action AND a.sampled_by = i.identity
            AND a.state IN ('approved', 'rejected', 'superseded')
        ORDER BY a.decided_at DESC LIMIT %(counted)s
    ) AS latest
) AS t
WHERE d.day = %(day)s
ORDER BY d.tenant, d.action, d.rule
FOR UPDATE OF d

-- name: take
-- Take places of days that this transaction has locked.
UPDATE deedbox.rule_day d SET used = d.used + i.count
FROM json_to_recordset(%(taken)s::json) AS i (tenant text, action text, rule text, day date, count integer)
WHERE (d.tenant, d.action, d.rule, d.day) = (i.tenant, i.action, i.rule, i.day)

-- name: draws
-- The secret, and the version of the policy that each job is drawn with: that of its first draw, where there was one.
SELECT i.job_id, s.salt, coalesce((
    SELECT v.policy_version FROM deedbox.verdict v
    WHERE v.job_id = i.job_id AND v.drawn IS NOT NULL ORDER BY v.decided_at, v.verdict_id LIMIT 1
), i.version)
FROM json_to_recordset(%(jobs)s::json) AS i (job_id uuid, version text)
CROSS JOIN deedbox.draw_salt s
