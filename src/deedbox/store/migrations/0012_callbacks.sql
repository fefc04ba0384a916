-- Callbacks: which events of which jobs are still to be told, and receivers that want to hear no more. Locks: ACCESS EXCLUSIVE on
-- target for the moment of adding columns without a default. Nothing is rewritten.

-- A row for each job that somebody is to be told about and that has not ended, or whose end has not been put on the outbox. Events of
-- one job are numbered without a gap and committed in that order, so a number is a safe mark: nothing below it comes later.
CREATE TABLE deedbox.callback (
    job_id uuid PRIMARY KEY,
    tenant text NOT NULL,
    action text NOT NULL,
    target text NOT NULL CHECK (target ~ '\S'),
    told_seq bigint NOT NULL DEFAULT 0 CHECK (told_seq >= 0)
) WITH (fillfactor = 70);

-- A receiver that answered 410, or a target that a person took out: nothing more is leased for it (`paused`), and this is why.
ALTER TABLE deedbox.target ADD COLUMN disabled_at timestamptz, ADD COLUMN disabled_reason text;
