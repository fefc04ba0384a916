-- name: look
-- What a round of the notifier would find, in one statement that finds nothing cheaply: approvals of which people are to be told,
-- approvals that go to a further role, and alerts that are to be told.
SELECT %(mail)s AND EXISTS (
           SELECT FROM deedbox.approval WHERE state IN ({{approval.approve}}) AND notify_at <= deedbox.clock()
       ),
       EXISTS (
           SELECT FROM json_to_recordset(%(escalations)s::json) AS e (action text, role text, after_s float8)
           CROSS JOIN LATERAL (
               SELECT FROM deedbox.approval a
               WHERE a.action = e.action AND a.requested_at <= deedbox.clock() - make_interval(secs => e.after_s)
                   AND a.state IN ({{approval.approve}}) AND a.escalated_to IS NULL
               LIMIT 1
           ) AS found
       ),
       %(alerts)s AND EXISTS (SELECT FROM deedbox.alert WHERE closed_at IS NULL AND notify_at <= deedbox.clock())

-- name: wake_unasked
-- Let people be told of approvals that are pending and of which nothing has been said, however old they are.
UPDATE deedbox.approval a SET notify_at = deedbox.clock()
WHERE state IN ({{approval.approve}}) AND notify_at IS NULL
    AND NOT EXISTS (SELECT FROM deedbox.approval_stage s WHERE s.approval_id = a.approval_id)

-- name: due_approvals
-- Lock approvals of which people are to be told now, those that waited longest first, passing by what somebody holds: a decision
-- in progress, or another notifier. Ages are by the database's clock.
SELECT a.approval_id, a.job_id, a.tenant, a.action, a.purpose, a.audience, a.quorum, a.expires_at, a.escalated_to,
       extract(epoch FROM deedbox.clock() - a.requested_at)::float8, extract(epoch FROM a.expires_at - a.requested_at)::float8,
       (SELECT coalesce(array_agg(stage), '{}') FROM deedbox.approval_stage s WHERE s.approval_id = a.approval_id),
       j.subject, p.name
FROM deedbox.approval a
LEFT JOIN LATERAL (SELECT subject FROM deedbox.job WHERE job_id = a.job_id LIMIT 1) AS j ON true
LEFT JOIN deedbox.principal p ON p.principal_id = j.subject
WHERE a.state IN ({{approval.approve}}) AND a.notify_at <= deedbox.clock() AND a.expires_at > deedbox.clock()
ORDER BY a.notify_at LIMIT %(limit)s
FOR UPDATE OF a SKIP LOCKED

-- name: audience
-- The living people of these approvals' audiences who have a mail address, each with all of its roles, but for whoever asked,
-- for those who have voted, and for those who look away just now.
SELECT a.approval_id, p.principal_id, p.name, p.email, g.roles
FROM deedbox.approval a
JOIN deedbox.principal p ON p.tenant = a.tenant AND p.kind = 'person' AND p.disabled_at IS NULL AND p.email IS NOT NULL
CROSS JOIN LATERAL (SELECT array_agg(role ORDER BY role) AS roles FROM deedbox."grant" WHERE principal_id = p.principal_id) AS g
WHERE a.approval_id = ANY (%(approvals)s) AND g.roles && a.audience
    AND NOT EXISTS (SELECT FROM deedbox.job j WHERE j.job_id = a.job_id AND j.subject = p.principal_id)
    AND NOT EXISTS (SELECT FROM deedbox.vote v WHERE v.approval_id = a.approval_id AND v.principal_id = p.principal_id)
    AND NOT EXISTS (SELECT FROM deedbox.approval_snooze z WHERE z.approval_id = a.approval_id AND z.principal_id = p.principal_id
                        AND z.until > deedbox.clock())
ORDER BY a.approval_id, p.name

-- name: mark_stages
-- Keep what has been said of an approval. No row comes back for what had been said already.
INSERT INTO deedbox.approval_stage (approval_id, stage) SELECT %(approval_id)s, unnest(%(stages)s::text[])
ON CONFLICT DO NOTHING RETURNING stage

-- name: notify_next
-- When people are to be told next, counted from the request; never again where it is null.
UPDATE deedbox.approval SET notify_at = requested_at + make_interval(secs => %(next_s)s::float8)
WHERE approval_id = %(approval_id)s

-- name: escalate
-- Let a further role decide what nobody has decided in time, once, and have it told; what somebody holds is passed by.
WITH late AS MATERIALIZED (
    SELECT a.approval_id, e.role
    FROM json_to_recordset(%(escalations)s::json) AS e (action text, role text, after_s float8)
    JOIN deedbox.approval a ON a.action = e.action
    WHERE a.requested_at <= deedbox.clock() - make_interval(secs => e.after_s) AND a.state IN ({{approval.approve}})
        AND a.escalated_to IS NULL AND a.expires_at > deedbox.clock()
    ORDER BY a.requested_at LIMIT %(limit)s
    FOR UPDATE OF a SKIP LOCKED
)
UPDATE deedbox.approval a
SET escalated_to = l.role, notify_at = deedbox.clock(),
    audience = CASE WHEN l.role = ANY (a.audience) THEN a.audience ELSE a.audience || l.role END
FROM late l WHERE a.approval_id = l.approval_id
RETURNING a.approval_id, a.job_id, a.tenant, a.escalated_to

-- name: due_alerts
-- Lock open alerts that are to be told now and have somebody to be told to, the oldest first, passing by what somebody holds.
SELECT alert_id, tenant, cause, job_id, effect_id, message, opened_at, extract(epoch FROM deedbox.clock() - opened_at)::float8, told
FROM deedbox.alert
WHERE closed_at IS NULL AND notify_at <= deedbox.clock() AND (%(causes)s::text[] IS NULL OR cause = ANY (%(causes)s))
ORDER BY notify_at LIMIT %(limit)s
FOR UPDATE SKIP LOCKED

-- name: alert_told
-- Keep whose an alert is, that it was told, and when the next time is; never again where it is null.
UPDATE deedbox.alert SET owner = %(owner)s, told = told + 1, notify_at = deedbox.clock() + make_interval(secs => %(next_s)s::float8)
WHERE alert_id = %(alert_id)s

-- name: long_queued
-- Tenants with a lane that goes on and whose first jobs have been due for so many seconds, with that lane; but for those of whom
-- an alert is open, or was closed no longer ago.
SELECT DISTINCT ON (l.tenant) l.tenant, l.action, extract(epoch FROM deedbox.clock() - q.since)::float8
FROM deedbox.lane l
CROSS JOIN LATERAL (
    SELECT min(run_at) AS since FROM (
        SELECT run_at FROM deedbox.queue
        WHERE lane_id = l.lane_id AND state = 'queued' AND due ORDER BY priority, job_id LIMIT 100
    ) AS first
) AS q
WHERE NOT l.paused AND q.since <= deedbox.clock() - make_interval(secs => %(older_s)s)
    AND NOT EXISTS (
        SELECT FROM deedbox.alert a WHERE a.tenant = l.tenant AND a.cause = 'jobs_queued_long'
            AND (a.closed_at IS NULL OR a.closed_at > deedbox.clock() - make_interval(secs => %(older_s)s))
    )
ORDER BY l.tenant, q.since
