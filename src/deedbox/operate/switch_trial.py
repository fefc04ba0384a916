"""The test of the switch: that nothing is leased while it is off, shown by the very statement that leases, and nothing sent.

In a transaction that is rolled back stands an effect that may leave, of a connector that nobody has. With every row on it has
to be found, so that the test can fail; then each part that can be off is turned off by itself, and nothing may be found. All
other leases wait for the few milliseconds this takes, as they do for any change of the switch.
"""

from dataclasses import dataclass

from deedbox.gate import planted
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.store import audit, outbox, switch
from deedbox.store.ids import IdSource
from deedbox.store.pool import Connection, Pool
from deedbox.store.switch import Narrow
from deedbox.store.transaction import rolled_back, transaction


@dataclass(frozen=True, slots=True)
class Trial:
    """One part of the switch that was off, and whether that kept the effect back. `nothing` is the trial with all on."""

    off: str
    blocked: bool

    @property
    def passed(self) -> bool:
        """Whether it was as it must be."""
        return self.blocked == (self.off != "nothing")


async def try_switch(pool: Pool, ids: IdSource, principal: Principal, *, door: str) -> list[Trial]:
    """Try every part of the switch, keep who did so and when where all is as it must be, and return what was found.

    Raises DeedboxError permission_denied.
    """
    if not (principal.may("switch") or principal.may("cancel")):
        raise DeedboxError("permission_denied", "Testing the switch needs a role that may turn it off.")
    async with rolled_back(pool) as connection:
        await switch.take_root(connection)
        await planted.plant(connection, ids, principal.tenant)
        await switch.all_on(connection)
        trials = [
            Trial("nothing", not await _leases(connection, ids)),
            Trial("the environment", not await _leases(connection, ids, environment_on=False)),
            await _without(connection, ids, "everything", None),
            await _without(connection, ids, f"tenant {principal.tenant}", Narrow(tenant=principal.tenant)),
            await _without(connection, ids, "its action", Narrow(action=planted.ACTION)),
            await _without(connection, ids, "its connector", Narrow(connector=planted.CONNECTOR)),
            await _without(connection, ids, "its target", Narrow(connector=planted.CONNECTOR, target=planted.TARGET)),
        ]
    wrong = [trial.off for trial in trials if not trial.passed]
    async with transaction(pool) as connection:
        if not wrong:
            await switch.take_root(connection)
            await switch.keep_test(connection, principal.name)
        detail = {"tried": [trial.off for trial in trials], "wrong": wrong}
        await audit.append(connection, audit.entry_by(principal, door, "switch_test", ("switch", "acts"), detail=detail))
    return trials


async def _without(connection: Connection, ids: IdSource, name: str, part: Narrow | None) -> Trial:
    """Turn one part off, look, and turn it on again."""
    async with connection.transaction(force_rollback=True):
        if part is None:
            await switch.turn_root(connection, "acts", is_on=False, changed_by="test", reason="a test")
        else:
            await switch.turn_narrow(connection, part, is_on=False, changed_by="test", reason="a test")
        return Trial(name, not await _leases(connection, ids))


async def _leases(connection: Connection, ids: IdSource, *, environment_on: bool = True) -> bool:
    """Whether the leasing statement finds the planted effect."""
    async with connection.transaction(force_rollback=True):
        leased = await outbox.lease(
            connection,
            environment_on=environment_on,
            connectors=[planted.CONNECTOR],
            sender="switch-test",
            lease_s=60.0,
            event_ids=ids.many(1),
        )
    return bool(leased)
