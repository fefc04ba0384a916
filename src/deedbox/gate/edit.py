"""Editing what waits for a decision: new bytes, a new digest, the policy again, and a new approval in the place of the old.

The old approval ends as `superseded` in the same transaction in which the new one begins, under the same locks as a decision.
So of an edit and a decision at the same moment exactly one happens, and what leaves is always of the revision approved.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast
from uuid import UUID

from pydantic import ValidationError

from deedbox.extend.action import Action
from deedbox.extend.connector import Connector
from deedbox.extend.context import EffectPlan, reach
from deedbox.gate.decide import digest_of
from deedbox.gate.judge import Basis, Ruling, judge_edit
from deedbox.gate.rules import find_say, require_act, require_open, require_person
from deedbox.model.consequence import graver
from deedbox.model.errors import DeedboxError, InvalidValueError, Problem
from deedbox.model.facts import EffectKind, gravest
from deedbox.model.fingerprint import approval_digest, effect_body, sha256
from deedbox.model.identity import Principal
from deedbox.model.values import short_message, storable
from deedbox.store import admission, decision, editing
from deedbox.store.audit import append, entry_by
from deedbox.store.decision import Settlement, Standing
from deedbox.store.editing import Content
from deedbox.store.ids import IdSource
from deedbox.store.pool import Connection, Pool
from deedbox.store.tell import tell
from deedbox.store.transaction import transaction


@dataclass(frozen=True, slots=True)
class Edited:
    """The approval that waits now, the digest of what it holds, the proposal's revision, and the slots that were changed."""

    approval_id: UUID
    digest: bytes
    revision: int
    slots: tuple[str, ...]


async def edit(
    pool: Pool,
    ids: IdSource,
    principal: Principal,
    *,
    connectors: Mapping[str, Connector],
    actions: Mapping[str, Action],
    approval_id: UUID,
    digest_hex: str | None,
    payloads: Mapping[str, Any],
    reason: str | None,
    how: str,
) -> Edited:
    """Change payloads of a group that waits, by slot, and hold the group again; who edits has the rights of who decides.

    Connector, target and slot of an effect never change, nor its attachments. Raises DeedboxError: invalid_input with a
    pointer to each bad field, policy_denied, and whatever `decide` raises for a person, a state and a digest. A refusal changes
    nothing.
    """
    require_person(principal)
    shown = digest_of(digest_hex)
    why = short_message(reason) if reason and reason.strip() else None
    async with transaction(pool) as connection:
        await decision.lock_job_of(connection, approval_id, principal.tenant)
        former = await decision.lock_standing(connection, approval_id, principal.tenant, UUID(principal.principal_id))
        if former is None:
            raise DeedboxError("not_found", "There is no such approval, or it is not yours.")
        say = find_say(principal, former)
        require_open(former, shown, former.digest)
        require_act(principal, former, say, "edit", how)
        contents = await editing.effects(connection, former.job_id, former.proposal_id, former.group)
        plans, changed = _replan(former, contents, payloads, connectors)
        action = actions.get(former.action)
        if action is None or former.version not in action.versions:
            raise DeedboxError("illegal_move", f"This process does not know {former.action} in version {former.version}.")
        basis, kinds = await _judged(connection, former)
        plans = [replace(plan, kind=gravest(plan.kind, kinds.get(plan.slot))) for plan in plans]
        ruling = judge_edit(action, plans, basis)
        if ruling.decision == "deny":
            raise DeedboxError("policy_denied", f"The policy denies what you made of it: {ruling.rule}.")
        change = _Change(former, action, ruling, contents, plans, changed, why, how)
        edited = await _supersede(connection, ids, UUID(principal.principal_id), principal.name, change)
        detail = {
            "job_id": str(former.job_id),
            "digest": shown.hex(),
            "new_digest": edited.digest.hex(),
            "superseded_by": str(edited.approval_id),
            "revision": edited.revision,
            "slots": list(changed),
        }
        detail |= {} if say.holder is None else {"for": str(say.holder), "for_name": say.name}
        await append(connection, entry_by(principal, how, "edit", ("approval", str(approval_id)), reason=why, detail=detail))
    await tell(pool, jobs=[former.job_id])
    return edited


def _replan(
    former: Standing, contents: Sequence[Content], payloads: Mapping[str, Any], connectors: Mapping[str, Connector]
) -> tuple[list[EffectPlan], tuple[str, ...]]:
    """The group's effects with the new payloads in them, and the slots whose bytes are others now."""
    slots = {one.slot for one in contents}
    foreign = [slot for slot in payloads if slot not in slots]
    if foreign or former.purpose != "effects" or not contents:
        problems = tuple(
            Problem(f"/payloads/{_token(slot)}", "unknown_slot", "is no effect of this approval") for slot in foreign
        )
        raise DeedboxError("invalid_input", "Only the effects of this approval can be edited.", problems=problems)
    plans: list[EffectPlan] = []
    changed: list[str] = []
    for one in contents:
        body, summary = one.body, one.summary
        if one.slot in payloads:
            body, summary = _rewritten(one, payloads[one.slot], connectors)
        digest = sha256(body)
        if digest != one.digest:
            changed.append(one.slot)
        plans.append(_plan(former.group, one, summary, body, connectors))
    if not changed:
        raise DeedboxError("invalid_input", "Nothing was changed, so nothing was done.")
    return plans, tuple(changed)


