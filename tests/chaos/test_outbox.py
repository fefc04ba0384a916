"""A slice of the run of ten thousand effects: nothing twice, nothing denied, and what is not known is called so."""

import os
import random
import sys

import pytest

from tests.builders import outbox_on
from tests.chaos.outbox import run, world, wrong
from tests.database import TestDatabase
from tests.guarantees import proves

EFFECTS = int(os.environ.get("DEEDBOX_CHAOS_EFFECTS", "160"))


@proves("G-CHAOS", "G-UNKNOWN-NOT-RESENT")
@pytest.mark.anyio
async def test_no_effect_is_done_twice_by_providers_that_break_a_fifth_of_them(database: TestDatabase) -> None:
    seed = int(os.environ.get("DEEDBOX_CHAOS_SEED", random.SystemRandom().randrange(10**6)))
    async with outbox_on(database) as box, world(seed) as around:
        await run(box, around, EFFECTS, within_s=120 + EFFECTS)
        faults, ends = await wrong(box, around)
        broken = sum((one.broken for one in around.http.values()), around.mail.broken)
    told = f"seed {seed}: {dict(ends)}; broken {dict(broken)}"
    sys.stdout.write(f"{told}\n")
    assert faults == [], "\n".join([*faults, told])
    assert sum(ends.values()) == EFFECTS
    assert sum(count for fault, count in broken.items() if fault != "none") * 6 > EFFECTS, told
