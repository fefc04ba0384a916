-- name: depth
-- How many jobs stand above a job: it was called by one, which was called by another, and so on; counted no further than 20.
WITH RECURSIVE up (job_id, n) AS (
    SELECT %(job_id)s::uuid, 0
    UNION ALL
    SELECT j.parent_job_id, up.n + 1
    FROM up CROSS JOIN LATERAL (SELECT parent_job_id FROM deedbox.job WHERE job_id = up.job_id LIMIT 1) AS j
    WHERE j.parent_job_id IS NOT NULL AND up.n < 20
)
SELECT max(n) FROM up

-- name: open_children
-- The jobs that a job has called and that have not ended, in the order in which they are locked.
SELECT q.job_id
FROM (SELECT job_id FROM deedbox.job WHERE parent_job_id = %(job_id)s) AS j
CROSS JOIN LATERAL (SELECT job_id FROM deedbox.queue WHERE job_id = j.job_id LIMIT 1) AS q
ORDER BY q.job_id
