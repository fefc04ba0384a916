"""A few hundred effects in every run; ten thousand by `make effects`."""

import random

import pytest

from deedbox.dispatch import send
from deedbox.extend.connector import Ambiguous, Connector, EffectOrder, Outcome, Transient
from tests.counted.run import run
from tests.database import TestDatabase
from tests.guarantees import proves

pytestmark = pytest.mark.anyio


@proves("G-UNKNOWN-NOT-RESENT")
async def test_no_effect_is_done_twice_at_providers_that_break_at_one_request_in_five(database: TestDatabase) -> None:
    seed = random.SystemRandom().randrange(10**6)
    count = await run(database, 240, seed=seed)
    assert not count.faults, (seed, count.lines())
    assert count.broken >= count.requests / 8, count.lines()
    assert count.once_unknown, count.lines()
    assert count.looked_up, count.lines()


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
    count = await run(database, 60, seed=1)
    assert any("was done 2 times" in line or "was done without a word" in line for line in count.faults), count.lines()
