-- Written by `python -m tools.schema` from the migrations; do not edit. Monthly partitions are left out.

CREATE SCHEMA deedbox;

CREATE TYPE deedbox.ended_attempt AS (
	job_id uuid,
	attempt_id uuid,
	fence bigint,
	output jsonb,
	event_id uuid,
	event jsonb,
	journal jsonb
);

CREATE TYPE deedbox.new_job AS (
	tenant text,
	action text,
	version integer,
	key_source text,
	subject uuid,
	role text,
	source text,
	lane_id bigint,
	attempts integer,
	priority smallint,
	deadline_s double precision,
	expires_s double precision,
	through uuid,
	callback text,
	job_id uuid,
	event_id uuid,
	key_sha256 bytea,
	payload_sha256 bytea,
	key text,
	input jsonb,
	caller_run text,
	trace text,
	run_at text,
	deadline text,
	replaces uuid,
	parent_job_id uuid,
	data_subject text
);

CREATE FUNCTION deedbox.add_partition(parent text, month date) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    child text := parent || to_char(month, '_YYYY_MM');
BEGIN
    IF parent NOT IN ('job', 'attempt', 'event', 'result', 'proposal', 'receipt') OR month <> date_trunc('month', month)::date THEN
        RAISE EXCEPTION 'no table of months, or no first day of one: %, %', parent, month USING ERRCODE = 'DB004';
    END IF;
    IF to_regclass(format('deedbox.%I', child)) IS NOT NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE deedbox.%I (LIKE deedbox.%I INCLUDING ALL)', child, parent);
    EXECUTE format('ALTER TABLE deedbox.%I ATTACH PARTITION deedbox.%I FOR VALUES FROM (%L) TO (%L)', parent, child,
                   deedbox.first_id(month::timestamp AT TIME ZONE 'UTC'),
                   deedbox.first_id((month + interval '1 month') AT TIME ZONE 'UTC'));
    RETURN true;
END $$;

CREATE FUNCTION deedbox.audit_chain() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF TG_TABLE_NAME = 'audit_head' THEN
        IF NEW.seq <> OLD.seq + 1 OR NOT EXISTS (
            SELECT FROM deedbox.audit a WHERE a.seq = NEW.seq AND a.prev_sha256 = OLD.entry_sha256
                AND a.entry_sha256 = NEW.entry_sha256
        ) THEN
            RAISE EXCEPTION 'audit_head moves on by one entry of the chain' USING ERRCODE = 'DB003';
        END IF;
    ELSIF NOT EXISTS (SELECT FROM deedbox.audit_head h WHERE h.seq = NEW.seq AND h.entry_sha256 = NEW.entry_sha256) THEN
        RAISE EXCEPTION 'an entry of the audit is appended with its head' USING ERRCODE = 'DB003';
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION deedbox.clock() RETURNS timestamp with time zone
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT statement_timestamp() $$;

CREATE FUNCTION deedbox.drop_partition(parent text, month date, keep interval) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    child text := parent || to_char(month, '_YYYY_MM');
    start timestamptz := month::timestamp AT TIME ZONE 'UTC';
    stop timestamptz := (month + interval '1 month') AT TIME ZONE 'UTC';
    first uuid := deedbox.first_id(start);
    past uuid := deedbox.first_id(stop);
BEGIN
    IF parent NOT IN ('job', 'attempt', 'event', 'result', 'proposal', 'receipt') OR month <> date_trunc('month', month)::date THEN
        RAISE EXCEPTION 'no table of months, or no first day of one: %, %', parent, month USING ERRCODE = 'DB004';
    END IF;
    IF keep < interval '0' OR stop + keep > deedbox.clock() THEN
        RETURN 'its retention has not passed';
    END IF;
    IF EXISTS (SELECT FROM deedbox.queue q WHERE q.job_id >= first AND q.job_id < past) THEN
        RETURN 'a job has not ended';
    END IF;
    IF EXISTS (SELECT FROM deedbox.effect e WHERE e.job_id >= first AND e.job_id < past
               AND e.state NOT IN ('completed', 'failed', 'canceled', 'unknown_closed')) THEN
        RETURN 'an effect has not ended';
    END IF;
    IF EXISTS (SELECT FROM deedbox.approval a WHERE a.job_id >= first AND a.job_id < past AND a.state = 'pending') THEN
        RETURN 'an approval is open';
    END IF;
    EXECUTE format('DROP TABLE IF EXISTS deedbox.%I', child);
    RETURN NULL;
END $$;

CREATE FUNCTION deedbox.first_id(at timestamp with time zone) RETURNS uuid
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid $$;

CREATE FUNCTION deedbox.guard() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION deedbox.guard_notice() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF (NEW.kind = 'notice') IS DISTINCT FROM EXISTS (
        SELECT FROM deedbox.verdict v WHERE v.verdict_id = NEW.verdict_id AND v.rule = 'system.notice'
    ) THEN
        RAISE EXCEPTION 'unauthorised effect: the verdict system.notice is for notices, and they have no other'
            USING ERRCODE = 'DB002';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION deedbox.guard_verdict() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF EXISTS (
        SELECT FROM deedbox.verdict v
        WHERE v.verdict_id = NEW.verdict_id AND (v.drawn OR v.opens_at > NEW.not_before)
    ) THEN
        RAISE EXCEPTION 'unauthorised effect: its verdict does not let it out, or not yet' USING ERRCODE = 'DB002';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION deedbox.verbs_of(principal uuid) RETURNS text[]
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
    SELECT coalesce(array_agg(DISTINCT v.verb), '{}')
    FROM deedbox."grant" g JOIN deedbox.role r ON r.role = g.role CROSS JOIN LATERAL unnest(r.verbs) AS v (verb)
    WHERE g.principal_id = principal
$$;

CREATE TABLE deedbox.action_limit (
    action text NOT NULL,
    max_running integer NOT NULL,
    CONSTRAINT action_limit_action_check CHECK ((action ~ '\S'::text)),
    CONSTRAINT action_limit_max_running_check CHECK ((max_running >= 0))
);

CREATE TABLE deedbox.alert (
    alert_id uuid NOT NULL,
    tenant text NOT NULL,
    cause text NOT NULL,
    job_id uuid,
    effect_id uuid,
    message text NOT NULL,
    owner text,
    opened_at timestamp with time zone DEFAULT deedbox.clock() NOT NULL,
    closed_at timestamp with time zone,
    closed_by uuid,
    notify_at timestamp with time zone DEFAULT deedbox.clock(),
    told smallint DEFAULT 0 NOT NULL,
    closed_reason text
);

CREATE TABLE deedbox.api_key (
    key_sha256 bytea NOT NULL,
    key_id uuid NOT NULL,
    tenant text NOT NULL,
    principal_id uuid NOT NULL,
    kind text NOT NULL,
    label text NOT NULL,
    action text,
    origins text[],
    created_at timestamp with time zone DEFAULT deedbox.clock() NOT NULL,
    expires_at timestamp with time zone,
    last_used_at timestamp with time zone,
    revoked_at timestamp with time zone,
    acts_for_others boolean DEFAULT false NOT NULL,
    rate_per_minute integer,
    tokens double precision,
    tokens_at timestamp with time zone,
    replaced_by uuid,
    CONSTRAINT api_key_acts CHECK (((kind = 'service'::text) OR (NOT acts_for_others))),
    CONSTRAINT api_key_form CHECK ((((kind = 'form'::text) = (num_nonnulls(action, origins, rate_per_minute) = 3)) AND ((kind = 'form'::text) OR (num_nonnulls(action, origins, rate_per_minute) = 0)))),
    CONSTRAINT api_key_key_sha256_check CHECK ((octet_length(key_sha256) = 32)),
    CONSTRAINT api_key_kind_check CHECK ((kind = ANY (ARRAY['service'::text, 'form'::text, 'personal'::text]))),
    CONSTRAINT api_key_personal CHECK (((kind <> 'personal'::text) OR (expires_at <= (created_at + '08:00:00'::interval)))),
    CONSTRAINT api_key_rate_per_minute_check CHECK (((rate_per_minute >= 1) AND (rate_per_minute <= 100000)))
);

