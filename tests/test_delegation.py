"""Handing one's say on: inside the rules, counted once, with both names, and over when it is."""

import asyncio
from datetime import timedelta

import pytest

from deedbox.gate.delegate import HandedOver, delegate, withdraw
from deedbox.model.identity import Principal
from deedbox.model.policy import hold
from deedbox.operate.views import Views
from tests.database import TestDatabase
from tests.decisions import Desk, Held, decisions_on, make_app
from tests.guarantees import proves
from tests.test_decisions import refused

pytestmark = pytest.mark.anyio


async def hand(desk: Desk, who: Principal, to: str, held: Held | None = None, hours: float | None = None) -> HandedOver:
    """Hand a say on: in this approval, or in all for so many hours."""
    return await delegate(
        desk.pool,
        desk.ids,
        who,
        to=to,
        approval_id=None if held is None else held.approval_id,
        until=None if hours is None else await desk.now() + timedelta(hours=hours),
        reason="away",
        how="page",
    )


@proves("G-DELEGATION")
async def test_a_say_that_was_handed_on_decides_and_both_names_stay(database: TestDatabase) -> None:
    async with decisions_on(database) as desk:
        mira, dan = await desk.person("Mira", "manager"), await desk.person("Dan", "operator")
        held, other = await desk.one(), await desk.one()
        await refused(desk.decide(dan, held), "permission_denied", "one of these roles: manager")
        await hand(desk, mira, "Dan", held)
        before = await desk.approvals.card("default", held.approval_id, dan)
        assert before is not None
        assert (before.may_decide, before.say_of) == (True, "Mira")
        inbox = {line.approval_id: line for line in await desk.approvals.inbox("default", dan)}
        assert [inbox[one.approval_id].say_of for one in (held, other)] == ["Mira", None]
        assert [inbox[one.approval_id].may_decide for one in (held, other)] == [True, False]
        assert (await desk.decide(dan, held)).state == "approved"
        card = await desk.approvals.card("default", held.approval_id, mira)
        assert card is not None
        assert [(vote.name, vote.for_name) for vote in card.votes] == [("Dan", "Mira")]
        assert card.decided_by == "Dan"
        said = await database.value(
            "SELECT detail ->> 'for_name' FROM deedbox.audit JOIN deedbox.audit_detail USING (seq) WHERE verb = 'approve'"
        )
        assert said == "Mira"
        votes = [one for one in await Views(desk.pool).timeline(mira, held.job_id) or [] if one.kind == "vote"]
        assert [(one.detail["by"], one.detail["for"]) for one in votes] == [("Dan", "Mira")]
        await refused(desk.decide(dan, other), "permission_denied")


async def test_a_say_in_everything_lasts_until_its_moment(database: TestDatabase) -> None:
    async with decisions_on(database, make_app(policy=hold(expires="10h"))) as desk:
        mira, dan = await desk.person("Mira", "manager"), await desk.person("Dan", "operator")
        first, second = await desk.one(), await desk.one()
        await hand(desk, mira, "Dan", hours=2)
        assert (await desk.decide(dan, first)).state == "approved"
        await database.shift_clock(2 * 3600 + 5)
        await refused(desk.decide(dan, second), "permission_denied", "The say that Mira handed to you is over.")


async def test_a_say_taken_back_or_lost_counts_no_more(database: TestDatabase) -> None:
    async with decisions_on(database) as desk:
        mira, bo = await desk.person("Mira", "manager"), await desk.person("Bo", "manager")
        dan = await desk.person("Dan", "operator")
        held = await desk.one()
        made = await hand(desk, mira, "Dan", held)
        await refused(withdraw(desk.pool, bo, made.delegation_id, how="page"), "not_found")
        await withdraw(desk.pool, mira, made.delegation_id, how="page")
        await refused(withdraw(desk.pool, mira, made.delegation_id, how="page"), "not_found")
        await refused(desk.decide(dan, held), "permission_denied", "is over")
        given_back = await hand(desk, mira, "Dan", held)
        await withdraw(desk.pool, dan, given_back.delegation_id, how="page")
        await refused(desk.decide(dan, held), "permission_denied")
        await hand(desk, mira, "Dan", held)
        await database.rows("""DELETE FROM deedbox."grant" WHERE principal_id = %s""", mira.principal_id)
        await refused(desk.decide(dan, held), "permission_denied", "manager")
        await hand(desk, bo, "Dan", held)
        await database.rows("UPDATE deedbox.principal SET disabled_at = deedbox.clock() WHERE name = 'Bo'")
        await refused(desk.decide(dan, held), "permission_denied", "manager")
        verbs = [
            row[0] for row in await database.rows("SELECT verb FROM deedbox.audit WHERE verb LIKE '%%dele%%' ORDER BY seq")
        ]
        assert verbs == ["delegate", "withdraw_delegation"] * 2 + ["delegate"] * 2


