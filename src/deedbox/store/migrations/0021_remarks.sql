-- What people say of an approval before it is decided, and until when one of them looks away; what a person has decided, found by
-- the person; closed alerts, found by when they were closed; and arguments that wait for a yes, counted by action. Locks: SHARE ROW EXCLUSIVE on approval and principal for the moment
-- in which the new tables' references to them are made (they are empty, so nothing is scanned); SHARE on vote, alert and approval while their
-- new indexes are built (votes, alerts and holds wait for it; there is one row for each decision, alert and approval).

CREATE TABLE deedbox.approval_comment (
    comment_id uuid PRIMARY KEY,
    approval_id uuid NOT NULL REFERENCES deedbox.approval ON DELETE CASCADE,
    principal_id uuid NOT NULL REFERENCES deedbox.principal,
    text text NOT NULL CHECK (text ~ '\S' AND length(text) <= 2000),
    how text NOT NULL,
    at timestamptz NOT NULL DEFAULT deedbox.clock()
);
CREATE INDEX approval_comment_of ON deedbox.approval_comment (approval_id, comment_id);

CREATE TABLE deedbox.approval_snooze (
    approval_id uuid NOT NULL REFERENCES deedbox.approval ON DELETE CASCADE,
    principal_id uuid NOT NULL REFERENCES deedbox.principal,
    until timestamptz NOT NULL,
    PRIMARY KEY (approval_id, principal_id)
);

CREATE INDEX vote_person ON deedbox.vote (principal_id, voted_at DESC);
CREATE INDEX alert_closed ON deedbox.alert (closed_at) WHERE closed_at IS NOT NULL;
CREATE INDEX approval_held_input ON deedbox.approval (tenant, action) WHERE state = 'pending' AND purpose = 'input';
