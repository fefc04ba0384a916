-- name: listed
-- Every role with what it may do and how many hold it, the built-in ones first.
SELECT r.role, r.verbs, r.built_in, (SELECT count(*) FROM deedbox."grant" g WHERE g.role = r.role)
FROM deedbox.role r ORDER BY r.built_in DESC, cardinality(r.verbs), r.role

-- name: put
-- Make a role of one's own, or change what it may do; a built-in one stays as it is. Returns what it could do before, null
-- where it is new; no row for a built-in one.
WITH before AS (
    SELECT verbs FROM deedbox.role WHERE role = %(role)s
)
INSERT INTO deedbox.role (role, verbs) VALUES (%(role)s, %(verbs)s::text[])
ON CONFLICT (role) DO UPDATE SET verbs = excluded.verbs WHERE NOT deedbox.role.built_in
RETURNING (SELECT verbs FROM before)

-- name: remove
-- Remove a role of one's own that nobody holds.
DELETE FROM deedbox.role r
WHERE r.role = %(role)s AND NOT r.built_in AND NOT EXISTS (SELECT FROM deedbox."grant" g WHERE g.role = r.role)
RETURNING r.role

-- name: unknown
-- Those of the names that are no role.
SELECT name FROM unnest(%(roles)s::text[]) AS n (name)
WHERE NOT EXISTS (SELECT FROM deedbox.role r WHERE r.role = n.name) ORDER BY name

-- name: add_tenant
-- Make a tenant. No row where it is there.
INSERT INTO deedbox.tenant (tenant) VALUES (%(tenant)s) ON CONFLICT (tenant) DO NOTHING RETURNING tenant

-- name: tenants
-- Every tenant with its people and services.
SELECT t.tenant, t.created_at,
       (SELECT count(*) FROM deedbox.principal p WHERE p.tenant = t.tenant AND p.kind = 'person' AND p.disabled_at IS NULL),
       (SELECT count(*) FROM deedbox.principal p WHERE p.tenant = t.tenant AND p.kind = 'service' AND p.disabled_at IS NULL)
FROM deedbox.tenant t ORDER BY t.tenant
