-- Who decides: what an approval's effects can lead to, which role its domain names, who edited it, and says that were handed on.
-- Locks: ACCESS EXCLUSIVE on approval and on vote for the moment of adding columns that are empty or have a constant default
-- (nothing is rewritten; the checks are NOT VALID, for every row there is meets them by its default); SHARE on vote while its new
-- index is built (votes wait for it; there is one row for each decision that was made); SHARE ROW EXCLUSIVE on tenant, principal and
-- approval for the moment in which the new table's references to them are made (it is empty, so nothing is scanned).

ALTER TABLE deedbox.approval
    ADD COLUMN consequence text NOT NULL DEFAULT 'consequential',
    ADD COLUMN required_role text,
    ADD COLUMN supersedes uuid,
    ADD COLUMN editors uuid[] NOT NULL DEFAULT '{}',
    ADD CONSTRAINT approval_consequence CHECK (consequence IN ('read', 'reversible', 'consequential', 'grave')) NOT VALID,
    ADD CONSTRAINT approval_edited CHECK ((supersedes IS NULL) = (cardinality(editors) = 0)) NOT VALID;

-- Whose say a vote was, where that was not the voter's own: one say counts once, whoever speaks it.
ALTER TABLE deedbox.vote ADD COLUMN for_principal uuid;
CREATE UNIQUE INDEX vote_say ON deedbox.vote (approval_id, coalesce(for_principal, principal_id));

-- A person's say in one approval, or in all until a moment, handed to another person of the tenant.
CREATE TABLE deedbox.delegation (
    delegation_id uuid PRIMARY KEY,
    tenant text NOT NULL REFERENCES deedbox.tenant,
    from_principal uuid NOT NULL REFERENCES deedbox.principal,
    to_principal uuid NOT NULL REFERENCES deedbox.principal,
    approval_id uuid REFERENCES deedbox.approval,
    reason text,
    made_at timestamptz NOT NULL,
    made_how text NOT NULL,
    until timestamptz,
    withdrawn_at timestamptz,
    CONSTRAINT delegation_other CHECK (from_principal <> to_principal),
    CONSTRAINT delegation_bounded CHECK (num_nonnulls(approval_id, until) >= 1)
);
CREATE INDEX delegation_to ON deedbox.delegation (to_principal, delegation_id);
CREATE INDEX delegation_from ON deedbox.delegation (from_principal, delegation_id);
CREATE INDEX delegation_approval ON deedbox.delegation (approval_id) WHERE approval_id IS NOT NULL;
