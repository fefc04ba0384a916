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
-- Give roles to the principal of that name, disabled or not. Returns those it did not have, or had from a provider's group alone.
WITH whose AS (
    SELECT principal_id, kind FROM deedbox.principal WHERE tenant = %(tenant)s AND name = %(name)s
), given AS (
    INSERT INTO deedbox."grant" (principal_id, role)
    SELECT whose.principal_id, role FROM whose CROSS JOIN unnest(%(roles)s::text[]) AS r (role)
    ON CONFLICT (principal_id, role) DO UPDATE SET source = 'local' WHERE "grant".source <> 'local'
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
-- The living principal of that name with its kind, its password hash (people only), its roles and what they may do.
SELECT p.principal_id, p.kind, p.password_hash,
       (SELECT coalesce(array_agg(g.role ORDER BY g.role), '{}') FROM deedbox."grant" g WHERE g.principal_id = p.principal_id),
       deedbox.verbs_of(p.principal_id)
FROM deedbox.principal p
WHERE p.tenant = %(tenant)s AND p.name = %(name)s AND p.disabled_at IS NULL

-- name: rehash
-- Keep a password under newer parameters, unless it was changed since it was read.
UPDATE deedbox.principal SET password_hash = %(new_hash)s
WHERE principal_id = %(principal_id)s AND password_hash = %(old_hash)s

-- name: open_session
-- Open a session of a person and end the one it replaces, so that a session id never survives a login. Returns whether that
-- one was open. When the person proved who it is stays null where nobody knows.
WITH ended AS (
    UPDATE deedbox.session SET revoked_at = deedbox.clock()
    WHERE session_sha256 = %(replaces)s::bytea AND revoked_at IS NULL
    RETURNING true
)
INSERT INTO deedbox.session (session_sha256, principal_id, method, csrf_sha256, expires_at, authenticated_at, peer)
VALUES (%(session_sha256)s, %(principal_id)s, %(method)s, %(csrf_sha256)s,
        deedbox.clock() + make_interval(secs => %(absolute_s)s::float8),
        deedbox.clock() - make_interval(secs => %(authenticated_s_ago)s::float8), %(peer)s)
RETURNING EXISTS (SELECT FROM ended)

-- name: session
-- Who this session belongs to: neither ended, idle nor too old, of a person of the tenant who is not disabled. Being seen is
-- noted at most once a minute, so that looking at a page again writes nothing.
WITH found AS (
    SELECT s.session_sha256, s.seen_at, s.csrf_sha256, s.session_id, s.method, s.authenticated_at, p.principal_id, p.tenant, p.name
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
       csrf_sha256, deedbox.verbs_of(principal_id), session_id, method,
       -- Not `greatest` alone: it passes over a null, and what nobody knows would count as now.
       CASE WHEN authenticated_at IS NOT NULL THEN greatest(0, extract(epoch FROM deedbox.clock() - authenticated_at)) END::float8
FROM found

-- name: close_session
-- End a session at once. Returns whose it was, when it was open.
UPDATE deedbox.session s SET revoked_at = deedbox.clock()
FROM deedbox.principal p
WHERE p.principal_id = s.principal_id AND s.session_sha256 = %(session_sha256)s AND s.revoked_at IS NULL
RETURNING p.principal_id, p.tenant, p.name

-- name: close_sessions
-- End the open sessions of a person, or the one of them that is named. Returns one row per session that was open.
UPDATE deedbox.session s SET revoked_at = deedbox.clock()
FROM deedbox.principal p
WHERE p.principal_id = s.principal_id AND p.tenant = %(tenant)s AND p.name = %(name)s AND s.revoked_at IS NULL
    AND (%(session_id)s::uuid IS NULL OR s.session_id = %(session_id)s)
RETURNING p.principal_id

-- name: sessions
-- The living sessions of a person, the newest first, without anything that opens a door.
SELECT s.session_id, s.method, s.created_at, s.authenticated_at, s.seen_at, s.expires_at, s.peer
FROM deedbox.session s JOIN deedbox.principal p USING (principal_id)
WHERE p.tenant = %(tenant)s AND p.name = %(name)s AND s.revoked_at IS NULL AND s.expires_at > deedbox.clock()
    AND s.seen_at > deedbox.clock() - make_interval(secs => %(idle_s)s::float8)
ORDER BY s.created_at DESC, s.session_id

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
