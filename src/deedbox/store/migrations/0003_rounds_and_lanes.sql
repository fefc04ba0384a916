-- What rounds, lanes and growth need. Locks: ACCESS EXCLUSIVE on queue for the moment of adding a column with a constant default;
-- SHARE on queue and job while their indexes are built (queue is small; on a large job table writers wait for the build).

-- How often a repeated delivery, not an operator, has taken the job up.
ALTER TABLE deedbox.queue ADD COLUMN redeliveries smallint NOT NULL DEFAULT 0;

-- Leases are looked for among a million waiting rows: rescue and the limits of lanes read this one. A renewal changes neither
-- column, so a heartbeat stays a HOT update.
CREATE INDEX queue_running ON deedbox.queue (lane_id) WHERE state = 'running';

-- What waits for a person, for effects or for an operator; jobs that just run never enter it.
CREATE INDEX queue_parked ON deedbox.queue (state, job_id) WHERE state IN ('awaiting_human', 'dispatching', 'failed_retryable');

-- From a job to those that replace it, and to those it submitted.
CREATE INDEX job_replaces ON deedbox.job (replaces) WHERE replaces IS NOT NULL;
CREATE INDEX job_parent ON deedbox.job (parent_job_id) WHERE parent_job_id IS NOT NULL;
