-- name: served
-- The lanes of the actions a worker can run, those that stand still left out, with the limit of each.
SELECT lane_id, action, max_running FROM deedbox.lane
WHERE queue = ANY (%(queues)s) AND action = ANY (%(actions)s) AND NOT paused

-- name: ready
-- Which of these lanes have a job that is due.
SELECT lane_id FROM unnest(%(lane_id)s::bigint[]) AS u (lane_id)
WHERE (SELECT true FROM deedbox.queue q WHERE q.lane_id = u.lane_id AND q.state = 'queued' AND q.due LIMIT 1)

-- name: room
-- Lock the lanes that have a limit, in one order, skipping those another worker counts just now, and say how many more may run
-- in each: leases that ran out do not count.
WITH limited AS (
    SELECT lane_id, max_running FROM deedbox.lane
    WHERE lane_id = ANY (%(lane_id)s) AND max_running IS NOT NULL AND NOT paused
    ORDER BY lane_id FOR UPDATE SKIP LOCKED
)
SELECT lane_id, greatest(0, max_running - (
    SELECT count(*) FROM deedbox.queue q
    WHERE q.lane_id = limited.lane_id AND q.state = 'running' AND q.lease_until > deedbox.clock()
))::integer FROM limited

-- name: listed
-- All lanes of a tenant with what waits and runs in each, counted no further than a thousand.
SELECT l.lane_id, l.queue, l.action, l.paused, l.max_running,
       (SELECT count(*) FROM (SELECT FROM deedbox.queue q WHERE q.lane_id = l.lane_id AND q.state = 'queued' AND q.due LIMIT 1000) AS w),
       (SELECT count(*) FROM deedbox.queue q WHERE q.lane_id = l.lane_id AND q.state = 'running')
FROM deedbox.lane l WHERE l.tenant = %(tenant)s AND (%(action)s::text IS NULL OR l.action = %(action)s)
ORDER BY l.queue, l.action

-- name: set_lane
-- Pause a lane or let it go on, or set its limit; what is NULL stays as it is, and a limit below zero means none.
UPDATE deedbox.lane
SET paused = coalesce(%(paused)s, paused),
    max_running = CASE WHEN %(limit)s::integer IS NULL THEN max_running WHEN %(limit)s < 0 THEN NULL ELSE %(limit)s END
WHERE lane_id = %(lane_id)s AND tenant = %(tenant)s
RETURNING paused, max_running
