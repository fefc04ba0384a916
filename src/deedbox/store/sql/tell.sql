-- name: jobs
-- Tell whoever follows these jobs that something new is there: their ids by commas, 200 to a notification at most.
SELECT pg_notify('deedbox_events', string_agg(job_id, ','))
FROM (SELECT job_id::text, (row_number() OVER () - 1) / 200 AS chunk FROM unnest(%(job_id)s::uuid[]) AS u (job_id)) AS ids
GROUP BY chunk

-- name: queue
-- Tell the workers that something is due.
SELECT pg_notify('deedbox_queue', '')

-- name: outbox
-- Tell the dispatchers that something is on the outbox.
SELECT pg_notify('deedbox_outbox', '')
