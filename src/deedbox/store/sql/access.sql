-- name: add_person
-- Make a person with a password and roles. Returns the id, or nothing when the name is taken or the tenant is unknown.
WITH made AS (
    INSERT INTO deedbox.principal (principal_id, tenant, kind, name, password_hash, email)
    SELECT %(principal_id)s, tenant, 'person', %(name)s, %(password_hash)s, %(email)s FROM deedbox.tenant WHERE tenant = %(tenant)s
    ON CONFLICT (tenant, name) DO NOTHING
    RETURNING principal_id
), granted AS (
    INSERT INTO deedbox."grant" (principal_id, role)
    SELECT made.principal_id, role FROM made CROSS JOIN unnest(%(roles)s::text[]) AS r (role)
)
SELECT principal_id FROM made

-- name: add_service
-- Make a service with roles. Returns the id, or nothing when the name is taken or the tenant is unknown.
WITH made AS (
    INSERT INTO deedbox.principal (principal_id, tenant, kind, name)
    SELECT %(principal_id)s, tenant, 'service', %(name)s FROM deedbox.tenant WHERE tenant = %(tenant)s
    ON CONFLICT (tenant, name) DO NOTHING
    RETURNING principal_id
), granted AS (
    INSERT INTO deedbox."grant" (principal_id, role)
    SELECT made.principal_id, role FROM made CROSS JOIN unnest(%(roles)s::text[]) AS r (role)
)
SELECT principal_id FROM made

-- name: disable
-- Disable the active principal of that name and end its sessions, so that none of them lives again once it is enabled.
WITH gone AS (
    UPDATE deedbox.principal SET disabled_at = deedbox.clock()
    WHERE tenant = %(tenant)s AND name = %(name)s AND disabled_at IS NULL
    RETURNING principal_id, kind
), ended AS (
    UPDATE deedbox.session s SET revoked_at = deedbox.clock()
    FROM gone WHERE s.principal_id = gone.principal_id AND s.revoked_at IS NULL
    RETURNING true
)
SELECT principal_id, kind, (SELECT count(*) FROM ended) FROM gone

-- name: enable
-- Enable the disabled principal of that name. A session that a login opened while it was being disabled ends with it.
WITH back AS (
    UPDATE deedbox.principal SET disabled_at = NULL
    WHERE tenant = %(tenant)s AND name = %(name)s AND disabled_at IS NOT NULL
    RETURNING principal_id, kind
), ended AS (
    UPDATE deedbox.session s SET revoked_at = deedbox.clock()
    FROM back WHERE s.principal_id = back.principal_id AND s.revoked_at IS NULL
)
SELECT principal_id, kind FROM back

-- name: grant_roles
-- Give roles to the principal of that name, disabled or not. Returns those it did not have.
WITH whose AS (
    SELECT principal_id, kind FROM deedbox.principal WHERE tenant = %(tenant)s AND name = %(name)s
), given AS (
    INSERT INTO deedbox."grant" (principal_id, role)
    SELECT whose.principal_id, role FROM whose CROSS JOIN unnest(%(roles)s::text[]) AS r (role)
    ON CONFLICT (principal_id, role) DO NOTHING
    RETURNING role
)
SELECT principal_id, kind, (SELECT coalesce(array_agg(role ORDER BY role), '{}') FROM given) FROM whose

-- name: withdraw_roles
-- Take roles from the principal of that name, disabled or not. Returns those it had.
WITH whose AS (
    SELECT principal_id, kind FROM deedbox.principal WHERE tenant = %(tenant)s AND name = %(name)s
), taken AS (
    DELETE FROM deedbox."grant" g USING whose
    WHERE g.principal_id = whose.principal_id AND g.role = ANY(%(roles)s::text[])
    RETURNING g.role
)
SELECT principal_id, kind, (SELECT coalesce(array_agg(role ORDER BY role), '{}') FROM taken) FROM whose

-- name: set_email
-- Where a person is written to, or nowhere. Nothing for a name that no person has.
UPDATE deedbox.principal SET email = %(email)s
WHERE tenant = %(tenant)s AND name = %(name)s AND kind = 'person'
RETURNING principal_id, kind

-- name: named
-- The living principal of that name with its kind, its password hash (people only) and its roles.
SELECT p.principal_id, p.kind, p.password_hash,
       (SELECT coalesce(array_agg(g.role ORDER BY g.role), '{}') FROM deedbox."grant" g WHERE g.principal_id = p.principal_id)
FROM deedbox.principal p
WHERE p.tenant = %(tenant)s AND p.name = %(name)s AND p.disabled_at IS NULL

-- name: rehash
-- Keep a password under newer parameters, unless it was changed since it was read.
UPDATE deedbox.principal SET password_hash = %(new_hash)s
WHERE principal_id = %(principal_id)s AND password_hash = %(old_hash)s

-- name: add_key
-- Keep the hash of a new key of a service; `expires_s` counts from the database's clock.
INSERT INTO deedbox.api_key (key_sha256, key_id, tenant, principal_id, kind, label, expires_at)
VALUES (%(key_sha256)s, %(key_id)s, %(tenant)s, %(principal_id)s, 'service', %(label)s,
        deedbox.clock() + make_interval(secs => %(expires_s)s::float8))

