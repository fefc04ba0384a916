-- name: keep
-- Keep which fields code calls sensitive; what was kept before stays, because contents of before do.
INSERT INTO deedbox.sensitive (kind, name, path)
SELECT kind, name, ARRAY (SELECT json_array_elements_text(path))
FROM json_to_recordset(%(fields)s::json) AS f (kind text, name text, path json)
ON CONFLICT DO NOTHING

-- name: of_job
-- What is needed to mask what is shown of a job: the paths that its action and the connectors have called sensitive, and the
-- contents in which the values stand that are looked for in texts. No row where nothing was ever called sensitive.
SELECT f.fields, p.input, coalesce(r.output, (
    SELECT output FROM deedbox.proposal WHERE job_id = j.job_id ORDER BY revision DESC, proposal_id DESC LIMIT 1
))
FROM (SELECT * FROM deedbox.job WHERE job_id = %(job_id)s LIMIT 1) AS j
CROSS JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_array(kind, name, path)) AS fields FROM deedbox.sensitive WHERE kind = 'payload' OR name = j.action
) AS f
LEFT JOIN LATERAL (SELECT input FROM deedbox.job_payload WHERE job_id = j.job_id LIMIT 1) AS p ON true
LEFT JOIN LATERAL (SELECT output FROM deedbox.result WHERE job_id = j.job_id LIMIT 1) AS r ON true
WHERE f.fields IS NOT NULL
