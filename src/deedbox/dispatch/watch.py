"""What the end of a sending says about its target, for the breaker that all dispatchers share.

A target that does not answer, or not in a way that tells, is counted against. After some of these in a row nothing more is sent
to it for a while, then one effect at a time until one is answered. What is held back was not sent, so it stays `pending`.
"""

from collections.abc import Mapping
from typing import Literal

from deedbox.dispatch.declared import declared
from deedbox.extend.connector import Ambiguous, Connector, Outcome, Receipt, Refused, Transient
from deedbox.model.backoff import Retry
from deedbox.store import targets
from deedbox.store.alert import Alert, open_alerts
from deedbox.store.ids import IdSource
from deedbox.store.outbox import Leased
from deedbox.store.pool import Connection, Pool
from deedbox.store.targets import Breaker, Place
from deedbox.store.transaction import autocommit

Said = Literal["answered", "failed", "nothing"]

_NEVER_ASKED = frozenset({"plan", "connect"})
"""Phases in which a refusal is our own: the target was not asked."""


def said_of_target(outcome: Outcome) -> Said:
    """What an end tells about the target: that it answers, that it fails, or nothing."""
    if isinstance(outcome, Receipt):
        return "answered"
    if isinstance(outcome, Refused):
        return "nothing" if outcome.phase in _NEVER_ASKED else "answered"
    if isinstance(outcome, Transient) and outcome.failure_class == "rate_limited":
        return "answered"
    return "failed"


class Watch:
    """Keeps what the ends of sendings say of their targets."""

    def __init__(self, connectors: Mapping[str, Connector], breaker: Breaker | None = None) -> None:
        """`connectors` say which targets share a breaker; one that opens after zero failures never opens."""
        self._connectors = connectors
        self._breaker = breaker or Breaker()

    async def keep(self, connection: Connection, ids: IdSource, leased: Leased, outcome: Outcome, retry: Retry) -> None:
        """Keep it in the transaction that settles the sending, after the effect's lock. A breaker that opens alarms."""
        place = self._place(leased)
        if isinstance(outcome, Transient) and outcome.failure_class == "rate_limited":
            await targets.slow(connection, place, wait_s=retry.delay(1, retry_after=outcome.retry_after))
        said = said_of_target(outcome)
        if said == "failed":
            await self._failed(connection, ids, leased, place, outcome)
        elif leased.troubled and said == "answered":
            await targets.went_well(connection, place, leased.effect_id)
        elif leased.troubled:
            await targets.let_another(connection, place, leased.effect_id)

    async def answered(self, pool: Pool, leased: Leased) -> None:
        """Keep that a target which had failed has answered, once the receipt is kept."""
        if leased.troubled:
            async with autocommit(pool) as connection:
                await targets.went_well(connection, self._place(leased), leased.effect_id)

    async def _failed(self, connection: Connection, ids: IdSource, leased: Leased, place: Place, outcome: Outcome) -> None:
        if self._breaker.failures < 1 or not isinstance(outcome, Transient | Ambiguous):
            return
        why = f"{outcome.code}: {outcome.message}"[:500]
        open_s = await targets.went_badly(connection, place, leased.effect_id, self._breaker, why=why)
        if open_s is not None:
            name = place.connector if place.target == targets.EVERY else f"{place.connector}:{place.target}"
            message = (
                f"The target {name} failed {self._breaker.failures} times in a row and is left alone for {open_s:.0f} s: {why}"
            )
            await open_alerts(connection, [Alert(ids.new(), leased.job_id, "breaker_open", message, leased.effect_id)])

    def _place(self, leased: Leased) -> Place:
        kept_under = declared(self._connectors.get(leased.connector), leased.target).kept_under
        return Place(leased.tenant, leased.connector, kept_under)
