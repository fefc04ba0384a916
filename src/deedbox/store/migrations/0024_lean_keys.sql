-- Checks that every accept pays for (ADR 28): the server reads a check's text anew for each statement that inserts, which was a
-- quarter of a small flush. What ties columns to states stays, in as few words as it can be said; what repeated what one
-- statement of this package writes, or what its types say, goes. One table a migration, so that none waits for one while it holds
-- another.
-- Locks: ACCESS EXCLUSIVE on idempotency for the moment it takes to change the catalogue.
ALTER TABLE deedbox.idempotency
    DROP CONSTRAINT idempotency_action_check, DROP CONSTRAINT idempotency_payload_sha256_check;
