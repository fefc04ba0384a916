-- name: secret
-- The secret of this name that all processes share.
SELECT secret FROM deedbox.shared_secret WHERE name = %(name)s

-- name: shown
-- The approvals of a job whose page its caller's client was asked to open, and has answered about.
SELECT approval_id FROM deedbox.approval WHERE job_id = %(job_id)s AND shown IS NOT NULL

-- name: note_shown
-- Keep what a caller's client answered about the page of open approvals of a job, once for each. It decides nothing.
UPDATE deedbox.approval a SET shown = u.answer
FROM unnest(%(approvals)s::uuid[], %(answers)s::text[]) AS u (approval_id, answer)
WHERE a.approval_id = u.approval_id AND a.job_id = %(job_id)s AND a.state = 'pending' AND a.shown IS NULL
RETURNING a.approval_id

-- name: reply
-- Hand a caller's answer to the process that asked for it, in pieces: a notification holds less than 8,000 bytes.
SELECT pg_notify('deedbox_replies', piece) FROM unnest(%(pieces)s::text[]) WITH ORDINALITY AS u (piece, place) ORDER BY place