async def test_one_say_counts_once_whoever_speaks_it(database: TestDatabase) -> None:
    async with decisions_on(database, make_app(policy=hold(expires="1h", quorum=2))) as desk:
        mira, bo = await desk.person("Mira", "manager"), await desk.person("Bo", "manager")
        dan, eve = await desk.person("Dan", "operator"), await desk.person("Eve", "operator")
        held = await desk.one()
        for name in ("Dan", "Eve", "Bo"):
            await hand(desk, mira, name, held)
        assert (await desk.decide(dan, held)).state == "pending"
        await refused(desk.decide(eve, held), "already_decided", "The say of Mira")
        await refused(desk.decide(mira, held), "already_decided", "Your say was given already")
        await refused(desk.decide(dan, held), "already_decided")
        # Who has a say of his own speaks that one, not the one that was handed to him.
        assert (await desk.decide(bo, held)).state == "approved"
        rows = await database.rows("SELECT for_principal IS NULL FROM deedbox.vote ORDER BY voted_at")
        assert rows == [(False,), (True,)]


async def test_nobody_hands_on_what_he_may_not_decide(database: TestDatabase) -> None:
    async with decisions_on(database) as desk:
        mira, dan = await desk.person("Mira", "manager"), await desk.person("Dan", "operator")
        await desk.person("Eve", "operator")
        await desk.person("blind", "guest")
        robot = await desk.person("robot", "manager", kind="service")
        held, own = await desk.one(), await desk.one(subject=mira)
        before = await desk.traces()
        await refused(hand(desk, dan, "Eve", held), "permission_denied", "manager")
        await refused(hand(desk, dan, "Eve", hours=1), "permission_denied")
        await refused(hand(desk, mira, "Dan", own), "permission_denied", "Whoever asked for it")
        await refused(hand(desk, robot, "Dan", held), "person_required")
        for nobody in ("Mira", "robot", "nobody at all"):
            await refused(hand(desk, mira, nobody, held), "invalid_input", "no other person")
        await refused(hand(desk, mira, "blind", held), "permission_denied", "may not read")
        await refused(hand(desk, mira, "Dan"), "invalid_input")
        await refused(hand(desk, mira, "Dan", held, hours=1), "invalid_input")
        await refused(hand(desk, mira, "Dan", hours=-1), "invalid_input", "passed")
        await refused(hand(desk, mira, "Dan", hours=91 * 24), "invalid_input", "too far away")
        assert await desk.traces() == before
        await hand(desk, mira, "Dan", held)
        await refused(hand(desk, dan, "Eve", held), "permission_denied", "only Mira hands on")
        await desk.decide(mira, held)
        await refused(hand(desk, mira, "Eve", held), "already_decided")


async def test_a_say_never_goes_to_whoever_asked_nor_counts_for_him(database: TestDatabase) -> None:
    async with decisions_on(database) as desk:
        mira, dan = await desk.person("Mira", "manager"), await desk.person("Dan", "operator")
        eve = await desk.person("Eve", "operator")
        his, hers = await desk.one(subject=dan), await desk.one(subject=mira)
        await refused(hand(desk, mira, "Dan", his), "permission_denied", "asked for it")
        await hand(desk, mira, "Dan", hours=1)
        await refused(desk.decide(dan, his), "permission_denied", "Whoever asked for it")
        await hand(desk, mira, "Eve", hours=1)
        # What Mira asked for herself is not decided by her say in another's mouth.
        await refused(desk.decide(eve, hers), "permission_denied", "manager")


