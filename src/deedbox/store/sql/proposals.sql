-- name: since
-- What jobs of a tenant that were accepted within so many seconds have proposed, in the order of their ids behind the one given:
-- the effects with what was decided about them then, and what persons said of what was held. Contents that were pruned are absent.
SELECT p.job_id, p.proposal_id, j.action, j.role, p.created_at, p.policy_version, p.output, p.facts,
       (SELECT jsonb_agg(jsonb_build_object('group', v.group_name, 'decision', v.decision, 'rule', v.rule, 'said', (
            SELECT a.state FROM deedbox.approval a
            WHERE a.job_id = p.job_id AND a.proposal_id = p.proposal_id AND a.group_name = v.group_name AND a.purpose = 'effects'
            ORDER BY a.approval_id LIMIT 1))) FROM deedbox.verdict v
        WHERE v.job_id = p.job_id AND v.proposal_id = p.proposal_id),
       (SELECT jsonb_agg(jsonb_build_object('group', e.group_name, 'slot', e.slot, 'connector', e.connector, 'target', e.target,
                                            'summary', e.summary, 'body', convert_from(e.body, 'UTF8')) ORDER BY e.position)
        FROM deedbox.proposal_effect e WHERE e.job_id = p.job_id AND e.proposal_id = p.proposal_id)
FROM deedbox.proposal p JOIN deedbox.job j ON j.job_id = p.job_id
WHERE j.tenant = %(tenant)s AND (p.job_id, p.proposal_id) > (%(job_id)s, %(proposal_id)s)
    AND p.job_id >= (lpad(to_hex((extract(epoch FROM deedbox.clock() - make_interval(secs => %(since_s)s)) * 1000)::bigint), 12, '0')
                     || repeat('0', 20))::uuid
ORDER BY p.job_id, p.proposal_id LIMIT %(limit)s
