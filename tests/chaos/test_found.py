"""What the chaos found, told small: a sending that may have been accepted counts until somebody knows, whatever follows it."""

from collections.abc import AsyncIterator

import pytest

from deedbox.extend.connector import Ambiguous, Outcome, Refused, Transient
from deedbox.gate.cancel import cancel_locked
from deedbox.model.backoff import Retry
from deedbox.model.errors import DeedboxError
from deedbox.store.transaction import transaction
from tests.builders import Built, Outbox, Planned, outbox_on, principal
from tests.database import TestDatabase
from tests.guarantees import proves

pytestmark = pytest.mark.anyio

LOST = Ambiguous("timed_out", "No answer came in time.", "body_sent")
BUSY = Transient("rate_limited", "http_429", "The target is busy.", "answered", 0.0)
NO = Refused("denied", "http_401", "The target does not know us any more.", "answered")
SOON = Retry(attempts=3, base=0.001, cap=0.001)


@pytest.fixture
async def box(database: TestDatabase) -> AsyncIterator[Outbox]:
    async with outbox_on(database) as made:
        made.connector.can, made.connector.ttl_s = "native_key", 600.0
        yield made


async def sent(box: Outbox, *script: Outcome, not_after_s: float = 3600.0) -> Built:
    """An effect that was sent as often as the script has lines, each ending so."""
    box.connector.script.extend(script)
    built = await box.build(Planned(not_after_s=not_after_s))
    for number in range(1, len(script) + 1):
        assert await box.dispatcher(retry=SOON).once() == 1
        await box.database.shift_clock(number)
    return built


async def canceled(box: Outbox, built: Built) -> str:
    async with transaction(box.pool) as connection:
        return await cancel_locked(connection, box.ids, built.job_id, "changed our mind")


@pytest.mark.parametrize("script", [[LOST], [LOST, BUSY]])
async def test_a_job_is_not_canceled_while_an_effect_of_it_may_have_been_done(box: Outbox, script: list[Outcome]):
    built = await sent(box, *script)
    assert await box.state(built.effect_id) == "pending"
    with pytest.raises(DeedboxError, match="first is perhaps done"):
        await canceled(box, built)
    await box.dispatcher().once()
    assert await box.state(built.effect_id) == "completed"


async def test_a_job_is_canceled_while_its_effect_was_surely_not_done(box: Outbox):
    built = await sent(box, BUSY)
    assert await canceled(box, built) == "canceled"


async def test_an_effect_that_may_have_been_done_is_not_canceled_by_itself(box: Outbox):
    built = await sent(box, LOST)
    with pytest.raises(DeedboxError, match="may have been accepted"):
        await box.verbs().effect_verb(principal(box.ids, "manager"), built.effect_id, "cancel", reason="changed our mind")
    assert await box.state(built.effect_id) == "pending"


@proves("G-DOUBTFUL")
@pytest.mark.parametrize("script", [[LOST, NO], [LOST, BUSY, BUSY]])
async def test_that_a_later_sending_was_not_accepted_says_nothing_of_an_earlier_one(box: Outbox, script: list[Outcome]):
    built = await sent(box, *script)
    assert await box.state(built.effect_id) == "unknown"


async def test_what_was_never_accepted_has_failed(box: Outbox):
    built = await sent(box, BUSY, NO)
    assert await box.state(built.effect_id) == "failed"


@proves("G-DOUBTFUL")
@pytest.mark.parametrize(("not_after_s", "later_s"), [(7200.0, 601), (300.0, 301)])
async def test_what_cannot_be_sent_under_its_key_any_more_is_unknown_and_not_sent(
    box: Outbox, not_after_s: float, later_s: float
):
    built = await sent(box, LOST, not_after_s=not_after_s)
    await box.database.shift_clock(later_s)
    await box.dispatcher().once()
    await box.expire()
    assert (await box.state(built.effect_id), len(box.connector.sent)) == ("unknown", 1)
