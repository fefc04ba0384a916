"""What operators do: turn the switch, read and settle the ledger of effects, cancel jobs. Every verb leaves an audit entry.

Rules that hold here hold at every face. Locks are taken in the order switch, queue, approval, effect, audit.
"""

import json
from collections.abc import Mapping
from typing import Any, Literal
from uuid import UUID

from deedbox.dispatch import reconcile, send
from deedbox.dispatch.declared import declared
from deedbox.extend.connector import Connector
from deedbox.gate.cancel import cancel_locked
from deedbox.gate.masking import mask_of
from deedbox.model.errors import DeedboxError
from deedbox.model.fingerprint import encode
from deedbox.model.identity import Principal, Verb
from deedbox.model.lifecycle import EFFECT
from deedbox.operate.evidence import checked_evidence, checked_reason
from deedbox.operate.switch_trial import Trial, try_switch
from deedbox.operate.waiting import reasons
from deedbox.store import audit, ledger, outbox, switch
from deedbox.store.ids import IdSource
from deedbox.store.outbox import LockedEffect, Why
from deedbox.store.pool import Connection, Pool
from deedbox.store.switch import Narrow, SwitchRow
from deedbox.store.tell import tell
from deedbox.store.transaction import autocommit, transaction
from deedbox.store.views import Reader, pulse

EffectVerb = Literal["look_up", "confirm", "disprove", "abandon", "cancel"]

MAX_FREEZE_S = 3600.0
"""How long an effect whose sender was lost stays unknown before a person may disprove it, in seconds."""


