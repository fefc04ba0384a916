-- What ends of attempts are sent as, for the same reason as accepted jobs (ADR 28).
-- Locks: none on what is there.
CREATE TYPE deedbox.ended_attempt AS (
    job_id uuid,
    attempt_id uuid,
    fence bigint,
    output jsonb,
    event_id uuid,
    event jsonb,
    journal jsonb
);
