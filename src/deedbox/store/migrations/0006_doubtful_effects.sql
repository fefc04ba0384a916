-- An effect that was sent again under its native key may have been done by the sending before: it is doubtful, and is neither
-- canceled nor expired nor refused as if it had never left. When its key dies before it is sent again it becomes unknown, by a
-- move of its own (`doubt`), so the guard gets the edges of the lifecycle as they are now.
-- Locks: ACCESS EXCLUSIVE on effect for the moment of adding a column with a constant default.
-- Blocks between `>>> derived` and `<<< derived` are written by `make derive`; those of older migrations stay as they were applied.

ALTER TABLE deedbox.effect ADD COLUMN doubtful boolean NOT NULL DEFAULT false;

CREATE OR REPLACE FUNCTION deedbox.guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_TABLE_NAME = 'queue' THEN
        IF TG_OP = 'DELETE' THEN
            IF OLD.state NOT IN (
                -- >>> derived job.may_end
                'queued',
                'running',
                'awaiting_human',
                'dispatching',
                'failed_retryable'
                -- <<< derived job.may_end
            ) THEN
                RAISE EXCEPTION 'illegal_move: a job that is % has no way to end', OLD.state USING ERRCODE = 'DB001';
            END IF;
            RETURN OLD;
        END IF;
        IF (OLD.state, NEW.state) NOT IN (
            -- >>> derived job.edges
            ('queued', 'running'),
            ('queued', 'canceled'),
            ('running', 'queued'),
            ('running', 'awaiting_human'),
            ('running', 'dispatching'),
            ('running', 'failed_retryable'),
            ('running', 'completed'),
            ('running', 'failed_terminal'),
            ('running', 'canceled'),
            ('awaiting_human', 'queued'),
            ('awaiting_human', 'dispatching'),
            ('awaiting_human', 'failed_terminal'),
            ('awaiting_human', 'canceled'),
            ('dispatching', 'completed'),
            ('dispatching', 'failed_terminal'),
            ('dispatching', 'canceled'),
            ('failed_retryable', 'queued'),
            ('failed_retryable', 'failed_terminal'),
            ('failed_retryable', 'canceled')
            -- <<< derived job.edges
        ) THEN
            RAISE EXCEPTION 'illegal_move: job % -> %', OLD.state, NEW.state USING ERRCODE = 'DB001';
        END IF;
    ELSIF TG_TABLE_NAME = 'approval' THEN
        IF (OLD.state, NEW.state) NOT IN (
            -- >>> derived approval.edges
            ('pending', 'approved'),
            ('pending', 'rejected'),
            ('pending', 'expired'),
            ('pending', 'superseded'),
            ('pending', 'withdrawn')
            -- <<< derived approval.edges
        ) THEN
            RAISE EXCEPTION 'illegal_move: approval % -> %', OLD.state, NEW.state USING ERRCODE = 'DB001';
        END IF;
    ELSIF TG_TABLE_NAME = 'effect' THEN
        IF TG_OP = 'INSERT' THEN
            IF NOT EXISTS (
                SELECT FROM deedbox.approval a WHERE a.approval_id = NEW.approval_id AND a.state = 'approved'
                    AND NEW.digest = ANY (a.effect_digests)
                UNION ALL
                SELECT FROM deedbox.verdict v WHERE v.verdict_id = NEW.verdict_id
                    AND v.decision IN ('allow', 'delay', 'sample') AND NEW.digest = ANY (v.effect_digests)
            ) THEN
                RAISE EXCEPTION 'unauthorised effect: no approval or verdict names its digest' USING ERRCODE = 'DB002';
            END IF;
            RETURN NEW;
        END IF;
        IF (OLD.state, NEW.state) NOT IN (
            -- >>> derived effect.edges
            ('pending', 'sending'),
            ('pending', 'unknown'),
            ('pending', 'completed'),
            ('pending', 'failed'),
            ('pending', 'canceled'),
            ('sending', 'pending'),
            ('sending', 'unknown'),
            ('sending', 'completed'),
            ('sending', 'failed'),
            ('sending', 'unknown_closed'),
            ('unknown', 'pending'),
            ('unknown', 'completed'),
            ('unknown', 'failed')
            -- <<< derived effect.edges
        ) THEN
            RAISE EXCEPTION 'illegal_move: effect % -> %', OLD.state, NEW.state USING ERRCODE = 'DB001';
        END IF;
        IF (NEW.digest, NEW.connector, NEW.target, NEW.slot) IS DISTINCT FROM (OLD.digest, OLD.connector, OLD.target, OLD.slot)
        THEN
            RAISE EXCEPTION 'an effect never changes what it is' USING ERRCODE = 'DB002';
        END IF;
    ELSE
        RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'DB003';
    END IF;
    RETURN NEW;
END $$;
