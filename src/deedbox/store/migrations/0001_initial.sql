-- All tables of the store. Locks: creates only, nothing that exists is touched.
-- Blocks between `>>> derived` and `<<< derived` are written by `make derive` from deedbox.model.lifecycle.

CREATE FUNCTION deedbox.clock() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT statement_timestamp() $$;

CREATE SEQUENCE deedbox.fence_seq;

CREATE TABLE deedbox.tenant (
    tenant text PRIMARY KEY CHECK (tenant ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    created_at timestamptz NOT NULL DEFAULT deedbox.clock()
);

-- Who is asking -------------------------------------------------------------------------------------------------------

CREATE TABLE deedbox.principal (
    principal_id uuid PRIMARY KEY,
    tenant text NOT NULL REFERENCES deedbox.tenant,
    kind text NOT NULL CHECK (kind IN ('person', 'service')),
    name text NOT NULL CHECK (name ~ '\S' AND length(name) <= 200),
    password_hash text,
    created_at timestamptz NOT NULL DEFAULT deedbox.clock(),
    disabled_at timestamptz,
    UNIQUE (tenant, name),
    CHECK (password_hash IS NULL OR kind = 'person')
);

CREATE TABLE deedbox."grant" (
    principal_id uuid NOT NULL REFERENCES deedbox.principal,
    role text NOT NULL CHECK (role ~ '^[a-z][a-z0-9_]{0,62}$'),
    granted_at timestamptz NOT NULL DEFAULT deedbox.clock(),
    PRIMARY KEY (principal_id, role)
);

CREATE TABLE deedbox.api_key (
    key_sha256 bytea PRIMARY KEY CHECK (octet_length(key_sha256) = 32),
    key_id uuid NOT NULL UNIQUE,
    tenant text NOT NULL REFERENCES deedbox.tenant,
    principal_id uuid NOT NULL REFERENCES deedbox.principal,
    kind text NOT NULL CHECK (kind IN ('service', 'form', 'personal')),
    label text NOT NULL,
    action text,
    origins text[],
    created_at timestamptz NOT NULL DEFAULT deedbox.clock(),
    expires_at timestamptz,
    last_used_at timestamptz,
    revoked_at timestamptz
);
CREATE INDEX api_key_principal ON deedbox.api_key (principal_id);

CREATE TABLE deedbox.session (
    session_sha256 bytea PRIMARY KEY CHECK (octet_length(session_sha256) = 32),
    principal_id uuid NOT NULL REFERENCES deedbox.principal,
    method text NOT NULL,
    csrf_sha256 bytea NOT NULL CHECK (octet_length(csrf_sha256) = 32),
    created_at timestamptz NOT NULL DEFAULT deedbox.clock(),
    seen_at timestamptz NOT NULL DEFAULT deedbox.clock(),
    expires_at timestamptz NOT NULL,
    revoked_at timestamptz
);
CREATE INDEX session_principal ON deedbox.session (principal_id);

CREATE TABLE deedbox.status_token (
    token_sha256 bytea PRIMARY KEY CHECK (octet_length(token_sha256) = 32),
    job_id uuid NOT NULL,
    expires_at timestamptz NOT NULL
);

-- The request ---------------------------------------------------------------------------------------------------------

CREATE TABLE deedbox.idempotency (
    tenant text NOT NULL,
    action text NOT NULL CHECK (action ~ '\S'),
    key_sha256 bytea NOT NULL CHECK (octet_length(key_sha256) = 32),
    job_id uuid NOT NULL,
    payload_sha256 bytea CHECK (payload_sha256 IS NULL OR octet_length(payload_sha256) = 32),
    final_state text,
    erased boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT deedbox.clock(),
    expires_at timestamptz,
    PRIMARY KEY (tenant, action, key_sha256),
    CHECK (payload_sha256 IS NOT NULL OR erased)
);
CREATE INDEX idempotency_job ON deedbox.idempotency (job_id);
CREATE INDEX idempotency_expiry ON deedbox.idempotency (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE deedbox.job (
    job_id uuid NOT NULL,
    tenant text NOT NULL,
    action text NOT NULL,
    action_version integer NOT NULL CHECK (action_version >= 1),
    idempotency_key text CHECK (idempotency_key IS NULL OR (idempotency_key ~ '\S' AND length(idempotency_key) <= 255)),
    key_sha256 bytea NOT NULL CHECK (octet_length(key_sha256) = 32),
    key_source text NOT NULL CHECK (key_source IN ('header', 'field', 'key_from', 'content', 'new', 'slot')),
    subject uuid NOT NULL,
    data_subject text,
    role text NOT NULL,
    source text NOT NULL CHECK (source IN ('form', 'http', 'webhook', 'mcp', 'cli', 'n8n', 'job')),
    caller_run text,
    trace text,
    parent_job_id uuid,
    replaces uuid,
    callback text,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (job_id)
) PARTITION BY RANGE (job_id);
CREATE INDEX job_subject ON deedbox.job (tenant, subject, created_at);

CREATE TABLE deedbox.job_payload (
    job_id uuid PRIMARY KEY,
    input jsonb NOT NULL
);

CREATE TABLE deedbox.document (
    tenant text NOT NULL,
    sha256 bytea NOT NULL CHECK (octet_length(sha256) = 32),
    size bigint NOT NULL CHECK (size > 0),
    content bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT deedbox.clock(),
    PRIMARY KEY (tenant, sha256),
    CHECK (octet_length(content) = size)
);

-- Which job may show which document, under which name; its id is what results link to.
CREATE TABLE deedbox.job_document (
    document_id uuid PRIMARY KEY,
    job_id uuid NOT NULL,
    tenant text NOT NULL,
    sha256 bytea NOT NULL,
    name text NOT NULL CHECK (name ~ '\S' AND length(name) <= 255),
    media_type text NOT NULL CHECK (length(media_type) <= 255),
    FOREIGN KEY (tenant, sha256) REFERENCES deedbox.document
);
CREATE INDEX job_document_job ON deedbox.job_document (job_id);

CREATE TABLE deedbox.lane (
    lane_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue text NOT NULL CHECK (queue ~ '\S'),
    action text NOT NULL CHECK (action ~ '\S'),
    tenant text NOT NULL,
    watermark_priority smallint,
    watermark_job_id uuid,
    paused boolean NOT NULL DEFAULT false,
    max_running integer CHECK (max_running IS NULL OR max_running >= 0),
    UNIQUE (queue, action, tenant)
);

CREATE TABLE deedbox.queue (
    job_id uuid PRIMARY KEY,
    lane_id bigint NOT NULL REFERENCES deedbox.lane,
    state text NOT NULL,
    due boolean NOT NULL DEFAULT true,
    priority smallint NOT NULL DEFAULT 100,
    action_version integer NOT NULL,
    run_at timestamptz NOT NULL,
    deadline timestamptz,
    attempt integer NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    attempts_allowed integer NOT NULL CHECK (attempts_allowed BETWEEN 1 AND 100000),
    round integer NOT NULL DEFAULT 1 CHECK (round >= 1),
    attempt_id uuid,
    fence bigint,
    worker text,
    started_at timestamptz,
    lease_until timestamptz,
    lease_cap timestamptz,
    takeovers integer NOT NULL DEFAULT 0,
    cancel_requested boolean NOT NULL DEFAULT false,
    last_seq bigint NOT NULL DEFAULT 0,
    updated_at timestamptz NOT NULL DEFAULT deedbox.clock(),
    CONSTRAINT queue_state CHECK (state IN (
        -- >>> derived job.live
        'queued',
        'running',
        'awaiting_human',
        'dispatching',
        'failed_retryable'
        -- <<< derived job.live
    )),
    CONSTRAINT queue_lease CHECK (
        (state = 'running') = (num_nonnulls(attempt_id, fence, worker, started_at, lease_until, lease_cap) = 6)
        AND (state = 'running' OR num_nonnulls(attempt_id, fence, worker, started_at, lease_until, lease_cap) = 0)
    )
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.2);
CREATE INDEX queue_ready ON deedbox.queue (lane_id, priority, job_id) WHERE state = 'queued' AND due;
CREATE INDEX queue_not_yet ON deedbox.queue (run_at) WHERE state = 'queued' AND NOT due;
CREATE INDEX queue_deadline ON deedbox.queue (deadline) WHERE deadline IS NOT NULL;

CREATE TABLE deedbox.attempt (
    job_id uuid NOT NULL,
    attempt_id uuid NOT NULL,
    report text NOT NULL CHECK (report IN ('ended', 'stale')),
    attempt integer NOT NULL,
    round integer NOT NULL,
    move text NOT NULL,
    class text,
    code text,
    message text,
    worker text NOT NULL,
    build text NOT NULL,
    started_at timestamptz,
    ended_at timestamptz NOT NULL,
    model jsonb,
    prompt_version text,
    validation text,
    usage jsonb,
    repairs integer,
    PRIMARY KEY (job_id, attempt_id, report)
) PARTITION BY RANGE (job_id);

CREATE TABLE deedbox.step (
    job_id uuid NOT NULL,
    name text NOT NULL CHECK (name ~ '\S' AND length(name) <= 200),
    attempt_id uuid NOT NULL,
    input_sha256 bytea NOT NULL,
    value jsonb NOT NULL,
    model jsonb,
    stored_at timestamptz NOT NULL DEFAULT deedbox.clock(),
    PRIMARY KEY (job_id, name)
);

CREATE TABLE deedbox.event (
    job_id uuid NOT NULL,
    seq bigint NOT NULL CHECK (seq >= 1),
    event_id uuid NOT NULL,
    type text NOT NULL,
    round integer NOT NULL,
    attempt_id uuid,
    at timestamptz NOT NULL,
    payload jsonb NOT NULL,
    PRIMARY KEY (job_id, seq)
) PARTITION BY RANGE (job_id);

CREATE TABLE deedbox.result (
    job_id uuid PRIMARY KEY,
    state text NOT NULL,
    output jsonb,
    class text,
    code text,
    message text,
    done jsonb NOT NULL DEFAULT '[]',
    not_done jsonb NOT NULL DEFAULT '[]',
    declined jsonb NOT NULL DEFAULT '[]',
    attempt integer NOT NULL,
    attempts_allowed integer NOT NULL,
    round integer NOT NULL,
    last_seq bigint NOT NULL,
    ended_at timestamptz NOT NULL,
    CONSTRAINT result_state CHECK (state IN (
        -- >>> derived job.ended
        'completed',
        'failed_terminal',
        'canceled'
        -- <<< derived job.ended
    )),
    CONSTRAINT result_code CHECK ((state = 'completed') = (code IS NULL))
) PARTITION BY RANGE (job_id);

-- The gate ------------------------------------------------------------------------------------------------------------

CREATE TABLE deedbox.proposal (
    job_id uuid NOT NULL,
    proposal_id uuid NOT NULL,
    attempt_id uuid,
    revision integer NOT NULL DEFAULT 1,
    output jsonb,
    facts jsonb NOT NULL DEFAULT '{}',
    policy_version text NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (job_id, proposal_id)
) PARTITION BY RANGE (job_id);

CREATE TABLE deedbox.proposal_effect (
    proposal_effect_id uuid PRIMARY KEY,
    job_id uuid NOT NULL,
    proposal_id uuid,
    group_name text NOT NULL,
    position integer NOT NULL,
    connector text NOT NULL,
    target text NOT NULL,
    slot text NOT NULL CHECK (slot ~ '\S' AND length(slot) <= 100),
    summary text NOT NULL,
    body bytea NOT NULL,
    digest bytea NOT NULL CHECK (digest = sha256(body))
);
CREATE INDEX proposal_effect_job ON deedbox.proposal_effect (job_id);

CREATE TABLE deedbox.verdict (
    verdict_id uuid PRIMARY KEY,
    job_id uuid NOT NULL,
    proposal_id uuid,
    group_name text NOT NULL,
    decision text NOT NULL CHECK (decision IN ('allow', 'hold', 'delay', 'sample', 'deny')),
    rule text NOT NULL,
    policy_version text NOT NULL,
    effect_digests bytea[] NOT NULL,
    decided_at timestamptz NOT NULL
);
CREATE INDEX verdict_job ON deedbox.verdict (job_id);

CREATE TABLE deedbox.approval (
    approval_id uuid PRIMARY KEY,
    job_id uuid NOT NULL,
    tenant text NOT NULL,
    action text NOT NULL,
    proposal_id uuid,
    purpose text NOT NULL CHECK (purpose IN ('effects', 'input')),
    group_name text NOT NULL,
    state text NOT NULL,
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    effect_digests bytea[] NOT NULL,
    policy_version text NOT NULL,
    rule text NOT NULL,
    audience text[] NOT NULL CHECK (cardinality(audience) > 0),
    allowed text[] NOT NULL DEFAULT '{approve,reject}',
    quorum integer NOT NULL DEFAULT 1 CHECK (quorum >= 1),
    requested_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    decided_at timestamptz,
    decided_by uuid,
    decided_how text,
    reason text,
    superseded_by uuid,
    CONSTRAINT approval_state CHECK (state IN (
        -- >>> derived approval.states
        'pending',
        'approved',
        'rejected',
        'expired',
        'superseded',
        'withdrawn'
        -- <<< derived approval.states
    )),
    CONSTRAINT approval_decided CHECK ((state = 'pending') = (decided_at IS NULL)),
    CONSTRAINT approval_person CHECK (state NOT IN ('approved', 'rejected') OR num_nonnulls(decided_by, decided_how) = 2),
    CONSTRAINT approval_reason CHECK (state <> 'rejected' OR reason ~ '\S')
);
CREATE INDEX approval_job ON deedbox.approval (job_id);
CREATE INDEX approval_open ON deedbox.approval (tenant, expires_at) WHERE state = 'pending';

CREATE TABLE deedbox.vote (
    approval_id uuid NOT NULL REFERENCES deedbox.approval,
    principal_id uuid NOT NULL,
    decision text NOT NULL CHECK (decision IN ('approve', 'reject')),
    digest bytea NOT NULL,
    how text NOT NULL,
    voted_at timestamptz NOT NULL,
    PRIMARY KEY (approval_id, principal_id)
);

CREATE TABLE deedbox.approval_token (
    token_sha256 bytea PRIMARY KEY CHECK (octet_length(token_sha256) = 32),
    approval_id uuid NOT NULL REFERENCES deedbox.approval,
    purpose text NOT NULL,
    audience text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT deedbox.clock(),
    expires_at timestamptz NOT NULL,
    voided_at timestamptz
);
CREATE INDEX approval_token_approval ON deedbox.approval_token (approval_id);

-- The outbox ----------------------------------------------------------------------------------------------------------

CREATE TABLE deedbox.target (
    tenant text NOT NULL,
    connector text NOT NULL,
    target text NOT NULL,
    capability text NOT NULL DEFAULT 'blind' CHECK (capability IN ('native_key', 'upsert_key', 'searchable', 'blind')),
    native_key_ttl interval,
    visibility_lag interval NOT NULL DEFAULT '0',
    rate_per_s double precision CHECK (rate_per_s > 0),
    tokens double precision,
    tokens_at timestamptz,
    paused boolean NOT NULL DEFAULT false,
    open_until timestamptz,
    failures integer NOT NULL DEFAULT 0,
    ordered boolean NOT NULL DEFAULT false,
    conformance jsonb,
    PRIMARY KEY (tenant, connector, target)
);

CREATE TABLE deedbox.effect (
    effect_id uuid PRIMARY KEY,
    job_id uuid NOT NULL,
    tenant text NOT NULL,
    action text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('act', 'notice')),
    proposal_effect_id uuid NOT NULL REFERENCES deedbox.proposal_effect,
    connector text NOT NULL,
    target text NOT NULL,
    slot text NOT NULL,
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    approval_id uuid REFERENCES deedbox.approval,
    verdict_id uuid REFERENCES deedbox.verdict,
    state text NOT NULL,
    not_before timestamptz NOT NULL,
    not_after timestamptz NOT NULL,
    after_slot text,
    attempt integer NOT NULL DEFAULT 0,
    fence bigint,
    sender text,
    lease_until timestamptz,
    first_sent_at timestamptz,
    phase text,
    class text,
    code text,
    message text,
    sender_closed boolean NOT NULL DEFAULT false,
    updated_at timestamptz NOT NULL DEFAULT deedbox.clock(),
    UNIQUE (job_id, connector, target, slot),
    CONSTRAINT effect_authority CHECK (num_nonnulls(approval_id, verdict_id) = 1),
    CONSTRAINT effect_state CHECK (state IN (
        -- >>> derived effect.states
        'pending',
        'sending',
        'unknown',
        'completed',
        'failed',
        'canceled',
        'unknown_closed'
        -- <<< derived effect.states
    )),
    CONSTRAINT effect_lease CHECK (
        (state = 'sending') = (num_nonnulls(fence, sender, lease_until) = 3)
        AND (state = 'sending' OR num_nonnulls(fence, sender, lease_until) = 0)
    )
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX effect_pending ON deedbox.effect (not_before) WHERE state = 'pending';
CREATE INDEX effect_sending ON deedbox.effect (lease_until) WHERE state = 'sending';
CREATE INDEX effect_unknown ON deedbox.effect (updated_at) WHERE state = 'unknown';

CREATE TABLE deedbox.receipt (
    job_id uuid NOT NULL,
    receipt_id uuid NOT NULL,
    effect_id uuid NOT NULL,
    provider_id text NOT NULL,
    evidence jsonb NOT NULL,
    phase text NOT NULL,
    source text NOT NULL CHECK (source IN ('sender', 'late', 'look_up', 'human')),
    by_principal uuid,
    stored_at timestamptz NOT NULL,
    PRIMARY KEY (job_id, receipt_id)
) PARTITION BY RANGE (job_id);

CREATE TABLE deedbox.probe (
    probe_id uuid PRIMARY KEY,
    job_id uuid NOT NULL,
    effect_id uuid NOT NULL,
    verdict text NOT NULL CHECK (verdict IN ('accepted', 'not_accepted', 'still_unknown')),
    evidence jsonb NOT NULL,
    by_principal uuid,
    probed_at timestamptz NOT NULL
);
CREATE INDEX probe_effect ON deedbox.probe (effect_id, probed_at);

CREATE TABLE deedbox.switch (
    switch_id text PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('act', 'notice')),
    tenant text,
    action text,
    connector text,
    target text,
    is_on boolean NOT NULL,
    owner text,
    changed_by text NOT NULL,
    reason text NOT NULL CHECK (reason ~ '\S'),
    changed_at timestamptz NOT NULL DEFAULT deedbox.clock(),
    tested_at timestamptz
);

-- What is kept about all of it ----------------------------------------------------------------------------------------

CREATE TABLE deedbox.call (
    call_id uuid PRIMARY KEY,
    called_at timestamptz NOT NULL,
    tenant text NOT NULL,
    subject uuid,
    role text,
    claimed_role text,
    source text NOT NULL,
    action text,
    job_id uuid,
    parent_job_id uuid,
    attempt_id uuid,
    approval_id uuid,
    key_sha256 bytea,
    input_sha256 bytea,
    trace text,
    caller_run text,
    status text NOT NULL,
    error_code text,
    duration_ms double precision,
    detail jsonb
);
CREATE INDEX call_job ON deedbox.call (job_id);

CREATE TABLE deedbox.process (
    process_id text PRIMARY KEY CHECK (process_id ~ '\S'),
    roles text[] NOT NULL,
    version text NOT NULL,
    schema_version integer NOT NULL,
    settings_sha256 bytea NOT NULL,
    environment_switch boolean NOT NULL,
    started_at timestamptz NOT NULL DEFAULT deedbox.clock(),
    seen_at timestamptz NOT NULL DEFAULT deedbox.clock(),
    stopped_at timestamptz
);

CREATE TABLE deedbox.alert (
    alert_id uuid PRIMARY KEY,
    tenant text NOT NULL,
    cause text NOT NULL,
    job_id uuid,
    effect_id uuid,
    message text NOT NULL,
    owner text,
    opened_at timestamptz NOT NULL DEFAULT deedbox.clock(),
    closed_at timestamptz,
    closed_by uuid
);
CREATE UNIQUE INDEX alert_open ON deedbox.alert (tenant, cause, job_id, effect_id) NULLS NOT DISTINCT WHERE closed_at IS NULL;

CREATE TABLE deedbox.audit (
    seq bigint PRIMARY KEY,
    at timestamptz NOT NULL,
    tenant text NOT NULL,
    actor text NOT NULL,
    door text NOT NULL,
    method text NOT NULL,
    verb text NOT NULL,
    subject_kind text NOT NULL,
    subject_id text NOT NULL,
    reason text,
    detail_sha256 bytea NOT NULL,
    prev_sha256 bytea NOT NULL,
    entry_sha256 bytea NOT NULL
);
CREATE TABLE deedbox.audit_detail (
    seq bigint PRIMARY KEY REFERENCES deedbox.audit,
    detail jsonb NOT NULL
);
CREATE TABLE deedbox.audit_head (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    seq bigint NOT NULL,
    entry_sha256 bytea NOT NULL
);

-- The database refuses bad states by itself ---------------------------------------------------------------------------

CREATE FUNCTION deedbox.guard() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE TRIGGER queue_guard BEFORE UPDATE ON deedbox.queue FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION deedbox.guard();
CREATE TRIGGER queue_guard_delete BEFORE DELETE ON deedbox.queue FOR EACH ROW EXECUTE FUNCTION deedbox.guard();
CREATE TRIGGER approval_guard BEFORE UPDATE ON deedbox.approval FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION deedbox.guard();
CREATE TRIGGER effect_guard_insert BEFORE INSERT ON deedbox.effect FOR EACH ROW EXECUTE FUNCTION deedbox.guard();
CREATE TRIGGER effect_guard BEFORE UPDATE ON deedbox.effect FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state OR OLD.digest IS DISTINCT FROM NEW.digest
          OR OLD.target IS DISTINCT FROM NEW.target OR OLD.connector IS DISTINCT FROM NEW.connector)
    EXECUTE FUNCTION deedbox.guard();
CREATE TRIGGER audit_guard BEFORE UPDATE OR DELETE ON deedbox.audit FOR EACH ROW EXECUTE FUNCTION deedbox.guard();
CREATE TRIGGER audit_guard_truncate BEFORE TRUNCATE ON deedbox.audit FOR EACH STATEMENT EXECUTE FUNCTION deedbox.guard();

INSERT INTO deedbox.tenant (tenant) VALUES ('default');
INSERT INTO deedbox.audit_head (seq, entry_sha256) VALUES (0, '\x0000000000000000000000000000000000000000000000000000000000000000');
INSERT INTO deedbox.switch (switch_id, kind, is_on, changed_by, reason) VALUES
    ('acts', 'act', false, 'system:install', 'off until a person turns it on'),
    ('notices', 'notice', true, 'system:install', 'notices are ours and on by default');
