-- name: server
-- The server's version as a number and as text, and whether the user of this connection is a superuser.
SELECT current_setting('server_version_num')::integer, current_setting('server_version'), current_user::text,
       (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)

-- name: roles
-- Those of Deedbox's two roles that this server has.
SELECT rolname::text FROM pg_roles WHERE rolname IN ('deedbox_owner', 'deedbox_app') ORDER BY rolname

-- name: people
-- Everybody of a tenant who can be somebody here, people before services, each with roles and living keys.
SELECT p.name, p.kind,
       (SELECT coalesce(array_agg(g.role ORDER BY g.role), '{}') FROM deedbox."grant" g WHERE g.principal_id = p.principal_id),
       (SELECT count(*) FROM deedbox.api_key k WHERE k.principal_id = p.principal_id AND k.revoked_at IS NULL
            AND (k.expires_at IS NULL OR k.expires_at > deedbox.clock())),
       p.created_at, p.disabled_at
FROM deedbox.principal p WHERE p.tenant = %(tenant)s ORDER BY p.kind, p.name

-- name: figures
-- What waits for somebody: unknown effects, open alerts, pending approvals, of one tenant.
SELECT (SELECT count(*) FROM deedbox.effect WHERE tenant = %(tenant)s AND state = 'unknown'),
       (SELECT count(*) FROM deedbox.alert WHERE tenant = %(tenant)s AND closed_at IS NULL),
       (SELECT count(*) FROM deedbox.approval WHERE tenant = %(tenant)s AND state = 'pending')

-- name: misplaced
-- A job that is in the queue and has a result, or has neither, made at least a minute ago; nothing when all is in order.
SELECT q.job_id FROM deedbox.queue q JOIN deedbox.result r USING (job_id)
UNION ALL
SELECT j.job_id FROM deedbox.job j
WHERE j.created_at < deedbox.clock() - interval '1 minute'
  AND NOT EXISTS (SELECT FROM deedbox.queue q WHERE q.job_id = j.job_id)
  AND NOT EXISTS (SELECT FROM deedbox.result r WHERE r.job_id = j.job_id)
LIMIT 1
