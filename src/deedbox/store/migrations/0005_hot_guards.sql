-- The guard is not called for the two moves that every job makes: a claim, and an end out of running. Both are edges of the
-- lifecycle (a test holds these conditions against it); a call of the function cost as much as the move.
-- Locks: SHARE ROW EXCLUSIVE on queue for the moment of the change.
CREATE OR REPLACE TRIGGER queue_guard BEFORE UPDATE ON deedbox.queue FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state AND NOT (OLD.state = 'queued' AND NEW.state = 'running'))
    EXECUTE FUNCTION deedbox.guard();
CREATE OR REPLACE TRIGGER queue_guard_delete BEFORE DELETE ON deedbox.queue FOR EACH ROW
    WHEN (OLD.state <> 'running') EXECUTE FUNCTION deedbox.guard();