async def test_what_is_grave_or_licensed_is_not_handed_to_just_anybody(database: TestDatabase) -> None:
    app = make_app(domain="legal", domains={"legal": "counsel"})
    async with decisions_on(database, app) as desk:
        mira, dan = await desk.person("Mira", "manager", "counsel"), await desk.person("Dan", "operator")
        await desk.person("Cora", "operator", "counsel")
        held = await desk.one()
        await refused(hand(desk, mira, "Dan", held), "permission_denied", "counsel")
        await hand(desk, mira, "Dan", hours=1)
        await refused(desk.decide(dan, held), "permission_denied", "counsel")
        await hand(desk, mira, "Cora", held)
        assert (await desk.decide(desk.people["Cora"], held)).state == "approved"
        grave = await desk.one()
        await database.rows("UPDATE deedbox.approval SET consequence = 'grave' WHERE approval_id = %s", grave.approval_id)
        await refused(hand(desk, mira, "Cora", grave), "permission_denied", "not handed on")
        await hand(desk, mira, "Cora", hours=1)
        await refused(desk.decide(desk.people["Cora"], grave), "permission_denied", "A grave effect")


async def test_a_say_in_an_approval_goes_with_it_when_it_is_edited_but_not_past_the_editors_rule(
    database: TestDatabase,
) -> None:
    async with decisions_on(database) as desk:
        mira, bo = await desk.person("Mira", "manager"), await desk.person("Bo", "manager")
        dan = await desk.person("Dan", "operator")
        held = await desk.one()
        await hand(desk, mira, "Dan", held)
        newer = await desk.edit(bo, held, {"default-1": {"text": "Bo's"}})
        assert (await desk.decide(dan, newer)).state == "approved"
        held = await desk.one()
        await hand(desk, mira, "Dan", held)
        newer = await desk.edit(mira, held, {"default-1": {"text": "Mira's"}})
        # Mira edited it, so it is not approved by her say either.
        await refused(desk.decide(dan, newer), "permission_denied", "manager")
        held = await desk.one()
        await hand(desk, mira, "Dan", held)
        newer = await desk.edit(dan, held, {"default-1": {"text": "Dan's"}})
        await refused(desk.decide(dan, newer), "permission_denied", "another person")
        assert (await desk.decide(mira, newer)).state == "approved"


async def test_of_a_holder_and_a_delegate_at_once_one_vote_counts(database: TestDatabase) -> None:
    async with decisions_on(database, make_app(policy=hold(expires="1h", quorum=2))) as desk:
        mira, dan = await desk.person("Mira", "manager"), await desk.person("Dan", "operator")
        held = await desk.one()
        await hand(desk, mira, "Dan", held)
        answers = await asyncio.gather(desk.decide(mira, held), desk.decide(dan, held), return_exceptions=True)
        assert sorted(type(one).__name__ for one in answers) == ["Decided", "DeedboxError"]
        assert await database.value("SELECT count(*) FROM deedbox.vote") == 1
        assert await desk.state(held) == "pending"


async def test_a_person_sees_what_was_handed_on_either_way(database: TestDatabase) -> None:
    async with decisions_on(database) as desk:
        mira, dan = await desk.person("Mira", "manager"), await desk.person("Dan", "operator")
        held = await desk.one()
        await hand(desk, mira, "Dan", held)
        gone = await hand(desk, mira, "Dan", hours=1)
        await withdraw(desk.pool, mira, gone.delegation_id, how="page")
        for who in (mira, dan):
            found = await desk.approvals.delegations(who)
            assert [(one.holder, one.to, one.approval_id, one.counts) for one in found] == [
                ("Mira", "Dan", None, False),
                ("Mira", "Dan", held.approval_id, True),
            ]
        await desk.decide(mira, held)
        assert [one.counts for one in await desk.approvals.delegations(dan)] == [False, False]
