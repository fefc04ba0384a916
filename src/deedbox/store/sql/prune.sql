-- name: elected
-- Whether this transaction is the one that may prune; migrations take the same lock.
SELECT pg_try_advisory_xact_lock(%(lock)s)

-- name: patience
-- Wait no longer than this for a lock, in this transaction.
SELECT set_config('lock_timeout', %(lock_timeout)s, true)

-- name: missing
-- The partitions of last month, this one and so many months ahead that are not there yet, the nearest first.
SELECT t.parent, m::date
FROM generate_series(date_trunc('month', deedbox.clock() AT TIME ZONE 'UTC') - interval '1 month',
                     date_trunc('month', deedbox.clock() AT TIME ZONE 'UTC') + make_interval(months => %(ahead)s),
                     interval '1 month') AS m
CROSS JOIN unnest(%(parents)s::text[]) WITH ORDINALITY AS t (parent, n)
WHERE to_regclass(format('deedbox.%%I', t.parent || to_char(m, '_YYYY_MM'))) IS NULL
ORDER BY m, t.n

-- name: add_partition
-- Make one of them; false where somebody else has.
SELECT deedbox.add_partition(%(parent)s, %(month)s)

-- name: months
-- The months that have partitions and ended at least so many seconds ago, the oldest first, each with its tables in the order
-- in which they go: `job` first, so that nothing shows a job of which a part is missing.
SELECT month, array_agg(parent ORDER BY array_position(%(parents)s::text[], parent))
FROM (
    SELECT p.relname::text AS parent, to_date(right(c.relname, 7), 'YYYY_MM') AS month
    FROM pg_inherits i
    JOIN pg_class c ON c.oid = i.inhrelid
    JOIN pg_class p ON p.oid = i.inhparent
    WHERE p.relnamespace = 'deedbox'::regnamespace AND p.relname = ANY (%(parents)s::text[])
) AS found
WHERE (month + interval '1 month') AT TIME ZONE 'UTC' + make_interval(secs => %(keep_s)s) <= deedbox.clock()
GROUP BY month ORDER BY month

-- name: in_the_way
-- What keeps a month's records, in a sentence; NULL when nothing does. Contents that are still there have a longer retention or
-- have not been pruned yet; a job that ended late keeps its month until its own retention has passed.
SELECT CASE
    WHEN EXISTS (SELECT FROM deedbox.queue WHERE job_id >= m.first AND job_id < m.past) THEN 'a job has not ended'
    WHEN EXISTS (SELECT FROM deedbox.job_payload WHERE job_id >= m.first AND job_id < m.past) THEN 'contents are still kept'
    WHEN EXISTS (SELECT FROM deedbox.effect WHERE job_id >= m.first AND job_id < m.past
                 AND state NOT IN ('completed', 'failed', 'canceled', 'unknown_closed')) THEN 'an effect has not ended'
    WHEN EXISTS (SELECT FROM deedbox.approval WHERE job_id >= m.first AND job_id < m.past AND state = 'pending')
        THEN 'an approval is open'
    WHEN EXISTS (SELECT FROM deedbox.result WHERE job_id >= m.first AND job_id < m.past
                 AND ended_at > deedbox.clock() - make_interval(secs => %(keep_s)s)) THEN 'a job ended later than the rest'
END
FROM (SELECT deedbox.first_id(%(month)s::date::timestamp AT TIME ZONE 'UTC') AS first,
             deedbox.first_id((%(month)s::date + interval '1 month') AT TIME ZONE 'UTC') AS past) AS m

-- name: drop_partition
-- Drop one partition; a sentence where the database itself sees a reason not to.
SELECT deedbox.drop_partition(%(parent)s, %(month)s, make_interval(secs => %(keep_s)s))

-- name: contents
-- The next jobs that still have contents, by id from a cursor on, each with whether they may go now: the job has ended as long ago
-- as its action keeps them, and no effect or approval of it is open.
WITH page AS (
    SELECT job_id FROM deedbox.job_payload
    WHERE job_id > %(after)s AND job_id < deedbox.first_id(deedbox.clock() - make_interval(secs => %(least_s)s))
    ORDER BY job_id LIMIT %(limit)s
)
SELECT page.job_id,
       coalesce(r.ended_at <= deedbox.clock() - make_interval(secs => coalesce(k.keep_s, %(default_s)s)), false)
       -- A limit keeps the planner from hashing whole tables for a page.
       AND (SELECT true FROM deedbox.effect e WHERE e.job_id = page.job_id
            AND e.state NOT IN ('completed', 'failed', 'canceled', 'unknown_closed') LIMIT 1) IS NULL
       AND (SELECT true FROM deedbox.approval a WHERE a.job_id = page.job_id AND a.state = 'pending' LIMIT 1) IS NULL
