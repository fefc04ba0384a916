-- name: person
-- The person whom an issuer calls so, with what the person's roles may do, and since when they are those of the issuer's groups;
-- and the time, for the claims that are checked next. Always one row.
SELECT clock.now, p.principal_id, p.name, p.disabled_at IS NOT NULL, extract(epoch FROM i.roles_at)::float8,
       (SELECT coalesce(array_agg(g.role ORDER BY g.role), '{}') FROM deedbox."grant" g WHERE g.principal_id = p.principal_id),
       deedbox.verbs_of(p.principal_id)
FROM (SELECT extract(epoch FROM deedbox.clock())::float8 AS now) AS clock
LEFT JOIN deedbox.identity i ON i.tenant = %(tenant)s AND i.issuer = %(issuer)s AND i.subject = %(subject)s
LEFT JOIN deedbox.principal p ON p.principal_id = i.principal_id

-- name: service
-- The service of this name, with what its roles may do, and the time. Always one row.
SELECT clock.now, p.principal_id, p.name, p.disabled_at IS NOT NULL, NULL::float8,
       (SELECT coalesce(array_agg(g.role ORDER BY g.role), '{}') FROM deedbox."grant" g WHERE g.principal_id = p.principal_id),
       deedbox.verbs_of(p.principal_id)
FROM (SELECT extract(epoch FROM deedbox.clock())::float8 AS now) AS clock
LEFT JOIN deedbox.principal p ON p.tenant = %(tenant)s AND p.name = %(name)s AND p.kind = 'service'

-- name: acting
-- A person of this name for whom the service of that name speaks, neither of them disabled, with the roles and verbs that both
-- hold. No row: nobody whom it may name.
SELECT p.principal_id, p.tenant, p.name,
       ARRAY(SELECT role FROM deedbox."grant" WHERE principal_id = p.principal_id
             INTERSECT SELECT role FROM deedbox."grant" WHERE principal_id = s.principal_id),
       ARRAY(SELECT unnest(deedbox.verbs_of(p.principal_id)) INTERSECT SELECT unnest(deedbox.verbs_of(s.principal_id))),
       s.principal_id, s.name
FROM deedbox.principal s
JOIN deedbox.principal p ON p.tenant = s.tenant AND p.name = %(person)s AND p.kind = 'person'
WHERE s.tenant = %(tenant)s AND s.name = %(service)s AND s.kind = 'service' AND s.disabled_at IS NULL AND p.disabled_at IS NULL

-- name: newer
-- Note that the groups of a token issued at this time are what counts from now on. No row where a later one was seen.
UPDATE deedbox.identity SET roles_at = to_timestamp(%(issued_at)s)
WHERE tenant = %(tenant)s AND issuer = %(issuer)s AND subject = %(subject)s
    AND (roles_at IS NULL OR roles_at < to_timestamp(%(issued_at)s))
RETURNING true

-- name: services
-- Those of the names that are services of the tenant.
SELECT name FROM deedbox.principal WHERE tenant = %(tenant)s AND kind = 'service' AND name = ANY (%(names)s::text[])
