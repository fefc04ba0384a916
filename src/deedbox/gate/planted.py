"""An effect that is there for the length of a test of the switch, and never leaves: its transaction is rolled back."""

from uuid import UUID

from deedbox.model.fingerprint import effect_body, sha256
from deedbox.store import accept, admission
from deedbox.store.ids import IdSource
from deedbox.store.pool import Connection

CONNECTOR = "switch_test"
"""No dispatcher has a connector of this name."""
ACTION = "test_switch"
TARGET = "nowhere"


async def plant(connection: Connection, ids: IdSource, tenant: str) -> UUID:
    """Make a job and one allowed effect of it, as intake and gate do; returns the effect. Needs a transaction to roll back."""
    job_id, proposal_id, proposal_effect_id, effect_id, event_id = ids.many(5)
    lane_id = await accept.lane(connection, ACTION, ACTION, tenant)
    await accept.accept(connection, [accept.own_job(job_id, ACTION, tenant, lane_id)], [event_id])
    body = effect_body(CONNECTOR, TARGET, "probe", {"nothing": "is sent"})
    effect = admission.ProposedEffect(
        proposal_effect_id, "default", 0, CONNECTOR, TARGET, "probe", "Sends nothing.", body, sha256(body)
    )
    await admission.propose(
        connection,
        job_id=job_id,
        proposal_id=proposal_id,
        attempt_id=ids.new(),
        output_json="{}",
        facts_json="{}",
        policy_version="switch_test:1",
        effects=[effect],
    )
    await admission.give_verdict(
        connection,
        verdict_id=ids.new(),
        job_id=job_id,
        proposal_id=proposal_id,
        group="default",
        decision="allow",
        rule="switch_test",
        policy_version="switch_test:1",
        effect_digests=(effect.digest,),
    )
    await admission.plant(connection, effect_id=effect_id, proposal_effect_id=proposal_effect_id, tenant=tenant, action=ACTION)
    return effect_id
