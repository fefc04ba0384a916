"""Every verb there is leaves an entry: the list of the model against what is really written."""

import asyncio
import re
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest

from deedbox.access import (
    LoginGuard,
    add_form_key,
    add_key,
    add_tenant,
    add_user,
    disable_user,
    enable_user,
    end_sessions,
    grant_roles,
    list_keys,
    login,
    logout,
    mint_personal_key,
    put_role,
    remove_role,
    revoke_key,
    rotate_key,
    set_email,
    withdraw_roles,
)
from deedbox.extend.connector import Ambiguous, TargetLimits
from deedbox.gate.decide import expire_lapsed
from deedbox.model.audited import VERBS
from deedbox.model.errors import DeedboxError
from deedbox.operate.erasure import Erasure
from deedbox.operate.lanes import Lanes
from deedbox.operate.targets import Targets
from deedbox.operate.verbs import Verbs
from deedbox.store.audit import verify
from deedbox.store.prune import DAY_S, Retention
from deedbox.sweep.prune import Pruning
from tests.builders import Outbox, Planned, outbox_on
from tests.builders import principal as somebody
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import Road, principal, road, until
from tests.test_again_doors import force
from tests.test_gate import held, make_app, say
from tests.test_rounds import rounds_of

pytestmark = pytest.mark.anyio
TESTS = Path(__file__).resolve().parent
PASSWORD = "ein langes Paßwort"


async def people(one: Road) -> None:
    """Everything about accounts, sessions and keys."""
    pool, ids = one.pool, one.ids
    await add_user(pool, ids, "default", "Zoë", ["viewer"], PASSWORD)
    await grant_roles(pool, "default", "Zoë", ["manager"])
    await withdraw_roles(pool, "default", "Zoë", ["viewer"])
    opened = [await login(pool, "default", "Zoë", PASSWORD, guard=LoginGuard(), peer="10.0.0.1") for _ in range(2)]
    assert opened[0] is not None
    await mint_personal_key(pool, ids, opened[0].principal, "mine", door="page")
    await set_email(pool, "default", "Zoë", "zoe@people.example")
    await logout(pool, opened[0].token)
    assert await login(pool, "default", "Zoë", "wrong", guard=LoginGuard(), peer="10.0.0.1") is None
    await end_sessions(pool, "default", "Zoë")
    await disable_user(pool, "default", "Zoë")
    await enable_user(pool, "default", "Zoë")
    await add_key(pool, ids, "default", "n8n", ["operator"], "flow")
    [line] = [one for one in await list_keys(pool, "default") if one.label == "flow"]
    await rotate_key(pool, ids, "default", str(line.key_id), 60.0)
    await revoke_key(pool, "default", line.key_id)
    origins = ["https://shop.example"]
    await add_form_key(
        pool, ids, "default", "page", ["operator"], "form", action="write_words", origins=origins, rate_per_minute=10
    )
    await add_tenant(pool, "north")
    await put_role(pool, "default", "auditor", ["read"])
    await remove_role(pool, "default", "auditor")