CREATE TABLE deedbox.approval (
    approval_id uuid NOT NULL,
    job_id uuid NOT NULL,
    tenant text NOT NULL,
    action text NOT NULL,
    proposal_id uuid,
    purpose text NOT NULL,
    group_name text NOT NULL,
    state text NOT NULL,
    digest bytea NOT NULL,
    effect_digests bytea[] NOT NULL,
    policy_version text NOT NULL,
    rule text NOT NULL,
    audience text[] NOT NULL,
    allowed text[] DEFAULT '{approve,reject}'::text[] NOT NULL,
    quorum integer DEFAULT 1 NOT NULL,
    requested_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    decided_at timestamp with time zone,
    decided_by uuid,
    decided_how text,
    reason text,
    superseded_by uuid,
    sampled_by text,
    consequence text DEFAULT 'consequential'::text NOT NULL,
    required_role text,
    supersedes uuid,
    editors uuid[] DEFAULT '{}'::uuid[] NOT NULL,
    notify_at timestamp with time zone DEFAULT deedbox.clock(),
    escalated_to text,
    shown text,
    CONSTRAINT approval_audience_check CHECK ((cardinality(audience) > 0)),
    CONSTRAINT approval_decided CHECK (((state = 'pending'::text) = (decided_at IS NULL))),
    CONSTRAINT approval_digest_check CHECK ((octet_length(digest) = 32)),
    CONSTRAINT approval_person CHECK (((state <> ALL (ARRAY['approved'::text, 'rejected'::text])) OR (num_nonnulls(decided_by, decided_how) = 2))),
    CONSTRAINT approval_purpose_check CHECK ((purpose = ANY (ARRAY['effects'::text, 'input'::text]))),
    CONSTRAINT approval_quorum_check CHECK ((quorum >= 1)),
    CONSTRAINT approval_reason CHECK (((state <> 'rejected'::text) OR (reason ~ '\S'::text))),
    CONSTRAINT approval_shown_check CHECK ((shown = ANY (ARRAY['accept'::text, 'decline'::text, 'cancel'::text]))),
    CONSTRAINT approval_state CHECK ((state = ANY (ARRAY['pending'::text, 'approved'::text, 'rejected'::text, 'expired'::text, 'superseded'::text, 'withdrawn'::text])))
);

CREATE TABLE deedbox.approval_comment (
    comment_id uuid NOT NULL,
    approval_id uuid NOT NULL,
    principal_id uuid NOT NULL,
    text text NOT NULL,
    how text NOT NULL,
    at timestamp with time zone DEFAULT deedbox.clock() NOT NULL,
    CONSTRAINT approval_comment_text_check CHECK (((text ~ '\S'::text) AND (length(text) <= 2000)))
);

CREATE TABLE deedbox.approval_snooze (
    approval_id uuid NOT NULL,
    principal_id uuid NOT NULL,
    until timestamp with time zone NOT NULL
);

CREATE TABLE deedbox.approval_stage (
    approval_id uuid NOT NULL,
    stage text NOT NULL,
    at timestamp with time zone DEFAULT deedbox.clock() NOT NULL,
    CONSTRAINT approval_stage_stage_check CHECK ((stage ~ '\S'::text))
);

CREATE TABLE deedbox.approval_token (
    token_sha256 bytea NOT NULL,
    approval_id uuid NOT NULL,
    purpose text NOT NULL,
    audience text NOT NULL,
    created_at timestamp with time zone DEFAULT deedbox.clock() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    voided_at timestamp with time zone,
    CONSTRAINT approval_token_token_sha256_check CHECK ((octet_length(token_sha256) = 32))
);

CREATE TABLE deedbox.attempt (
    job_id uuid NOT NULL,
    attempt_id uuid NOT NULL,
    report text NOT NULL,
    attempt integer NOT NULL,
    round integer NOT NULL,
    move text NOT NULL,
    class text,
    code text,
    message text,
    worker text NOT NULL,
    build text NOT NULL,
    started_at timestamp with time zone,
    ended_at timestamp with time zone NOT NULL,
    model jsonb,
    prompt_version text,
    validation text,
    usage jsonb,
    repairs integer,
    CONSTRAINT attempt_report_check CHECK ((report = ANY (ARRAY['ended'::text, 'stale'::text])))
)
PARTITION BY RANGE (job_id);

CREATE TABLE deedbox.audit (
    seq bigint NOT NULL,
    at timestamp with time zone NOT NULL,
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
    seq bigint NOT NULL,
    detail jsonb NOT NULL
);

CREATE TABLE deedbox.audit_head (
    only_row boolean DEFAULT true NOT NULL,
    seq bigint NOT NULL,
    entry_sha256 bytea NOT NULL,
    CONSTRAINT audit_head_only_row_check CHECK (only_row)
);

CREATE TABLE deedbox.call (
    call_id uuid NOT NULL,
    called_at timestamp with time zone NOT NULL,
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
    detail jsonb,
    through uuid
);

CREATE TABLE deedbox.callback (
    job_id uuid NOT NULL,
    tenant text NOT NULL,
    action text NOT NULL,
    target text NOT NULL,
    told_seq bigint DEFAULT 0 NOT NULL,
    CONSTRAINT callback_target_check CHECK ((target ~ '\S'::text)),
    CONSTRAINT callback_told_seq_check CHECK ((told_seq >= 0))
)
WITH (fillfactor='70');

CREATE TABLE deedbox.delegation (
    delegation_id uuid NOT NULL,
    tenant text NOT NULL,
    from_principal uuid NOT NULL,
    to_principal uuid NOT NULL,
    approval_id uuid,
    reason text,
    made_at timestamp with time zone NOT NULL,
    made_how text NOT NULL,
    until timestamp with time zone,
    withdrawn_at timestamp with time zone,
    CONSTRAINT delegation_bounded CHECK ((num_nonnulls(approval_id, until) >= 1)),
    CONSTRAINT delegation_other CHECK ((from_principal <> to_principal))
);

CREATE TABLE deedbox.document (
    tenant text NOT NULL,
    sha256 bytea NOT NULL,
    size bigint NOT NULL,
    content bytea NOT NULL,
    created_at timestamp with time zone DEFAULT deedbox.clock() NOT NULL,
    CONSTRAINT document_check CHECK ((octet_length(content) = size)),
    CONSTRAINT document_sha256_check CHECK ((octet_length(sha256) = 32)),
    CONSTRAINT document_size_check CHECK ((size > 0))
);

CREATE TABLE deedbox.draw_salt (
    only_row boolean DEFAULT true NOT NULL,
    salt bytea NOT NULL,
    CONSTRAINT draw_salt_only_row_check CHECK (only_row),
    CONSTRAINT draw_salt_salt_check CHECK ((octet_length(salt) = 32))
);

