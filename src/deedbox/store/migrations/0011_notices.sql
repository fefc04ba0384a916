-- Notices: what we say of our own accord. Locks: ACCESS EXCLUSIVE on principal, approval and alert for the moment of adding
-- columns with constant defaults (the database's time is read once), and SHARE on them while their small indexes are built;
-- SHARE ROW EXCLUSIVE on effect for the moment of making a trigger. Nothing is rewritten.

-- Why an effect of kind notice is there. A notice is the history of no job: its effect's job_id is the effect's own id, under which
-- its receipts lie too, and what it is about stands here (ADR 17). `once` is the name under which it is said only once.
CREATE TABLE deedbox.notice (
    effect_id uuid PRIMARY KEY,
    template text NOT NULL CHECK (template ~ '\S'),
    once text UNIQUE CHECK (length(once) <= 300),
    job_id uuid,
    approval_id uuid,
    alert_id uuid,
    principal_id uuid,
    made_at timestamptz NOT NULL DEFAULT deedbox.clock()
);
CREATE INDEX notice_job ON deedbox.notice (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX notice_approval ON deedbox.notice (approval_id) WHERE approval_id IS NOT NULL;
CREATE INDEX notice_alert ON deedbox.notice (alert_id) WHERE alert_id IS NOT NULL;

-- A notice is authorised by the built-in verdict and by nothing else, and an act never by that one.
CREATE FUNCTION deedbox.guard_notice() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.kind = 'notice') IS DISTINCT FROM EXISTS (
        SELECT FROM deedbox.verdict v WHERE v.verdict_id = NEW.verdict_id AND v.rule = 'system.notice'
    ) THEN
        RAISE EXCEPTION 'unauthorised effect: the verdict system.notice is for notices, and they have no other'
            USING ERRCODE = 'DB002';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER effect_guard_notice BEFORE INSERT ON deedbox.effect FOR EACH ROW
    WHEN (NEW.kind = 'notice' OR NEW.verdict_id IS NOT NULL) EXECUTE FUNCTION deedbox.guard_notice();

-- Where a person is written to.
ALTER TABLE deedbox.principal ADD COLUMN email text,
    ADD CONSTRAINT principal_email_check CHECK (email IS NULL OR (kind = 'person' AND length(email) <= 254)) NOT VALID;

-- When people are to be told next about an approval that is pending, NULL once nothing more is to be said; and the further role
-- that was asked when nobody had decided.
ALTER TABLE deedbox.approval ADD COLUMN notify_at timestamptz DEFAULT deedbox.clock(), ADD COLUMN escalated_to text;
CREATE INDEX approval_notify ON deedbox.approval (notify_at) WHERE state = 'pending' AND notify_at IS NOT NULL;
CREATE INDEX approval_escalate ON deedbox.approval (action, requested_at) WHERE state = 'pending' AND escalated_to IS NULL;

-- What has been said about an approval: the request, each reminder, the escalation. The key is what makes each happen once.
CREATE TABLE deedbox.approval_stage (
    approval_id uuid NOT NULL REFERENCES deedbox.approval ON DELETE CASCADE,
    stage text NOT NULL CHECK (stage ~ '\S'),
    at timestamptz NOT NULL DEFAULT deedbox.clock(),
    PRIMARY KEY (approval_id, stage)
);

-- How often an alert was told, when the next time is, and why a person closed it.
ALTER TABLE deedbox.alert ADD COLUMN notify_at timestamptz DEFAULT deedbox.clock(),
    ADD COLUMN told smallint NOT NULL DEFAULT 0,
    ADD COLUMN closed_reason text;
CREATE INDEX alert_notify ON deedbox.alert (notify_at) WHERE closed_at IS NULL AND notify_at IS NOT NULL;
CREATE INDEX alert_effect ON deedbox.alert (effect_id, cause) WHERE effect_id IS NOT NULL;