FROM page
LEFT JOIN LATERAL (SELECT action FROM deedbox.job WHERE job_id = page.job_id LIMIT 1) AS j ON true
LEFT JOIN LATERAL (SELECT ended_at FROM deedbox.result WHERE job_id = page.job_id LIMIT 1) AS r ON true
LEFT JOIN json_to_recordset(%(keeps)s::json) AS k (action text, keep_s float8) ON k.action = j.action
ORDER BY page.job_id

-- name: keep_keys
-- Make tombstones of these jobs' keys: each keeps its hash and the final state. The key of a job that proposed effects never
-- expires; any other does, so many seconds after it was taken, unless it had a time of its own.
UPDATE deedbox.idempotency i
SET final_state = r.state,
    expires_at = CASE WHEN (SELECT true FROM deedbox.proposal_effect p WHERE p.job_id = j.job_id LIMIT 1) IS NULL
                      THEN coalesce(i.expires_at, i.created_at + make_interval(secs => %(key_s)s)) END
FROM deedbox.job j
CROSS JOIN LATERAL (SELECT state FROM deedbox.result WHERE job_id = j.job_id LIMIT 1) AS r
WHERE j.job_id = ANY (%(jobs)s) AND j.job_id BETWEEN %(first)s AND %(last)s
    AND i.tenant = j.tenant AND i.action = j.action AND i.key_sha256 = j.key_sha256 AND i.job_id = j.job_id

-- name: prune_output
-- Remove what these jobs answered, and keep when; the rest of the result stays. Here and below, `first` and `last` of a page of
-- neighbours leave out the partitions of other months.
UPDATE deedbox.result SET output = NULL, pruned_at = deedbox.clock()
WHERE job_id = ANY (%(jobs)s) AND job_id BETWEEN %(first)s AND %(last)s AND pruned_at IS NULL

-- name: prune_events
-- Remove what partials and progress said; the events stay, so that numbers have no gap.
UPDATE deedbox.event SET payload = CASE type WHEN 'job.partial' THEN '{}' ELSE payload - 'message' END
WHERE job_id = ANY (%(jobs)s) AND job_id BETWEEN %(first)s AND %(last)s AND type IN ('job.partial', 'job.progress')

-- name: prune_proposals
-- Remove what was proposed and the facts it was judged by; that it was, and under which policy, stays.
UPDATE deedbox.proposal SET output = NULL, facts = '{}'
WHERE job_id = ANY (%(jobs)s) AND job_id BETWEEN %(first)s AND %(last)s

-- name: prune_effects
-- Remove the bytes of the effects and the sentence made from them; connector, target, slot and digest stay.
UPDATE deedbox.proposal_effect SET body = NULL, summary = 'Removed when its retention had passed.', pruned_at = deedbox.clock()
WHERE job_id = ANY (%(jobs)s) AND body IS NOT NULL

-- name: prune_steps
-- Remove the checkpoints.
DELETE FROM deedbox.step WHERE job_id = ANY (%(jobs)s)

-- name: prune_comments
-- Remove what people said of these jobs' approvals.
DELETE FROM deedbox.approval_comment
WHERE approval_id = ANY (ARRAY (SELECT approval_id FROM deedbox.approval WHERE job_id = ANY (%(jobs)s)))

-- name: prune_inputs
-- Remove the inputs. Whatever still has one has its other contents too: this is the last of them.
DELETE FROM deedbox.job_payload WHERE job_id = ANY (%(jobs)s)

-- name: prune_links
-- Remove the names under which these jobs show documents; returns the documents they showed.
WITH gone AS (
    DELETE FROM deedbox.job_document WHERE job_id = ANY (%(jobs)s) RETURNING tenant, sha256
)
SELECT DISTINCT tenant, sha256 FROM gone

