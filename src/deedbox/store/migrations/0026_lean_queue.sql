-- As the one before (ADR 28): the queue, whose two checks that stay are said anew in half the words.
-- Locks: ACCESS EXCLUSIVE on queue while each of its rows is read once.
ALTER TABLE deedbox.queue
    DROP CONSTRAINT queue_attempt_check, DROP CONSTRAINT queue_round_check, DROP CONSTRAINT queue_attempts_allowed_check,
    DROP CONSTRAINT queue_state, DROP CONSTRAINT queue_lease,
    ADD CONSTRAINT queue_state CHECK (state = ANY ('{queued,running,awaiting_human,dispatching,failed_retryable}'::text[])),
    -- All of a lease exactly while running.
    ADD CONSTRAINT queue_lease CHECK (
        num_nonnulls(attempt_id, fence, worker, started_at, lease_until, lease_cap) = 6 * (state = 'running')::integer
    );
