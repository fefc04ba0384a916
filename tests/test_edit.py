"""Editing what waits: new bytes, a new digest, the policy again, both names, and never another connector, target or slot."""

import json
from typing import Any

import pytest

from deedbox.gate.confirm import Confirmed
from deedbox.gate.judge import Basis, judge_edit
from deedbox.model.policy import deny, hold, rules
from deedbox.model.rules import Rule
from tests.database import TestDatabase
from tests.decisions import decisions_on, make_app, plan
from tests.guarantees import proves
from tests.test_decisions import refused
from tests.test_rules import rule

pytestmark = pytest.mark.anyio

NEW = {"default-1": {"text": "a better word"}}


@proves("G-EDIT")
async def test_an_edit_is_held_again_and_what_leaves_is_what_was_approved(database: TestDatabase) -> None:
    async with decisions_on(database) as desk:
        mira, bo = await desk.person("Mira", "manager"), await desk.person("Bo", "manager")
        held = await desk.one({"text": "first"}, {"text": "second"})
        newer = await desk.edit(mira, held, NEW)
        assert newer.digest != held.digest
        assert await desk.state(held) == "superseded"
        rows = await database.rows(
            "SELECT a.superseded_by, a.decided_by,"
            " (SELECT revision FROM deedbox.proposal p WHERE p.proposal_id = n.proposal_id),"
            " n.supersedes, n.expires_at = a.expires_at, n.editors FROM deedbox.approval a JOIN deedbox.approval n"
            " ON n.approval_id = a.superseded_by WHERE a.approval_id = %s",
            held.approval_id,
        )
        me = type(held.approval_id)(mira.principal_id)
        assert rows == [(newer.approval_id, me, 2, held.approval_id, True, [me])]
        await refused(desk.decide(bo, held), "approval_changed", "Mira edited it")
        assert (await desk.decide(bo, newer)).state == "approved"
        sent = await database.rows(
            "SELECT e.slot, convert_from(p.body, 'UTF8') FROM deedbox.effect e JOIN deedbox.proposal_effect p"
            " USING (proposal_effect_id) ORDER BY 1"
        )
        assert [(slot, json.loads(str(body))["payload"]["text"]) for slot, body in sent] == [
            ("default-1", "a better word"),
            ("default-2", "second"),
        ]
        verbs = await database.rows("SELECT actor, verb FROM deedbox.audit WHERE verb IN ('edit', 'approve') ORDER BY seq")
        assert verbs == [("Mira", "edit"), ("Bo", "approve")]
        assert (await desk.box.events(held.job_id))[-3:] == ["job.decided", "job.decided", "job.dispatching"]


async def test_the_card_shows_both_names_and_what_was_changed(database: TestDatabase) -> None:
    async with decisions_on(database) as desk:
        mira, bo = await desk.person("Mira", "manager"), await desk.person("Bo", "manager")
        held = await desk.one({"text": "first", "amount": 5})
        newer = await desk.edit(bo, held, {"default-1": {"text": "other", "amount": 5}})
        card = await desk.approvals.card("default", newer.approval_id, mira)
        assert card is not None
        assert card.edited is not None
        assert (card.edited.names, card.edited.former) == (("Bo",), held.approval_id)
        assert [(row.label, row.before, row.after) for row in card.edited.changes] == [("Text", "first", "other")]
        assert (card.may_decide, card.may_edit) == (True, True)
        mine = await desk.approvals.card("default", newer.approval_id, bo)
        assert mine is not None
        assert (mine.may_decide, mine.may_edit) == (False, True)
        assert "another person approves" in (mine.why_not or "")
        again = await desk.edit(mira, newer, {"default-1": {"text": "third"}})
        card = await desk.approvals.card("default", again.approval_id, mira)
        assert card is not None
        assert card.edited is not None
        assert card.edited.names == ("Bo", "Mira")


@proves("G-EDITOR-APART")
async def test_who_edited_something_of_consequence_does_not_approve_it_alone(database: TestDatabase) -> None:
    async with decisions_on(database) as desk:
        mira, bo = await desk.person("Mira", "manager"), await desk.person("Bo", "manager")
        held = await desk.edit(mira, await desk.one(), NEW)
        await refused(desk.decide(mira, held), "permission_denied", "another person approves")
        # Editing it once more does not wash the first edit off.
        held = await desk.edit(bo, held, {"default-1": {"text": "Bo's word"}})
        for editor in (mira, bo):
            await refused(desk.decide(editor, held), "permission_denied", "another person approves")
        cleo = await desk.person("Cleo", "manager")
        assert (await desk.decide(cleo, held)).state == "approved"
        rejected = await desk.edit(mira, await desk.one(), NEW)
        assert (await desk.decide(mira, rejected, "reject")).state == "rejected"


async def test_with_a_quorum_an_editor_is_one_of_several_but_never_all_of_them(database: TestDatabase) -> None:
    async with decisions_on(database, make_app(policy=hold(expires="1h", quorum=2))) as desk:
        mira, bo, cleo = [await desk.person(name, "manager") for name in ("Mira", "Bo", "Cleo")]
        held = await desk.edit(mira, await desk.one(), NEW)
        assert (await desk.decide(mira, held)).state == "pending"
        assert (await desk.decide(bo, held)).state == "approved"
        both = await desk.edit(bo, await desk.edit(mira, await desk.one(), NEW), {"default-1": {"text": "again"}})
        assert (await desk.decide(mira, both)).state == "pending"
        assert (await desk.decide(bo, both)).state == "pending"
        assert (await desk.decide(cleo, both)).state == "approved"


