-- name: head
-- Lock the end of the chain until the transaction ends; the last lock anyone takes. The time is the entry's.
SELECT seq, entry_sha256, to_char(deedbox.clock() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
FROM deedbox.audit_head FOR UPDATE

-- name: append
-- Add the next entry with its detail, and move the head to it; the three belong to one statement.
WITH entry AS (
    INSERT INTO deedbox.audit (seq, at, tenant, actor, door, method, verb, subject_kind, subject_id, reason, detail_sha256,
                               prev_sha256, entry_sha256)
    VALUES (%(seq)s, %(at)s::timestamptz, %(tenant)s, %(actor)s, %(door)s, %(method)s, %(verb)s, %(subject_kind)s,
            %(subject_id)s, %(reason)s, %(detail_sha256)s, %(prev_sha256)s, %(entry_sha256)s)
), detail AS (
    INSERT INTO deedbox.audit_detail (seq, detail) VALUES (%(seq)s, %(detail)s::jsonb)
)
UPDATE deedbox.audit_head SET seq = %(seq)s, entry_sha256 = %(entry_sha256)s

-- name: read_head
-- Where the chain ends now, without a lock.
SELECT seq, entry_sha256 FROM deedbox.audit_head

-- name: page
-- The next entries after a number, up to another, each with its detail where that was not erased.
SELECT a.seq, to_char(a.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), a.tenant, a.actor, a.door, a.method, a.verb,
       a.subject_kind, a.subject_id, a.reason, a.detail_sha256, a.prev_sha256, a.entry_sha256, d.detail::text
FROM deedbox.audit a LEFT JOIN deedbox.audit_detail d USING (seq)
WHERE a.seq > %(after)s AND a.seq <= %(until)s ORDER BY a.seq LIMIT %(limit)s
