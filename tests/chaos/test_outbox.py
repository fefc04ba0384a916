"""A slice of the run of ten thousand effects: nothing twice, nothing denied, and what is not known is called so."""

import os
import random
import sys

import pytest

from deedbox.dispatch import send
from deedbox.extend.connector import Ambiguous, Connector, EffectOrder, Outcome, Transient
from tests.builders import outbox_on
from tests.chaos.outbox import count
from tests.database import TestDatabase
from tests.guarantees import proves

EFFECTS = int(os.environ.get("DEEDBOX_CHAOS_EFFECTS", "160"))

pytestmark = pytest.mark.anyio


@proves("G-CHAOS", "G-UNKNOWN-NOT-RESENT")
async def test_no_effect_is_done_twice_by_providers_that_break_a_fifth_of_them(database: TestDatabase) -> None:
    seed = int(os.environ.get("DEEDBOX_CHAOS_SEED", random.SystemRandom().randrange(10**6)))
    async with outbox_on(database) as box:
        found = await count(box, EFFECTS, seed=seed, within_s=120 + EFFECTS)
    told = "\n".join([f"seed {seed}", *found.lines()])
    sys.stdout.write(f"{told}\n")
    assert found.faults == [], told
    assert sum(found.ends.values()) == EFFECTS
    # Each effect reached a provider at least once, and each arrival was drawn for.
    assert found.arrived == found.broken.total() >= EFFECTS, told
    assert found.faulty * 6 > EFFECTS, told
    assert found.once_unknown, told
    assert found.looked_up, told


async def test_the_count_finds_a_dispatcher_that_takes_a_silence_for_a_no(
    database: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    perform = send.perform

    async def hopeful(connector: Connector, order: EffectOrder) -> Outcome:
        outcome = await perform(connector, order)
        if isinstance(outcome, Ambiguous):
            return Transient("not_sent", outcome.code, outcome.message, outcome.phase, 0.1)
        return outcome

    monkeypatch.setattr(send, "perform", hopeful)
    async with outbox_on(database) as box:
        found = await count(box, 60, seed=1, within_s=180)
    assert any("done 2 times" in line or "never unknown" in line for line in found.faults), found.lines()