-- name: lock_documents
-- Wait until nobody is between storing a document and linking it, and keep it so until this transaction ends.
LOCK TABLE deedbox.document IN SHARE ROW EXCLUSIVE MODE

-- name: prune_documents
-- Remove those of these documents that no job shows any more.
DELETE FROM deedbox.document d
USING unnest(%(tenant)s::text[], %(sha256)s::bytea[]) AS u (tenant, sha256)
WHERE d.tenant = u.tenant AND d.sha256 = u.sha256
    AND NOT EXISTS (SELECT FROM deedbox.job_document jd WHERE jd.tenant = d.tenant AND jd.sha256 = d.sha256)

-- name: parked
-- Parked jobs that nobody took up for as long as their action keeps contents, by id from a cursor on, each with its tenant.
SELECT q.job_id, l.tenant
FROM deedbox.queue q
JOIN deedbox.lane l ON l.lane_id = q.lane_id
LEFT JOIN json_to_recordset(%(keeps)s::json) AS k (action text, keep_s float8) ON k.action = l.action
WHERE q.state IN ({{job.close}}) AND q.job_id > %(after)s
    AND q.updated_at <= deedbox.clock() - make_interval(secs => coalesce(k.keep_s, %(default_s)s))
ORDER BY q.job_id LIMIT %(limit)s

-- name: expired_keys
-- Remove keys whose time has passed, the oldest first and bounded; never that of a job which has not ended.
DELETE FROM deedbox.idempotency i
USING (
    SELECT tenant, action, key_sha256 FROM deedbox.idempotency x
    WHERE expires_at <= deedbox.clock() AND NOT EXISTS (SELECT FROM deedbox.queue q WHERE q.job_id = x.job_id)
    ORDER BY expires_at LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
) AS old
WHERE i.tenant = old.tenant AND i.action = old.action AND i.key_sha256 = old.key_sha256

-- name: old_tool_keys
-- Remove what calls of tools without a key are held together by, once its time has passed, bounded.
DELETE FROM deedbox.tool_key k
USING (
    SELECT tenant, action, call_sha256 FROM deedbox.tool_key WHERE until <= deedbox.clock()
    ORDER BY until LIMIT %(limit)s FOR UPDATE SKIP LOCKED
) AS old
WHERE k.tenant = old.tenant AND k.action = old.action AND k.call_sha256 = old.call_sha256

-- name: old_tool_budgets
-- Remove how many calls jobs have made of which the last was so many seconds ago; never that of a job which has not ended. Bounded.
DELETE FROM deedbox.tool_budget WHERE parent_job_id = ANY (ARRAY (
    SELECT parent_job_id FROM deedbox.tool_budget b
    WHERE last_at < deedbox.clock() - make_interval(secs => %(keep_s)s)
        AND NOT EXISTS (SELECT FROM deedbox.queue q WHERE q.job_id = b.parent_job_id)
    ORDER BY last_at LIMIT %(limit)s
))

-- name: old_calls
-- Remove calls older than so many seconds, bounded.
DELETE FROM deedbox.call WHERE call_id = ANY (ARRAY (
    SELECT call_id FROM deedbox.call WHERE call_id < deedbox.first_id(deedbox.clock() - make_interval(secs => %(keep_s)s))
    ORDER BY call_id LIMIT %(limit)s
))

-- name: closed_alerts
-- Remove alerts that were closed longer ago than so many seconds, bounded.
DELETE FROM deedbox.alert WHERE alert_id = ANY (ARRAY (
    SELECT alert_id FROM deedbox.alert WHERE closed_at < deedbox.clock() - make_interval(secs => %(keep_s)s)
    ORDER BY closed_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
))

-- name: records
-- The next jobs of a month, by id from a cursor on.
SELECT job_id FROM deedbox.job
WHERE job_id > %(after)s AND job_id >= deedbox.first_id(%(month)s::date::timestamp AT TIME ZONE 'UTC')
    AND job_id < deedbox.first_id((%(month)s::date + interval '1 month') AT TIME ZONE 'UTC')
ORDER BY job_id LIMIT %(limit)s

-- name: forget_probes
-- Remove the look-ups of these jobs' effects.
DELETE FROM deedbox.probe WHERE effect_id = ANY (ARRAY (SELECT effect_id FROM deedbox.effect WHERE job_id = ANY (%(jobs)s)))