async def jobs(one: Road) -> None:
    """Everything about jobs and decisions; the last of them is closed by its retention."""
    database, rounds, verbs = one.database, rounds_of(one), Verbs(one.pool, one.ids, one.app.connectors)
    job_id, [approval] = await held(one)
    assert await say(one, approval) == "approved"
    await force(database, job_id, "completed")
    new = await rounds.replace(one.caller, job_id, {}, "another", "A typo.")
    await one.until(new.job_id, "awaiting_human")
    [row] = await database.rows("SELECT approval_id, encode(digest, 'hex') FROM deedbox.approval WHERE job_id = %s", new.job_id)
    assert await say(one, (UUID(str(row[0])), str(row[1])), "reject", "no") == "rejected"
    silent = await one.submit("write_words", {}, "silent")
    await one.until(silent.job_id, "awaiting_human")
    await one.stop_all()
    await database.shift_clock(2 * DAY_S)
    assert await expire_lapsed(one.pool, one.ids) == 1
    for number in range(3):
        parked = (await one.submit("write_words", {}, f"parked {number}")).job_id
        await force(database, parked, "failed_retryable")
        if number == 0:
            await rounds.take_up(one.approver, parked, "Once more.")
            await verbs.cancel_job(one.approver, parked, "Not wanted.")
        elif number == 1:
            await rounds.close(one.approver, parked, "Not wanted.")
    await database.shift_clock(200 * DAY_S)
    await Pruning(one.pool, one.ids, Retention()).turn()
    with suppress(DeedboxError):
        await one.submit("no_such_action", {}, "k")
    admin = await principal(database, one.ids, "admin", "person", "admin")
    await Erasure(one.pool).erase(admin, "zoe@lukasiewicz.example", "They asked for it.")
    lanes = Lanes(one.pool)
    [lane] = await lanes.listed(one.approver)
    await lanes.change(one.approver, lane.lane_id, "Too much at once.", limit=3)
    await lanes.limit_action(one.approver, "write_words", 3, "Too much at once.")
    for on in (True, False):
        await verbs.set_switch(one.approver, on, "A test.", "api")


async def effects(box: Outbox) -> None:
    """Everything about effects that nobody knows about."""
    first, second = (somebody(box.ids, "manager", name=name) for name in ("first", "second"))
    verbs = box.verbs()
    box.connector.script.extend(Ambiguous("reset", "The connection was reset.", "body", closed=True) for _ in range(3))
    built = [await box.build(Planned()) for _ in range(3)]
    dispatcher, stop = box.dispatcher(), asyncio.Event()
    running = asyncio.create_task(dispatcher.run(stop))

    async def states() -> list[str]:
        return [await box.state(one.effect_id) for one in built]

    await until(states, lambda found: found == ["unknown"] * 3)
    stop.set()
    await running
    await verbs.effect_verb(first, built[0].effect_id, "look_up")
    await verbs.effect_verb(first, built[0].effect_id, "confirm", evidence={"provider_id": "P-1"})
    with suppress(DeedboxError):
        await verbs.effect_verb(first, built[1].effect_id, "disprove", reason="Nothing there.")
    await verbs.effect_verb(second, built[1].effect_id, "disprove", reason="Nothing there.")
    await verbs.effect_verb(first, built[2].effect_id, "abandon", reason="Given up.")
    targets = Targets(box.pool, {box.connector.name: box.connector})
    place = (box.connector.name, "wall")
    await targets.pause(first, *place, "Too much at once.")
    await targets.resume(first, *place, "Enough.")
    await targets.limit(first, *place, TargetLimits(rate_per_s=5.0), "Slower.")


@proves("G-AUDIT-EVERY")
async def test_every_verb_of_the_list_is_really_written(database: TestDatabase):
    async with road(database, make_app()) as one:
        await people(one)
        await jobs(one)
    async with outbox_on(database) as box:
        await effects(box)
        assert await verify(box.pool) is None
    rows = await database.rows("SELECT verb, min(actor), min(door), min(method) FROM deedbox.audit GROUP BY verb")
    written = {str(row[0]) for row in rows}
    assert all(all(str(part).strip() for part in row) for row in rows)
    # What is written elsewhere has its entry looked at by a test of its own.
    elsewhere = {verb for verb in set(VERBS) - written if _looked_at(verb)}
    assert written <= set(VERBS)
    assert set(VERBS) - written - elsewhere == set()


def _looked_at(verb: str) -> bool:
    """Whether another test names the verb as one that stands in the audit."""
    mark = re.compile(rf"""["']{verb}["']""")
    others = (path for path in TESTS.rglob("test_*.py") if path.name != Path(__file__).name)
    return any(
        ("audit" in text or ".told(" in text) and mark.search(text)
        for text in (path.read_text(encoding="utf-8") for path in others)
    )
