-- name: deliver
-- Keep the receipts of many sendings, complete those effects whose sender still holds the fence, and write their events: all in
-- one statement, so all of it or nothing. Queue rows are locked before effects and in the order of their ids, as everywhere,
-- so two of these may wait for one another and never in a circle. Whoever holds one of them is not waited for longer than the
-- given patience. Returns what was completed, and whether an effect waits to follow it; what is not returned (a replaced
-- sender, a notice, a job that has ended) was not touched.
WITH given AS MATERIALIZED (
    SELECT g.*
    FROM (SELECT set_config('lock_timeout', %(lock_timeout)s, true)) AS patience,
         unnest(%(job_id)s::uuid[], %(effect_id)s::uuid[], %(fence)s::bigint[], %(receipt_id)s::uuid[], %(event_id)s::uuid[],
                %(provider_id)s::text[], %(evidence)s::text[], %(phase)s::text[])
             AS g (job_id, effect_id, fence, receipt_id, event_id, provider_id, evidence, phase)
), held AS MATERIALIZED (
    SELECT q.job_id FROM deedbox.queue q WHERE q.job_id IN (SELECT job_id FROM given) ORDER BY q.job_id FOR UPDATE
), moved AS (
    UPDATE deedbox.effect e
    SET state = 'completed', fence = NULL, sender = NULL, lease_until = NULL, phase = g.phase, updated_at = deedbox.clock()
    FROM given g JOIN held h USING (job_id)
    WHERE e.effect_id = g.effect_id AND e.job_id = g.job_id AND e.fence = g.fence AND e.kind = 'act'
        -- A CASE, here and below: each row is found by its id, and not by an index of all that are in a state.
        AND CASE WHEN e.state IN ({{effect.deliver}}) THEN true END
    RETURNING e.effect_id, e.job_id, e.connector, e.slot
), kept AS (
    INSERT INTO deedbox.receipt (job_id, receipt_id, effect_id, provider_id, evidence, phase, source, stored_at)
    SELECT g.job_id, g.receipt_id, g.effect_id, g.provider_id, g.evidence::jsonb, g.phase, 'sender', deedbox.clock()
    FROM given g JOIN moved m USING (effect_id)
    ON CONFLICT (job_id, receipt_id) DO NOTHING
), counted AS (
    SELECT m.effect_id, m.job_id, m.connector, m.slot, g.event_id, count(*) OVER (PARTITION BY m.job_id) AS many,
           row_number() OVER (PARTITION BY m.job_id ORDER BY m.effect_id) AS place
    FROM moved m JOIN given g USING (effect_id)
), raised AS (
    UPDATE deedbox.queue q SET last_seq = q.last_seq + c.many
    FROM (SELECT DISTINCT job_id, many FROM counted) AS c
    WHERE q.job_id = c.job_id
    RETURNING q.job_id, q.last_seq, q.round
), told AS (
    INSERT INTO deedbox.event (job_id, seq, event_id, type, round, at, payload)
    SELECT c.job_id, r.last_seq - c.many + c.place, c.event_id, 'effect.completed', r.round, deedbox.clock(),
           jsonb_build_object('effect_id', c.effect_id, 'connector', c.connector, 'slot', c.slot)
    FROM counted c JOIN raised r USING (job_id)
)
SELECT m.effect_id, 0 < (
    SELECT count(*) FROM deedbox.effect x
    WHERE x.job_id = m.job_id AND x.after_slot = m.slot AND CASE WHEN x.state IN ({{effect.lease}}) THEN true END
)
FROM moved m

-- name: finish
-- End those of the given jobs that dispatch and all of whose acts are completed, as `finish_job` does for one. Returns the jobs
-- all of whose acts have ended in some other way, which are for `finish_job`. What is read before the lock still holds after
-- it: no act is added to a job that dispatches, and none that has ended moves again. Whoever ends the last act looks after
-- that commit, and so sees the end of all the others.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(job_id)s::uuid[], %(event_id)s::uuid[]) AS g (job_id, event_id)
), whole AS MATERIALIZED (
    SELECT q.job_id, acts.others = 0 AS delivered
    FROM deedbox.queue q
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE e.state <> 'completed') AS others,
               -- Which is every state that has not ended.
               count(*) FILTER (WHERE e.state IN ({{effect.late_receipt}})) AS open
        FROM deedbox.effect e WHERE e.job_id = q.job_id AND e.kind = 'act'
    ) AS acts
    WHERE q.job_id IN (SELECT job_id FROM given) AND CASE WHEN q.state IN ({{job.delivered}}) THEN true END AND acts.open = 0
), held AS MATERIALIZED (
    SELECT q.job_id FROM deedbox.queue q
    WHERE q.job_id IN (SELECT job_id FROM whole WHERE delivered) AND CASE WHEN q.state IN ({{job.delivered}}) THEN true END
    ORDER BY q.job_id
    FOR UPDATE
), gone AS (
    DELETE FROM deedbox.queue q USING held h
    WHERE q.job_id = h.job_id AND CASE WHEN q.state IN ({{job.delivered}}) THEN true END
    RETURNING q.job_id, q.attempt, q.attempts_allowed, q.round, q.last_seq
), said AS MATERIALIZED (
    SELECT g.job_id, d.done, d.many, n.declined, n.few, (
        SELECT output FROM deedbox.proposal p WHERE p.job_id = g.job_id ORDER BY p.revision DESC, p.proposal_id DESC LIMIT 1
    ) AS output
    FROM gone g
    CROSS JOIN LATERAL (
        SELECT coalesce(jsonb_agg(jsonb_build_object('effect_id', e.effect_id, 'connector', e.connector, 'target', e.target,
                                                     'slot', e.slot, 'provider_id', r.provider_id)
                                  ORDER BY p.position, e.effect_id), '[]') AS done, count(*) AS many
        FROM deedbox.effect e
        JOIN deedbox.proposal_effect p ON p.proposal_effect_id = e.proposal_effect_id
        LEFT JOIN LATERAL (
            SELECT provider_id FROM deedbox.receipt WHERE job_id = e.job_id AND effect_id = e.effect_id
            ORDER BY stored_at LIMIT 1
        ) AS r ON true
        WHERE e.job_id = g.job_id AND e.kind = 'act'
    ) AS d
    CROSS JOIN LATERAL (
        SELECT coalesce(jsonb_agg(jsonb_build_object('group', a.group_name, 'state', a.state, 'reason', a.reason)
                                  ORDER BY a.approval_id), '[]') AS declined, count(*) AS few
        FROM deedbox.approval a
        WHERE a.job_id = g.job_id AND a.purpose = 'effects' AND a.state IN ('rejected', 'expired')
    ) AS n
), ended AS (
    INSERT INTO deedbox.result (job_id, state, output, done, declined, attempt, attempts_allowed, round, last_seq, ended_at)
    SELECT g.job_id, 'completed', s.output, s.done, s.declined, g.attempt, g.attempts_allowed, g.round, g.last_seq + 1,
           deedbox.clock()
    FROM gone g JOIN said s USING (job_id)
), told AS (
    INSERT INTO deedbox.event (job_id, seq, event_id, type, round, at, payload)
    SELECT g.job_id, g.last_seq + 1, i.event_id, 'job.completed', g.round, deedbox.clock(), jsonb_build_object(
        'summary', s.many || ' done' || CASE WHEN s.few > 0 THEN ', ' || s.few || ' declined' ELSE '' END
    )
    FROM gone g JOIN said s USING (job_id) JOIN given i USING (job_id)
)
SELECT job_id FROM whole WHERE NOT delivered
