-- What accepting a job does not need. Locks: ACCESS EXCLUSIVE on queue, lane and idempotency for the moment it takes to change
-- the catalogue; nothing is rewritten and nothing is scanned.

-- Lanes are made and never removed; the check cost each accepted job a look-up and a share lock on its lane's row.
ALTER TABLE deedbox.queue DROP CONSTRAINT queue_lane_id_fkey;

-- A key is found from its job by (tenant, action, key_sha256), which the job's row holds.
DROP INDEX deedbox.idempotency_job;

-- The call that made a job is journalled in the job's own row, which holds all of it; its id is the job's.
CREATE VIEW deedbox.every_call AS
    SELECT call_id, called_at, tenant, subject, role, claimed_role, source, action, job_id, parent_job_id, attempt_id, approval_id,
           key_sha256, input_sha256, trace, caller_run, status, error_code, duration_ms, detail
    FROM deedbox.call
    UNION ALL
    SELECT j.job_id, j.created_at, j.tenant, j.subject, j.role, NULL, j.source, j.action, j.job_id, j.parent_job_id, NULL, NULL,
           j.key_sha256, i.payload_sha256, j.trace, j.caller_run, 'accepted', NULL, NULL, NULL
    FROM deedbox.job j
    LEFT JOIN deedbox.idempotency i ON i.tenant = j.tenant AND i.action = j.action AND i.key_sha256 = j.key_sha256;