class Verbs:
    """The verbs of operators over one store; `connectors` are asked when an effect is looked up."""

    def __init__(self, pool: Pool, ids: IdSource, connectors: Mapping[str, Connector], *, environment_on: bool = False) -> None:
        """`environment_on` is the environment's half of the switch in this process, shown beside the database's."""
        self._pool = pool
        self._ids = ids
        self._connectors = dict(connectors)
        self._environment_on = environment_on

    # The switch --------------------------------------------------------------------------------------------------------

    async def switch_state(self, tenant: str) -> dict[str, Any]:
        """Both halves of the switch, by whom, when and why, what narrows it for a tenant, and how many acts are on the wire.

        `is_on` is the database's half, `open` says whether acts leave at all: both halves are on. No root row means off.
        """
        async with autocommit(self._pool) as connection:
            rows = await switch.rows(connection, tenant)
            in_flight = await switch.in_flight(connection)
            processes = await switch.environment(connection)
            parts = {row.switch_id: await switch.in_flight(connection, _part(row)) for row in rows if _narrows(row)}
        root = next((row for row in rows if row.switch_id == "acts"), None)
        notices = next((row for row in rows if row.switch_id == "notices"), None)
        is_on = root is not None and root.opens
        return {
            "is_on": is_on,
            "environment": self._environment_on,
            "environment_by_process": processes,
            "open": is_on and self._environment_on,
            "by": root.changed_by if root else None,
            "when": root.changed_at if root else None,
            "why": root.reason if root else None,
            "owner": root.owner if root else None,
            "tested_at": root.tested_at if root else None,
            "tested_by": root.tested_by if root else None,
            "notices_on": notices is not None and notices.opens,
            "narrowed": [
                {
                    "tenant": row.tenant,
                    "action": row.action,
                    "connector": row.connector,
                    "target": row.target,
                    "is_on": row.is_on,
                    "by": row.changed_by,
                    "when": row.changed_at,
                    "why": row.reason,
                    "in_flight": parts[row.switch_id],
                }
                for row in rows
                if _narrows(row)
            ],
            "in_flight": in_flight,
        }

    async def set_switch(
        self,
        principal: Principal,
        is_on: bool,  # noqa: FBT001 -- the state that is asked for
        reason: str,
        door: str,
        *,
        narrow: Narrow | None = None,
        owner: str | None = None,
    ) -> dict[str, Any]:
        """Turn the database's half for all acts, or for the part that `narrow` names, and return `switch_state`.

        A program may turn it off and never on; a person with the verb may do both; a reason is always kept. `owner` names
        who answers for the switch from now on; None leaves it as it is. When a switch-off
        has returned, no lease that read "on" begins, and `in_flight` counts those that had begun.
        Raises DeedboxError: person_required, permission_denied, invalid_input.
        """
        reason = checked_reason(reason)
        if is_on and principal.kind != "person":
            raise DeedboxError("person_required", "Programs may turn the switch off; only a person turns it on.")
        if not principal.may("switch") and (is_on or not principal.may("cancel")):
            raise DeedboxError("permission_denied", "Turning the switch needs a role that may switch.")
        if narrow is not None and narrow.tenant not in {None, principal.tenant}:
            raise DeedboxError("permission_denied", "Another tenant's part of the switch is not yours to turn.")
        async with transaction(self._pool) as connection:
            if narrow is None:
                before = await switch.turn_root(
                    connection, "acts", is_on=is_on, changed_by=principal.name, reason=reason, owner=owner
                )
                subject, detail = "acts", {"before": before, "after": is_on, **({"owner": owner} if owner else {})}
            else:
                await switch.turn_narrow(connection, narrow, is_on=is_on, changed_by=principal.name, reason=reason)
                subject = narrow.switch_id
                detail = {
                    "after": is_on,
                    "tenant": narrow.tenant,
                    "action": narrow.action,
                    "connector": narrow.connector,
                    "target": narrow.target,
                }
            verb = "switch_on" if is_on else "switch_off"
            entry = audit.entry_by(principal, door, verb, ("switch", subject), reason=reason, detail=detail)
            await audit.append(connection, entry)
        return await self.switch_state(principal.tenant)

    async def in_flight(self, narrow: Narrow | None = None) -> int:
        """How many acts are on the wire, of all or of a part."""
        async with autocommit(self._pool) as connection:
            return await switch.in_flight(connection, narrow)

    async def test_switch(self, principal: Principal, *, door: str = "api") -> list[Trial]:
        """Show that nothing is leased while any part of the switch is off; nothing is sent. Raises permission_denied."""
        return await try_switch(self._pool, self._ids, principal, door=door)

    # Effects -----------------------------------------------------------------------------------------------------------

    async def effects(
        self, principal: Principal, state: str | None = None, *, before: UUID | None = None, limit: int = 100
    ) -> list[dict[str, Any]]:
        """The ledger of the principal's tenant, newest first, below `before`; all states where none is named.

        Raises DeedboxError: permission_denied, invalid_parameter.
        """
        _require(principal, "read")
        if state is not None and state not in EFFECT.states:
            raise DeedboxError("invalid_parameter", f"An effect is one of {', '.join(EFFECT.states)}.")
        async with autocommit(self._pool) as connection:
            found = await ledger.list_effects(
                connection, principal.tenant, state=state, before=before, limit=min(max(limit, 1), 500)
            )
        for row in found:
            del row["body"]
        return found

    async def effect(self, principal: Principal, effect_id: UUID) -> dict[str, Any]:
        """One effect with the body that was approved, its receipts, the look-ups made, and why it does not go out yet.

        The body is exact unless `masked` says that something in it is sensitive: the approval's card shows that to who decides.
        Raises DeedboxError: permission_denied, not_found (a foreign one too).
        """
        _require(principal, "read")
        async with autocommit(self._pool) as connection:
            row = await _read(connection, principal, effect_id)
            row["receipts"] = await ledger.receipts(connection, row["job_id"], effect_id)
            row["probes"] = await ledger.probes(connection, effect_id)
            row["waits_for"] = await reasons(connection, principal.tenant, effect_id)
            mask = await mask_of(connection, row["job_id"])
        body = bytes(row["body"]).decode()
        shown = json.loads(body)
        shown["payload"] = mask.payload(row["connector"], shown["payload"])
        masked = shown != json.loads(body)
        evidence = {name: mask.texts(row[name]) for name in ("message", "receipts", "probes")}
        return {**row, **evidence, "body": encode(shown) if masked else body, "masked": masked}

    async def effect_verb(
        self,
        principal: Principal,
        effect_id: UUID,
        verb: EffectVerb,
        *,
        evidence: Mapping[str, Any] | None = None,
        reason: str | None = None,
        door: str = "api",
    ) -> dict[str, Any]:
        """Do one thing about an effect, and return it as `effect` does, with a `message` that says what came of it.

        For persons who may reconcile. `confirm` needs evidence with the provider's id in `provider_id`; the other verbs but
        `look_up` need a reason. Disproving at a target that cannot be asked needs a second person: the first is refused with
        illegal_move and remembered. Raises DeedboxError: person_required, permission_denied, not_found, invalid_input,
        illegal_move.
        """
        if principal.kind != "person":
            raise DeedboxError("person_required", "Only a person settles what became of an effect.")
        _require(principal, "reconcile")
        if verb == "look_up":
            answer = await reconcile.look_up(
                self._pool,
                self._ids,
                self._connectors,
                tenant=principal.tenant,
                effect_id=effect_id,
                by=principal,
                door=door,
            )
            return {**await self.effect(principal, effect_id), "verdict": answer.verdict, "message": answer.message}
        given = checked_evidence(evidence, needed=verb == "confirm")
        why = checked_reason(reason) if verb != "confirm" or reason else None
        refusal: DeedboxError | None = None
        async with transaction(self._pool) as connection:
            row = await _read(connection, principal, effect_id)
            effect = await outbox.lock_effect(connection, effect_id, row["job_id"])
            if effect is None:
                raise DeedboxError("not_found", "There is no such effect, or it is not yours.")
            done = str(verb)
            if verb == "confirm":
                await self._confirm(connection, principal, effect, given)
            elif verb == "disprove":
                refusal = await self._disprove(connection, principal, effect, given, why or "")
                done = "disprove_asked" if refusal else done
            else:
                await self._give_up(connection, effect, verb, why or "")
            detail = {"job_id": str(effect.job_id), "from": effect.state, "evidence": given}
            subject = ("effect", str(effect_id))
            await audit.append(connection, audit.entry_by(principal, door, done, subject, reason=why, detail=detail))
        if refusal is not None:
            raise refusal
        await send.finish(self._pool, self._ids, row["job_id"])
        return {**await self.effect(principal, effect_id), "message": _SAID[verb]}

    async def _confirm(
        self, connection: Connection, principal: Principal, effect: LockedEffect, evidence: dict[str, Any]
    ) -> None:
        await outbox.add_receipt(
            connection,
            effect,
            receipt_id=self._ids.new(),
            provider_id=evidence["provider_id"],
            evidence=evidence,
            phase="confirmed",
            source="human",
            by_principal=reconcile.person_id(principal),
        )
        if not await outbox.move(connection, "confirm", effect, event_id=self._ids.new()):
            raise _illegal(effect, "confirm")

    async def _disprove(
        self, connection: Connection, principal: Principal, effect: LockedEffect, evidence: dict[str, Any], reason: str
    ) -> DeedboxError | None:
        """Disprove, or remember the first of two persons and return the refusal that must not undo it."""
        if effect.state not in EFFECT.sources("disprove"):
            raise _illegal(effect, "disprove")
        if not effect.sender_closed and effect.age_s < MAX_FREEZE_S:
            rest_s = MAX_FREEZE_S - effect.age_s
            said = f"Its sender was lost and the request may still arrive; a person may disprove it in {rest_s:.0f} s."
            raise DeedboxError("illegal_move", said)
        capability = declared(self._connectors.get(effect.connector), effect.target).capability
        person = reconcile.person_id(principal)
        others = await self._said_before(connection, effect, person)
        await outbox.add_probe(
            connection,
            effect,
            probe_id=self._ids.new(),
            verdict="not_accepted",
            evidence={**evidence, "said_by": "person", "attempt": effect.attempt, "reason": reason},
            by_principal=person,
        )
        if capability == "blind" and not others:
            said = "This target cannot be asked, so a second person must confirm that nothing arrived; your word is kept."
            return DeedboxError("illegal_move", said)
        await outbox.move(connection, "disprove", effect, event_id=self._ids.new())
        return None

    @staticmethod
    async def _said_before(connection: Connection, effect: LockedEffect, person: UUID | None) -> bool:
        """Whether somebody else has said of this very sending that nothing arrived."""
        return any(
            probe["verdict"] == "not_accepted"
            and probe["evidence"].get("said_by") == "person"
            and probe["evidence"].get("attempt") == effect.attempt
            and probe["by_principal"] not in {None, person}
            for probe in await ledger.probes(connection, effect.effect_id)
        )

    async def _give_up(
        self, connection: Connection, effect: LockedEffect, verb: Literal["abandon", "cancel"], reason: str
    ) -> None:
        code = "abandoned" if verb == "abandon" else "canceled"
        if not await outbox.move(connection, verb, effect, Why(code=code, message=reason), event_id=self._ids.new()):
            raise _illegal(effect, verb)

    # Jobs --------------------------------------------------------------------------------------------------------------

    async def cancel_job(self, principal: Principal, job_id: UUID, reason: str, *, door: str = "api") -> str:
        """Cancel a job; returns `canceled`, or `cancel_requested` where an attempt is running and will stop.

        A job with effects is canceled only while all of them are pending: all or nothing. Raises DeedboxError:
        permission_denied, not_found, invalid_input, illegal_move (saying what had left).
        """
        _require(principal, "cancel")
        reason = checked_reason(reason)
        async with transaction(self._pool) as connection:
            # Who may not see a job is told nothing of it, whatever else he may.
            if await pulse(connection, Reader.of(principal), job_id) is None:
                raise DeedboxError("not_found", "There is no such job, or it is not yours.")
            became = await cancel_locked(connection, self._ids, job_id, reason, principal)
            subject = ("job", str(job_id))
            entry = audit.entry_by(principal, door, "cancel", subject, reason=reason, detail={"became": became})
            await audit.append(connection, entry)
        await tell(self._pool, jobs=[job_id])
        return became