-- name: keys
-- The keys of a tenant, newest first, without anything that opens a door.
SELECT k.key_id, p.name, k.label, k.created_at, k.expires_at, k.last_used_at, k.revoked_at
FROM deedbox.api_key k JOIN deedbox.principal p USING (principal_id)
WHERE k.tenant = %(tenant)s
ORDER BY k.created_at DESC, k.key_id DESC

-- name: revoke_key
-- End a key of the tenant at once. Returns its service's name and its label when it was alive.
UPDATE deedbox.api_key k SET revoked_at = deedbox.clock()
FROM deedbox.principal p
WHERE p.principal_id = k.principal_id AND k.tenant = %(tenant)s AND k.key_id = %(key_id)s AND k.revoked_at IS NULL
RETURNING p.name, k.label

-- name: resolve_key
-- Who holds this key: alive, not expired, of a service that is not disabled. The last use is noted at most once a minute.
-- Form and personal keys carry less than their principal's roles, so they are not answered here.
WITH found AS (
    SELECT k.key_sha256, k.last_used_at, p.principal_id, p.tenant, p.name
    FROM deedbox.api_key k JOIN deedbox.principal p ON p.principal_id = k.principal_id AND p.tenant = k.tenant
    WHERE k.key_sha256 = %(key_sha256)s AND k.kind = 'service' AND p.kind = 'service'
      AND k.revoked_at IS NULL AND p.disabled_at IS NULL
      AND (k.expires_at IS NULL OR k.expires_at > deedbox.clock())
), used AS (
    UPDATE deedbox.api_key k SET last_used_at = deedbox.clock()
    FROM found
    WHERE k.key_sha256 = found.key_sha256
      AND (found.last_used_at IS NULL OR found.last_used_at < deedbox.clock() - interval '1 minute')
)
SELECT principal_id, tenant, name,
       (SELECT coalesce(array_agg(g.role ORDER BY g.role), '{}') FROM deedbox."grant" g WHERE g.principal_id = found.principal_id)
FROM found

-- name: open_session
-- Open a session of a person and end the one it replaces, so that a session id never survives a login. Returns whether that
-- one was open.
WITH ended AS (
    UPDATE deedbox.session SET revoked_at = deedbox.clock()
    WHERE session_sha256 = %(replaces)s::bytea AND revoked_at IS NULL
    RETURNING true
)
INSERT INTO deedbox.session (session_sha256, principal_id, method, csrf_sha256, expires_at)
VALUES (%(session_sha256)s, %(principal_id)s, %(method)s, %(csrf_sha256)s,
        deedbox.clock() + make_interval(secs => %(absolute_s)s::float8))
RETURNING EXISTS (SELECT FROM ended)

-- name: session
-- Who this session belongs to: neither ended, idle nor too old, of a person of the tenant who is not disabled. Being seen is
-- noted at most once a minute, so that looking at a page again writes nothing.
WITH found AS (
    SELECT s.session_sha256, s.seen_at, s.csrf_sha256, p.principal_id, p.tenant, p.name
    FROM deedbox.session s JOIN deedbox.principal p USING (principal_id)
    WHERE s.session_sha256 = %(session_sha256)s AND s.revoked_at IS NULL
      AND s.expires_at > deedbox.clock() AND s.seen_at > deedbox.clock() - make_interval(secs => %(idle_s)s::float8)
      AND p.disabled_at IS NULL AND p.kind = 'person'
), seen AS (
    UPDATE deedbox.session s SET seen_at = deedbox.clock()
    FROM found
    WHERE s.session_sha256 = found.session_sha256 AND found.seen_at < deedbox.clock() - interval '1 minute'
)
SELECT principal_id, tenant, name,
       (SELECT coalesce(array_agg(g.role ORDER BY g.role), '{}') FROM deedbox."grant" g WHERE g.principal_id = found.principal_id),
       csrf_sha256
FROM found

-- name: close_session
-- End a session at once. Returns whose it was, when it was open.
UPDATE deedbox.session s SET revoked_at = deedbox.clock()
FROM deedbox.principal p
WHERE p.principal_id = s.principal_id AND s.session_sha256 = %(session_sha256)s AND s.revoked_at IS NULL
RETURNING p.principal_id, p.tenant, p.name

-- name: close_sessions
-- End every open session of a person. Returns one row per session that was open.
UPDATE deedbox.session s SET revoked_at = deedbox.clock()
FROM deedbox.principal p
WHERE p.principal_id = s.principal_id AND p.tenant = %(tenant)s AND p.name = %(name)s AND s.revoked_at IS NULL
RETURNING p.principal_id

-- name: link
-- What the holder of a link may know before login: the action, who asks, until when, and how it stands; never what it says or
-- whom it reaches. Nothing for a link that is unknown, used up, too old or of another approval.
SELECT a.action, coalesce(p.name, ''), a.expires_at, a.state
FROM deedbox.approval_token t
JOIN deedbox.approval a USING (approval_id)
LEFT JOIN deedbox.job j ON j.job_id = a.job_id
LEFT JOIN deedbox.principal p ON p.principal_id = j.subject AND p.tenant = a.tenant
WHERE t.token_sha256 = %(token_sha256)s AND t.approval_id = %(approval_id)s AND a.tenant = %(tenant)s
  AND t.voided_at IS NULL AND t.expires_at > deedbox.clock()
