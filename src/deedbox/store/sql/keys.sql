-- name: add
-- Keep the hash of a new key; `expires_s` counts from the database's clock. What is bound to a form is null for other kinds.
INSERT INTO deedbox.api_key (key_sha256, key_id, tenant, principal_id, kind, label, expires_at, action, origins, rate_per_minute,
                             acts_for_others)
VALUES (%(key_sha256)s, %(key_id)s, %(tenant)s, %(principal_id)s, %(kind)s, %(label)s,
        deedbox.clock() + make_interval(secs => %(expires_s)s::float8), %(action)s, %(origins)s::text[], %(rate_per_minute)s,
        %(acts_for_others)s)
RETURNING expires_at

-- name: listed
-- The keys of a tenant, or of one principal of it, newest first, without anything that opens a door.
SELECT k.key_id, p.name, k.label, k.created_at, k.expires_at, k.last_used_at, k.revoked_at, k.kind, k.action, k.origins,
       k.acts_for_others, k.replaced_by
FROM deedbox.api_key k JOIN deedbox.principal p USING (principal_id)
WHERE k.tenant = %(tenant)s AND (%(principal_id)s::uuid IS NULL OR k.principal_id = %(principal_id)s)
ORDER BY k.created_at DESC, k.key_id DESC

-- name: living_personal
-- How many living personal keys a person has.
SELECT count(*) FROM deedbox.api_key
WHERE principal_id = %(principal_id)s AND kind = 'personal' AND revoked_at IS NULL AND expires_at > deedbox.clock()

-- name: revoke
-- End a key of the tenant, of one principal where it is named, at once. Returns its holder's name and its label when it was alive.
UPDATE deedbox.api_key k SET revoked_at = deedbox.clock()
FROM deedbox.principal p
WHERE p.principal_id = k.principal_id AND k.tenant = %(tenant)s AND k.key_id = %(key_id)s AND k.revoked_at IS NULL
    AND (%(principal_id)s::uuid IS NULL OR k.principal_id = %(principal_id)s)
RETURNING p.name, k.label

-- name: to_rotate
-- The living keys of services that have this label or this id and were not rotated yet, locked; with the lifetime they were given.
SELECT k.key_id, k.principal_id, p.name, k.label, k.kind, k.action, k.origins, k.rate_per_minute, k.acts_for_others,
       extract(epoch FROM k.expires_at - k.created_at)::float8
FROM deedbox.api_key k JOIN deedbox.principal p USING (principal_id)
WHERE k.tenant = %(tenant)s AND (k.label = %(label)s OR k.key_id = %(key_id)s::uuid) AND k.kind <> 'personal'
    AND k.revoked_at IS NULL AND k.replaced_by IS NULL AND (k.expires_at IS NULL OR k.expires_at > deedbox.clock())
ORDER BY k.key_id FOR UPDATE OF k

-- name: replaced
-- A rotated key lives on for the overlap and no longer than it would have, and names the key that took its place.
UPDATE deedbox.api_key
SET replaced_by = %(replaced_by)s,
    expires_at = least(expires_at, deedbox.clock() + make_interval(secs => %(overlap_s)s::float8))
WHERE key_id = %(key_id)s
RETURNING expires_at

-- name: resolve
-- Who holds this key: alive, not expired, of a service, or for a personal key of a person, who is not disabled; with what the
-- holder's roles may do, which the scope of the key's kind narrows. The last use is noted at most once a minute.
WITH found AS (
    SELECT k.key_sha256, k.key_id, k.kind, k.action, k.origins, k.last_used_at, p.principal_id, p.tenant, p.name
    FROM deedbox.api_key k JOIN deedbox.principal p ON p.principal_id = k.principal_id AND p.tenant = k.tenant
    WHERE k.key_sha256 = %(key_sha256)s AND (k.kind = 'personal') = (p.kind = 'person')
      AND k.revoked_at IS NULL AND p.disabled_at IS NULL
      AND (k.expires_at IS NULL OR k.expires_at > deedbox.clock())
), used AS (
    UPDATE deedbox.api_key k SET last_used_at = deedbox.clock()
    FROM found
    WHERE k.key_sha256 = found.key_sha256
      AND (found.last_used_at IS NULL OR found.last_used_at < deedbox.clock() - interval '1 minute')
)
SELECT principal_id, tenant, name,
       (SELECT coalesce(array_agg(g.role ORDER BY g.role), '{}') FROM deedbox."grant" g WHERE g.principal_id = found.principal_id),
       deedbox.verbs_of(principal_id), kind, key_id, action, origins
