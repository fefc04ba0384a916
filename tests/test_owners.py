"""Every effect that has not ended is found by whoever moves it on, whatever shape it is in."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from deedbox.extend.connector import Ambiguous
from deedbox.model.lifecycle import EFFECT, Lifecycle, Move, Owner
from deedbox.store import ledger, outbox, reconcile, waits
from deedbox.store.loader import statement
from deedbox.store.reconcile import LookUps
from deedbox.store.transaction import autocommit, transaction
from tests.builders import Outbox, Planned, outbox_on
from tests.database import TestDatabase
from tests.guarantees import proves

pytestmark = pytest.mark.anyio
PLAN = LookUps(first_s=30)
LOST = Ambiguous("timed_out", "No answer came in time.", "body_sent")
Build = Callable[[Outbox], Awaitable[UUID]]
Find = Callable[[Outbox, UUID], Awaitable[set[UUID]]]


@pytest.fixture
async def box(database: TestDatabase) -> AsyncIterator[Outbox]:
    async with outbox_on(database) as made:
        yield made


def pending(**planned: Any) -> Build:
    async def build(box: Outbox) -> UUID:
        return (await box.build(Planned(**planned))).effect_id

    return build


async def switched_off(box: Outbox) -> UUID:
    await box.turn(on=False)
    return await pending()(box)


async def orphaned(box: Outbox) -> UUID:
    built = await box.build(Planned("first"), Planned("second", after="first"))
    await box.database.rows("UPDATE deedbox.effect SET state = 'canceled' WHERE effect_id = %s", built.effects["first"])
    return built.effects["second"]


async def key_died(box: Outbox) -> UUID:
    effect_id = await pending()(box)
    await box.database.rows("UPDATE deedbox.effect SET doubtful = true, first_sent_at = deedbox.clock()")
    return effect_id


async def sending(box: Outbox) -> UUID:
    effect_id = await pending()(box)
    assert len(await box.lease(lease_s=5)) == 1
    return effect_id


async def lapsed(box: Outbox) -> UUID:
    effect_id = await sending(box)
    await box.database.shift_clock(6)
    return effect_id


def unknown(after_s: float = 0.0, *, asked: bool = True) -> Build:
    async def build(box: Outbox) -> UUID:
        box.connector.script.append(LOST)
        effect_id = await pending()(box)
        await box.dispatcher().once()
        await box.database.shift_clock(after_s)
        if not asked:
            async with autocommit(box.pool) as connection:
                await reconcile.leave_to_people(connection, effect_id)
        return effect_id

    return build


async def leased(box: Outbox, _effect_id: UUID) -> set[UUID]:
    return {one.effect_id for one in await box.lease()}


async def due(box: Outbox, effect_id: UUID) -> set[UUID]:
    async with autocommit(box.pool) as connection:
        found = await outbox.next_due(connection)
    return {effect_id} if found is not None and 0 < found[0] < 61 else set()


async def explained(box: Outbox, effect_id: UUID) -> set[UUID]:
    async with autocommit(box.pool) as connection:
        return {effect_id} if await waits.facts(connection, "default", effect_id) else set()


async def locked(box: Outbox, effect_id: UUID) -> set[UUID]:
    async with transaction(box.pool) as connection:
        job_id = (await ledger.list_effects(connection, "default", effect_id=effect_id))[0]["job_id"]
        effect = await outbox.lock_effect(connection, effect_id, job_id)
    return {effect_id} if effect is not None and effect.state == "sending" and not effect.lease_lapsed else set()


def paged(name: str) -> Find:
    async def find(box: Outbox, _effect_id: UUID) -> set[UUID]:
        query = statement("outbox", "unsendable" if name == "unsendable" else "lapsed_sendings")
        async with autocommit(box.pool) as connection:
            cursor = await connection.execute(query, {"after": UUID(int=0), "limit": 100})
            return {row[0] for row in await cursor.fetchall()}

    return find


async def claimed(box: Outbox, _effect_id: UUID) -> set[UUID]:
    async with transaction(box.pool) as connection:
        return {one.effect_id for one in await reconcile.claim(connection, PLAN, ["note"], limit=10)}


async def asked_later(box: Outbox, effect_id: UUID) -> set[UUID]:
    async with autocommit(box.pool) as connection:
        found = await reconcile.next_look_up(connection, PLAN, ["note"])
    return {effect_id} if found is not None and 0 < found <= 30 else set()


async def on_the_list(box: Outbox, _effect_id: UUID) -> set[UUID]:
    async with autocommit(box.pool) as connection:
        return {row["effect_id"] for row in await ledger.list_effects(connection, "default", state="unknown")}


async def reminded(box: Outbox, _effect_id: UUID) -> set[UUID]:
    async with transaction(box.pool) as connection:
        return set(await reconcile.remind(connection, after_s=3600, again_s=86400))


FINDS: dict[str, Find] = {
    "outbox.lease": leased,
    "outbox.next_due": due,
    "waits.facts": explained,
    "outbox.unsendable": paged("unsendable"),
    "outbox.lock_effect": locked,
    "outbox.lapsed_sendings": paged("lapsed_sendings"),
    "reconcile.claim": claimed,
    "reconcile.next_look_up": asked_later,
    "ledger.list_effects": on_the_list,
    "reconcile.remind": reminded,
}
SHAPES: dict[str, list[Build]] = {
    "due, and nothing holds it back": [pending()],
    "not due yet": [pending(not_before_s=60)],
    "held back by switch, target, order or predecessor, or without a connector": [
        switched_off,
        pending(connector="nobody_has_it"),
    ],
    "its time has passed": [pending(not_after_s=-1), pending(not_after_s=-1, connector="nobody_has_it")],
    "what it goes after was not done": [orphaned],
    "sent before, and its key has died": [key_died],
    "under its lease": [sending],
    "its lease has run out": [lapsed],
    "a look-up is due": [unknown(31)],
    "a look-up is due later": [unknown()],
    "nobody is asked any more": [unknown(asked=False)],
    "for a long time": [unknown(3601), unknown(3601, asked=False)],
}


@proves("G-OWNED")
@pytest.mark.parametrize("owner", EFFECT.owners, ids=lambda owner: f"{owner.state}: {owner.shape}")
async def test_its_owner_finds_it(box: Outbox, owner: Owner):
    for build in SHAPES[owner.shape]:
        effect_id = await build(box)
        assert await box.state(effect_id) == owner.state
        assert effect_id in await FINDS[owner.query](box, effect_id)
        await box.database.shift_clock(0)
        await box.turn(on=True)


@proves("G-OWNED")
def test_every_live_state_has_an_owner_and_every_owner_a_shape_to_try():
    assert {owner.state for owner in EFFECT.owners} == set(EFFECT.live)
    assert {owner.shape for owner in EFFECT.owners} == set(SHAPES)
    moves = (Move("begin", (), "on", ("who",)), Move("end", ("on",), "off", ("who",)))
    with pytest.raises(ValueError, match="owned states"):
        Lifecycle("lamp", ("on", "off"), ("off",), moves, (Owner("off", "any", "nobody", "none.none"),))
