-- name: begin
-- Remember a login that leaves for a provider, where not too many are under way, and clear away some that are over.
WITH over AS (
    DELETE FROM deedbox.provider_login WHERE state_sha256 IN (
        SELECT state_sha256 FROM deedbox.provider_login WHERE expires_at <= deedbox.clock() ORDER BY expires_at LIMIT 100
        FOR UPDATE SKIP LOCKED
    )
)
INSERT INTO deedbox.provider_login (state_sha256, browser_sha256, nonce_sha256, provider, goes_to, fresh, expires_at)
SELECT %(state_sha256)s, %(browser_sha256)s, %(nonce_sha256)s, %(provider)s, %(goes_to)s, %(fresh)s,
       deedbox.clock() + make_interval(secs => %(expires_s)s::float8)
WHERE (SELECT count(*) FROM (
    SELECT FROM deedbox.provider_login WHERE expires_at > deedbox.clock() LIMIT %(most)s) AS living) < %(most)s
RETURNING true

-- name: take
-- Use up a login that came back to the browser and the provider it left from: this row answers once. The time is for the
-- claims that are checked next.
DELETE FROM deedbox.provider_login
WHERE state_sha256 = %(state_sha256)s AND browser_sha256 = %(browser_sha256)s AND provider = %(provider)s
RETURNING nonce_sha256, goes_to, fresh, expires_at > deedbox.clock(), extract(epoch FROM deedbox.clock())::float8

-- name: lock
-- Whoever logs in as the same subject waits until this transaction is over.
SELECT pg_advisory_xact_lock(hashtextextended(%(tenant)s || chr(10) || %(issuer)s || chr(10) || %(subject)s, 13))

-- name: person
-- The person whom a provider calls so, disabled or not.
SELECT p.principal_id, p.name, p.disabled_at IS NOT NULL
FROM deedbox.identity i JOIN deedbox.principal p USING (principal_id)
WHERE i.tenant = %(tenant)s AND i.issuer = %(issuer)s AND i.subject = %(subject)s

-- name: issuers
-- The providers at which a person is known.
SELECT issuer FROM deedbox.identity WHERE principal_id = %(principal_id)s ORDER BY linked_at

-- name: make
-- Make a person whom a provider calls so. No row where the name is taken, or there is no such tenant.
WITH made AS (
    INSERT INTO deedbox.principal (principal_id, tenant, kind, name)
    SELECT %(principal_id)s, tenant, 'person', %(name)s FROM deedbox.tenant WHERE tenant = %(tenant)s
    ON CONFLICT (tenant, name) DO NOTHING
    RETURNING principal_id, tenant
)
INSERT INTO deedbox.identity (tenant, issuer, subject, principal_id)
SELECT tenant, %(issuer)s, %(subject)s, principal_id FROM made
RETURNING principal_id

-- name: set_roles
-- Make the roles that a provider's groups give exactly these. What was granted here stays, and a name that is no role gives nothing.
WITH taken AS (
    DELETE FROM deedbox."grant"
    WHERE principal_id = %(principal_id)s AND source = 'provider' AND NOT role = ANY (%(roles)s::text[])
    RETURNING role
), given AS (
    INSERT INTO deedbox."grant" (principal_id, role, source)
    SELECT %(principal_id)s, r.role, 'provider' FROM deedbox.role r WHERE r.role = ANY (%(roles)s::text[])
    ON CONFLICT (principal_id, role) DO NOTHING
    RETURNING role
)
SELECT ARRAY(SELECT role FROM given ORDER BY role), ARRAY(SELECT role FROM taken ORDER BY role)

-- name: roles
-- The roles of a principal and what they may do.
SELECT (SELECT coalesce(array_agg(g.role ORDER BY g.role), '{}') FROM deedbox."grant" g WHERE g.principal_id = %(principal_id)s),
       deedbox.verbs_of(%(principal_id)s)
