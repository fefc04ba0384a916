-- As the one before (ADR 28): the history.
-- Locks: ACCESS EXCLUSIVE on event for the moment it takes to change the catalogue.
ALTER TABLE deedbox.event DROP CONSTRAINT event_seq_check;
