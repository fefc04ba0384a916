-- name: comment
-- Keep what a person says of an approval; returns when.
INSERT INTO deedbox.approval_comment (comment_id, approval_id, principal_id, text, how)
VALUES (%(comment_id)s, %(approval_id)s, %(principal_id)s, %(text)s, %(how)s) RETURNING at

-- name: comments
-- What people said of an approval, first to last, bounded.
SELECT p.name, c.text, c.at
FROM (SELECT * FROM deedbox.approval_comment WHERE approval_id = %(approval_id)s ORDER BY comment_id LIMIT %(limit)s) AS c
JOIN deedbox.principal p USING (principal_id) ORDER BY c.comment_id

-- name: snooze
-- Let a person look away from an approval until a moment, or for so many seconds: from now on, and never past its deadline. No row:
-- that moment has passed, or the deadline comes first.
INSERT INTO deedbox.approval_snooze AS s (approval_id, principal_id, until)
SELECT a.approval_id, %(principal_id)s, u.until
FROM deedbox.approval a
CROSS JOIN LATERAL (
    SELECT coalesce(%(until)s::timestamptz, deedbox.clock() + make_interval(secs => %(for_s)s::float8)) AS until
) AS u
WHERE a.approval_id = %(approval_id)s AND u.until > deedbox.clock() AND u.until < a.expires_at
ON CONFLICT (approval_id, principal_id) DO UPDATE SET until = EXCLUDED.until
RETURNING until

-- name: wake
-- Let a person see an approval again. No row: it was not looked away from.
DELETE FROM deedbox.approval_snooze WHERE approval_id = %(approval_id)s AND principal_id = %(principal_id)s RETURNING until

-- name: snoozed
-- From which approvals a person looks away now, and until when.
SELECT s.approval_id, s.until FROM deedbox.approval_snooze s
JOIN deedbox.approval a USING (approval_id)
WHERE a.tenant = %(tenant)s AND a.state IN ({{approval.approve}}) AND a.expires_at > deedbox.clock()
    AND s.principal_id = %(principal_id)s AND s.until > deedbox.clock()
ORDER BY a.expires_at LIMIT %(limit)s
