-- The audit's end cannot be set back, and what asks for a person's data, a provider's id or a caller's run finds it by an index.
-- Locks: SHARE ROW EXCLUSIVE on audit, audit_detail and audit_head while the triggers are made; SHARE on audit, job and receipt
-- while their indexes are built (writers wait for the build; on large tables of jobs and receipts that is minutes).

-- The head moves on by exactly one entry, which continues the chain; an entry is there only with the head on it. Both are looked at
-- when the statement has ended, because the entry and the move of the head are one statement.
CREATE FUNCTION deedbox.audit_chain() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_TABLE_NAME = 'audit_head' THEN
        IF NEW.seq <> OLD.seq + 1 OR NOT EXISTS (
            SELECT FROM deedbox.audit a WHERE a.seq = NEW.seq AND a.prev_sha256 = OLD.entry_sha256
                AND a.entry_sha256 = NEW.entry_sha256
        ) THEN
            RAISE EXCEPTION 'audit_head moves on by one entry of the chain' USING ERRCODE = 'DB003';
        END IF;
    ELSIF NOT EXISTS (SELECT FROM deedbox.audit_head h WHERE h.seq = NEW.seq AND h.entry_sha256 = NEW.entry_sha256) THEN
        RAISE EXCEPTION 'an entry of the audit is appended with its head' USING ERRCODE = 'DB003';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER audit_chained AFTER INSERT ON deedbox.audit FOR EACH ROW EXECUTE FUNCTION deedbox.audit_chain();
CREATE TRIGGER audit_head_chained AFTER UPDATE ON deedbox.audit_head FOR EACH ROW EXECUTE FUNCTION deedbox.audit_chain();
CREATE TRIGGER audit_head_guard BEFORE INSERT OR DELETE ON deedbox.audit_head
    FOR EACH ROW EXECUTE FUNCTION deedbox.guard();
CREATE TRIGGER audit_head_guard_truncate BEFORE TRUNCATE ON deedbox.audit_head
    FOR EACH STATEMENT EXECUTE FUNCTION deedbox.guard();
-- A detail can be erased, one by one and seen by the check; it is never another.
CREATE TRIGGER audit_detail_guard BEFORE UPDATE ON deedbox.audit_detail FOR EACH ROW EXECUTE FUNCTION deedbox.guard();
CREATE TRIGGER audit_detail_guard_truncate BEFORE TRUNCATE ON deedbox.audit_detail
    FOR EACH STATEMENT EXECUTE FUNCTION deedbox.guard();

CREATE INDEX audit_at ON deedbox.audit (at);
CREATE INDEX audit_subject ON deedbox.audit (subject_id, seq);

-- Which fields an action or a connector has ever called sensitive, as paths of names (`*` is every item, `**` any depth). Kept here,
-- so that a door masks them which has not loaded the code that marked them; never taken back, because old contents stay.
CREATE TABLE deedbox.sensitive (
    kind text NOT NULL CHECK (kind IN ('input', 'output', 'payload')),
    name text NOT NULL CHECK (name ~ '\S'),
    path text[] NOT NULL CHECK (cardinality(path) > 0),
    PRIMARY KEY (kind, name, path)
);

-- From a person to the jobs about them, from the caller's own run to its jobs, and from the provider's id to ours. The id of a
-- provider may be of any length, which an index by hash takes.
CREATE INDEX job_data_subject ON deedbox.job (tenant, data_subject) WHERE data_subject IS NOT NULL;
CREATE INDEX job_caller_run ON deedbox.job (tenant, caller_run) WHERE caller_run IS NOT NULL;
CREATE INDEX receipt_provider ON deedbox.receipt USING hash (provider_id);
