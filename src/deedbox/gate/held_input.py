"""Arguments that a person approves before the action runs: held with the acceptance of the job, in its transaction."""

import json
from uuid import UUID

from deedbox.model.fingerprint import jcs, sha256
from deedbox.store import accept, admission
from deedbox.store.pool import Connection


def input_digest(job: accept.NewJob, policy_version: str) -> bytes:
    """What the decision is bound to: the action, its version, the policy's version and the hash of the arguments."""
    return sha256(jcs(["input", job.terms.action, job.terms.version, policy_version, job.payload_sha256.hex()]))


def start(approval_id: UUID) -> accept.Start:
    """How a job begins whose arguments are held."""
    return accept.Start(
        "awaiting_human", "job.awaiting_human", json.dumps({"purpose": "input", "approvals": [str(approval_id)]})
    )


async def hold_input(connection: Connection, job: accept.NewJob, held_for: accept.HeldFor, approval_id: UUID) -> None:
    """Ask for the approval of a job's arguments, in the transaction that has just stored the job."""
    await admission.hold_input(
        connection,
        admission.HeldInput(
            approval_id=approval_id,
            job_id=job.job_id,
            tenant=job.terms.tenant,
            action=job.terms.action,
            digest=input_digest(job, held_for.policy_version),
            policy_version=held_for.policy_version,
            audience=held_for.audience,
            quorum=held_for.quorum,
            expires_s=held_for.expires_s,
        ),
    )
