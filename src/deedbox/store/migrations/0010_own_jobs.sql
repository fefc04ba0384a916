-- What the list of one's own jobs walks along, and when a job's contents were removed. Locks: ACCESS EXCLUSIVE on result for the
-- moment of adding a column, and on job while an index is replaced (on a large job table writers wait for the build).

-- Ids are made in the order of time, so a page of a subject's jobs is a range of this index, however few they are among millions.
DROP INDEX deedbox.job_subject;
CREATE INDEX job_subject ON deedbox.job (tenant, subject, job_id);

ALTER TABLE deedbox.result ADD COLUMN pruned_at timestamptz;
