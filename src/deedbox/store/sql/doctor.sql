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
       p.created_at, p.disabled_at, p.email, deedbox.verbs_of(p.principal_id)
FROM deedbox.principal p WHERE p.tenant = %(tenant)s ORDER BY p.kind, p.name

-- name: figures
-- What waits for somebody: unknown effects, open alerts, pending approvals, of one tenant.
SELECT (SELECT count(*) FROM deedbox.effect WHERE tenant = %(tenant)s AND state = 'unknown'),
       (SELECT count(*) FROM deedbox.alert WHERE tenant = %(tenant)s AND closed_at IS NULL),
       (SELECT count(*) FROM deedbox.approval WHERE tenant = %(tenant)s AND state = 'pending')

-- name: misplaced
-- The next jobs below a key, the newest first: how many were looked at, the last of them, and one that is in the queue and has a
-- result, or has neither. One statement is one snapshot.
SELECT count(*), (array_agg(page.job_id ORDER BY page.job_id))[1],
       (array_agg(page.job_id) FILTER (WHERE (q.job_id IS NULL) = (r.job_id IS NULL)))[1]
FROM (SELECT job_id FROM deedbox.job WHERE job_id < %(below)s ORDER BY job_id DESC LIMIT %(limit)s) AS page
LEFT JOIN LATERAL (SELECT job_id FROM deedbox.queue WHERE job_id = page.job_id LIMIT 1) AS q ON true
LEFT JOIN LATERAL (SELECT job_id FROM deedbox.result WHERE job_id = page.job_id LIMIT 1) AS r ON true

-- name: misplaced_before
-- A job that sweep found without a place, or with two, and about which nobody has closed the alert.
SELECT job_id FROM deedbox.alert WHERE cause = 'job_misplaced' AND closed_at IS NULL AND job_id IS NOT NULL LIMIT 1
