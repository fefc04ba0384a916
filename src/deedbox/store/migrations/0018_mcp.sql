-- What the MCP face needs: a secret that all processes share, so that any of them reads what another one sealed, and what a
-- caller's client made of being asked to open an approval's page.
-- Locks: ACCESS EXCLUSIVE on approval for the moment of adding a column; nothing is rewritten; a table is new.

CREATE TABLE deedbox.shared_secret (
    name text PRIMARY KEY CHECK (name ~ '^[a-z][a-z_]{0,62}$'),
    secret bytea NOT NULL CHECK (octet_length(secret) >= 32),
    made_at timestamptz NOT NULL DEFAULT deedbox.clock()
);
-- Four random ids are 488 random bits.
INSERT INTO deedbox.shared_secret (name, secret) VALUES ('mcp', uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())
    || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));

-- That somebody's client said it showed the page, or did not, decides nothing; it is asked once.
ALTER TABLE deedbox.approval ADD COLUMN shown text CHECK (shown IN ('accept', 'decline', 'cancel'));
