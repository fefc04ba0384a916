-- name: proved_s
-- How many seconds ago the person of a session that is alive proved who it is, by the database's clock: at a provider that may have
-- been long before the session was opened, and where it did not say when, it is not known.
SELECT extract(epoch FROM deedbox.clock() - authenticated_at)::float8 FROM deedbox.session
WHERE session_sha256 = %(session_sha256)s AND revoked_at IS NULL AND expires_at > deedbox.clock()
