"""Targets for operators: how each stands, and the verbs by which one is paused, resumed and limited."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from deedbox import telemetry
from deedbox.dispatch.declared import declared
from deedbox.egress import EgressPolicy, Reach, reach
from deedbox.extend.connector import ORDER_BY, Connector, TargetLimits
from deedbox.model.errors import DeedboxError, Problem
from deedbox.model.identity import Principal
from deedbox.model.pause import pause
from deedbox.operate.evidence import checked_reason
from deedbox.operate.waiting import Reason, reasons
from deedbox.store import audit, switch, targets, waits
from deedbox.store.pg_errors import UNREACHABLE
from deedbox.store.pool import Pool
from deedbox.store.targets import EVERY, Place, TargetLine
from deedbox.store.tell import tell
from deedbox.store.transaction import autocommit, transaction

MOST_PER_S = 100_000.0
MOST_BURST = 100_000
LONGEST_NAME = 1000
RESOLVED_WITHIN_S = 5.0
_LONGEST_PAUSE_S = 5.0

__all__ = ["Reach", "TargetLimits", "TargetLine", "Targets", "Waiting"]


@dataclass(frozen=True, slots=True)
class Waiting:
    """The effect that waits first for a target, and why it does; nothing holds it back where `reasons` is empty."""

    effect_id: UUID
    reasons: tuple[Reason, ...]


class Targets:
    """The targets of a tenant. Changes leave an audit entry with their reason."""

    def __init__(
        self,
        pool: Pool,
        connectors: Mapping[str, Connector],
        *,
        egress: EgressPolicy | None = None,
        ours: Mapping[str, Connector] | None = None,
    ) -> None:
        """Reads and changes through `pool`; `connectors` say what they declare of their targets.

        `egress` is what may be dialled beside the public internet; `ours` are connectors that no app has, which say where they
        lead to.
        """
        self._pool = pool
        self._connectors = dict(connectors)
        self._egress = egress or EgressPolicy()
        self._leads = {**(ours or {}), **self._connectors}

    async def listed(
        self, principal: Principal, *, connector: str | None = None, target: str | None = None
    ) -> list[TargetLine]:
        """The targets of the principal's tenant: those of settings, those something is known of, those something goes to.

        Raises DeedboxError permission_denied.
        """
        if not principal.may("read"):
            raise DeedboxError("permission_denied", "Reading targets needs a role that may read.")
        given = [(name, target) for name, limits in self._limits().items() for target in limits]
        async with autocommit(self._pool) as connection:
            found = await targets.listed(connection, principal.tenant, given=given, connector=connector, target=target)
        return [self._with_capability(line) for line in found]

    async def shown(self, principal: Principal, connector: str, target: str) -> TargetLine:
        """One target. Raises DeedboxError: permission_denied, not_found."""
        found = await self.listed(principal, connector=connector, target=target)
        if not found:
            raise DeedboxError("not_found", "Nothing is known of such a target.")
        return found[0]

    async def waiting(self, principal: Principal, connector: str, target: str) -> Waiting | None:
        """The effect that waits first for a target, and everything that holds it back; None where none waits.

        Raises DeedboxError permission_denied.
        """
        if not principal.may("read"):
            raise DeedboxError("permission_denied", "Reading targets needs a role that may read.")
        async with autocommit(self._pool) as connection:
            effect_id = await waits.first(connection, principal.tenant, connector, target)
            if effect_id is None:
                return None
            return Waiting(effect_id, tuple(await reasons(connection, principal.tenant, effect_id)))

    async def egress(self, principal: Principal, connector: str, target: str) -> Reach:
        """Where a target leads to, and whether that may be dialled: every address it has now, each with the rule about it.

        Names are resolved, within five seconds; nothing is dialled. Raises DeedboxError: permission_denied, invalid_input where
        either is not named, not_found where the connector does not say where it leads to.
        """
        if not principal.may("read"):
            raise DeedboxError("permission_denied", "Reading targets needs a role that may read.")
        given = {"connector": connector, "target": target}
        missing = tuple(Problem(f"/{name}", "required", "names it") for name, value in given.items() if not value)
        if missing:
            raise DeedboxError("invalid_input", "Name the connector and the target.", problems=missing)
        ask = getattr(self._leads.get(connector), "leads_to", None)
        place: tuple[str, int] | None = None if ask is None else ask(target)
        if place is None:
            raise DeedboxError("not_found", "The connector does not say where this target leads to.")
        return await reach(*place, self._egress, deadline_s=RESOLVED_WITHIN_S)

    async def pause(self, principal: Principal, connector: str, target: str, reason: str, *, door: str = "api") -> TargetLine:
        """Send nothing more to a target (`*` is every one of the connector) until it is resumed. What is on the wire goes on.

        When this has returned, no sending to it begins. Raises DeedboxError: permission_denied, invalid_input.
        """
        place, reason = self._checked(principal, connector, target, reason)
        async with transaction(self._pool) as connection:
            await switch.take_root(connection)
            await targets.pause(connection, place, by=principal.name, reason=reason)
            await self._audit(connection, principal, place, "pause_target", reason, {}, door)
        return await self.shown(principal, connector, target)

    async def resume(self, principal: Principal, connector: str, target: str, reason: str, *, door: str = "api") -> TargetLine:
        """Let a target go on: not paused, not slowed, its breaker closed.

        Only a person resumes what a person paused. Raises DeedboxError: permission_denied, person_required, not_found,
        invalid_input.
        """
        place, reason = self._checked(principal, connector, target, reason)
        if principal.kind != "person":
            raise DeedboxError("person_required", "Programs may pause a target; only a person resumes it.")
        async with transaction(self._pool) as connection:
            await switch.take_root(connection)
            if not await targets.resume(connection, place):
                raise DeedboxError("not_found", "Nothing is known of such a target.")
            await self._audit(connection, principal, place, "resume_target", reason, {}, door)
        await tell(self._pool, outbox=True)
        return await self.shown(principal, connector, target)

    async def limit(
        self,
        principal: Principal,
        connector: str,
        target: str,
        limits: TargetLimits,
        reason: str,
        *,
        door: str = "api",
    ) -> TargetLine:
        """Set rate, burst and order of a target, all three; None takes one away. It holds for every dispatcher at once.

        Raises DeedboxError: permission_denied, invalid_input.
        """
        place, reason = self._checked(principal, connector, target, reason)
        _check_limits(limits, target)
        given = {"rate_per_s": limits.rate_per_s, "burst": limits.burst, "order_by": limits.order_by}
        async with transaction(self._pool) as connection:
            await switch.take_root(connection)
            await targets.limit(
                connection,
                place,
                rate_per_s=limits.rate_per_s,
                burst=limits.burst,
                order_by=limits.order_by,
                by=principal.name,
            )
            await self._audit(connection, principal, place, "limit_target", reason, given, door)
        await tell(self._pool, outbox=True)
        return await self.shown(principal, connector, target)

    async def take_settings(self, tenant: str) -> int:
        """Keep what settings say of how targets are sent to, where no person said otherwise; returns how many changed."""
        changed = 0
        for name, limits in self._limits().items():
            for target, one in limits.items():
                async with transaction(self._pool) as connection:
                    await switch.take_root(connection)
                    changed += await targets.limit(
                        connection,
                        Place(tenant, name, target),
                        rate_per_s=one.rate_per_s,
                        burst=one.burst,
                        order_by=one.order_by,
                        by="settings",
                    )
        return changed

    async def keep_settings(self, tenant: str, stop: asyncio.Event) -> None:
        """The same as soon as the database can be reached: nobody begins to send without the limits."""
        pause_s = 0.1
        while not stop.is_set():
            try:
                await self.take_settings(tenant)
            except UNREACHABLE as error:
                telemetry.log("targets").warning("settings_wait", error=type(error).__name__)
            else:
                return
            await pause(stop, pause_s, least=0.5)
            pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)

    def _limits(self) -> dict[str, Mapping[str, TargetLimits]]:
        """By connector, what settings say of its targets; connectors that settings know nothing of are not there."""
        found: dict[str, Mapping[str, TargetLimits]] = {}
        for name, connector in self._connectors.items():
            ask = getattr(connector, "limits", None)
            if ask is not None:
                found[name] = ask()
        return found

    def _with_capability(self, line: TargetLine) -> TargetLine:
        connector = self._connectors.get(line.connector)
        if connector is None or line.target == EVERY:
            return line
        return replace(line, capability=declared(connector, line.target).capability)

    def _checked(self, principal: Principal, connector: str, target: str, reason: str) -> tuple[Place, str]:
        if not principal.may("cancel"):
            raise DeedboxError("permission_denied", "Holding a target back needs a role that may cancel.")
        for name, value in (("connector", connector), ("target", target)):
            if not value.strip() or not value.isprintable() or len(value) > LONGEST_NAME:
                problem = Problem(f"/{name}", "name", "is the name of one, or for a target `*`")
                raise DeedboxError("invalid_input", f"The {name} is not a name.", problems=(problem,))
        return Place(principal.tenant, connector, target), checked_reason(reason)

    @staticmethod
    async def _audit(
        connection: Any, principal: Principal, place: Place, verb: str, reason: str, detail: dict[str, Any], door: str
    ) -> None:
        subject = ("target", f"{place.connector}:{place.target}")
        await audit.append(connection, audit.entry_by(principal, door, verb, subject, reason=reason, detail=detail))


def _check_limits(limits: TargetLimits, target: str) -> None:
    problems: list[Problem] = []
    if limits.rate_per_s is not None and not 0 < limits.rate_per_s <= MOST_PER_S:
        problems.append(Problem("/rate_per_s", "range", f"is above zero and at most {MOST_PER_S:g}"))
    if limits.burst is not None and not 1 <= limits.burst <= MOST_BURST:
        problems.append(Problem("/burst", "range", f"is from 1 to {MOST_BURST}"))
    if limits.burst is not None and limits.rate_per_s is None:
        problems.append(Problem("/burst", "alone", "needs a rate"))
    if limits.order_by is not None and not re.fullmatch(ORDER_BY, limits.order_by):
        problems.append(Problem("/order_by", "pointer", "is `target` or a JSON pointer into the payload"))
    if limits.order_by is not None and target == EVERY and limits.order_by != "target":
        problems.append(Problem("/order_by", "target", "is `target` for a whole connector: each of its targets in order"))
    if problems:
        raise DeedboxError("invalid_input", "These are no limits.", problems=tuple(problems))
