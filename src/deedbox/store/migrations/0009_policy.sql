-- What the gate needs to let something out by a rule: the places of a day, the secret of the draw, what a verdict was drawn from
-- and when it begins to hold, and the slot that an effect waits for.
-- Locks: ACCESS EXCLUSIVE on verdict, approval and proposal_effect for the moment of adding columns without a rewrite; SHARE ROW
-- EXCLUSIVE on effect for the moment of adding a trigger; SHARE on approval while an index of nothing is built (no row has been
-- sampled yet, but the table is read once: writers wait for it).

-- How many effects a rule has let out on a day (UTC). Whoever takes places locks the row, after queue rows and before approvals,
-- in the order of the primary key.
CREATE TABLE deedbox.rule_day (
    tenant text NOT NULL,
    action text NOT NULL,
    rule text NOT NULL,
    day date NOT NULL,
    used integer NOT NULL CHECK (used >= 0),
    PRIMARY KEY (tenant, action, rule, day)
);

-- The secret of the draw: one row, made here from the server's cryptographic random numbers, in no code and in no setting.
CREATE TABLE deedbox.draw_salt (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    salt bytea NOT NULL CHECK (octet_length(salt) = 32)
);
INSERT INTO deedbox.draw_salt (salt)
SELECT sha256(convert_to(concat(gen_random_uuid(), gen_random_uuid(), gen_random_uuid()), 'UTF8'));

-- `wanted` is what the rule alone said where something kept it from being so; `drawn` is whether a person looks at a sampled group;
-- before `opens_at` nothing that a delaying verdict authorised may begin.
ALTER TABLE deedbox.verdict
    ADD COLUMN wanted text,
    ADD COLUMN drawn boolean,
    ADD COLUMN opens_at timestamptz,
    ADD CONSTRAINT verdict_wanted CHECK (wanted IN ('allow', 'hold', 'delay', 'sample', 'deny')) NOT VALID,
    ADD CONSTRAINT verdict_drawn CHECK (decision <> 'sample' OR drawn IS FALSE) NOT VALID,
    ADD CONSTRAINT verdict_opens CHECK (decision <> 'delay' OR opens_at IS NOT NULL) NOT VALID;

-- Which rule's sample an approval belongs to: its name and a hash of it, so that a changed rule begins anew.
ALTER TABLE deedbox.approval ADD COLUMN sampled_by text;
CREATE INDEX approval_sampled ON deedbox.approval (tenant, action, sampled_by, decided_at DESC) WHERE sampled_by IS NOT NULL;

ALTER TABLE deedbox.proposal_effect ADD COLUMN after_slot text;

-- What a verdict lets out must be what it lets out: nothing of a group that a person was drawn to look at, and nothing before the
-- window of cancelling has passed.
CREATE FUNCTION deedbox.guard_verdict() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM deedbox.verdict v
        WHERE v.verdict_id = NEW.verdict_id AND (v.drawn OR v.opens_at > NEW.not_before)
    ) THEN
        RAISE EXCEPTION 'unauthorised effect: its verdict does not let it out, or not yet' USING ERRCODE = 'DB002';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER effect_verdict BEFORE INSERT ON deedbox.effect FOR EACH ROW
    WHEN (NEW.verdict_id IS NOT NULL) EXECUTE FUNCTION deedbox.guard_verdict();
