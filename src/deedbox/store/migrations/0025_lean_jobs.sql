-- As the one before (ADR 28): the requests.
-- Locks: ACCESS EXCLUSIVE on job for the moment it takes to change the catalogue.
ALTER TABLE deedbox.job
    DROP CONSTRAINT job_action_version_check, DROP CONSTRAINT job_idempotency_key_check, DROP CONSTRAINT job_key_sha256_check,
    DROP CONSTRAINT job_key_source_check, DROP CONSTRAINT job_source_check;