def _plan(group: str, one: Content, summary: str, body: bytes, connectors: Mapping[str, Connector]) -> EffectPlan:
    known = connectors.get(one.connector)
    kind, recipients, sensitive = "record", 1, False
    if known is not None:
        kind = getattr(known, "kind", None) or kind
        recipients, sensitive = reach(known, one.target, json.loads(body)["payload"])
    digest = sha256(body)
    return EffectPlan(one.connector, one.target, one.slot, group, summary, body, digest, one.after, kind, recipients, sensitive)


async def _judged(connection: Connection, former: Standing) -> tuple[Basis, dict[str, EffectKind]]:
    """What the proposal was judged by, and the kinds that its effects had; a draft that is no object says nothing to rules."""
    if former.proposal_id is None:
        return Basis(""), {}
    facts, output, role = await editing.basis(connection, former.job_id, former.proposal_id)
    draft = cast("dict[str, Any]", output) if isinstance(output, dict) else {}
    kinds: dict[str, EffectKind] = {
        slot: cast("EffectKind", effect["kind"]) for slot, effect in facts.get("effects", {}).items()
    }
    basis = Basis(role or "", facts.get("validation"), int(facts.get("repairs") or 0), bool(facts.get("sensitive")), draft)
    return basis, kinds


def _token(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _rewritten(one: Content, payload: Any, connectors: Mapping[str, Connector]) -> tuple[bytes, str]:
    place = f"/payloads/{_token(one.slot)}"
    known = connectors.get(one.connector)
    if known is None:
        raise DeedboxError(
            "illegal_move", f"This process has no connector {one.connector!r}, so it cannot check what you wrote."
        )
    attachments = json.loads(one.body).get("attachments", [])
    if storable(payload) != payload:
        problem = Problem(place, "storable", "holds U+0000, a lone surrogate, what is no number, or is nested too deep")
        raise DeedboxError("invalid_input", "What you wrote cannot be kept.", problems=(problem,))
    try:
        checked = known.payload_model.model_validate(payload, by_alias=True, by_name=True).model_dump(mode="json")
        known.check_plan(one.target, checked)
        body = effect_body(one.connector, one.target, one.slot, checked, attachments)
        return body, known.describe(one.target, checked)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        problems = tuple(
            Problem("".join([place, *(f"/{_token(str(part))}" for part in item["loc"])]), item["type"], item["msg"])
            for item in found
        )
        raise DeedboxError("invalid_input", f"What you wrote does not fit {one.connector}.", problems=problems) from error
    except InvalidValueError as error:
        problem = Problem(place + error.problem.pointer, error.problem.rule, error.problem.message)
        raise DeedboxError("invalid_input", "What you wrote cannot be kept.", problems=(problem,)) from error
    except ValueError as error:
        problem = Problem(place, "does_not_fit", str(error))
        raise DeedboxError("invalid_input", f"What you wrote does not fit {one.target}.", problems=(problem,)) from error


@dataclass(frozen=True, slots=True)
class _Change:
    """An edit that was checked: what it changes, into what, and what the policy says of it."""

    former: Standing
    action: Action
    ruling: Ruling
    contents: Sequence[Content]
    plans: Sequence[EffectPlan]
    changed: tuple[str, ...]
    reason: str | None
    how: str


async def _supersede(connection: Connection, ids: IdSource, editor: UUID, name: str, change: _Change) -> Edited:
    former, action, ruling, plans = change.former, change.action, change.ruling, change.plans
    if former.proposal_id is None:
        raise RuntimeError(f"approval {former.approval_id} has effects and no proposal")
    proposal_id, digests = ids.new(), tuple(plan.digest for plan in plans)
    held = admission.HeldGroup(
        approval_id=ids.new(),
        tenant=former.tenant,
        action=former.action,
        group=former.group,
        digest=approval_digest(former.action, former.version, ruling.policy_version, digests),
        effect_digests=digests,
        policy_version=ruling.policy_version,
        rule=ruling.rule,
        audience=tuple(former.audience),
        # An edit never makes it easier: what was asked of the former is asked of this one.
        quorum=max(former.quorum, ruling.quorum),
        expires_s=0.0,
        consequence=graver(former.consequence, action.consequence),
        required_role=former.required_role or action.domain_role,
    )
    revision = await editing.revise(connection, former.job_id, former.proposal_id, proposal_id, ruling.policy_version)
    effects = [
        admission.ProposedEffect(
            ids.new(),
            plan.group,
            one.position,
            plan.connector,
            plan.target,
            plan.slot,
            plan.summary,
            plan.body,
            plan.digest,
            plan.after,
        )
        for one, plan in zip(change.contents, plans, strict=True)
    ]
    await admission.propose_effects(connection, former.job_id, proposal_id, effects)
    await admission.give_verdict(
        connection,
        verdict_id=ids.new(),
        job_id=former.job_id,
        proposal_id=proposal_id,
        group=former.group,
        decision=ruling.decision,
        rule=ruling.rule,
        policy_version=ruling.policy_version,
        effect_digests=digests,
    )
    await admission.request_approval(connection, former.job_id, proposal_id, held)
    await editing.take_place(connection, held.approval_id, former.approval_id, editor)
    event = {
        "approval_id": str(former.approval_id),
        "group": former.group,
        "decision": "superseded",
        "by": name,
        "superseded_by": str(held.approval_id),
    }
    settlement = Settlement(
        former.approval_id,
        "superseded",
        change.how,
        ids.new(),
        json.dumps(event),
        decided_by=editor,
        reason=change.reason,
        superseded_by=held.approval_id,
    )
    if await decision.settle(connection, settlement) is None:
        raise DeedboxError("already_decided", "Someone else was first.")
    return Edited(held.approval_id, held.digest, revision, change.changed)
