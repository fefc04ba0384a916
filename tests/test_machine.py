"""The whole product as one state machine: nothing lost, nothing twice, in any order of what can happen."""

import contextlib
import os
import re
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import LiteralString, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test

from deedbox.extend.connector import Ambiguous, Refused
from deedbox.model.errors import DeedboxError
from deedbox.model.lifecycle import ALL
from deedbox.store import loader
from tests.builders import Built, Outbox, Planned, outbox_on, principal
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.machine.rules import machine_in
from tests.machine.world import World

LONG = os.environ.get("DEEDBOX_MACHINE") == "long"
# Shrinking takes minutes, and the steps of a short example can be read as they are.
PHASES = [Phase.generate, Phase.shrink] if LONG else [Phase.generate]
QUICK = settings(
    max_examples=200 if LONG else 20,
    stateful_step_count=60 if LONG else 40,
    derandomize=not LONG,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    phases=PHASES,
)
"""Set DEEDBOX_MACHINE=long for many more examples, other ones each time."""


@pytest.fixture
def world() -> Iterator[World]:
    one = World()
    try:
        yield one
    finally:
        one.close()


@proves("G-ONE-OUTCOME", "G-FENCE", "G-ONE-ENDING-EVENT", "G-UNKNOWN-NOT-RESENT")
def test_in_any_order_nothing_is_lost_and_nothing_happens_twice(world: World) -> None:
    try:
        run_state_machine_as_test(machine_in(world), settings=QUICK)
    finally:
        known = {(one.name, *edge) for one in ALL for edge in one.edges()}
        tried = f"machine: {world.examples} examples, {world.steps} steps, {sum(world.made.values())} moves"
        never = f"{len(known & world.made.keys())} of {len(known)} kinds; never made: {sorted(known - world.made.keys())}"
        sys.stdout.write(f"{tried}, {never}\n{''.join(world.complaints[:1])}\n")


BREAKS = {
    "fence": (
        [
            ("queue", "lock_attempts", " AND q.attempt_id = held.attempt_id AND q.fence = held.fence", ""),
            ("queue", "complete_attempts", "AND attempt_id = i.attempt_id AND fence = i.fence ", ""),
        ],
        "submit claim take_over take_over settle settle",
        "an attempt that was current: False, settled as complete",
    ),
    "lease": (
        [("queue", "renew", " AND q.lease_until > deedbox.clock()", "")],
        "submit claim clock renew renew",
        "was renewed",
    ),
    "claim": ([("queue", "claim", "nextval('deedbox.fence_seq')", "7")], "submit claim settle", "fence 7 was used twice"),
    "round": (
        [("ending", "end_job", " + (state = 'failed_retryable')::integer", "")],
        "submit claim take_over take_over take_over steer steer",
        "ended 2 times",
    ),
    "quorum": ([("decision", "standing", "a.allowed, a.quorum,", "a.allowed, 1,")], "hurry", "approved by 1 of 2 people"),
    "digest": ([("outbox", "lease", "SELECT sha256(p.body)", "SELECT e.digest")], "hurry forge send_now", "other bytes than"),
    "switch": (
        [
            ("outbox", "lease", "(SELECT is_on FROM switches WHERE switch_id = 'acts' AND whole)", "true"),
            ("outbox", "lease", "AND NOT s.is_on", "AND false"),
        ],
        "hurry switch send_now",
        "switch was off",
    ),
    "doubt": (
        [("outbox", "lose_track", "SET state = 'unknown'", "SET state = 'pending'")],
        "hurry send_now send_now",
        "was perf",
    ),
}
"""What is broken in which statement, what happens then, and what the machine says of it."""


@pytest.mark.parametrize("broken", BREAKS)
def test_machine_finds_what_is_broken(world: World, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    changes, happenings, complaint = BREAKS[broken]
    for file, name, old, new in changes:
        loaded = loader.statements(file)
        assert old in loaded[name]
        monkeypatch.setitem(loaded, name, cast("LiteralString", loaded[name].replace(old, new)))
    how = settings(QUICK, max_examples=150, stateful_step_count=25, derandomize=True, phases=[Phase.generate])
    # Hypothesis may call a failure flaky, because time and other sessions have their part in it: what was met first counts.
    with pytest.raises((AssertionError, Flaky)):
        run_state_machine_as_test(machine_in(world, happenings.split()), settings=how)
    assert re.search(complaint, world.complaints[0]), world.complaints[0]


# What the machine found ----------------------------------------------------------------------------------------------------

CUT_OFF = Ambiguous("timed_out", "No answer came in time.", "body_sent")


@asynccontextmanager
async def resent(database: TestDatabase) -> AsyncGenerator[tuple[Outbox, Built]]:
    """An effect that may have been accepted, and waits to be sent again under a native key that lives for an hour."""
    async with outbox_on(database) as box:
        box.connector.can, box.connector.ttl_s = "native_key", 3600.0
        box.connector.script.append(CUT_OFF)
        built = await box.build(Planned())
        await box.dispatcher().once()
        assert (await box.state(built.effect_id), len(box.connector.sent)) == ("pending", 1)
        yield box, built


@proves("G-DOUBTFUL")
@pytest.mark.anyio
async def test_what_may_have_been_accepted_is_not_sent_again_once_its_key_has_died(database: TestDatabase) -> None:
    async with resent(database) as (box, _):
        await box.database.shift_clock(3601)
        await box.dispatcher().once()
        assert len(box.connector.sent) == 1


@proves("G-DOUBTFUL")
@pytest.mark.anyio
async def test_what_may_have_been_accepted_does_not_expire_as_unsent(database: TestDatabase) -> None:
    async with resent(database) as (box, built):
        await box.database.shift_clock(86_401)
        await box.expire()
        assert await box.state(built.effect_id) != "failed"


@proves("G-DOUBTFUL")
@pytest.mark.anyio
async def test_a_job_one_of_whose_effects_may_have_been_accepted_is_not_canceled(database: TestDatabase) -> None:
    async with resent(database) as (box, built):
        who = principal(box.ids, "operator")
        with contextlib.suppress(DeedboxError):
            await box.verbs().cancel_job(replace(who, principal_id=str(box.subject)), built.job_id, "Not wanted.")
        assert await box.state(built.effect_id) == "pending"


@proves("G-DOUBTFUL")
@pytest.mark.anyio
async def test_a_refusal_of_the_second_sending_does_not_deny_the_first(database: TestDatabase) -> None:
    async with resent(database) as (box, built):
        box.connector.script.append(Refused("denied", "http_401", "The provider refuses this account.", "answered"))
        await box.database.shift_clock(301)
        await box.dispatcher().once()
        assert (await box.state(built.effect_id), len(box.connector.sent)) == ("unknown", 2)
