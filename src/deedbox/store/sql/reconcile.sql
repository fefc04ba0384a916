-- name: next_look_up
-- Seconds until the next look-up of one of these connectors is due, null where none is scheduled. A first look-up comes later than
-- its row says, so those behind it count as well; some are enough, for it is asked again before long.
SELECT min(greatest(0, extract(epoch FROM look_up_at - deedbox.clock()) + CASE look_ups WHEN 0 THEN %(first_s)s ELSE 0 END))::float8
FROM (
    SELECT look_up_at, look_ups FROM deedbox.effect
    WHERE state IN ({{effect.confirm}}) AND look_up_at IS NOT NULL AND connector = ANY (%(connectors)s)
    ORDER BY look_up_at LIMIT 100
) AS first

-- name: claim
-- Take unknown effects whose look-up is due, the longest due first, and say when the next one of each is, so that nobody else
-- asks meanwhile and whoever dies on the way delays it and no more. The waits double from the first one up to the longest; after
-- the last look-up there is none. Returns each with the number of this look-up and whether it is the last.
WITH due AS (
    SELECT effect_id FROM deedbox.effect
    WHERE state IN ({{effect.confirm}}) AND look_up_at <= deedbox.clock() AND connector = ANY (%(connectors)s)
        AND (look_ups > 0 OR look_up_at <= deedbox.clock() - make_interval(secs => %(first_s)s))
    ORDER BY look_up_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
UPDATE deedbox.effect e
SET look_ups = e.look_ups + 1, look_up_at = CASE WHEN e.look_ups + 1 < %(tries)s THEN deedbox.clock() + make_interval(
        secs => least(%(first_s)s * 2::float8 ^ least(e.look_ups + 1, 60), %(longest_s)s)) END
FROM due WHERE e.effect_id = due.effect_id
RETURNING e.effect_id, e.job_id, e.tenant, e.connector, e.target, e.slot, e.look_ups, e.look_up_at IS NULL

-- name: look_up_in
-- Set when an unknown effect is looked up next, for a reason that the waits do not know; never later than it is anyway.
UPDATE deedbox.effect SET look_up_at = least(look_up_at, deedbox.clock() + make_interval(secs => %(wait_s)s))
WHERE effect_id = %(effect_id)s AND state IN ({{effect.confirm}}) AND look_up_at IS NOT NULL

-- name: leave_to_people
-- Look an unknown effect up no more by itself: nobody can be asked about it.
UPDATE deedbox.effect SET look_up_at = NULL WHERE effect_id = %(effect_id)s AND state IN ({{effect.confirm}})
