"""A slice of `make chaos`, and the rig's own parts."""

import os
import random

import pytest

from tests.chaos.run import Plan, run
from tests.guarantees import proves

# In continuous use longer is better: DEEDBOX_CHAOS_S=600 makes it the run of `make chaos`.
_SECONDS = float(os.environ.get("DEEDBOX_CHAOS_S", "20"))


@proves("G-CHAOS")
@pytest.mark.anyio
async def test_nothing_is_lost_or_done_twice_whatever_is_killed_frozen_restarted_or_cut() -> None:
    plan = Plan(random.SystemRandom().randrange(10**6), _SECONDS, per_s=5, restart_every_s=5)
    report = await run(plan)
    told = "\n".join(report.lines())
    assert report.faults == [], told
    assert report.verdict.found.jobs == len(report.storm.calls) > 10
    assert report.weather.kills.total() + len(report.weather.frozen) + report.engine.cuts > 0
    assert report.engine.restarts.total() > 0
