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
-- Where the chain ends now, without a lock, and the last entry that is there; one snapshot.
SELECT seq, entry_sha256, (SELECT coalesce(max(a.seq), 0) FROM deedbox.audit a) FROM deedbox.audit_head

-- name: page
-- The next entries after a number, up to another, each with its detail where that was not erased.
SELECT a.seq, to_char(a.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), a.tenant, a.actor, a.door, a.method, a.verb,
       a.subject_kind, a.subject_id, a.reason, a.detail_sha256, a.prev_sha256, a.entry_sha256, d.detail::text
FROM deedbox.audit a LEFT JOIN deedbox.audit_detail d USING (seq)
WHERE a.seq > %(after)s AND a.seq <= %(until)s ORDER BY a.seq LIMIT %(limit)s

-- name: span
-- The numbers of the first entry from one moment on and of the last before another. Two entries may be a moment out of the order
-- of time, for each has the time at which its transaction began to wait for the end of the chain.
SELECT coalesce(min(seq), 1), coalesce(max(seq), 0) FROM deedbox.audit
WHERE (%(since)s::timestamptz IS NULL OR at >= %(since)s) AND (%(until)s::timestamptz IS NULL OR at < %(until)s)

-- name: listed
-- Entries of a tenant below a number, newest first. A filter that is null lets everything pass.
SELECT a.seq, to_char(a.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), a.tenant, a.actor, a.door, a.method, a.verb,
       a.subject_kind, a.subject_id, a.reason, a.detail_sha256, a.prev_sha256, a.entry_sha256, d.detail::text
FROM deedbox.audit a LEFT JOIN deedbox.audit_detail d USING (seq)
WHERE a.tenant = %(tenant)s AND (%(before)s::bigint IS NULL OR a.seq < %(before)s)
    AND (%(actor)s::text IS NULL OR a.actor = %(actor)s) AND (%(verb)s::text IS NULL OR a.verb = %(verb)s)
    AND (%(since)s::timestamptz IS NULL OR a.at >= %(since)s) AND (%(until)s::timestamptz IS NULL OR a.at < %(until)s)
ORDER BY a.seq DESC LIMIT %(limit)s

-- name: of_subject
-- The same for what was done on one thing, along the index of it.
SELECT a.seq, to_char(a.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), a.tenant, a.actor, a.door, a.method, a.verb,
       a.subject_kind, a.subject_id, a.reason, a.detail_sha256, a.prev_sha256, a.entry_sha256, d.detail::text
FROM deedbox.audit a LEFT JOIN deedbox.audit_detail d USING (seq)
WHERE a.subject_id = %(subject)s AND a.tenant = %(tenant)s AND (%(before)s::bigint IS NULL OR a.seq < %(before)s)
    AND (%(actor)s::text IS NULL OR a.actor = %(actor)s) AND (%(verb)s::text IS NULL OR a.verb = %(verb)s)
    AND (%(since)s::timestamptz IS NULL OR a.at >= %(since)s) AND (%(until)s::timestamptz IS NULL OR a.at < %(until)s)
ORDER BY a.seq DESC LIMIT %(limit)s