@pytest.mark.parametrize("consequence", ["read", "reversible"])
async def test_who_edited_what_can_be_undone_may_approve_it(database: TestDatabase, consequence: Any) -> None:
    async with decisions_on(database, make_app(consequence)) as desk:
        mira = await desk.person("Mira", "manager")
        held = await desk.edit(mira, await desk.one(), NEW, how="api")
        assert (await desk.decide(mira, held)).state == "approved"


async def test_requester_editor_and_approver_of_something_grave_are_three_people(database: TestDatabase) -> None:
    async with decisions_on(database, make_app("grave", policy=hold(expires="1h", quorum=2))) as desk:
        asker, mira, bo, cleo = [await desk.person(name, "manager") for name in ("Asker", "Mira", "Bo", "Cleo")]
        held = await desk.one(subject=asker)
        yes = Confirmed(fresh=True, typed="desk")
        await refused(desk.edit(asker, held, NEW), "permission_denied", "Whoever asked for it")
        await refused(desk.edit(mira, held, NEW, how="api"), "session_required")
        held = await desk.edit(mira, held, NEW)
        await refused(desk.decide(asker, held, confirmed=yes), "permission_denied")
        await refused(desk.decide(mira, held, confirmed=yes), "permission_denied", "another person approves")
        assert (await desk.decide(bo, held, confirmed=yes)).state == "pending"
        assert (await desk.decide(cleo, held, confirmed=yes)).state == "approved"


@pytest.mark.parametrize(
    ("payloads", "pointer"),
    [
        ({"other": {"text": "x"}}, "/payloads/other"),
        ({"a-1": {"text": 7}}, "/payloads/a-1/text"),
        ({"a-1": {"text": "x", "target": "elsewhere"}}, "/payloads/a-1/target"),
        ({"a-1": {"text": "to nobody"}}, "/payloads/a-1"),
        ({"a-1": {"text": "a\x00b"}}, "/payloads/a-1"),
        ({"b-1": {"text": "another group's"}}, "/payloads/b-1"),
        ({"a-1": {"text": "hello", "amount": None, "to": []}}, None),
        ({}, None),
    ],
)
async def test_what_cannot_be_is_refused_with_its_place(
    database: TestDatabase, payloads: dict[str, Any], pointer: str | None
) -> None:
    async with decisions_on(database) as desk:
        mira = await desk.person("Mira", "manager")
        held, _ = await desk.hold(groups=("a", "b"))
        before = await desk.traces()
        error = await refused(desk.edit(mira, held, payloads), "invalid_input")
        assert [problem.pointer for problem in error.problems][:1] == ([pointer] if pointer else [])
        assert await desk.traces() == before


async def test_the_policy_judges_an_edit_again(database: TestDatabase) -> None:
    async with decisions_on(database) as desk:
        mira = await desk.person("Mira", "manager")
        held = await desk.one()
        (action,) = make_app(policy=deny()).actions.values()
        desk.app.actions[action.name] = action
        before = await desk.traces()
        await refused(desk.edit(mira, held, NEW), "policy_denied")
        assert await desk.traces() == before
        (stricter,) = make_app("grave", policy=hold(expires="1h", quorum=2)).actions.values()
        desk.app.actions[action.name] = stricter
        newer = await desk.edit(mira, held, NEW)
        row = (
            await database.rows(
                "SELECT quorum, consequence, policy_version FROM deedbox.approval WHERE approval_id = %s", newer.approval_id
            )
        )[0]
        assert row == (2, "grave", stricter.policy.version)
        (milder,) = make_app("read").actions.values()
        desk.app.actions[action.name] = milder
        newest = await desk.edit(await desk.person("Bo", "manager"), newer, {"default-1": {"text": "mild"}})
        row = (
            await database.rows("SELECT quorum, consequence FROM deedbox.approval WHERE approval_id = %s", newest.approval_id)
        )[0]
        assert row == (2, "grave")


async def test_what_this_process_cannot_check_it_does_not_edit(database: TestDatabase) -> None:
    async with decisions_on(database) as desk:
        mira = await desk.person("Mira", "manager")
        held = await desk.one()
        connectors, actions = dict(desk.app.connectors), dict(desk.app.actions)
        desk.app.connectors.clear()
        await refused(desk.edit(mira, held, NEW), "illegal_move", "no connector")
        desk.app.connectors.update(connectors)
        desk.app.actions.clear()
        await refused(desk.edit(mira, held, NEW), "illegal_move", "does not know")
        desk.app.actions.update(actions)
        await desk.edit(mira, held, NEW)


def test_a_ruling_is_the_policys_own() -> None:
    (held,) = make_app().actions.values()
    (denied,) = make_app(policy=deny()).actions.values()
    basis = Basis("operator")
    assert judge_edit(held, [plan("x")], basis).decision == "hold"
    assert judge_edit(denied, [plan("x")], basis).decision == "deny"
    never = Rule("never_shout", "deny", "payload.text == 'HELP'")
    (ruled,) = make_app(policy=rules(never, rule(name="others", when="payload.text != ''"))).actions.values()
    assert judge_edit(ruled, [plan("HELP")], basis).decision == "deny"
    # What a rule would let out of itself is held all the same: a person has changed it.
    assert judge_edit(ruled, [plan("help")], basis).decision == "hold"
