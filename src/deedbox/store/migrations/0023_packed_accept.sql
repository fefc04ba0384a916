-- What a flush of accepted jobs is sent as: rows in binary form in place of JSON, which cost the server a quarter of the statement.
-- A build sends all members: one that needs others makes a type of its own, and leaves this one to the builds before it.
-- Locks: none on what is there.
CREATE TYPE deedbox.new_job AS (
    -- What jobs of one action and one caller have in common.
    tenant text,
    action text,
    version integer,
    key_source text,
    subject uuid,
    role text,
    source text,
    lane_id bigint,
    attempts integer,
    priority smallint,
    deadline_s float8,
    expires_s float8,
    through uuid,
    callback text,
    -- What each has of its own.
    job_id uuid,
    event_id uuid,
    key_sha256 bytea,
    payload_sha256 bytea,
    key text,
    input jsonb,
    -- What most have not.
    caller_run text,
    trace text,
    run_at text,
    deadline text,
    replaces uuid,
    parent_job_id uuid,
    data_subject text
);
