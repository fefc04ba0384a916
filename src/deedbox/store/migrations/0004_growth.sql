-- What pruning needs, and the functions that make and drop the partitions of months. Locks: ACCESS EXCLUSIVE on proposal_effect
-- for the moment it takes to change the catalogue (nothing is rewritten and nothing is scanned); SHARE on job_document while its
-- index is built (uploads wait for the build).

-- The content of an effect goes when its retention has passed; its digest, and with it what was decided, stays. A body that is
-- there still has to fit its digest, and one that is not there cannot be leased: sha256 of nothing is no digest.
-- NOT VALID spares the scan: every row that is there has a body and was never pruned.
ALTER TABLE deedbox.proposal_effect
    ALTER COLUMN body DROP NOT NULL,
    ADD COLUMN pruned_at timestamptz,
    ADD CONSTRAINT proposal_effect_pruned CHECK ((body IS NULL) = (pruned_at IS NOT NULL)) NOT VALID;

-- From a document to those who show it: one that nobody shows any more is removed.
CREATE INDEX job_document_content ON deedbox.job_document (tenant, sha256);

-- The least UUIDv7 of a moment: where the ids of that moment begin.
CREATE FUNCTION deedbox.first_id(at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid $$;

-- Make one month's partition of one table; false where it is there. The table is made apart and then attached, which takes SHARE
-- UPDATE EXCLUSIVE on the parent, so that nobody who reads or writes waits. Runs as the owner, for the application may not.
CREATE FUNCTION deedbox.add_partition(parent text, month date) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    child text := parent || to_char(month, '_YYYY_MM');
BEGIN
    IF parent NOT IN ('job', 'attempt', 'event', 'result', 'proposal', 'receipt') OR month <> date_trunc('month', month)::date THEN
        RAISE EXCEPTION 'no table of months, or no first day of one: %, %', parent, month USING ERRCODE = 'DB004';
    END IF;
    IF to_regclass(format('deedbox.%I', child)) IS NOT NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE deedbox.%I (LIKE deedbox.%I INCLUDING ALL)', child, parent);
    EXECUTE format('ALTER TABLE deedbox.%I ATTACH PARTITION deedbox.%I FOR VALUES FROM (%L) TO (%L)', parent, child,
                   deedbox.first_id(month::timestamp AT TIME ZONE 'UTC'),
                   deedbox.first_id((month + interval '1 month') AT TIME ZONE 'UTC'));
    RETURN true;
END $$;

-- Drop one month's partition of one table. Says why not, in a sentence, while anything in its range is still open; nothing once it
-- is gone. Takes ACCESS EXCLUSIVE on the parent: the caller sets a short lock_timeout and tries again later. Runs as the owner.
CREATE FUNCTION deedbox.drop_partition(parent text, month date, keep interval) RETURNS text LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    child text := parent || to_char(month, '_YYYY_MM');
    start timestamptz := month::timestamp AT TIME ZONE 'UTC';
    stop timestamptz := (month + interval '1 month') AT TIME ZONE 'UTC';
    first uuid := deedbox.first_id(start);
    past uuid := deedbox.first_id(stop);
BEGIN
    IF parent NOT IN ('job', 'attempt', 'event', 'result', 'proposal', 'receipt') OR month <> date_trunc('month', month)::date THEN
        RAISE EXCEPTION 'no table of months, or no first day of one: %, %', parent, month USING ERRCODE = 'DB004';
    END IF;
    IF keep < interval '0' OR stop + keep > deedbox.clock() THEN
        RETURN 'its retention has not passed';
    END IF;
    IF EXISTS (SELECT FROM deedbox.queue q WHERE q.job_id >= first AND q.job_id < past) THEN
        RETURN 'a job has not ended';
    END IF;
    IF EXISTS (SELECT FROM deedbox.effect e WHERE e.job_id >= first AND e.job_id < past
               AND e.state NOT IN ('completed', 'failed', 'canceled', 'unknown_closed')) THEN
        RETURN 'an effect has not ended';
    END IF;
    IF EXISTS (SELECT FROM deedbox.approval a WHERE a.job_id >= first AND a.job_id < past AND a.state = 'pending') THEN
        RETURN 'an approval is open';
    END IF;
    EXECUTE format('DROP TABLE IF EXISTS deedbox.%I', child);
    RETURN NULL;
END $$;

REVOKE ALL ON FUNCTION deedbox.add_partition(text, date), deedbox.drop_partition(text, date, interval) FROM PUBLIC;
