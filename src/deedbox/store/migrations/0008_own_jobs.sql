-- What the list of one's own jobs and the look of a sweep walk along, and when a job's contents were removed. Locks: ACCESS
-- EXCLUSIVE on result for the moment of adding a column, and on job while an index is replaced (on a large job table everybody
-- waits for the build); SHARE on effect while two indexes of what is pending are built (writers wait for it).

-- Ids are made in the order of time, so a page of a subject's jobs is a range of this index, however few they are among millions.
DROP INDEX deedbox.job_subject;
CREATE INDEX job_subject ON deedbox.job (tenant, subject, job_id);

ALTER TABLE deedbox.result ADD COLUMN pruned_at timestamptz;

-- A sweep looks once a second for effects that cannot be sent any more; it read all that were pending.
CREATE INDEX effect_not_after ON deedbox.effect (not_after) WHERE state = 'pending';
CREATE INDEX effect_hindered ON deedbox.effect (effect_id) WHERE state = 'pending' AND (after_slot IS NOT NULL OR doubtful);
