-- name: served
-- The lanes of the actions a worker can run, those that stand still left out, with the least limit that holds for each: its own, or
-- that of its action over all lanes.
SELECT l.lane_id, l.action, least(l.max_running, a.max_running)
FROM deedbox.lane l LEFT JOIN deedbox.action_limit a USING (action)
WHERE l.queue = ANY (%(queues)s) AND l.action = ANY (%(actions)s) AND NOT l.paused

-- name: ready
-- Which of these lanes have a job that is due.
SELECT lane_id FROM unnest(%(lane_id)s::bigint[]) AS u (lane_id)
WHERE (SELECT true FROM deedbox.queue q WHERE q.lane_id = u.lane_id AND q.state = 'queued' AND q.due LIMIT 1)

-- name: hold
-- Lock what limits these lanes, rows of lanes and rows of actions each in one order, skipping what another worker counts just now.
-- The lanes that come back may be counted, by a statement of its own: this one may not see what was claimed before it had its locks.
WITH wide AS MATERIALIZED (
    SELECT action FROM deedbox.action_limit
    WHERE action = ANY (ARRAY (SELECT action FROM deedbox.lane WHERE lane_id = ANY (%(lane_id)s)))
    ORDER BY action FOR UPDATE SKIP LOCKED
), narrow AS MATERIALIZED (
    SELECT lane_id FROM deedbox.lane
    WHERE lane_id = ANY (%(lane_id)s) AND max_running IS NOT NULL AND NOT paused
    ORDER BY lane_id FOR UPDATE SKIP LOCKED
)
SELECT l.lane_id FROM deedbox.lane l LEFT JOIN deedbox.action_limit a USING (action)
WHERE l.lane_id = ANY (%(lane_id)s) AND NOT l.paused AND num_nonnulls(l.max_running, a.max_running) > 0
    AND (l.max_running IS NULL OR l.lane_id IN (SELECT lane_id FROM narrow))
    AND (a.max_running IS NULL OR l.action IN (SELECT action FROM wide))

-- name: room
-- How many more may run in each of these lanes, and in all lanes of its action: leases that ran out do not count. NULL is no limit.
-- The last column says whether the lane has something that is due.
WITH wide AS MATERIALIZED (
    SELECT a.action, greatest(0, a.max_running - (
        SELECT coalesce(sum((
            SELECT count(*) FROM deedbox.queue q
            WHERE q.lane_id = x.lane_id AND q.state = 'running' AND q.lease_until > deedbox.clock()
        )), 0) FROM deedbox.lane x WHERE x.action = a.action
    ))::integer AS room
    FROM deedbox.action_limit a
    WHERE a.action = ANY (ARRAY (SELECT action FROM deedbox.lane WHERE lane_id = ANY (%(lane_id)s)))
)
SELECT l.lane_id, l.action,
       CASE WHEN l.max_running IS NOT NULL THEN greatest(0, l.max_running - (
           SELECT count(*) FROM deedbox.queue q
           WHERE q.lane_id = l.lane_id AND q.state = 'running' AND q.lease_until > deedbox.clock()
       ))::integer END,
       (SELECT room FROM wide WHERE wide.action = l.action),
       coalesce((SELECT true FROM deedbox.queue q WHERE q.lane_id = l.lane_id AND q.state = 'queued' AND q.due LIMIT 1), false)
FROM deedbox.lane l WHERE l.lane_id = ANY (%(lane_id)s)

-- name: listed
-- All lanes of a tenant with what waits and runs in each, counted no further than a thousand, and with the limits of the lane and
-- of its action over all lanes.
SELECT l.lane_id, l.queue, l.action, l.paused, l.max_running,
       (SELECT count(*) FROM (SELECT FROM deedbox.queue q WHERE q.lane_id = l.lane_id AND q.state = 'queued' AND q.due LIMIT 1000) AS w),
       (SELECT count(*) FROM deedbox.queue q WHERE q.lane_id = l.lane_id AND q.state = 'running'),
       (SELECT a.max_running FROM deedbox.action_limit a WHERE a.action = l.action)
FROM deedbox.lane l WHERE l.tenant = %(tenant)s AND (%(action)s::text IS NULL OR l.action = %(action)s)
ORDER BY l.queue, l.action

-- name: set_lane
-- Pause a lane or let it go on, or set its limit; what is NULL stays as it is, and a limit below zero means none.
UPDATE deedbox.lane
SET paused = coalesce(%(paused)s, paused),
    max_running = CASE WHEN %(limit)s::integer IS NULL THEN max_running WHEN %(limit)s < 0 THEN NULL ELSE %(limit)s END
WHERE lane_id = %(lane_id)s AND tenant = %(tenant)s
RETURNING paused, max_running

-- name: limit_action
-- Limit how many jobs of an action run at once over all its lanes. No row: no lane of such an action is known.
INSERT INTO deedbox.action_limit (action, max_running)
SELECT %(action)s, %(limit)s WHERE EXISTS (SELECT FROM deedbox.lane WHERE action = %(action)s)
ON CONFLICT (action) DO UPDATE SET max_running = EXCLUDED.max_running
RETURNING action

-- name: free_action
-- Lift the limit of an action over all its lanes. No row: no lane of such an action is known.
WITH gone AS (DELETE FROM deedbox.action_limit WHERE action = %(action)s)
SELECT action FROM deedbox.lane WHERE action = %(action)s LIMIT 1
