"""Who decides what: consequence, domain, quorum, and what a person is told who may not, or comes too late."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import pytest

from deedbox.extend.action import RegistrationError
from deedbox.extend.registry import App
from deedbox.gate.batch import Line, decide_many
from deedbox.gate.confirm import Confirmed, Stake, stake_of
from deedbox.gate.decide import expire_lapsed
from deedbox.model.consequence import LICENSED, Consequence, graver
from deedbox.model.errors import DeedboxError
from deedbox.model.fingerprint import jcs
from deedbox.model.policy import hold
from deedbox.store.bounded import BoundedConnection
from deedbox.store.pool import Pool
from tests.database import TestDatabase, through_a_pooler
from tests.decisions import Desk, decisions_on, make_app
from tests.guarantees import proves

pytestmark = pytest.mark.anyio


async def refused(call: Any, code: str, words: str = "") -> DeedboxError:
    """The call is refused with this code, and says this."""
    with pytest.raises(DeedboxError) as found:
        await call
    assert found.value.code == code, found.value.detail
    assert words in found.value.detail
    return found.value


# What is declared ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", sorted(LICENSED))
def test_a_licensed_domain_without_a_role_refuses_to_start(domain: str) -> None:
    with pytest.raises(RegistrationError, match="says nothing of the domain"):
        make_app(domain=domain)
    with pytest.raises(RegistrationError, match="needs a licensed person"):
        make_app(domain=domain, domains={domain: None})
    with pytest.raises(RegistrationError, match="is not a role"):
        make_app(domain=domain, domains={domain: "Chief Physician"})
    (action,) = make_app(domain=domain, domains={domain: "expert"}).actions.values()
    assert action.domain_role == "expert"


def test_a_misspelt_domain_or_consequence_refuses_to_start() -> None:
    with pytest.raises(RegistrationError, match="says nothing of the domain 'medcial'"):
        make_app(domain="medcial", domains={"medical": "physician"})
    with pytest.raises(RegistrationError, match="consequence is one of"):
        make_app(cast("Consequence", "dangerous"))
    (action,) = make_app(domain="gardening", domains={"gardening": None}).actions.values()
    assert (action.domain, action.domain_role) == ("gardening", None)


def test_of_two_consequences_the_graver_counts() -> None:
    assert graver("read", "reversible") == "reversible"
    assert graver("grave", "consequential") == "grave"


@pytest.mark.parametrize(
    ("payload", "stake"),
    [
        ({"amount": 1284}, Stake("amount", "1284")),
        ({"body": {"amount": "1.284,50 €"}}, Stake("amount", "1.284,50 €")),
        ({"body": [1], "amount": True}, Stake("target", "bank")),
        ({"amount": "  "}, Stake("target", "bank")),
        ("text", Stake("target", "bank")),
    ],
)
def test_what_is_typed_is_the_amount_or_else_the_target(payload: object, stake: Stake) -> None:
    assert stake_of("pay_bill", [("bank", jcs({"payload": payload}))]) == stake
    assert stake_of("pay_bill", []) == Stake("action", "pay_bill")


# Grave and licensed ----------------------------------------------------------------------------------------------------


@proves("G-GRAVE")
async def test_something_grave_takes_the_page_the_password_and_the_stake(database: TestDatabase) -> None:
    async with decisions_on(database, make_app("grave")) as desk:
        mira = await desk.person("Mira", "manager")
        held = await desk.one({"text": "pay", "amount": 1284})
        before = await desk.traces()
        for how in ("api", "cli", "mcp", "function"):
            await refused(desk.decide(mira, held, how=how, confirmed=Confirmed(fresh=True, typed="1284")), "session_required")
        for confirmed in (None, Confirmed(fresh=False, typed="1284"), Confirmed(fresh=True, typed="1285")):
            await refused(desk.decide(mira, held, confirmed=confirmed), "confirmation_required")
        assert await desk.traces() == before
        done = await desk.decide(mira, held, confirmed=Confirmed(fresh=True, typed=" 1284 "))
        assert done.state == "approved"


async def test_a_licensed_domain_is_decided_by_whoever_has_its_role(database: TestDatabase) -> None:
    app = make_app(domain="medical", domains={"medical": "physician"})
    async with decisions_on(database, app) as desk:
        mira = await desk.person("Mira", "manager", "admin")
        doctor = await desk.person("Dr Roth", "manager", "physician")
        only = await desk.person("Dr Sand", "physician")
        held = await desk.one()
        await refused(desk.decide(mira, held), "permission_denied", "physician")
        await refused(desk.decide(mira, held, "reject"), "permission_denied", "physician")
        await refused(desk.decide(only, held), "permission_denied", "manager")
        assert (await desk.decide(doctor, held)).state == "approved"


async def test_a_quorum_counts_distinct_people(database: TestDatabase) -> None:
    async with decisions_on(database, make_app(policy=hold(expires="1h", quorum=3))) as desk:
        people = [await desk.person(f"p{number}", "manager") for number in range(3)]
        held = await desk.one()
        assert (await desk.decide(people[0], held)).state == "pending"
        await refused(desk.decide(people[0], held), "already_decided", "You have decided this already")
        await refused(desk.decide(people[0], held, "reject"), "already_decided")
        assert (await desk.decide(people[1], held)).state == "pending"
        assert await database.value("SELECT count(*) FROM deedbox.effect") == 0
        assert (await desk.decide(people[2], held)).state == "approved"
        assert await database.value("SELECT count(*) FROM deedbox.effect") == 1


# Too late --------------------------------------------------------------------------------------------------------------


@proves("G-STALE-TOLD")
async def test_who_comes_too_late_is_told_who_was_first_and_when(database: TestDatabase) -> None:
    async with decisions_on(database) as desk:
        mira, bo = await desk.person("Mira", "manager"), await desk.person("Bo", "manager")
        decided, edited, over = await desk.one(), await desk.one(), await desk.one()
        await desk.decide(mira, decided, "reject", reason="wrong tone")
        newer = await desk.edit(mira, edited, {"default-1": {"text": "other"}})
        said = await refused(desk.decide(bo, decided), "already_decided", "rejected already, by Mira at ")
        assert said.detail.endswith(" UTC.")
        await refused(desk.decide(bo, edited), "approval_changed", f"Mira edited it at {await desk.now():%Y-}")
        assert str(newer.approval_id) in (await refused(desk.decide(bo, edited), "approval_changed")).detail
        await database.shift_clock(3601)
        await refused(desk.decide(bo, over), "approval_expired")
        await expire_lapsed(desk.pool, desk.ids)
        await refused(desk.decide(bo, over), "already_decided", "expired already, by the clock at ")


async def test_several_approvals_of_a_job_are_decided_in_any_order(database: TestDatabase) -> None:
    async with decisions_on(database) as desk:
        mira = await desk.person("Mira", "manager")
        first, second, third = await desk.hold(groups=("a", "b", "c"))
        await desk.decide(mira, third, "reject", reason="no")
        await desk.decide(mira, first)
        assert await desk.box.job_state(first.job_id) == "awaiting_human"
        await desk.decide(mira, second, "reject", reason="no")
        assert await desk.box.job_state(first.job_id) == "dispatching"
        assert (await desk.box.events(first.job_id))[-4:] == ["job.decided", "job.decided", "job.decided", "job.dispatching"]
        alone = await desk.hold(groups=("a", "b"))
        for held in alone:
            await desk.decide(mira, held, "reject", reason="no")
        assert await desk.box.job_state(alone[0].job_id) == "failed_terminal"
        declined = await database.value("SELECT declined FROM deedbox.result WHERE job_id = %s", alone[0].job_id)
        assert [item["group"] for item in cast("list[dict[str, str]]", declined)] == ["a", "b"]


async def test_what_a_rule_let_through_goes_on_where_a_person_declines_the_rest(database: TestDatabase) -> None:
    async with decisions_on(database) as desk:
        mira = await desk.person("Mira", "manager")
        held = await desk.one()
        await database.rows(
            "INSERT INTO deedbox.verdict (verdict_id, job_id, proposal_id, group_name, decision, rule, policy_version,"
            " effect_digests, decided_at) SELECT gen_random_uuid(), job_id, proposal_id, 'other', 'allow', 'r', 'v',"
            " array[digest], deedbox.clock() FROM deedbox.proposal_effect WHERE job_id = %s",
            held.job_id,
        )
        await database.rows(
            "INSERT INTO deedbox.effect (effect_id, job_id, tenant, action, kind, proposal_effect_id, connector, target, slot,"
            " digest, state, not_before, not_after, verdict_id) SELECT gen_random_uuid(), p.job_id, 'default', 'write_letter',"
            " 'act', p.proposal_effect_id, p.connector, 'elsewhere', 'other', p.digest, 'pending', deedbox.clock(),"
            " deedbox.clock() + interval '1 day', v.verdict_id"
            " FROM deedbox.proposal_effect p JOIN deedbox.verdict v USING (job_id) WHERE p.job_id = %s"
            " AND v.decision = 'allow'",
            held.job_id,
        )
        await desk.decide(mira, held, "reject", reason="no")
        assert await desk.box.job_state(held.job_id) == "dispatching"


async def test_an_approved_input_runs_and_a_rejected_one_does_not(database: TestDatabase) -> None:
    async with decisions_on(database) as desk:
        mira = await desk.person("Mira", "manager")
        for choice, state in (("approve", "queued"), ("reject", "failed_terminal")):
            held = await desk.one()
            await database.rows(
                "UPDATE deedbox.approval SET purpose = 'input', effect_digests = '{}' WHERE approval_id = %s", held.approval_id
            )
            await desk.decide(mira, held, choice)
            assert await desk.box.job_state(held.job_id) == state
        assert await database.value("SELECT count(*) FROM deedbox.effect") == 0
        assert await database.value("SELECT bool_and(due) FROM deedbox.queue") is True


# Many at once ----------------------------------------------------------------------------------------------------------


async def test_many_at_once_are_of_one_action_and_policy_and_of_low_consequence(database: TestDatabase) -> None:
    async with decisions_on(database) as desk:
        mira = await desk.person("Mira", "manager")
        one, two = await desk.one(), await desk.one()
        lines = [Line(held.approval_id, held.digest) for held in (one, two)]
        before = await desk.traces()

        async def many(*given: Line) -> object:
            return await decide_many(desk.pool, desk.ids, mira, lines=given, choice="approve", reason=None, how="api")

        await refused(many(*lines), "invalid_input", "read or reversible")
        await database.rows("UPDATE deedbox.approval SET consequence = 'reversible'")
        await database.rows("UPDATE deedbox.approval SET policy_version = 'other' WHERE approval_id = %s", one.approval_id)
        await refused(many(*lines), "invalid_input", "one action and one policy")
        await refused(many(), "invalid_input")
        await refused(many(lines[0], lines[0]), "invalid_input")
        await refused(many(*(Line(UUID(int=number), "00" * 32) for number in range(21))), "invalid_input", "At most 20")
        assert await desk.traces() == before


@proves("G-MANY-ALONE")
async def test_each_of_many_has_its_own_digest_answer_and_audit_entry(database: TestDatabase) -> None:
    async with decisions_on(database, make_app("reversible")) as desk:
        mira, bo = await desk.person("Mira", "manager"), await desk.person("Bo", "manager")
        good, changed, decided, own = [*[await desk.one() for _ in range(3)], await desk.one(subject=mira)]
        await desk.decide(bo, decided)
        lines = [Line(held.approval_id, held.digest) for held in (good, changed, decided, own)]
        lines[1] = Line(changed.approval_id, "11" * 32)
        lines.append(Line(UUID(int=7), "11" * 32))
        answers = await decide_many(desk.pool, desk.ids, mira, lines=lines, choice="approve", reason=None, how="page")
        assert [(answer.state, answer.code) for answer in answers] == [
            ("approved", None),
            (None, "approval_changed"),
            (None, "already_decided"),
            (None, "permission_denied"),
            (None, "not_found"),
        ]
        rows = await database.rows(
            "SELECT a.subject_id, d.detail ->> 'batch' FROM deedbox.audit a JOIN deedbox.audit_detail d USING (seq)"
            " WHERE a.actor = 'Mira'"
        )
        assert [(row[0], row[1] is not None) for row in rows] == [(str(good.approval_id), True)]


# Clocks and zones ------------------------------------------------------------------------------------------------------


class ZonedPool(Pool):
    """A pool whose sessions have a time zone of their own, as behind a pooler that drops ours."""

    def __init__(self, url: str, zone: str) -> None:
        super().__init__(url, "test", size=4)
        given = cast("dict[str, Any]", self.kwargs)
        given["options"] = str(given["options"]).replace("timezone=UTC", f"timezone={zone}")


@pytest.fixture(params=["Asia/Kolkata", "America/New_York"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A zone for the process and for the sessions of the database."""
    import time

    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@proves("G-ZONES")
