-- name: page
-- The next jobs that somebody is to be told about, by id and bounded: the last of the page, and those of it that have something
-- new, or that have ended. An event is new that is numbered above what has been told.
WITH page AS MATERIALIZED (
    SELECT job_id, told_seq FROM deedbox.callback WHERE job_id > %(after)s ORDER BY job_id LIMIT %(limit)s
)
SELECT (SELECT job_id FROM page ORDER BY job_id DESC LIMIT 1), (SELECT count(*) FROM page), array_agg(p.job_id ORDER BY p.job_id)
FROM page p
-- Counts, here and below: each is looked up by its id, and never by a join with all that there is.
WHERE 0 < (SELECT count(*) FROM deedbox.event e WHERE e.job_id = p.job_id AND e.seq > p.told_seq)
    OR 0 = (SELECT count(*) FROM deedbox.queue q WHERE q.job_id = p.job_id)

-- name: take
-- Lock these jobs' marks, those left out that another process has just taken, and read what is new of each.
WITH mine AS MATERIALIZED (
    SELECT job_id, tenant, action, target, told_seq FROM deedbox.callback
    WHERE job_id = ANY (%(jobs)s) AND target = ANY (%(targets)s) ORDER BY job_id FOR UPDATE SKIP LOCKED
)
SELECT m.job_id, m.tenant, m.action, m.target, e.seq, e.event_id, e.type, e.round, e.attempt_id, e.at, e.payload
FROM mine m
LEFT JOIN LATERAL (
    SELECT * FROM deedbox.event WHERE job_id = m.job_id AND seq > m.told_seq ORDER BY seq LIMIT %(limit)s
) AS e ON true
ORDER BY m.job_id, e.seq

-- name: mark
-- Keep how far each of these jobs has been told.
UPDATE deedbox.callback c SET told_seq = g.seq
FROM unnest(%(jobs)s::uuid[], %(seqs)s::bigint[]) AS g (job_id, seq)
WHERE c.job_id = g.job_id AND c.told_seq < g.seq

-- name: done
-- Forget those of these jobs that have ended and of which everything has been told.
DELETE FROM deedbox.callback c
WHERE c.job_id = ANY (%(jobs)s)
    AND 0 = (SELECT count(*) FROM deedbox.queue q WHERE q.job_id = c.job_id)
    AND 0 = (SELECT count(*) FROM deedbox.event e WHERE e.job_id = c.job_id AND e.seq > c.told_seq)

-- name: disable
-- Send nothing more to a target, because it said so. No row comes back where it was disabled already.
INSERT INTO deedbox.target AS t (tenant, connector, target, paused, disabled_at, disabled_reason)
VALUES (%(tenant)s, %(connector)s, %(target)s, true, deedbox.clock(), %(reason)s)
ON CONFLICT (tenant, connector, target) DO UPDATE
SET paused = true, disabled_at = EXCLUDED.disabled_at, disabled_reason = EXCLUDED.disabled_reason
WHERE t.disabled_at IS NULL
RETURNING target

-- name: enable
-- Send to a target again. No row: it was not disabled.
UPDATE deedbox.target SET paused = false, disabled_at = NULL, disabled_reason = NULL
WHERE (tenant, connector, target) = (%(tenant)s, %(connector)s, %(target)s) AND disabled_at IS NOT NULL
RETURNING target

-- name: disabled
-- Which targets of a tenant are disabled, since when and why.
SELECT connector, target, disabled_at, disabled_reason FROM deedbox.target
WHERE tenant = %(tenant)s AND disabled_at IS NOT NULL ORDER BY connector, target

-- part: noticed
-- Callbacks in the order of their notices, each with its effect and its body. Each OFFSET 0 keeps that order: without statistics
-- everything was joined and sorted before the limit.
(
    SELECT effect_id, job_id, made_at, once FROM deedbox.notice
    WHERE template = 'callback'
        AND effect_id > greatest(%(after)s, coalesce(deedbox.first_id(%(since)s::timestamptz), %(after)s))
        AND (%(job_id)s::uuid IS NULL OR job_id = %(job_id)s)
    ORDER BY effect_id OFFSET 0
) AS n
CROSS JOIN LATERAL (
    SELECT * FROM deedbox.effect WHERE effect_id = n.effect_id AND tenant = %(tenant)s AND connector = %(connector)s OFFSET 0
) AS e
CROSS JOIN LATERAL (
    SELECT body FROM deedbox.proposal_effect WHERE proposal_effect_id = e.proposal_effect_id OFFSET 0
) AS p
WHERE (%(target)s::text IS NULL OR e.target = %(target)s)
    AND (%(subject)s::uuid IS NULL OR EXISTS (
        SELECT FROM deedbox.job j WHERE j.job_id = n.job_id AND j.subject = %(subject)s
    ))

-- name: told
-- What receivers were told, or are to be, in the order in which it was put on the outbox: made since a time, of one job, to one
-- receiver, of one caller's jobs, after one that was read before. The body is gone where its retention has passed.
SELECT n.effect_id, n.job_id, e.target, e.state, e.attempt, e.code, e.message, n.made_at, p.body
FROM {{part.noticed}}
    AND (%(state)s::text IS NULL OR e.state = %(state)s)
ORDER BY n.effect_id LIMIT %(limit)s

-- name: again
-- The same of what is to be said once more: each event as it was first put on the outbox, and not what was said again before.
SELECT n.effect_id, n.job_id, e.target, e.action, p.body
FROM {{part.noticed}}
    AND n.once IS NOT NULL AND p.body IS NOT NULL
ORDER BY n.effect_id LIMIT %(limit)s
