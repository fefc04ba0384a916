-- name: journal
-- Keep what one question to a model took, whoever holds the attempt by now: it was paid for.
INSERT INTO deedbox.model_call (call_id, job_id, attempt_id, tenant, action, part, turn, endpoint, model, requests, input_tokens,
                                output_tokens, tool_calls, repairs, cost, currency, code, duration_ms)
VALUES (%(call_id)s, %(job_id)s, %(attempt_id)s, %(tenant)s, %(action)s, %(part)s, %(turn)s, %(endpoint)s, %(model)s,
        %(requests)s, %(input_tokens)s, %(output_tokens)s, %(tool_calls)s, %(repairs)s, %(cost)s, %(currency)s, %(code)s,
        %(duration_ms)s)

-- name: spent
-- What a job has spent on models in all of its attempts, and how many calls of tools its agents have asked for; `except_part` leaves
-- out the turns of one agent from `from_turn` on. Cost is in the currency of the settings: what was spent in another is not in it.
-- With whether somebody has asked for the job to stop, so that nothing more is spent then.
SELECT coalesce(sum(requests), 0)::bigint, coalesce(sum(input_tokens), 0)::bigint, coalesce(sum(output_tokens), 0)::bigint,
       coalesce(sum(tool_calls), 0)::bigint, coalesce(sum(cost) FILTER (WHERE currency = %(currency)s), 0),
       coalesce((SELECT cancel_requested FROM deedbox.queue WHERE job_id = %(job_id)s), false)
FROM deedbox.model_call
WHERE job_id = %(job_id)s AND NOT (part = %(except_part)s AND turn >= %(from_turn)s)

-- name: steps
-- The checkpoints of a job whose names begin so.
SELECT name, input_sha256, value::text FROM deedbox.step WHERE job_id = %(job_id)s AND starts_with(name, %(prefix)s)

-- name: drafted
-- How far the drafts of one stream have been shown, in characters of the answer.
SELECT coalesce(max((payload ->> 'size')::integer), 0) FROM deedbox.event
WHERE job_id = %(job_id)s AND type = 'job.partial' AND payload ->> 'stream' = %(stream)s

-- name: report
-- What a tenant's actions have spent on models in the last days, by action, endpoint, model and currency, the dearest first.
SELECT action, endpoint, model, currency, count(*), count(*) FILTER (WHERE code IS NOT NULL), sum(requests)::bigint,
       sum(input_tokens)::bigint, sum(output_tokens)::bigint, sum(tool_calls)::bigint, sum(repairs)::bigint,
       sum(cost)::text, count(DISTINCT job_id)
FROM deedbox.model_call
WHERE tenant = %(tenant)s AND called_at > deedbox.clock() - make_interval(secs => %(seconds)s)
GROUP BY action, endpoint, model, currency
ORDER BY sum(cost) DESC NULLS LAST, sum(input_tokens) + sum(output_tokens) DESC, action, endpoint, model
LIMIT 1000