CREATE TABLE deedbox.effect (
    effect_id uuid NOT NULL,
    job_id uuid NOT NULL,
    tenant text NOT NULL,
    action text NOT NULL,
    kind text NOT NULL,
    proposal_effect_id uuid NOT NULL,
    connector text NOT NULL,
    target text NOT NULL,
    slot text NOT NULL,
    digest bytea NOT NULL,
    approval_id uuid,
    verdict_id uuid,
    state text NOT NULL,
    not_before timestamp with time zone NOT NULL,
    not_after timestamp with time zone NOT NULL,
    after_slot text,
    attempt integer DEFAULT 0 NOT NULL,
    fence bigint,
    sender text,
    lease_until timestamp with time zone,
    first_sent_at timestamp with time zone,
    phase text,
    class text,
    code text,
    message text,
    sender_closed boolean DEFAULT false NOT NULL,
    updated_at timestamp with time zone DEFAULT deedbox.clock() NOT NULL,
    doubtful boolean DEFAULT false NOT NULL,
    order_key text DEFAULT ''::text NOT NULL,
    look_up_at timestamp with time zone,
    look_ups integer DEFAULT 0 NOT NULL,
    alarm_at timestamp with time zone,
    CONSTRAINT effect_authority CHECK ((num_nonnulls(approval_id, verdict_id) = 1)),
    CONSTRAINT effect_digest_check CHECK ((octet_length(digest) = 32)),
    CONSTRAINT effect_kind_check CHECK ((kind = ANY (ARRAY['act'::text, 'notice'::text]))),
    CONSTRAINT effect_lease CHECK ((((state = 'sending'::text) = (num_nonnulls(fence, sender, lease_until) = 3)) AND ((state = 'sending'::text) OR (num_nonnulls(fence, sender, lease_until) = 0)))),
    CONSTRAINT effect_state CHECK ((state = ANY (ARRAY['pending'::text, 'sending'::text, 'unknown'::text, 'completed'::text, 'failed'::text, 'canceled'::text, 'unknown_closed'::text])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.05');

CREATE TABLE deedbox.event (
    job_id uuid NOT NULL,
    seq bigint NOT NULL,
    event_id uuid NOT NULL,
    type text NOT NULL,
    round integer NOT NULL,
    attempt_id uuid,
    at timestamp with time zone NOT NULL,
    payload jsonb NOT NULL
)
PARTITION BY RANGE (job_id);

CREATE TABLE deedbox.idempotency (
    tenant text NOT NULL,
    action text NOT NULL,
    key_sha256 bytea NOT NULL,
    job_id uuid NOT NULL,
    payload_sha256 bytea,
    final_state text,
    erased boolean DEFAULT false NOT NULL,
    created_at timestamp with time zone DEFAULT deedbox.clock() NOT NULL,
    expires_at timestamp with time zone,
    CONSTRAINT idempotency_check CHECK (((payload_sha256 IS NOT NULL) OR erased)),
    CONSTRAINT idempotency_key_sha256_check CHECK ((octet_length(key_sha256) = 32))
);

CREATE TABLE deedbox.job (
    job_id uuid NOT NULL,
    tenant text NOT NULL,
    action text NOT NULL,
    action_version integer NOT NULL,
    idempotency_key text,
    key_sha256 bytea NOT NULL,
    key_source text NOT NULL,
    subject uuid NOT NULL,
    data_subject text,
    role text NOT NULL,
    source text NOT NULL,
    caller_run text,
    trace text,
    parent_job_id uuid,
    replaces uuid,
    callback text,
    created_at timestamp with time zone NOT NULL,
    through uuid
)
PARTITION BY RANGE (job_id);

CREATE VIEW deedbox.every_call AS
 SELECT call.call_id,
    call.called_at,
    call.tenant,
    call.subject,
    call.role,
    call.claimed_role,
    call.source,
    call.action,
    call.job_id,
    call.parent_job_id,
    call.attempt_id,
    call.approval_id,
    call.key_sha256,
    call.input_sha256,
    call.trace,
    call.caller_run,
    call.status,
    call.error_code,
    call.duration_ms,
    call.detail,
    call.through
   FROM deedbox.call
UNION ALL
 SELECT j.job_id AS call_id,
    j.created_at AS called_at,
    j.tenant,
    j.subject,
    j.role,
    NULL::text AS claimed_role,
    j.source,
    j.action,
    j.job_id,
    j.parent_job_id,
    NULL::uuid AS attempt_id,
    NULL::uuid AS approval_id,
    j.key_sha256,
    i.payload_sha256 AS input_sha256,
    j.trace,
    j.caller_run,
    'accepted'::text AS status,
    NULL::text AS error_code,
    NULL::double precision AS duration_ms,
    NULL::jsonb AS detail,
    j.through
   FROM (deedbox.job j
     LEFT JOIN deedbox.idempotency i ON (((i.tenant = j.tenant) AND (i.action = j.action) AND (i.key_sha256 = j.key_sha256))));

CREATE SEQUENCE deedbox.fence_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE deedbox."grant" (
    principal_id uuid NOT NULL,
    role text NOT NULL,
    granted_at timestamp with time zone DEFAULT deedbox.clock() NOT NULL,
    source text DEFAULT 'local'::text NOT NULL,
    CONSTRAINT grant_role_check CHECK ((role ~ '^[a-z][a-z0-9_]{0,62}$'::text)),
    CONSTRAINT grant_source_check CHECK ((source = ANY (ARRAY['local'::text, 'provider'::text])))
);

CREATE TABLE deedbox.identity (
    tenant text NOT NULL,
    issuer text NOT NULL,
    subject text NOT NULL,
    principal_id uuid NOT NULL,
    linked_at timestamp with time zone DEFAULT deedbox.clock() NOT NULL,
    roles_at timestamp with time zone,
    CONSTRAINT identity_issuer_check CHECK ((issuer ~ '\S'::text)),
    CONSTRAINT identity_subject_check CHECK (((subject ~ '\S'::text) AND (length(subject) <= 255)))
);

CREATE TABLE deedbox.job_document (
    document_id uuid NOT NULL,
    job_id uuid NOT NULL,
    tenant text NOT NULL,
    sha256 bytea NOT NULL,
    name text NOT NULL,
    media_type text NOT NULL,
    CONSTRAINT job_document_media_type_check CHECK ((length(media_type) <= 255)),
    CONSTRAINT job_document_name_check CHECK (((name ~ '\S'::text) AND (length(name) <= 255)))
);

CREATE TABLE deedbox.job_payload (
    job_id uuid NOT NULL,
    input jsonb NOT NULL
);

CREATE TABLE deedbox.lane (
    lane_id bigint NOT NULL,
    queue text NOT NULL,
    action text NOT NULL,
    tenant text NOT NULL,
    paused boolean DEFAULT false NOT NULL,
    max_running integer,
    CONSTRAINT lane_action_check CHECK ((action ~ '\S'::text)),
    CONSTRAINT lane_max_running_check CHECK (((max_running IS NULL) OR (max_running >= 0))),
    CONSTRAINT lane_queue_check CHECK ((queue ~ '\S'::text))
);

ALTER TABLE deedbox.lane ALTER COLUMN lane_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME deedbox.lane_lane_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE deedbox.model_call (
    call_id uuid NOT NULL,
    job_id uuid NOT NULL,
    attempt_id uuid NOT NULL,
    tenant text NOT NULL,
    action text NOT NULL,
    part text NOT NULL,
    turn integer DEFAULT 0 NOT NULL,
    endpoint text NOT NULL,
    model text NOT NULL,
    requests integer NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    tool_calls integer DEFAULT 0 NOT NULL,
    repairs integer DEFAULT 0 NOT NULL,
    cost numeric(24,12),
    currency text,
    code text,
    duration_ms bigint NOT NULL,
    called_at timestamp with time zone DEFAULT deedbox.clock() NOT NULL,
    CONSTRAINT model_call_cost_check CHECK ((cost >= (0)::numeric)),
    CONSTRAINT model_call_currency_check CHECK ((currency ~ '^[A-Z]{3}$'::text)),
    CONSTRAINT model_call_duration_ms_check CHECK ((duration_ms >= 0)),
    CONSTRAINT model_call_endpoint_check CHECK ((endpoint ~ '\S'::text)),
    CONSTRAINT model_call_input_tokens_check CHECK ((input_tokens >= 0)),
    CONSTRAINT model_call_output_tokens_check CHECK ((output_tokens >= 0)),
    CONSTRAINT model_call_part_check CHECK (((part ~ '\S'::text) AND (length(part) <= 100))),
    CONSTRAINT model_call_priced CHECK (((cost IS NULL) = (currency IS NULL))),
    CONSTRAINT model_call_repairs_check CHECK ((repairs >= 0)),
    CONSTRAINT model_call_requests_check CHECK ((requests >= 0)),
    CONSTRAINT model_call_tool_calls_check CHECK ((tool_calls >= 0)),
    CONSTRAINT model_call_turn_check CHECK ((turn >= 0))
);

CREATE TABLE deedbox.notice (
    effect_id uuid NOT NULL,
    template text NOT NULL,
    once text,
    job_id uuid,
    approval_id uuid,
    alert_id uuid,
    principal_id uuid,
    made_at timestamp with time zone DEFAULT deedbox.clock() NOT NULL,
    CONSTRAINT notice_once_check CHECK ((length(once) <= 300)),
    CONSTRAINT notice_template_check CHECK ((template ~ '\S'::text))
);

CREATE TABLE deedbox.principal (
    principal_id uuid NOT NULL,
    tenant text NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    password_hash text,
    created_at timestamp with time zone DEFAULT deedbox.clock() NOT NULL,
    disabled_at timestamp with time zone,
    email text,
    CONSTRAINT principal_check CHECK (((password_hash IS NULL) OR (kind = 'person'::text))),
    CONSTRAINT principal_kind_check CHECK ((kind = ANY (ARRAY['person'::text, 'service'::text]))),
    CONSTRAINT principal_name_check CHECK (((name ~ '\S'::text) AND (length(name) <= 200)))
);

CREATE TABLE deedbox.probe (
    probe_id uuid NOT NULL,
    job_id uuid NOT NULL,
    effect_id uuid NOT NULL,
    verdict text NOT NULL,
    evidence jsonb NOT NULL,
    by_principal uuid,
    probed_at timestamp with time zone NOT NULL,
    CONSTRAINT probe_verdict_check CHECK ((verdict = ANY (ARRAY['accepted'::text, 'not_accepted'::text, 'still_unknown'::text])))
);

CREATE TABLE deedbox.process (
    process_id text NOT NULL,
    roles text[] NOT NULL,
    version text NOT NULL,
    schema_version integer NOT NULL,
    settings_sha256 bytea NOT NULL,
    environment_switch boolean NOT NULL,
    started_at timestamp with time zone DEFAULT deedbox.clock() NOT NULL,
    seen_at timestamp with time zone DEFAULT deedbox.clock() NOT NULL,
    stopped_at timestamp with time zone,
    CONSTRAINT process_process_id_check CHECK ((process_id ~ '\S'::text))
);

CREATE TABLE deedbox.proposal (
    job_id uuid NOT NULL,
    proposal_id uuid NOT NULL,
    attempt_id uuid,
    revision integer DEFAULT 1 NOT NULL,
    output jsonb,
    facts jsonb DEFAULT '{}'::jsonb NOT NULL,
    policy_version text NOT NULL,
    created_at timestamp with time zone NOT NULL
)
PARTITION BY RANGE (job_id);

CREATE TABLE deedbox.proposal_effect (
    proposal_effect_id uuid NOT NULL,
    job_id uuid NOT NULL,
    proposal_id uuid,
    group_name text NOT NULL,
    "position" integer NOT NULL,
    connector text NOT NULL,
    target text NOT NULL,
    slot text NOT NULL,
    summary text NOT NULL,
    body bytea,
    digest bytea NOT NULL,
    pruned_at timestamp with time zone,
    after_slot text,
    CONSTRAINT proposal_effect_check CHECK ((digest = sha256(body))),
    CONSTRAINT proposal_effect_slot_check CHECK (((slot ~ '\S'::text) AND (length(slot) <= 100)))
);

CREATE TABLE deedbox.provider_login (
    state_sha256 bytea NOT NULL,
    browser_sha256 bytea NOT NULL,
    nonce_sha256 bytea NOT NULL,
    provider text NOT NULL,
    goes_to text NOT NULL,
    fresh boolean NOT NULL,
    begun_at timestamp with time zone DEFAULT deedbox.clock() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT provider_login_browser_sha256_check CHECK ((octet_length(browser_sha256) = 32)),
    CONSTRAINT provider_login_nonce_sha256_check CHECK ((octet_length(nonce_sha256) = 32)),
    CONSTRAINT provider_login_state_sha256_check CHECK ((octet_length(state_sha256) = 32))
);

CREATE TABLE deedbox.queue (
    job_id uuid NOT NULL,
    lane_id bigint NOT NULL,
    state text NOT NULL,
    due boolean DEFAULT true NOT NULL,
    priority smallint DEFAULT 100 NOT NULL,
    action_version integer NOT NULL,
    run_at timestamp with time zone NOT NULL,
    deadline timestamp with time zone,
    attempt integer DEFAULT 0 NOT NULL,
    attempts_allowed integer NOT NULL,
    round integer DEFAULT 1 NOT NULL,
    attempt_id uuid,
    fence bigint,
    worker text,
    started_at timestamp with time zone,
    lease_until timestamp with time zone,
    lease_cap timestamp with time zone,
    takeovers integer DEFAULT 0 NOT NULL,
    cancel_requested boolean DEFAULT false NOT NULL,
    last_seq bigint DEFAULT 0 NOT NULL,
    updated_at timestamp with time zone DEFAULT deedbox.clock() NOT NULL,
    redeliveries smallint DEFAULT 0 NOT NULL,
    CONSTRAINT queue_lease CHECK ((num_nonnulls(attempt_id, fence, worker, started_at, lease_until, lease_cap) = (6 * ((state = 'running'::text))::integer))),
    CONSTRAINT queue_state CHECK ((state = ANY ('{queued,running,awaiting_human,dispatching,failed_retryable}'::text[])))
)
WITH (fillfactor='60', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0', autovacuum_analyze_scale_factor='0.2');

CREATE TABLE deedbox.receipt (
    job_id uuid NOT NULL,
    receipt_id uuid NOT NULL,
    effect_id uuid NOT NULL,
    provider_id text NOT NULL,
    evidence jsonb NOT NULL,
    phase text NOT NULL,
    source text NOT NULL,
    by_principal uuid,
    stored_at timestamp with time zone NOT NULL,
    CONSTRAINT receipt_source_check CHECK ((source = ANY (ARRAY['sender'::text, 'late'::text, 'look_up'::text, 'human'::text])))
)
PARTITION BY RANGE (job_id);

CREATE TABLE deedbox.result (
    job_id uuid NOT NULL,
    state text NOT NULL,
    output jsonb,
    class text,
    code text,
    message text,
    done jsonb DEFAULT '[]'::jsonb NOT NULL,
    not_done jsonb DEFAULT '[]'::jsonb NOT NULL,
    declined jsonb DEFAULT '[]'::jsonb NOT NULL,
    attempt integer NOT NULL,
    attempts_allowed integer NOT NULL,
    round integer NOT NULL,
    last_seq bigint NOT NULL,
    ended_at timestamp with time zone NOT NULL,
    pruned_at timestamp with time zone,
    CONSTRAINT result_code CHECK (((state = 'completed'::text) = (code IS NULL))),
    CONSTRAINT result_state CHECK ((state = ANY (ARRAY['completed'::text, 'failed_terminal'::text, 'canceled'::text])))
)
PARTITION BY RANGE (job_id);

CREATE TABLE deedbox.role (
    role text NOT NULL,
    verbs text[] NOT NULL,
    built_in boolean DEFAULT false NOT NULL,
    made_at timestamp with time zone DEFAULT deedbox.clock() NOT NULL,
    CONSTRAINT role_role_check CHECK ((role ~ '^[a-z][a-z0-9_]{0,62}$'::text)),
    CONSTRAINT role_verbs CHECK ((verbs <@ ARRAY['submit'::text, 'read'::text, 'retry'::text, 'take_up'::text, 'replace'::text, 'cancel'::text, 'decide'::text, 'reconcile'::text, 'switch'::text, 'administer'::text]))
);

CREATE TABLE deedbox.rule_day (
    tenant text NOT NULL,
    action text NOT NULL,
    rule text NOT NULL,
    day date NOT NULL,
    used integer NOT NULL,
    CONSTRAINT rule_day_used_check CHECK ((used >= 0))
);

CREATE TABLE deedbox.schema_version (
    version integer NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamp with time zone DEFAULT statement_timestamp() NOT NULL
);

CREATE TABLE deedbox.sensitive (
    kind text NOT NULL,
    name text NOT NULL,
    path text[] NOT NULL,
    CONSTRAINT sensitive_kind_check CHECK ((kind = ANY (ARRAY['input'::text, 'output'::text, 'payload'::text]))),
    CONSTRAINT sensitive_name_check CHECK ((name ~ '\S'::text)),
    CONSTRAINT sensitive_path_check CHECK ((cardinality(path) > 0))
);

CREATE TABLE deedbox.session (
    session_sha256 bytea NOT NULL,
    principal_id uuid NOT NULL,
    method text NOT NULL,
    csrf_sha256 bytea NOT NULL,
    created_at timestamp with time zone DEFAULT deedbox.clock() NOT NULL,
    seen_at timestamp with time zone DEFAULT deedbox.clock() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    revoked_at timestamp with time zone,
    session_id uuid DEFAULT gen_random_uuid() NOT NULL,
    authenticated_at timestamp with time zone,
    peer text,
    CONSTRAINT session_csrf_sha256_check CHECK ((octet_length(csrf_sha256) = 32)),
    CONSTRAINT session_session_sha256_check CHECK ((octet_length(session_sha256) = 32))
);

CREATE TABLE deedbox.shared_secret (
    name text NOT NULL,
    secret bytea NOT NULL,
    made_at timestamp with time zone DEFAULT deedbox.clock() NOT NULL,
    CONSTRAINT shared_secret_name_check CHECK ((name ~ '^[a-z][a-z_]{0,62}$'::text)),
    CONSTRAINT shared_secret_secret_check CHECK ((octet_length(secret) >= 32))
);

CREATE TABLE deedbox.status_token (
    token_sha256 bytea NOT NULL,
    job_id uuid NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    key_id uuid,
    made_at timestamp with time zone DEFAULT deedbox.clock() NOT NULL,
    CONSTRAINT status_token_token_sha256_check CHECK ((octet_length(token_sha256) = 32))
);

CREATE TABLE deedbox.step (
    job_id uuid NOT NULL,
    name text NOT NULL,
    attempt_id uuid NOT NULL,
    input_sha256 bytea NOT NULL,
    value jsonb NOT NULL,
    model jsonb,
    stored_at timestamp with time zone DEFAULT deedbox.clock() NOT NULL,
    CONSTRAINT step_name_check CHECK (((name ~ '\S'::text) AND (length(name) <= 200)))
);

CREATE TABLE deedbox.switch (
    switch_id text NOT NULL,
    kind text NOT NULL,
    tenant text,
    action text,
    connector text,
    target text,
    is_on boolean NOT NULL,
    owner text,
    changed_by text NOT NULL,
    reason text NOT NULL,
    changed_at timestamp with time zone DEFAULT deedbox.clock() NOT NULL,
    tested_at timestamp with time zone,
    tested_by text,
    CONSTRAINT switch_kind_check CHECK ((kind = ANY (ARRAY['act'::text, 'notice'::text]))),
    CONSTRAINT switch_reason_check CHECK ((reason ~ '\S'::text))
);

CREATE TABLE deedbox.target (
    tenant text NOT NULL,
    connector text NOT NULL,
    target text NOT NULL,
    capability text DEFAULT 'blind'::text NOT NULL,
    native_key_ttl interval,
    visibility_lag interval DEFAULT '00:00:00'::interval NOT NULL,
    rate_per_s double precision,
    tokens double precision,
    tokens_at timestamp with time zone,
    paused boolean DEFAULT false NOT NULL,
    open_until timestamp with time zone,
    failures integer DEFAULT 0 NOT NULL,
    conformance jsonb,
    disabled_at timestamp with time zone,
    disabled_reason text,
    burst integer,
    order_by text,
    limited_by text,
    paused_by text,
    pause_reason text,
    paused_at timestamp with time zone,
    failing_at timestamp with time zone,
    breaker text DEFAULT 'closed'::text NOT NULL,
    breaker_at timestamp with time zone,
    breaker_until timestamp with time zone,
    breaker_opens integer DEFAULT 0 NOT NULL,
    breaker_why text,
    probe_effect uuid,
    probe_until timestamp with time zone,
    gated boolean GENERATED ALWAYS AS ((paused OR (rate_per_s IS NOT NULL) OR (order_by IS NOT NULL) OR (breaker <> 'closed'::text))) STORED NOT NULL,
    CONSTRAINT target_breaker CHECK ((((breaker = 'closed'::text) = (breaker_until IS NULL)) AND ((breaker = 'half_open'::text) = (num_nonnulls(probe_effect, probe_until) = 2)))),
    CONSTRAINT target_breaker_check CHECK ((breaker = ANY (ARRAY['closed'::text, 'open'::text, 'half_open'::text]))),
    CONSTRAINT target_burst CHECK (((burst IS NULL) OR (rate_per_s IS NOT NULL))),
    CONSTRAINT target_burst_check CHECK (((burst >= 1) AND (burst <= 100000))),
    CONSTRAINT target_capability_check CHECK ((capability = ANY (ARRAY['native_key'::text, 'upsert_key'::text, 'searchable'::text, 'blind'::text]))),
    CONSTRAINT target_order_by_check CHECK (((order_by = 'target'::text) OR (order_by ~ '^/'::text))),
    CONSTRAINT target_rate_per_s_check CHECK ((rate_per_s > (0)::double precision))
);

CREATE TABLE deedbox.tenant (
    tenant text NOT NULL,
    created_at timestamp with time zone DEFAULT deedbox.clock() NOT NULL,
    CONSTRAINT tenant_tenant_check CHECK ((tenant ~ '^[a-z0-9][a-z0-9_-]{0,62}$'::text))
);

CREATE TABLE deedbox.tool_budget (
    parent_job_id uuid NOT NULL,
    calls integer NOT NULL,
    last_at timestamp with time zone NOT NULL,
    CONSTRAINT tool_budget_calls_check CHECK ((calls >= 0))
);

CREATE TABLE deedbox.tool_key (
    tenant text NOT NULL,
    action text NOT NULL,
    call_sha256 bytea NOT NULL,
    key text NOT NULL,
    until timestamp with time zone NOT NULL,
    call_id uuid NOT NULL,
    CONSTRAINT tool_key_call_sha256_check CHECK ((octet_length(call_sha256) = 32)),
    CONSTRAINT tool_key_key_check CHECK (((key ~ '\S'::text) AND (length(key) <= 255)))
);

CREATE TABLE deedbox.verdict (
    verdict_id uuid NOT NULL,
    job_id uuid NOT NULL,
    proposal_id uuid,
    group_name text NOT NULL,
    decision text NOT NULL,
    rule text NOT NULL,
    policy_version text NOT NULL,
    effect_digests bytea[] NOT NULL,
    decided_at timestamp with time zone NOT NULL,
    wanted text,
    drawn boolean,
    opens_at timestamp with time zone,
    CONSTRAINT verdict_decision_check CHECK ((decision = ANY (ARRAY['allow'::text, 'hold'::text, 'delay'::text, 'sample'::text, 'deny'::text])))
);

CREATE TABLE deedbox.vote (
    approval_id uuid NOT NULL,
    principal_id uuid NOT NULL,
    decision text NOT NULL,
    digest bytea NOT NULL,
    how text NOT NULL,
    voted_at timestamp with time zone NOT NULL,
    for_principal uuid,
    CONSTRAINT vote_decision_check CHECK ((decision = ANY (ARRAY['approve'::text, 'reject'::text])))
);

ALTER TABLE ONLY deedbox.action_limit
    ADD CONSTRAINT action_limit_pkey PRIMARY KEY (action);

ALTER TABLE ONLY deedbox.alert
    ADD CONSTRAINT alert_pkey PRIMARY KEY (alert_id);

ALTER TABLE ONLY deedbox.api_key
    ADD CONSTRAINT api_key_key_id_key UNIQUE (key_id);

ALTER TABLE ONLY deedbox.api_key
    ADD CONSTRAINT api_key_pkey PRIMARY KEY (key_sha256);

ALTER TABLE ONLY deedbox.approval_comment
    ADD CONSTRAINT approval_comment_pkey PRIMARY KEY (comment_id);

ALTER TABLE deedbox.approval
    ADD CONSTRAINT approval_consequence CHECK ((consequence = ANY (ARRAY['read'::text, 'reversible'::text, 'consequential'::text, 'grave'::text]))) NOT VALID;

ALTER TABLE deedbox.approval
    ADD CONSTRAINT approval_edited CHECK (((supersedes IS NULL) = (cardinality(editors) = 0))) NOT VALID;

ALTER TABLE ONLY deedbox.approval
    ADD CONSTRAINT approval_pkey PRIMARY KEY (approval_id);

ALTER TABLE ONLY deedbox.approval_snooze
    ADD CONSTRAINT approval_snooze_pkey PRIMARY KEY (approval_id, principal_id);

ALTER TABLE ONLY deedbox.approval_stage
    ADD CONSTRAINT approval_stage_pkey PRIMARY KEY (approval_id, stage);

ALTER TABLE ONLY deedbox.approval_token
    ADD CONSTRAINT approval_token_pkey PRIMARY KEY (token_sha256);

ALTER TABLE ONLY deedbox.attempt
    ADD CONSTRAINT attempt_pkey PRIMARY KEY (job_id, attempt_id, report);

ALTER TABLE ONLY deedbox.audit_detail
    ADD CONSTRAINT audit_detail_pkey PRIMARY KEY (seq);

ALTER TABLE ONLY deedbox.audit_head
    ADD CONSTRAINT audit_head_pkey PRIMARY KEY (only_row);

ALTER TABLE ONLY deedbox.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (seq);

ALTER TABLE ONLY deedbox.call
    ADD CONSTRAINT call_pkey PRIMARY KEY (call_id);

ALTER TABLE ONLY deedbox.callback
    ADD CONSTRAINT callback_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY deedbox.delegation
    ADD CONSTRAINT delegation_pkey PRIMARY KEY (delegation_id);

ALTER TABLE ONLY deedbox.document
    ADD CONSTRAINT document_pkey PRIMARY KEY (tenant, sha256);

ALTER TABLE ONLY deedbox.draw_salt
    ADD CONSTRAINT draw_salt_pkey PRIMARY KEY (only_row);

ALTER TABLE ONLY deedbox.effect
    ADD CONSTRAINT effect_job_id_connector_target_slot_key UNIQUE (job_id, connector, target, slot);

ALTER TABLE ONLY deedbox.effect
    ADD CONSTRAINT effect_pkey PRIMARY KEY (effect_id);

ALTER TABLE ONLY deedbox.event
    ADD CONSTRAINT event_pkey PRIMARY KEY (job_id, seq);

ALTER TABLE ONLY deedbox."grant"
    ADD CONSTRAINT grant_pkey PRIMARY KEY (principal_id, role);

ALTER TABLE ONLY deedbox.idempotency
    ADD CONSTRAINT idempotency_pkey PRIMARY KEY (tenant, action, key_sha256);

ALTER TABLE ONLY deedbox.identity
    ADD CONSTRAINT identity_pkey PRIMARY KEY (tenant, issuer, subject);

ALTER TABLE ONLY deedbox.job_document
    ADD CONSTRAINT job_document_pkey PRIMARY KEY (document_id);

ALTER TABLE ONLY deedbox.job_payload
    ADD CONSTRAINT job_payload_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY deedbox.job
    ADD CONSTRAINT job_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY deedbox.lane
    ADD CONSTRAINT lane_pkey PRIMARY KEY (lane_id);

ALTER TABLE ONLY deedbox.lane
    ADD CONSTRAINT lane_queue_action_tenant_key UNIQUE (queue, action, tenant);

ALTER TABLE ONLY deedbox.model_call
    ADD CONSTRAINT model_call_pkey PRIMARY KEY (call_id);

ALTER TABLE ONLY deedbox.notice
    ADD CONSTRAINT notice_once_key UNIQUE (once);

ALTER TABLE ONLY deedbox.notice
    ADD CONSTRAINT notice_pkey PRIMARY KEY (effect_id);

ALTER TABLE deedbox.principal
    ADD CONSTRAINT principal_email_check CHECK (((email IS NULL) OR ((kind = 'person'::text) AND (length(email) <= 254)))) NOT VALID;

ALTER TABLE ONLY deedbox.principal
    ADD CONSTRAINT principal_pkey PRIMARY KEY (principal_id);

ALTER TABLE ONLY deedbox.principal
    ADD CONSTRAINT principal_tenant_name_key UNIQUE (tenant, name);

ALTER TABLE ONLY deedbox.probe
    ADD CONSTRAINT probe_pkey PRIMARY KEY (probe_id);

ALTER TABLE ONLY deedbox.process
    ADD CONSTRAINT process_pkey PRIMARY KEY (process_id);

ALTER TABLE ONLY deedbox.proposal_effect
    ADD CONSTRAINT proposal_effect_pkey PRIMARY KEY (proposal_effect_id);

ALTER TABLE deedbox.proposal_effect
    ADD CONSTRAINT proposal_effect_pruned CHECK (((body IS NULL) = (pruned_at IS NOT NULL))) NOT VALID;

ALTER TABLE ONLY deedbox.proposal
    ADD CONSTRAINT proposal_pkey PRIMARY KEY (job_id, proposal_id);

ALTER TABLE ONLY deedbox.provider_login
    ADD CONSTRAINT provider_login_pkey PRIMARY KEY (state_sha256);

ALTER TABLE ONLY deedbox.queue
    ADD CONSTRAINT queue_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY deedbox.receipt
    ADD CONSTRAINT receipt_pkey PRIMARY KEY (job_id, receipt_id);

ALTER TABLE ONLY deedbox.result
    ADD CONSTRAINT result_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY deedbox.role
    ADD CONSTRAINT role_pkey PRIMARY KEY (role);

ALTER TABLE ONLY deedbox.rule_day
    ADD CONSTRAINT rule_day_pkey PRIMARY KEY (tenant, action, rule, day);

ALTER TABLE ONLY deedbox.schema_version
    ADD CONSTRAINT schema_version_pkey PRIMARY KEY (version);

ALTER TABLE ONLY deedbox.sensitive
    ADD CONSTRAINT sensitive_pkey PRIMARY KEY (kind, name, path);

ALTER TABLE ONLY deedbox.session
    ADD CONSTRAINT session_pkey PRIMARY KEY (session_sha256);

ALTER TABLE ONLY deedbox.shared_secret
    ADD CONSTRAINT shared_secret_pkey PRIMARY KEY (name);

ALTER TABLE ONLY deedbox.status_token
    ADD CONSTRAINT status_token_pkey PRIMARY KEY (token_sha256);

ALTER TABLE ONLY deedbox.step
    ADD CONSTRAINT step_pkey PRIMARY KEY (job_id, name);

ALTER TABLE ONLY deedbox.switch
    ADD CONSTRAINT switch_pkey PRIMARY KEY (switch_id);

ALTER TABLE ONLY deedbox.target
    ADD CONSTRAINT target_pkey PRIMARY KEY (tenant, connector, target);

ALTER TABLE ONLY deedbox.tenant
    ADD CONSTRAINT tenant_pkey PRIMARY KEY (tenant);

ALTER TABLE ONLY deedbox.tool_budget
    ADD CONSTRAINT tool_budget_pkey PRIMARY KEY (parent_job_id);

ALTER TABLE ONLY deedbox.tool_key
    ADD CONSTRAINT tool_key_pkey PRIMARY KEY (tenant, action, call_sha256);

ALTER TABLE deedbox.verdict
    ADD CONSTRAINT verdict_drawn CHECK (((decision <> 'sample'::text) OR (drawn IS FALSE))) NOT VALID;

ALTER TABLE deedbox.verdict
    ADD CONSTRAINT verdict_opens CHECK (((decision <> 'delay'::text) OR (opens_at IS NOT NULL))) NOT VALID;

ALTER TABLE ONLY deedbox.verdict
    ADD CONSTRAINT verdict_pkey PRIMARY KEY (verdict_id);

ALTER TABLE deedbox.verdict
    ADD CONSTRAINT verdict_wanted CHECK ((wanted = ANY (ARRAY['allow'::text, 'hold'::text, 'delay'::text, 'sample'::text, 'deny'::text]))) NOT VALID;

ALTER TABLE ONLY deedbox.vote
    ADD CONSTRAINT vote_pkey PRIMARY KEY (approval_id, principal_id);

CREATE INDEX alert_closed ON deedbox.alert USING btree (closed_at) WHERE (closed_at IS NOT NULL);

CREATE INDEX alert_effect ON deedbox.alert USING btree (effect_id, cause) WHERE (effect_id IS NOT NULL);

CREATE INDEX alert_notify ON deedbox.alert USING btree (notify_at) WHERE ((closed_at IS NULL) AND (notify_at IS NOT NULL));

CREATE UNIQUE INDEX alert_open ON deedbox.alert USING btree (tenant, cause, job_id, effect_id) NULLS NOT DISTINCT WHERE (closed_at IS NULL);

CREATE INDEX api_key_principal ON deedbox.api_key USING btree (principal_id);

CREATE INDEX approval_comment_of ON deedbox.approval_comment USING btree (approval_id, comment_id);

CREATE INDEX approval_escalate ON deedbox.approval USING btree (action, requested_at) WHERE ((state = 'pending'::text) AND (escalated_to IS NULL));

CREATE INDEX approval_held_input ON deedbox.approval USING btree (tenant, action) WHERE ((state = 'pending'::text) AND (purpose = 'input'::text));

CREATE INDEX approval_job ON deedbox.approval USING btree (job_id);

CREATE INDEX approval_notify ON deedbox.approval USING btree (notify_at) WHERE ((state = 'pending'::text) AND (notify_at IS NOT NULL));

CREATE INDEX approval_open ON deedbox.approval USING btree (tenant, expires_at) WHERE (state = 'pending'::text);

CREATE INDEX approval_sampled ON deedbox.approval USING btree (tenant, action, sampled_by, decided_at DESC) WHERE (sampled_by IS NOT NULL);

CREATE INDEX approval_token_approval ON deedbox.approval_token USING btree (approval_id);

CREATE INDEX audit_at ON deedbox.audit USING btree (at);

CREATE INDEX audit_subject ON deedbox.audit USING btree (subject_id, seq);

CREATE INDEX call_job ON deedbox.call USING btree (job_id);

CREATE INDEX delegation_approval ON deedbox.delegation USING btree (approval_id) WHERE (approval_id IS NOT NULL);

CREATE INDEX delegation_from ON deedbox.delegation USING btree (from_principal, delegation_id);

CREATE INDEX delegation_to ON deedbox.delegation USING btree (to_principal, delegation_id);

CREATE INDEX effect_alarm ON deedbox.effect USING btree (alarm_at) WHERE ((state = 'unknown'::text) AND (alarm_at IS NOT NULL));

CREATE INDEX effect_hindered ON deedbox.effect USING btree (effect_id) WHERE ((state = 'pending'::text) AND ((after_slot IS NOT NULL) OR doubtful));

CREATE INDEX effect_look_up ON deedbox.effect USING btree (look_up_at) WHERE ((state = 'unknown'::text) AND (look_up_at IS NOT NULL));

CREATE INDEX effect_not_after ON deedbox.effect USING btree (not_after) WHERE (state = 'pending'::text);

CREATE INDEX effect_open ON deedbox.effect USING btree (tenant, connector, target, order_key, effect_id) WHERE 
CASE
    WHEN (state = ANY (ARRAY['pending'::text, 'sending'::text, 'unknown'::text])) THEN true
    ELSE NULL::boolean
END;

CREATE INDEX effect_pending ON deedbox.effect USING btree (not_before) WHERE (state = 'pending'::text);

CREATE INDEX effect_sending ON deedbox.effect USING btree (lease_until) WHERE (state = 'sending'::text);

CREATE INDEX effect_unknown ON deedbox.effect USING btree (updated_at) WHERE (state = 'unknown'::text);

CREATE INDEX idempotency_expiry ON deedbox.idempotency USING btree (expires_at) WHERE (expires_at IS NOT NULL);

CREATE INDEX identity_principal ON deedbox.identity USING btree (principal_id);

CREATE INDEX job_caller_run ON ONLY deedbox.job USING btree (tenant, caller_run) WHERE (caller_run IS NOT NULL);

CREATE INDEX job_data_subject ON ONLY deedbox.job USING btree (tenant, data_subject) WHERE (data_subject IS NOT NULL);

CREATE INDEX job_document_content ON deedbox.job_document USING btree (tenant, sha256);

CREATE INDEX job_document_job ON deedbox.job_document USING btree (job_id);

CREATE INDEX job_parent ON ONLY deedbox.job USING btree (parent_job_id) WHERE (parent_job_id IS NOT NULL);

CREATE INDEX job_replaces ON ONLY deedbox.job USING btree (replaces) WHERE (replaces IS NOT NULL);

CREATE INDEX job_subject ON ONLY deedbox.job USING btree (tenant, subject, job_id);

CREATE INDEX lane_action ON deedbox.lane USING btree (action);

CREATE INDEX model_call_at ON deedbox.model_call USING btree (tenant, called_at);

CREATE INDEX model_call_job ON deedbox.model_call USING btree (job_id);

CREATE INDEX notice_alert ON deedbox.notice USING btree (alert_id) WHERE (alert_id IS NOT NULL);

CREATE INDEX notice_approval ON deedbox.notice USING btree (approval_id) WHERE (approval_id IS NOT NULL);

CREATE INDEX notice_job ON deedbox.notice USING btree (job_id) WHERE (job_id IS NOT NULL);

CREATE INDEX probe_effect ON deedbox.probe USING btree (effect_id, probed_at);

CREATE INDEX proposal_effect_job ON deedbox.proposal_effect USING btree (job_id);

CREATE INDEX provider_login_expires ON deedbox.provider_login USING btree (expires_at);

CREATE INDEX queue_deadline ON deedbox.queue USING btree (deadline) WHERE (deadline IS NOT NULL);

CREATE INDEX queue_not_yet ON deedbox.queue USING btree (run_at) WHERE ((state = 'queued'::text) AND (NOT due));

CREATE INDEX queue_parked ON deedbox.queue USING btree (state, job_id) WHERE (state = ANY (ARRAY['awaiting_human'::text, 'dispatching'::text, 'failed_retryable'::text]));

CREATE INDEX queue_ready ON deedbox.queue USING btree (lane_id, priority, job_id) WHERE ((state = 'queued'::text) AND due);

CREATE INDEX queue_running ON deedbox.queue USING btree (lane_id) WHERE (state = 'running'::text);

CREATE INDEX receipt_provider ON ONLY deedbox.receipt USING btree (hashtextextended(provider_id, (0)::bigint));

CREATE UNIQUE INDEX session_name ON deedbox.session USING btree (session_id);

CREATE INDEX session_principal ON deedbox.session USING btree (principal_id);

CREATE INDEX status_token_expires ON deedbox.status_token USING btree (expires_at);

CREATE INDEX target_gate ON deedbox.target USING btree (tenant, connector, target) WHERE (gated OR (open_until IS NOT NULL) OR (failures > 0));

CREATE INDEX tool_budget_last ON deedbox.tool_budget USING btree (last_at);

CREATE INDEX tool_key_key ON deedbox.tool_key USING hash (key);

CREATE INDEX tool_key_until ON deedbox.tool_key USING btree (until);

CREATE INDEX verdict_job ON deedbox.verdict USING btree (job_id);

CREATE INDEX vote_person ON deedbox.vote USING btree (principal_id, voted_at DESC);

CREATE UNIQUE INDEX vote_say ON deedbox.vote USING btree (approval_id, COALESCE(for_principal, principal_id));

CREATE TRIGGER approval_guard BEFORE UPDATE ON deedbox.approval FOR EACH ROW WHEN ((old.state IS DISTINCT FROM new.state)) EXECUTE FUNCTION deedbox.guard();

CREATE TRIGGER audit_chained AFTER INSERT ON deedbox.audit FOR EACH ROW EXECUTE FUNCTION deedbox.audit_chain();

CREATE TRIGGER audit_detail_guard BEFORE UPDATE ON deedbox.audit_detail FOR EACH ROW EXECUTE FUNCTION deedbox.guard();

CREATE TRIGGER audit_detail_guard_truncate BEFORE TRUNCATE ON deedbox.audit_detail FOR EACH STATEMENT EXECUTE FUNCTION deedbox.guard();

CREATE TRIGGER audit_guard BEFORE DELETE OR UPDATE ON deedbox.audit FOR EACH ROW EXECUTE FUNCTION deedbox.guard();

CREATE TRIGGER audit_guard_truncate BEFORE TRUNCATE ON deedbox.audit FOR EACH STATEMENT EXECUTE FUNCTION deedbox.guard();

CREATE TRIGGER audit_head_chained AFTER UPDATE ON deedbox.audit_head FOR EACH ROW EXECUTE FUNCTION deedbox.audit_chain();

CREATE TRIGGER audit_head_guard BEFORE INSERT OR DELETE ON deedbox.audit_head FOR EACH ROW EXECUTE FUNCTION deedbox.guard();

CREATE TRIGGER audit_head_guard_truncate BEFORE TRUNCATE ON deedbox.audit_head FOR EACH STATEMENT EXECUTE FUNCTION deedbox.guard();

CREATE TRIGGER effect_guard BEFORE UPDATE ON deedbox.effect FOR EACH ROW WHEN (((old.state IS DISTINCT FROM new.state) OR (old.digest IS DISTINCT FROM new.digest) OR (old.target IS DISTINCT FROM new.target) OR (old.connector IS DISTINCT FROM new.connector))) EXECUTE FUNCTION deedbox.guard();

CREATE TRIGGER effect_guard_insert BEFORE INSERT ON deedbox.effect FOR EACH ROW EXECUTE FUNCTION deedbox.guard();

CREATE TRIGGER effect_guard_notice BEFORE INSERT ON deedbox.effect FOR EACH ROW WHEN (((new.kind = 'notice'::text) OR (new.verdict_id IS NOT NULL))) EXECUTE FUNCTION deedbox.guard_notice();

CREATE TRIGGER effect_verdict BEFORE INSERT ON deedbox.effect FOR EACH ROW WHEN ((new.verdict_id IS NOT NULL)) EXECUTE FUNCTION deedbox.guard_verdict();

CREATE TRIGGER queue_guard BEFORE UPDATE ON deedbox.queue FOR EACH ROW WHEN (((old.state IS DISTINCT FROM new.state) AND (NOT ((old.state = 'queued'::text) AND (new.state = 'running'::text))))) EXECUTE FUNCTION deedbox.guard();

CREATE TRIGGER queue_guard_delete BEFORE DELETE ON deedbox.queue FOR EACH ROW WHEN ((old.state <> 'running'::text)) EXECUTE FUNCTION deedbox.guard();

ALTER TABLE ONLY deedbox.api_key
    ADD CONSTRAINT api_key_principal_id_fkey FOREIGN KEY (principal_id) REFERENCES deedbox.principal(principal_id);

ALTER TABLE ONLY deedbox.api_key
    ADD CONSTRAINT api_key_tenant_fkey FOREIGN KEY (tenant) REFERENCES deedbox.tenant(tenant);

ALTER TABLE ONLY deedbox.approval_comment
    ADD CONSTRAINT approval_comment_approval_id_fkey FOREIGN KEY (approval_id) REFERENCES deedbox.approval(approval_id) ON DELETE CASCADE;

ALTER TABLE ONLY deedbox.approval_comment
    ADD CONSTRAINT approval_comment_principal_id_fkey FOREIGN KEY (principal_id) REFERENCES deedbox.principal(principal_id);

ALTER TABLE ONLY deedbox.approval_snooze
    ADD CONSTRAINT approval_snooze_approval_id_fkey FOREIGN KEY (approval_id) REFERENCES deedbox.approval(approval_id) ON DELETE CASCADE;

ALTER TABLE ONLY deedbox.approval_snooze
    ADD CONSTRAINT approval_snooze_principal_id_fkey FOREIGN KEY (principal_id) REFERENCES deedbox.principal(principal_id);

ALTER TABLE ONLY deedbox.approval_stage
    ADD CONSTRAINT approval_stage_approval_id_fkey FOREIGN KEY (approval_id) REFERENCES deedbox.approval(approval_id) ON DELETE CASCADE;

ALTER TABLE ONLY deedbox.approval_token
    ADD CONSTRAINT approval_token_approval_id_fkey FOREIGN KEY (approval_id) REFERENCES deedbox.approval(approval_id);

ALTER TABLE ONLY deedbox.audit_detail
    ADD CONSTRAINT audit_detail_seq_fkey FOREIGN KEY (seq) REFERENCES deedbox.audit(seq);

ALTER TABLE ONLY deedbox.delegation
    ADD CONSTRAINT delegation_approval_id_fkey FOREIGN KEY (approval_id) REFERENCES deedbox.approval(approval_id);

ALTER TABLE ONLY deedbox.delegation
    ADD CONSTRAINT delegation_from_principal_fkey FOREIGN KEY (from_principal) REFERENCES deedbox.principal(principal_id);

ALTER TABLE ONLY deedbox.delegation
    ADD CONSTRAINT delegation_tenant_fkey FOREIGN KEY (tenant) REFERENCES deedbox.tenant(tenant);

ALTER TABLE ONLY deedbox.delegation
    ADD CONSTRAINT delegation_to_principal_fkey FOREIGN KEY (to_principal) REFERENCES deedbox.principal(principal_id);

ALTER TABLE ONLY deedbox.effect
    ADD CONSTRAINT effect_approval_id_fkey FOREIGN KEY (approval_id) REFERENCES deedbox.approval(approval_id);

ALTER TABLE ONLY deedbox.effect
    ADD CONSTRAINT effect_proposal_effect_id_fkey FOREIGN KEY (proposal_effect_id) REFERENCES deedbox.proposal_effect(proposal_effect_id);

ALTER TABLE ONLY deedbox.effect
    ADD CONSTRAINT effect_verdict_id_fkey FOREIGN KEY (verdict_id) REFERENCES deedbox.verdict(verdict_id);

ALTER TABLE ONLY deedbox."grant"
    ADD CONSTRAINT grant_principal_id_fkey FOREIGN KEY (principal_id) REFERENCES deedbox.principal(principal_id);

ALTER TABLE ONLY deedbox.identity
    ADD CONSTRAINT identity_principal_id_fkey FOREIGN KEY (principal_id) REFERENCES deedbox.principal(principal_id);

ALTER TABLE ONLY deedbox.identity
    ADD CONSTRAINT identity_tenant_fkey FOREIGN KEY (tenant) REFERENCES deedbox.tenant(tenant);

ALTER TABLE ONLY deedbox.job_document
    ADD CONSTRAINT job_document_tenant_sha256_fkey FOREIGN KEY (tenant, sha256) REFERENCES deedbox.document(tenant, sha256);

ALTER TABLE ONLY deedbox.principal
    ADD CONSTRAINT principal_tenant_fkey FOREIGN KEY (tenant) REFERENCES deedbox.tenant(tenant);

ALTER TABLE ONLY deedbox.session
    ADD CONSTRAINT session_principal_id_fkey FOREIGN KEY (principal_id) REFERENCES deedbox.principal(principal_id);

ALTER TABLE ONLY deedbox.vote
    ADD CONSTRAINT vote_approval_id_fkey FOREIGN KEY (approval_id) REFERENCES deedbox.approval(approval_id);
