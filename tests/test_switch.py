"""The switch: both halves must be on, off means nothing leaves, and a switch-off that returned has no lease behind it."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from deedbox.dispatch.send import give_back
from deedbox.dispatch.switch import environment_half, leave_to_dial
from deedbox.model.errors import DeedboxError
from deedbox.store import switch
from deedbox.store.audit import verify
from deedbox.store.switch import Narrow
from deedbox.store.transaction import transaction
from tests.builders import Outbox, Planned, outbox_on, principal
from tests.database import TestDatabase
from tests.guarantees import proves

pytestmark = pytest.mark.anyio


@pytest.fixture
async def box(database: TestDatabase) -> AsyncIterator[Outbox]:
    async with outbox_on(database) as made:
        yield made


@pytest.mark.parametrize("value", [None, "", "True", "TRUE", "1", "on", "yes", " true", "true\n", "false"])
def test_only_the_exact_word_turns_the_environment_on(value: str | None):
    assert not environment_half(value)
    assert environment_half("true")


@proves("G-SWITCH-OFF")
@pytest.mark.parametrize(("database_on", "environment_on"), [(False, True), (True, False), (False, False)])
async def test_with_either_half_off_no_act_leaves_and_what_waits_stays_pending(
    box: Outbox, database_on: bool, environment_on: bool
):
    await box.turn(on=database_on)
    built = await box.build(Planned())
    assert await box.dispatcher(environment_on=environment_on).once() == 0
    assert box.connector.sent == []
    assert (await box.state(built.effect_id), await box.job_state(built.job_id)) == ("pending", "dispatching")
    await box.turn(on=True)
    assert await box.dispatcher().once() == 1
    assert await box.job_state(built.job_id) == "completed"


@proves("G-SWITCH-OFF")
async def test_it_is_off_after_the_installation_and_where_its_row_is_missing(database: TestDatabase):
    async with outbox_on(database, switch_on=False) as box:
        await box.build(Planned())
        assert await box.lease() == []
        assert (await box.verbs().switch_state("default"))["by"] == "system:install"
        await box.turn(on=True)
        await database.rows("DELETE FROM deedbox.switch WHERE switch_id = 'acts'")
        assert await box.lease() == []
        assert not (await box.verbs().switch_state("default"))["open"]


async def test_notices_have_a_lane_of_their_own(box: Outbox):
    await box.turn(on=False)
    await box.build(Planned(kind="notice", authority="verdict"), state="awaiting_human")
    assert len(await box.lease(environment_on=False)) == 1


@pytest.mark.parametrize(
    ("narrow", "stops"),
    [
        (Narrow(tenant="default"), True),
        (Narrow(action="send_note"), True),
        (Narrow(connector="note", target="desk"), True),
        (Narrow(tenant="another"), False),
        (Narrow(connector="note", target="another"), False),
    ],
)
async def test_it_narrows_by_tenant_action_connector_and_target(box: Outbox, narrow: Narrow, stops: bool):
    await box.build(Planned())
    manager = principal(box.ids, "manager", tenant=narrow.tenant or "default")
    await box.verbs().set_switch(manager, False, "an incident", "api", narrow=narrow)
    assert len(await box.lease()) == (0 if stops else 1)
    await box.verbs().set_switch(manager, True, "it is over", "api", narrow=narrow)
    assert len(await box.lease()) == (1 if stops else 0)


@proves("G-SWITCH-OFF")
@pytest.mark.parametrize("narrow", [None, Narrow(action="send_note")])
async def test_a_switch_off_waits_for_a_lease_that_read_on(box: Outbox, narrow: Narrow | None):
    await box.build(Planned("first"), Planned("second"))
    operator = principal(box.ids, "operator")
    async with transaction(box.pool) as connection:
        assert len(await box.lease_in(connection, 1)) == 1
        off = asyncio.create_task(box.verbs().set_switch(operator, False, "stop", "api", narrow=narrow))
        await box.until_blocked()
        assert not off.done()
    state = await off
    assert state["in_flight"] == 1
    assert await box.lease() == []


@proves("G-SWITCH-OFF")
@pytest.mark.parametrize("narrow", [None, Narrow(action="send_note")])
async def test_a_lease_that_waited_for_a_switch_off_takes_nothing(box: Outbox, narrow: Narrow | None):
    built = await box.build(Planned())
    async with transaction(box.pool) as connection:
        if narrow is None:
            await switch.turn_root(connection, "acts", is_on=False, changed_by="test", reason="stop")
        else:
            await switch.turn_narrow(connection, narrow, is_on=False, changed_by="test", reason="stop")
        waiting = asyncio.create_task(box.lease())
        await box.until_blocked()
    assert await waiting == []
    assert await box.state(built.effect_id) == "pending"


async def test_an_old_lease_reads_the_switch_again_and_does_not_count(box: Outbox):
    built = await box.build(Planned())
    (leased,) = await box.lease()
    await box.turn(on=False)
    now = time.monotonic()
    assert await leave_to_dial(box.pool, leased, asked_at=now, lease_s=60) == "go"
    assert await leave_to_dial(box.pool, leased, asked_at=now - 1, lease_s=60) == "switched_off"
    assert await leave_to_dial(box.pool, leased, asked_at=now - 40, lease_s=60) == "lease_old"
    assert await give_back(box.pool, box.ids, leased, "switched_off")
    row = await box.database.rows(
        "SELECT state, attempt, first_sent_at, code FROM deedbox.effect WHERE effect_id = %s", built.effect_id
    )
    assert row == [("pending", 0, None, "switched_off")]
    await box.turn(on=True)
    assert [one.attempt for one in await box.lease()] == [1]


@proves("G-SENDER-SUSPENDED")
async def test_a_lease_that_is_over_by_the_databases_clock_is_not_used(box: Outbox):
    """The monotonic clock stands still while a machine is suspended, and says that the lease is a second old."""
    await box.build(Planned())
    (leased,) = await box.lease()
    a_second_ago = time.monotonic() - 1
    assert await leave_to_dial(box.pool, leased, asked_at=a_second_ago, lease_s=60) == "go"
    await box.database.shift_clock(3600)
    assert await leave_to_dial(box.pool, leased, asked_at=a_second_ago, lease_s=60) == "lease_old"
    await box.database.shift_clock(0)
    other = replace(leased, fence=leased.fence + 1)
    assert await leave_to_dial(box.pool, other, asked_at=a_second_ago, lease_s=60) == "lease_old"


async def test_a_program_turns_it_off_and_never_on(box: Outbox):
    for roles in (("operator",), ("manager",), ("admin", "manager", "operator")):
        service = principal(box.ids, *roles, name="agent", kind="service", method="api_key")
        with pytest.raises(DeedboxError) as refusal:
            await box.verbs().set_switch(service, True, "I need it", "mcp")
        assert refusal.value.code == "person_required"
        state = await box.verbs().set_switch(service, False, "something is wrong", "mcp")
        assert (state["is_on"], state["open"], state["by"]) == (False, False, "agent")
        await box.turn(on=True)


async def test_a_person_turns_it_on_with_the_role_and_a_reason_and_it_is_audited(box: Outbox):
    await box.turn(on=False)
    verbs = box.verbs()
    with pytest.raises(DeedboxError) as refusal:
        await verbs.set_switch(principal(box.ids, "operator"), True, "please", "api")
    assert refusal.value.code == "permission_denied"
    with pytest.raises(DeedboxError) as refusal:
        await verbs.set_switch(principal(box.ids, "manager"), True, " \n", "api")
    assert refusal.value.problems[0].pointer == "/reason"
    with pytest.raises(DeedboxError) as refusal:
        await verbs.set_switch(principal(box.ids, "viewer"), False, "no", "api")
    assert refusal.value.code == "permission_denied"
    state = await verbs.set_switch(principal(box.ids, "manager", name="Zoë"), True, "checked the targets", "page")
    assert (state["is_on"], state["open"], state["by"], state["why"]) == (True, True, "Zoë", "checked the targets")
    rows = await box.database.rows(
        "SELECT actor, door, method, verb, subject_id, reason FROM deedbox.audit WHERE subject_kind = 'switch'"
    )
    assert rows == [("Zoë", "page", "session", "switch_on", "acts", "checked the targets")]
    assert await verify(box.pool) is None
