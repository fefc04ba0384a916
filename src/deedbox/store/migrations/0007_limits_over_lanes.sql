-- How many jobs of an action may run at once over all its lanes, and lanes without the two columns that nothing ever read (ADR 10).
-- Locks: ACCESS EXCLUSIVE on lane for the moment it takes to change the catalogue and to index its rows, of which there is one
-- for each queue, action and tenant; nothing is rewritten.

-- Whoever claims from lanes of such an action locks its row while the leases of all of them are counted.
CREATE TABLE deedbox.action_limit (
    action text PRIMARY KEY CHECK (action ~ '\S'),
    max_running integer NOT NULL CHECK (max_running >= 0)
);

ALTER TABLE deedbox.lane DROP COLUMN watermark_priority, DROP COLUMN watermark_job_id;

-- From an action to its lanes.
CREATE INDEX lane_action ON deedbox.lane (action);
