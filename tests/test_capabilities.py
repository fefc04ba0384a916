"""What an ambiguous end becomes is the target's capability: every capability with every end, as one table."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, get_args

import pytest

from deedbox.connectors import ConnectorSettings, Http, HttpTargetConfig
from deedbox.dispatch.reconcile import why_it_stays
from deedbox.egress import EgressPolicy
from deedbox.extend.connector import Ambiguous, Capability, Outcome, Receipt, Refused, Transient
from tests.builders import Outbox, Planned, outbox_on
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.http_provider import HttpProvider

pytestmark = pytest.mark.anyio

ENDS: dict[str, Outcome | Exception | None] = {
    "receipt": Receipt("p-1"),
    "not sent": Transient("not_sent", "refused", "Nobody listens.", "connect"),
    "rate limited": Transient("rate_limited", "http_429", "Busy.", "answered", 1.0),
    "overloaded, not taken": Transient("overloaded", "http_503", "Busy.", "answered"),
    "refused": Refused("caller_error", "http_422", "No.", "answered"),
    "denied": Refused("denied", "http_403", "No.", "answered"),
    "ambiguous": Ambiguous("http_503", "It may have been taken.", "answered"),
    "ambiguous, not closed": Ambiguous("timed_out", "No answer.", "body_sent", closed=False),
    "raised": RuntimeError("a connector's bug"),
    "lost": None,
}
SURE = {
    "receipt": "completed",
    "not sent": "pending",
    "rate limited": "pending",
    "overloaded, not taken": "pending",
    "refused": "failed",
    "denied": "failed",
}
"""Ends that leave no doubt are the same for every capability."""
DOUBTFUL: dict[Capability, str] = {
    "native_key": "pending",
    "upsert_key": "unknown",
    "searchable": "unknown",
    "blind": "unknown",
}


@pytest.fixture
async def box(database: TestDatabase) -> AsyncIterator[Outbox]:
    async with outbox_on(database) as made:
        yield made


def test_the_table_is_whole():
    assert set(DOUBTFUL) == set(get_args(Capability))


@proves("G-CAPABILITY")
@pytest.mark.parametrize("capability", get_args(Capability))
async def test_every_end_at_a_target_of_this_capability(box: Outbox, capability: Capability):
    box.connector.can, box.connector.ttl_s = capability, 3600.0
    for end, outcome in ENDS.items():
        for kind in ("act", "notice"):
            planned: dict[str, Any] = {"kind": kind, "authority": "verdict" if kind == "notice" else "approval"}
            built = await box.build(Planned(**planned), state="dispatching" if kind == "act" else "awaiting_human")
            if outcome is None:
                await lose(box)
            else:
                box.connector.script.append(outcome)
                assert await box.dispatcher().once() == 1
            # A notice nobody knows of is over, but for one whose target knows its key: it is sent again like any act.
            closes = kind == "notice" and capability != "native_key"
            expected = SURE.get(end, "unknown_closed" if closes else DOUBTFUL[capability])
            assert (await box.state(built.effect_id), end, kind) == (expected, end, kind)
            doubtful = await box.database.value("SELECT doubtful FROM deedbox.effect WHERE effect_id = %s", built.effect_id)
            assert doubtful is (end not in SURE and expected == "pending" and kind == "act")
            # Out of the way of the next one, and the breaker forgotten.
            await box.database.rows(
                "UPDATE deedbox.effect SET not_before = deedbox.clock() + interval '1 day' WHERE state = 'pending'"
            )
            await box.database.rows("UPDATE deedbox.target SET failures = 0, open_until = NULL")


async def lose(box: Outbox) -> None:
    """A sender dies on the way, with what its connector declares already known."""
    started = asyncio.Event()

    async def hang(_order: object) -> Any:
        started.set()
        await asyncio.Event().wait()

    box.connector.script.append(hang)
    task = asyncio.create_task(box.dispatcher(lease_s=60).once())
    await started.wait()
    task.cancel()
    await box.database.rows("UPDATE deedbox.effect SET lease_until = deedbox.clock() WHERE state = 'sending'")
    await box.rescue()


@proves("G-CAPABILITY")
@pytest.mark.parametrize("capability", get_args(Capability))
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("verdict", ["not_accepted", "still_unknown"])
@pytest.mark.parametrize(("age_s", "lag_s"), [(0, 0), (59, 60), (60, 60), (1e9, 60)])
def test_a_look_up_disproves_only_where_nothing_can_still_arrive(
    capability: Capability, closed: bool, verdict: str, age_s: float, lag_s: float
):
    stays = why_it_stays(verdict, capability, closed=closed, age_s=age_s, lag_s=lag_s)
    disproves = verdict == "not_accepted" and capability != "blind" and closed and age_s >= lag_s
    assert (stays is None) is disproves
    assert why_it_stays(verdict, capability, closed=closed, age_s=None, lag_s=lag_s) is not None


@proves("G-CAPABILITY")
@pytest.mark.parametrize(("not_taken", "state"), [([], "unknown"), ([503], "pending"), ([500, 502], "unknown")])
async def test_a_status_counts_as_not_taken_only_where_the_target_says_so(box: Outbox, not_taken: list[int], state: str):
    async with HttpProvider().running() as provider:
        provider.faults.append("accept_then_503")
        given = {"name": "crm", "base_url": provider.url, "not_taken": not_taken}
        http = Http()
        http.bind(ConnectorSettings(http=(HttpTargetConfig.model_validate(given),)), EgressPolicy(frozenset({"127.0.0.1"})))
        payload: dict[str, Any] = {"method": "POST", "path": "/notes", "body": {}}
        built = await box.build(Planned(connector="http", target="crm", payload=payload))
        await box.dispatcher(connectors={"http": http}).once()
        assert await box.state(built.effect_id) == state
        await http.aclose()