FROM found

-- name: acting
-- A person for whom a living key with the right to act for others may speak: same tenant, not disabled. With the roles and the
-- verbs that both hold. No row: no such right, or nobody whom this key may name, which nobody can tell apart.
SELECT p.principal_id, p.tenant, p.name,
       ARRAY(SELECT role FROM deedbox."grant" WHERE principal_id = p.principal_id
             INTERSECT SELECT role FROM deedbox."grant" WHERE principal_id = s.principal_id),
       ARRAY(SELECT unnest(deedbox.verbs_of(p.principal_id)) INTERSECT SELECT unnest(deedbox.verbs_of(s.principal_id))),
       s.principal_id, s.name
FROM deedbox.api_key k
JOIN deedbox.principal s ON s.principal_id = k.principal_id AND s.tenant = k.tenant AND s.kind = 'service'
JOIN deedbox.principal p ON p.tenant = s.tenant AND p.name = %(name)s AND p.kind = 'person'
WHERE k.key_sha256 = %(key_sha256)s AND k.kind = 'service' AND k.acts_for_others
    AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > deedbox.clock())
    AND s.disabled_at IS NULL AND p.disabled_at IS NULL

-- name: spend
-- One call of a form key, where its bucket holds one: it fills at the key's rate, and holds a minute's worth. A refused call
-- writes nothing.
UPDATE deedbox.api_key k
SET tokens = filled.now - 1, tokens_at = deedbox.clock()
FROM (
    SELECT key_id, least(rate_per_minute, coalesce(
        tokens + greatest(0, extract(epoch FROM deedbox.clock() - tokens_at))::float8 * rate_per_minute / 60, rate_per_minute)) AS now
    FROM deedbox.api_key WHERE key_id = %(key_id)s FOR UPDATE
) AS filled
WHERE k.key_id = filled.key_id AND filled.now >= 1
RETURNING true

-- name: allows_origin
-- Whether a living form key, for the action where one is named, may be sent from pages of this origin.
SELECT EXISTS (
    SELECT FROM deedbox.api_key
    WHERE kind = 'form' AND (%(action)s::text IS NULL OR action = %(action)s) AND %(origin)s = ANY (origins)
        AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > deedbox.clock())
)

-- name: keep_status_token
-- Keep the hash of a token that shows one job for a while, and clear away a few that are over.
WITH over AS (
    DELETE FROM deedbox.status_token WHERE token_sha256 IN (
        SELECT token_sha256 FROM deedbox.status_token WHERE expires_at <= deedbox.clock() ORDER BY expires_at LIMIT 10
        FOR UPDATE SKIP LOCKED
    )
)
INSERT INTO deedbox.status_token (token_sha256, job_id, key_id, expires_at)
VALUES (%(token_sha256)s, %(job_id)s, %(key_id)s, deedbox.clock() + make_interval(secs => %(expires_s)s::float8))

-- name: status_token
-- For whom the job runs that this very token shows, and the origins of the form it came from. No row: unknown, over, of another
-- job, or of a service that is shut out.
SELECT p.principal_id, j.tenant, p.name, coalesce(k.origins, '{}'), k.key_id, j.action
FROM deedbox.status_token t
JOIN deedbox.job j USING (job_id)
JOIN deedbox.principal p ON p.principal_id = j.subject AND p.disabled_at IS NULL
LEFT JOIN deedbox.api_key k ON k.key_id = t.key_id
WHERE t.token_sha256 = %(token_sha256)s AND t.job_id = %(job_id)s AND t.expires_at > deedbox.clock()
