-- name: person
-- Somebody of the tenant by name, with the roles: to whom a say may be handed.
SELECT p.principal_id, p.name, p.kind, p.disabled_at IS NOT NULL,
       ARRAY (SELECT g.role FROM deedbox."grant" g WHERE g.principal_id = p.principal_id ORDER BY g.role)
FROM deedbox.principal p WHERE p.tenant = %(tenant)s AND p.name = %(name)s

-- name: hand_over
-- Keep that a say was handed on; in one approval as long as it is open, or in all until a moment, at most so many seconds ahead.
-- No row: that moment has passed, or is too far away.
INSERT INTO deedbox.delegation (delegation_id, tenant, from_principal, to_principal, approval_id, reason, made_at, made_how, until)
SELECT %(delegation_id)s::uuid, %(tenant)s, %(holder)s::uuid, %(to)s::uuid, %(approval_id)s::uuid, %(reason)s, deedbox.clock(),
       %(how)s, %(until)s::timestamptz
WHERE %(until)s::timestamptz IS NULL
    OR %(until)s::timestamptz BETWEEN deedbox.clock() AND deedbox.clock() + make_interval(secs => %(most_s)s)
RETURNING delegation_id, made_at

-- name: withdraw
-- End a delegation of the tenant; whose it was, to whom and where. No row: there is none, it has ended, or it is not theirs.
UPDATE deedbox.delegation SET withdrawn_at = deedbox.clock()
WHERE delegation_id = %(delegation_id)s AND tenant = %(tenant)s AND withdrawn_at IS NULL
    AND %(principal_id)s IN (from_principal, to_principal)
RETURNING from_principal, to_principal, approval_id

-- name: mine
-- What a person handed on and was handed, the newest first; `counts` while it was neither withdrawn nor is over.
SELECT d.delegation_id, h.name, t.name, d.approval_id, d.reason, d.made_at, d.until, d.withdrawn_at,
       d.withdrawn_at IS NULL AND coalesce(d.until > deedbox.clock(), a.state = 'pending' AND a.expires_at > deedbox.clock(), false)
FROM (
    SELECT * FROM (SELECT * FROM deedbox.delegation WHERE from_principal = %(principal_id)s
                   ORDER BY delegation_id DESC LIMIT %(limit)s) AS given
    UNION
    SELECT * FROM (SELECT * FROM deedbox.delegation WHERE to_principal = %(principal_id)s
                   ORDER BY delegation_id DESC LIMIT %(limit)s) AS had
) AS d
JOIN deedbox.principal h ON h.principal_id = d.from_principal
JOIN deedbox.principal t ON t.principal_id = d.to_principal
LEFT JOIN deedbox.approval a ON a.approval_id = d.approval_id
WHERE d.tenant = %(tenant)s
ORDER BY d.delegation_id DESC LIMIT %(limit)s
