-- name: jobs
-- Tell whoever follows these jobs that something new is there: each text holds ids by commas.
SELECT pg_notify('deedbox_events', ids) FROM unnest(%(ids)s::text[]) AS u (ids)

-- name: queue
-- Tell the workers that something is due.
SELECT pg_notify('deedbox_queue', '')

-- name: outbox
-- Tell the dispatchers that something is on the outbox.
SELECT pg_notify('deedbox_outbox', '')
