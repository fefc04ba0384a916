"""The switch as a sender sees it: the environment's half, and the second look before it dials."""

import time
from typing import Literal

from deedbox.store.outbox import Leased
from deedbox.store.pool import Pool
from deedbox.store.switch import lets_through
from deedbox.store.transaction import autocommit

TRUST_S = 0.25
"""How long after its lease, in seconds, a sender may dial without reading the switch again."""

Leave = Literal["go", "switched_off", "lease_old"]


def environment_half(value: str | None) -> bool:
    """The environment's half of the switch: exactly `true` is on; missing, misspelt or anything else is off."""
    return value == "true"


async def leave_to_dial(pool: Pool, leased: Leased, *, asked_at: float, lease_s: float) -> Leave:
    """Whether a sender may dial now. `asked_at` is the monotonic time just before the lease was asked for.

    A lease more than half of whose `lease_s` seconds have gone is not used: its rest may not suffice for an answer. Nor is one
    that is over by the database's clock, however young it is by this machine's, which stands still while the machine is
    suspended. Raises what the database raises, which the caller takes as no.
    """
    age = time.monotonic() - asked_at
    if age > lease_s / 2:
        return "lease_old"
    if age <= TRUST_S:
        return "go"
    async with autocommit(pool) as connection:
        holds, is_on = await lets_through(connection, leased.effect_id, leased.fence)
    if not holds:
        return "lease_old"
    return "go" if is_on else "switched_off"
