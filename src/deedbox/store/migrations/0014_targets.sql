-- What holds a target back and whoever changed it: a rate with a burst, an order, a pause, and a breaker that all dispatchers
-- share; the schedule of look-ups and alarms of effects that nobody knows about; who tested the switch (ADR 20).
-- Locks: ACCESS EXCLUSIVE on target, effect and switch for the moment it takes to change the catalogue; target, which has a row
-- for each destination, is rewritten. SHARE on effect while two indexes are built (writers wait for it), the one over what has
-- not ended and the one over what is unknown; rows of the latter are written once, so that their look-ups are scheduled.

ALTER TABLE deedbox.target
    DROP COLUMN ordered,
    ADD COLUMN burst integer CHECK (burst BETWEEN 1 AND 100000),
    -- What goes out one at a time and in the order in which it was put on the outbox: all of the target, or what has the same
    -- value at a JSON pointer of the payload. In the row of a whole connector, `target` is each of its targets for itself.
    ADD COLUMN order_by text CHECK (order_by = 'target' OR order_by ~ '^/'),
    ADD COLUMN limited_by text,
    ADD COLUMN paused_by text,
    ADD COLUMN pause_reason text,
    ADD COLUMN paused_at timestamptz,
    ADD COLUMN failing_at timestamptz,
    ADD COLUMN breaker text NOT NULL DEFAULT 'closed' CHECK (breaker IN ('closed', 'open', 'half_open')),
    ADD COLUMN breaker_at timestamptz,
    ADD COLUMN breaker_until timestamptz,
    ADD COLUMN breaker_opens integer NOT NULL DEFAULT 0,
    ADD COLUMN breaker_why text,
    ADD COLUMN probe_effect uuid,
    ADD COLUMN probe_until timestamptz,
    ADD CONSTRAINT target_breaker CHECK (
        (breaker = 'closed') = (breaker_until IS NULL) AND (breaker = 'half_open') = (num_nonnulls(probe_effect, probe_until) = 2)
    ),
    ADD CONSTRAINT target_burst CHECK (burst IS NULL OR rate_per_s IS NOT NULL),
    -- A lease takes a gated target's row for itself before it looks what may go there.
    ADD COLUMN gated boolean NOT NULL GENERATED ALWAYS AS (
        paused OR rate_per_s IS NOT NULL OR order_by IS NOT NULL OR breaker <> 'closed'
    ) STORED;
-- Few rows at any time: a lease reads all of them.
CREATE INDEX target_gate ON deedbox.target (tenant, connector, target)
    WHERE gated OR open_until IS NOT NULL OR failures > 0;

ALTER TABLE deedbox.effect
    -- Empty, or a colon and the value by which its target orders what goes there.
    ADD COLUMN order_key text NOT NULL DEFAULT '',
    ADD COLUMN look_up_at timestamptz,
    ADD COLUMN look_ups integer NOT NULL DEFAULT 0,
    ADD COLUMN alarm_at timestamptz;
-- The CASE keeps it from whoever looks for something else among what is pending: only the same CASE finds it.
CREATE INDEX effect_open ON deedbox.effect (tenant, connector, target, order_key, effect_id)
    WHERE CASE WHEN state IN ('pending', 'sending', 'unknown') THEN true END;
CREATE INDEX effect_look_up ON deedbox.effect (look_up_at) WHERE state = 'unknown' AND look_up_at IS NOT NULL;
CREATE INDEX effect_alarm ON deedbox.effect (alarm_at) WHERE state = 'unknown' AND alarm_at IS NOT NULL;
UPDATE deedbox.effect SET look_up_at = deedbox.clock(), alarm_at = deedbox.clock() WHERE state = 'unknown';

ALTER TABLE deedbox.switch ADD COLUMN tested_by text;
