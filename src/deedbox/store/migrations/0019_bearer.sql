-- Which token last said which groups a person is in, so that an older one gives nothing back (ADR 24). Locks: ACCESS EXCLUSIVE on
-- identity for the moment of adding a column; nothing is rewritten.

ALTER TABLE deedbox.identity ADD COLUMN roles_at timestamptz;