-- name: forget_effects
-- Remove these jobs' effects.
DELETE FROM deedbox.effect WHERE job_id = ANY (%(jobs)s)

-- name: forget_votes
-- Remove the votes of these jobs' approvals.
DELETE FROM deedbox.vote WHERE approval_id = ANY (ARRAY (SELECT approval_id FROM deedbox.approval WHERE job_id = ANY (%(jobs)s)))

-- name: forget_tokens
-- Remove the links to these jobs' approvals.
DELETE FROM deedbox.approval_token
WHERE approval_id = ANY (ARRAY (SELECT approval_id FROM deedbox.approval WHERE job_id = ANY (%(jobs)s)))

-- name: forget_delegations
-- Remove the says that were handed on in these jobs' approvals; those for all until a moment stay.
DELETE FROM deedbox.delegation
WHERE approval_id = ANY (ARRAY (SELECT approval_id FROM deedbox.approval WHERE job_id = ANY (%(jobs)s)))

-- name: forget_approvals
-- Remove these jobs' approvals.
DELETE FROM deedbox.approval WHERE job_id = ANY (%(jobs)s)

-- name: forget_verdicts
-- Remove what the policy said of these jobs.
DELETE FROM deedbox.verdict WHERE job_id = ANY (%(jobs)s)

-- name: forget_proposed
-- Remove what is left of these jobs' proposed effects.
DELETE FROM deedbox.proposal_effect WHERE job_id = ANY (%(jobs)s)

-- name: forget_model_calls
-- Remove what these jobs asked of models.
DELETE FROM deedbox.model_call WHERE job_id = ANY (%(jobs)s)

-- name: places
-- The next jobs by id from a cursor on: how many were looked at, the last of them, and those that are in `queue` and in `result`,
-- or in neither. One statement is one snapshot, so a job on its way from one to the other is seen in exactly one.
SELECT count(*), (array_agg(page.job_id ORDER BY page.job_id DESC))[1],
       coalesce(array_agg(page.job_id) FILTER (WHERE (q.job_id IS NULL) = (r.job_id IS NULL)), '{}')
FROM (SELECT job_id FROM deedbox.job WHERE job_id > %(after)s ORDER BY job_id LIMIT %(limit)s) AS page
LEFT JOIN LATERAL (SELECT job_id FROM deedbox.queue WHERE job_id = page.job_id LIMIT 1) AS q ON true
LEFT JOIN LATERAL (SELECT job_id FROM deedbox.result WHERE job_id = page.job_id LIMIT 1) AS r ON true

-- name: growth
-- For `doctor`: how many months ahead have all their partitions, the oldest month that has one, how many months there are up to
-- this one, what the partitions and the whole schema take in bytes, and about how many jobs there are.
WITH child AS (
    SELECT c.oid, c.reltuples, p.relname::text AS parent, to_date(right(c.relname, 7), 'YYYY_MM') AS month
    FROM pg_inherits i
    JOIN pg_class c ON c.oid = i.inhrelid
    JOIN pg_class p ON p.oid = i.inhparent
    WHERE p.relnamespace = 'deedbox'::regnamespace AND p.relname = ANY (%(parents)s::text[])
)
SELECT (SELECT count(*) FROM (
            SELECT m FROM generate_series(1, %(ahead)s) AS m, unnest(%(parents)s::text[]) AS t (parent)
            WHERE to_regclass(format('deedbox.%%I', t.parent || to_char(
                date_trunc('month', deedbox.clock() AT TIME ZONE 'UTC') + make_interval(months => m), '_YYYY_MM'))) IS NOT NULL
            GROUP BY m HAVING count(*) = cardinality(%(parents)s::text[])) AS whole),
       (SELECT min(month) FROM child WHERE parent = 'job'),
       (SELECT count(*) FROM child WHERE parent = 'job' AND month <= deedbox.clock() AT TIME ZONE 'UTC'),
       (SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM child),
       (SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
        WHERE relnamespace = 'deedbox'::regnamespace AND relkind = 'r'),
       (SELECT coalesce(sum(greatest(0, reltuples)), 0)::bigint FROM child WHERE parent = 'job')
