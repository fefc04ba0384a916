-- name: open_alerts
-- Open alerts about jobs, each once: while one is open the same cause adds nothing.
INSERT INTO deedbox.alert (alert_id, tenant, cause, job_id, message)
SELECT i.alert_id, j.tenant, i.cause, i.job_id, i.message
FROM json_to_recordset(%(alerts)s::json) AS i (alert_id uuid, job_id uuid, cause text, message text)
JOIN deedbox.job j USING (job_id)
ON CONFLICT DO NOTHING

-- name: retried_before
-- Whether an earlier attempt of this round was tried again for the same class of failure.
SELECT EXISTS (
    SELECT FROM deedbox.attempt
    WHERE job_id = %(job_id)s AND round = %(round)s AND class = %(class)s AND move = 'back_off'
)
