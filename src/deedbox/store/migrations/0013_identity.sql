-- Roles as rows, people from a provider, keys of forms and people, and calls of a service for a person. Locks: ACCESS EXCLUSIVE on
-- "grant", api_key, status_token, call and job for the moment of adding columns, and on session while its few rows are written
-- anew; SHARE ROW EXCLUSIVE on principal and tenant for the moment of adding keys to them; nothing else is rewritten.

-- What a role may do, the built-in ones and your own. A grant names a role that is here.
CREATE TABLE deedbox.role (
    role text PRIMARY KEY CHECK (role ~ '^[a-z][a-z0-9_]{0,62}$'),
    verbs text[] NOT NULL,
    built_in boolean NOT NULL DEFAULT false,
    made_at timestamptz NOT NULL DEFAULT deedbox.clock(),
    CONSTRAINT role_verbs CHECK (verbs <@ ARRAY[
        -- >>> derived identity.verbs
        'submit',
        'read',
        'retry',
        'take_up',
        'replace',
        'cancel',
        'decide',
        'reconcile',
        'switch',
        'administer'
        -- <<< derived identity.verbs
    ])
);
INSERT INTO deedbox.role (role, verbs, built_in) VALUES
    -- >>> derived identity.roles
    ('viewer', '{read}', true),
    ('operator', '{submit,read,retry,take_up,replace,cancel,reconcile}', true),
    ('manager', '{submit,read,retry,take_up,replace,cancel,decide,reconcile,switch}', true),
    ('admin', '{submit,read,retry,take_up,replace,cancel,decide,reconcile,switch,administer}', true)
    -- <<< derived identity.roles
;
-- Roles of one's own that were granted before roles were rows: names, without a verb, as they were.
INSERT INTO deedbox.role (role, verbs) SELECT DISTINCT role, '{}'::text[] FROM deedbox."grant" ON CONFLICT (role) DO NOTHING;

-- What a principal may do by all of its roles.
CREATE FUNCTION deedbox.verbs_of(principal uuid) RETURNS text[] LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT coalesce(array_agg(DISTINCT v.verb), '{}')
    FROM deedbox."grant" g JOIN deedbox.role r ON r.role = g.role CROSS JOIN LATERAL unnest(r.verbs) AS v (verb)
    WHERE g.principal_id = principal
$$;

-- A role from a provider's group goes with the group; one that was granted here stays.
ALTER TABLE deedbox."grant" ADD COLUMN source text NOT NULL DEFAULT 'local' CHECK (source IN ('local', 'provider'));

-- Who a person is at a provider. Neither a name nor a mail address leads here.
CREATE TABLE deedbox.identity (
    tenant text NOT NULL REFERENCES deedbox.tenant,
    issuer text NOT NULL CHECK (issuer ~ '\S'),
    subject text NOT NULL CHECK (subject ~ '\S' AND length(subject) <= 255),
    principal_id uuid NOT NULL REFERENCES deedbox.principal,
    linked_at timestamptz NOT NULL DEFAULT deedbox.clock(),
    PRIMARY KEY (tenant, issuer, subject)
);
CREATE INDEX identity_principal ON deedbox.identity (principal_id);

-- Logins under way at a provider: hashes alone. The browser holds what the nonce and the PKCE verifier are made from.
CREATE TABLE deedbox.provider_login (
    state_sha256 bytea PRIMARY KEY CHECK (octet_length(state_sha256) = 32),
    browser_sha256 bytea NOT NULL CHECK (octet_length(browser_sha256) = 32),
    nonce_sha256 bytea NOT NULL CHECK (octet_length(nonce_sha256) = 32),
    provider text NOT NULL,
    goes_to text NOT NULL,
    fresh boolean NOT NULL,
    begun_at timestamptz NOT NULL DEFAULT deedbox.clock(),
    expires_at timestamptz NOT NULL
);
CREATE INDEX provider_login_expires ON deedbox.provider_login (expires_at);

-- A session has a name that opens nothing, and says when its person last proved who it is; null where nobody knows.
ALTER TABLE deedbox.session
    ADD COLUMN session_id uuid NOT NULL DEFAULT gen_random_uuid(),
    ADD COLUMN authenticated_at timestamptz,
    ADD COLUMN peer text;
UPDATE deedbox.session SET authenticated_at = created_at;
CREATE UNIQUE INDEX session_name ON deedbox.session (session_id);

ALTER TABLE deedbox.api_key
    ADD COLUMN acts_for_others boolean NOT NULL DEFAULT false,
    ADD COLUMN rate_per_minute integer CHECK (rate_per_minute BETWEEN 1 AND 100000),
    ADD COLUMN tokens double precision,
    ADD COLUMN tokens_at timestamptz,
    ADD COLUMN replaced_by uuid,
    ADD CONSTRAINT api_key_form CHECK (
        (kind = 'form') = (num_nonnulls(action, origins, rate_per_minute) = 3)
        AND (kind = 'form' OR num_nonnulls(action, origins, rate_per_minute) = 0)),
    ADD CONSTRAINT api_key_personal CHECK (kind <> 'personal' OR expires_at <= created_at + interval '8 hours'),
    ADD CONSTRAINT api_key_acts CHECK (kind = 'service' OR NOT acts_for_others);

ALTER TABLE deedbox.status_token
    ADD COLUMN key_id uuid,
    ADD COLUMN made_at timestamptz NOT NULL DEFAULT deedbox.clock();
CREATE INDEX status_token_expires ON deedbox.status_token (expires_at);

-- The service through which a person's call came.
ALTER TABLE deedbox.job ADD COLUMN through uuid;
ALTER TABLE deedbox.call ADD COLUMN through uuid;

CREATE OR REPLACE VIEW deedbox.every_call AS
    SELECT call_id, called_at, tenant, subject, role, claimed_role, source, action, job_id, parent_job_id, attempt_id, approval_id,
           key_sha256, input_sha256, trace, caller_run, status, error_code, duration_ms, detail, through
    FROM deedbox.call
    UNION ALL
    SELECT j.job_id, j.created_at, j.tenant, j.subject, j.role, NULL, j.source, j.action, j.job_id, j.parent_job_id, NULL, NULL,
           j.key_sha256, i.payload_sha256, j.trace, j.caller_run, 'accepted', NULL, NULL, NULL, j.through
    FROM deedbox.job j
    LEFT JOIN deedbox.idempotency i ON i.tenant = j.tenant AND i.action = j.action AND i.key_sha256 = j.key_sha256;
