-- name: opened_s
-- How many seconds ago a session that is alive was opened, by the database's clock.
SELECT extract(epoch FROM deedbox.clock() - created_at)::float8 FROM deedbox.session
WHERE session_sha256 = %(session_sha256)s AND revoked_at IS NULL AND expires_at > deedbox.clock()
