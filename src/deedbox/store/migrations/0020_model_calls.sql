-- What was asked of models: one row for each call of ctx.model and for each turn of an agent, failed ones too, with tokens and cost.
-- Append-only and without contents; a job's rows go when its records do (ADR 26).
-- Locks: none on what is there; the table is new.
CREATE TABLE deedbox.model_call (
    call_id uuid PRIMARY KEY,
    job_id uuid NOT NULL,
    attempt_id uuid NOT NULL,
    tenant text NOT NULL,
    action text NOT NULL,
    -- `model`, or `agent` and its name.
    part text NOT NULL CHECK (part ~ '\S' AND length(part) <= 100),
    turn integer NOT NULL DEFAULT 0 CHECK (turn >= 0),
    endpoint text NOT NULL CHECK (endpoint ~ '\S'),
    model text NOT NULL,
    requests integer NOT NULL CHECK (requests >= 0),
    input_tokens bigint NOT NULL CHECK (input_tokens >= 0),
    output_tokens bigint NOT NULL CHECK (output_tokens >= 0),
    -- How many calls of tools the answer asked for, those included that nobody ran.
    tool_calls integer NOT NULL DEFAULT 0 CHECK (tool_calls >= 0),
    repairs integer NOT NULL DEFAULT 0 CHECK (repairs >= 0),
    -- NULL where the settings name no price for the endpoint: unknown is not nothing.
    cost numeric(24, 12) CHECK (cost >= 0),
    currency text CHECK (currency ~ '^[A-Z]{3}$'),
    -- Of the failure; NULL where there is an answer.
    code text,
    duration_ms bigint NOT NULL CHECK (duration_ms >= 0),
    called_at timestamptz NOT NULL DEFAULT deedbox.clock(),
    CONSTRAINT model_call_priced CHECK ((cost IS NULL) = (currency IS NULL))
);
CREATE INDEX model_call_job ON deedbox.model_call (job_id);
CREATE INDEX model_call_at ON deedbox.model_call (tenant, called_at);
