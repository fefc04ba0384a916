-- name: open_alerts
-- Open alerts about jobs and effects, each once: while one is open the same cause adds nothing. The tenant is the job's, or its
-- effect's where the records of the job have just gone.
INSERT INTO deedbox.alert (alert_id, tenant, cause, job_id, effect_id, message)
SELECT i.alert_id, t.tenant, i.cause, i.job_id, i.effect_id, i.message
FROM json_to_recordset(%(alerts)s::json) AS i (alert_id uuid, job_id uuid, effect_id uuid, cause text, message text)
CROSS JOIN LATERAL (
    (SELECT tenant FROM deedbox.job WHERE job_id = i.job_id LIMIT 1)
    UNION ALL
    (SELECT tenant FROM deedbox.effect WHERE effect_id = i.effect_id LIMIT 1)
    LIMIT 1
) AS t
ON CONFLICT DO NOTHING

-- name: retried_before
-- Whether an earlier attempt of this round was tried again for the same class of failure.
SELECT EXISTS (
    SELECT FROM deedbox.attempt
    WHERE job_id = %(job_id)s AND round = %(round)s AND class = %(class)s AND move = 'back_off'
)