async def test_deadlines_are_the_same_moment_whatever_zone_the_server_is_in(database: TestDatabase, zone: str) -> None:
    if through_a_pooler():
        pytest.skip("a pooler's sessions have the zone of the server, whatever the client's connection asks for")
    async with decisions_on(database) as plain:
        mira = await plain.person("Mira", "manager")
        pool = ZonedPool(database.url, zone)
        await pool.open()
        try:
            plain.box.pool = pool
            desk = Desk(plain.box, plain.app, plain.approvals, plain.people)
            desk.approvals = type(plain.approvals)(pool, plain.ids, public_url="http://127.0.0.1", actions=plain.app.actions)
            async with pool.connection() as connection:
                row = await (await connection.execute("SHOW timezone")).fetchone()
            assert row is not None
            assert row[0] == zone
            first, second = await desk.one(), await desk.one()
            card = await desk.approvals.card("default", first.approval_id, mira)
            assert card is not None
            now = await desk.now()
            assert timedelta(minutes=59) < card.deadline - now <= timedelta(hours=1, seconds=1)
            assert (card.deadline.utcoffset(), card.zone) == (timedelta(0), "UTC")
            assert (await desk.decide(mira, first)).state == "approved"
            assert f"{now:%Y-%m-%d %H:}" in (await refused(desk.decide(mira, first), "already_decided")).detail
            await database.shift_clock(3590)
            assert await expire_lapsed(pool, desk.ids) == 0
            await database.shift_clock(3610)
            assert await expire_lapsed(pool, desk.ids) == 1
            assert await desk.state(second) == "expired"
        finally:
            await pool.close()


def test_an_app_keeps_the_domains_it_declares() -> None:
    assert App(domains={"legal": "counsel"}).domains == {"legal": "counsel"}


async def test_a_decision_makes_six_statements_and_no_more(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    if through_a_pooler():
        pytest.skip("the statements are counted on a class of connections that a run through a pooler does not use")
    async with decisions_on(database) as desk:
        mira = await desk.person("Mira", "manager")
        held = await desk.one()
        seen: list[str] = []
        plain = BoundedConnection.execute

        async def counted(self: Any, query: Any, *rest: Any, **options: Any) -> Any:
            seen.append(str(query).splitlines()[0])
            return await plain(self, query, *rest, **options)

        monkeypatch.setattr(BoundedConnection, "execute", counted)
        await desk.decide(mira, held)
        assert len(seen) == 6, seen
