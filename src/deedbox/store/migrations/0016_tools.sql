-- What tools called without a key of the caller's are held together by, and how many calls a job has made.
-- Locks: none on what there is; two tables are new.

-- Which key a call had lately: equal calls of one caller within a window, or within one parent job, are one. A call is known by the
-- hash of who called, or within which job, and of its canonical arguments; `call_id` is the one that took the key.
CREATE TABLE deedbox.tool_key (
    tenant text NOT NULL,
    action text NOT NULL,
    call_sha256 bytea NOT NULL CHECK (octet_length(call_sha256) = 32),
    key text NOT NULL CHECK (key ~ '\S' AND length(key) <= 255),
    until timestamptz NOT NULL,
    call_id uuid NOT NULL,
    PRIMARY KEY (tenant, action, call_sha256)
);
CREATE INDEX tool_key_until ON deedbox.tool_key (until);
-- An erasure finds them by the key of the job that it erases.
CREATE INDEX tool_key_key ON deedbox.tool_key USING hash (key);

-- How many calls of tools a job has made, over all of its attempts and rounds.
CREATE TABLE deedbox.tool_budget (
    parent_job_id uuid PRIMARY KEY,
    calls integer NOT NULL CHECK (calls >= 0),
    last_at timestamptz NOT NULL
);
CREATE INDEX tool_budget_last ON deedbox.tool_budget (last_at);
