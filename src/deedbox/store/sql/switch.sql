-- name: take_root
-- Wait for every lease in progress, and hold later ones back until this transaction ends.
SELECT is_on FROM deedbox.switch WHERE switch_id = %(switch_id)s FOR UPDATE

-- name: turn_root
-- Turn a root on or off. No row: there is no such root, which means off.
UPDATE deedbox.switch SET is_on = %(is_on)s, changed_by = %(changed_by)s, reason = %(reason)s, changed_at = deedbox.clock(),
       owner = coalesce(%(owner)s, owner)
WHERE switch_id = %(switch_id)s RETURNING switch_id

-- name: turn_narrow
-- Turn the part of a switch that one tenant, action, connector or target is under; where it is null it stands for any.
INSERT INTO deedbox.switch (switch_id, kind, tenant, action, connector, target, is_on, changed_by, reason)
VALUES (%(switch_id)s, 'act', %(tenant)s, %(action)s, %(connector)s, %(target)s, %(is_on)s, %(changed_by)s, %(reason)s)
ON CONFLICT (switch_id) DO UPDATE
SET is_on = EXCLUDED.is_on, changed_by = EXCLUDED.changed_by, reason = EXCLUDED.reason, changed_at = deedbox.clock()

-- name: rows
-- The roots and what narrows them for a tenant.
SELECT switch_id, kind, tenant, action, connector, target, is_on, owner, changed_by, reason, changed_at, tested_at,
       tested_by
FROM deedbox.switch WHERE tenant IS NULL OR tenant = %(tenant)s ORDER BY switch_id

-- name: lets_through
-- Whether the database half lets a leased effect go out at this moment, and whether whoever has the fence still holds it.
SELECT e.state = 'sending' AND e.fence = %(fence)s AND e.lease_until > deedbox.clock(), EXISTS (
    SELECT FROM deedbox.switch s WHERE s.switch_id = CASE e.kind WHEN 'act' THEN 'acts' ELSE 'notices' END AND s.is_on
        AND s.kind = e.kind AND num_nonnulls(s.tenant, s.action, s.connector, s.target) = 0
) AND NOT EXISTS (
    SELECT FROM deedbox.switch s
    WHERE s.kind = e.kind AND NOT s.is_on AND (s.tenant IS NULL OR s.tenant = e.tenant)
        AND (s.action IS NULL OR s.action = e.action) AND (s.connector IS NULL OR s.connector = e.connector)
        AND (s.target IS NULL OR s.target = e.target)
)
FROM deedbox.effect e WHERE e.effect_id = %(effect_id)s

-- name: in_flight
-- How many acts are on the wire, of the part of all acts that is named; null stands for any.
SELECT count(*) FROM deedbox.effect
WHERE state = 'sending' AND kind = 'act' AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
    AND (%(action)s::text IS NULL OR action = %(action)s) AND (%(connector)s::text IS NULL OR connector = %(connector)s)
    AND (%(target)s::text IS NULL OR target = %(target)s)

-- name: all_on
-- Turn every row on, to see what a lease finds then: only ever in a transaction that is rolled back.
UPDATE deedbox.switch SET is_on = true WHERE kind = 'act'

-- name: tested
-- Keep that the switch was tested, and by whom.
UPDATE deedbox.switch SET tested_at = deedbox.clock(), tested_by = %(by)s WHERE switch_id = 'acts'

-- name: environment
-- The environment half as each living process with a dispatcher published it.
SELECT process_id, environment_switch FROM deedbox.process WHERE stopped_at IS NULL AND 'dispatch' = ANY (roles) ORDER BY process_id