_SAID: dict[EffectVerb, str] = {
    "confirm": "Confirmed with the evidence given.",
    "disprove": "Nothing had arrived; it is sent again.",
    "abandon": "Given up; it is not sent again.",
    "cancel": "Canceled; it is not sent.",
}


def _narrows(row: SwitchRow) -> bool:
    return row.kind == "act" and row.switch_id != "acts"


def _part(row: SwitchRow) -> Narrow:
    return Narrow(row.tenant, row.action, row.connector, row.target)


def _require(principal: Principal, verb: Verb) -> None:
    if not principal.may(verb):
        raise DeedboxError("permission_denied", f"This needs a role that may {verb}.")


async def _read(connection: Connection, principal: Principal, effect_id: UUID) -> dict[str, Any]:
    found = await ledger.list_effects(connection, principal.tenant, effect_id=effect_id, limit=1)
    if not found:
        raise DeedboxError("not_found", "There is no such effect, or it is not yours.")
    return found[0]


def _illegal(effect: LockedEffect, verb: str) -> DeedboxError:
    if effect.state == "pending" and effect.doubtful:
        said = "It was sent before and may have been accepted: it is sent again under the same key, or becomes unknown."
        return DeedboxError("illegal_move", said)
    sources = " or ".join(EFFECT.sources(verb))
    return DeedboxError("illegal_move", f"This effect is {effect.state}; only one that is {sources} can be {_DONE[verb]}.")


_DONE = {"confirm": "confirmed", "disprove": "disproved", "abandon": "abandoned", "cancel": "canceled"}
