"""The gate: what is held, who decides, and what a decision is bound to."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from deedbox.extend.connector import Capability, EffectOrder, LookUp, Outcome, Receipt
from deedbox.extend.context import Context
from deedbox.extend.outcome import Abstain
from deedbox.extend.registry import App
from deedbox.gate.decide import decide, expire_lapsed
from deedbox.model.errors import DeedboxError
from deedbox.model.policy import Policy, allow, deny, hold
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import Road, principal, road

pytestmark = pytest.mark.anyio


class Ask(BaseModel):
    """How many groups to propose."""

    groups: list[str] = ["default"]
    abstain: bool = False


class Said(BaseModel):
    """The draft."""

    text: str = "drafted"


class Words(BaseModel):
    """What the test connector sends."""

    text: str


class Paper:
    """A connector that writes down what it performed."""

    name = "paper"
    payload_model: type[BaseModel] = Words

    def __init__(self) -> None:
        self.sent: list[str] = []

    def check_target(self, target: str) -> None:
        """Any target."""

    def check_plan(self, target: str, payload: Any) -> None:
        """Any payload."""

    def describe(self, target: str, payload: Any) -> str:
        """One sentence."""
        return f"Writes {payload['text']!r} to {target}."

    def capability(self, target: str) -> Capability:  # noqa: ARG002 -- the protocol's signature
        """Blind."""
        return "blind"

    async def send(self, order: EffectOrder) -> Outcome:
        """Write it down."""
        self.sent.append(order.slot)
        return Receipt(order.effect_id)

    async def look_up(self, order: EffectOrder) -> LookUp:  # noqa: ARG002 -- the protocol's signature
        """Not asked here."""
        return LookUp("still_unknown")


def make_app(policy: Policy | None = None, approvers: tuple[str, ...] = ("manager",)) -> App:
    """One action that proposes an effect per group."""
    app = App(connectors=[Paper()])

    @app.action(roles=["operator", "manager"], approvers=approvers, policy=policy or hold(expires="1h"))
    async def write_words(ctx: Context, ask: Ask) -> Said | Abstain:
        if ask.abstain:
            return Abstain("not sure what they want")
        for group in ask.groups:
            ctx.effect("paper", target="wall", slot=f"slot-{group}", payload={"text": group}, group=group)
        return Said()

    return app


async def held(one: Road, body: dict[str, Any] | None = None) -> tuple[UUID, list[tuple[UUID, str]]]:
    """Submit, run to the hold, and return the job with its approvals and their digests."""
    job = await one.submit("write_words", body or {}, "k")
    one.start(one.worker())
    await one.until(job.job_id, "awaiting_human", "failed_terminal", "completed")
    rows = await one.database.rows("SELECT approval_id, encode(digest, 'hex') FROM deedbox.approval ORDER BY group_name")
    return job.job_id, [(UUID(str(row[0])), str(row[1])) for row in rows]


async def say(one: Road, approval: tuple[UUID, str], choice: str = "approve", reason: str | None = None) -> str:
    """Decide as the approver."""
    done = await decide(
        one.pool,
        one.ids,
        one.approver,
        approval_id=approval[0],
        digest_hex=approval[1],
        choice=choice,
        reason=reason,
        how="test",
    )
    return done.state


@proves("G-HOLD", "G-OUTBOX-ONLY-GATE")
async def test_an_effect_exists_only_after_a_person_approved(database: TestDatabase) -> None:
    async with road(database, make_app()) as one:
        job_id, approvals = await held(one)
        assert await database.value("SELECT count(*) FROM deedbox.effect") == 0
        assert await database.value("SELECT count(*) FROM deedbox.result") == 0
        assert await say(one, approvals[0]) == "approved"
        assert await one.state(job_id) == "dispatching"
        assert await database.value("SELECT count(*) FROM deedbox.effect WHERE state = 'pending'") == 1
        types = [kind for _, kind in await one.events(job_id)]
        assert types[-3:] == ["job.awaiting_human", "job.decided", "job.dispatching"]
        assert await database.value("SELECT count(*) FROM deedbox.audit WHERE verb = 'approve'") == 1
        with pytest.raises(Exception, match="unauthorised effect"):
            await database.rows(
                "INSERT INTO deedbox.effect SELECT (jsonb_populate_record(old, jsonb_build_object('effect_id',"
                " gen_random_uuid(), 'slot', 'other', 'digest', '\\x' || repeat('00', 32)))).* FROM deedbox.effect old"
            )


async def test_a_rejection_needs_a_reason_and_ends_the_job(database: TestDatabase) -> None:
    async with road(database, make_app()) as one:
        job_id, approvals = await held(one)
        with pytest.raises(DeedboxError) as refused:
            await say(one, approvals[0], "reject", "  ")
        assert refused.value.problems[0].pointer == "/reason"
        assert await say(one, approvals[0], "reject", "wrong tone") == "rejected"
        assert await one.state(job_id) == "failed_terminal"
        assert await database.value("SELECT code FROM deedbox.result") == "rejected"
        assert await database.value("SELECT count(*) FROM deedbox.effect") == 0


@proves("G-DIGEST")
@pytest.mark.parametrize(
    ("digest", "code"),
    [(None, "invalid_input"), ("", "invalid_input"), ("zz", "invalid_input"), ("00" * 32, "approval_changed")],
)
async def test_a_decision_is_bound_to_what_was_shown(database: TestDatabase, digest: str | None, code: str) -> None:
    async with road(database, make_app()) as one:
        _, approvals = await held(one)
        with pytest.raises(DeedboxError) as refused:
            await decide(
                one.pool,
                one.ids,
                one.approver,
                approval_id=approvals[0][0],
                digest_hex=digest,
                choice="approve",
                reason=None,
                how="t",
            )
        assert refused.value.code == code
        assert await database.value("SELECT count(*) FROM deedbox.vote") == 0


@pytest.mark.parametrize("choice", ["true", "yes", "APPROVE", "1", "approve "])
async def test_only_the_exact_words_decide(database: TestDatabase, choice: str) -> None:
    async with road(database, make_app()) as one:
        _, approvals = await held(one)
        with pytest.raises(DeedboxError) as refused:
            await say(one, approvals[0], choice)
        assert refused.value.code == "invalid_input"


async def test_who_may_not_decide_is_told_why(database: TestDatabase) -> None:
    async with road(database, make_app()) as one:
        _, approvals = await held(one)
        viewer = await principal(database, one.ids, "viewer", "person", "viewer")
        robot = await principal(database, one.ids, "robot", "service", "manager", "admin")
        admin = await principal(database, one.ids, "root", "person", "admin")
        for who, code in ((viewer, "permission_denied"), (robot, "person_required"), (admin, "permission_denied")):
            with pytest.raises(DeedboxError) as refused:
                await decide(
                    one.pool,
                    one.ids,
                    who,
                    approval_id=approvals[0][0],
                    digest_hex=approvals[0][1],
                    choice="approve",
                    reason=None,
                    how="t",
                )
            assert refused.value.code == code
        stranger = one.approver.__class__(one.approver.principal_id, "other", "x", "person", one.approver.roles, "session")
        with pytest.raises(DeedboxError) as refused:
            await decide(
                one.pool,
                one.ids,
                stranger,
                approval_id=approvals[0][0],
                digest_hex=approvals[0][1],
                choice="approve",
                reason=None,
                how="t",
            )
        assert refused.value.code == "not_found"


async def test_whoever_asked_does_not_decide(database: TestDatabase) -> None:
    async with road(database, make_app()) as one:
        one.caller = one.approver
        _, approvals = await held(one)
        with pytest.raises(DeedboxError) as refused:
            await say(one, approvals[0])
        assert refused.value.code == "permission_denied"


@proves("G-ONE-DECISION")
async def test_of_many_decisions_at_once_exactly_one_wins(database: TestDatabase) -> None:
    async with road(database, make_app()) as one:
        job_id, approvals = await held(one)
        people = [await principal(database, one.ids, f"p{number}", "person", "manager") for number in range(6)]

        async def answer(number: int) -> str:
            choice = "approve" if number % 2 else "reject"
            try:
                done = await decide(
                    one.pool,
                    one.ids,
                    people[number],
                    approval_id=approvals[0][0],
                    digest_hex=approvals[0][1],
                    choice=choice,
                    reason="no",
                    how="test",
                )
            except DeedboxError as error:
                return error.code
            return done.state

        answers = await asyncio.gather(*(answer(number) for number in range(6)))
        assert sorted(answers)[:5] == ["already_decided"] * 5
        won = next(answer for answer in answers if answer != "already_decided")
        assert await one.state(job_id) == ("dispatching" if won == "approved" else "failed_terminal")


@proves("G-SILENCE")
async def test_silence_expires_and_never_approves(database: TestDatabase) -> None:
    async with road(database, make_app()) as one:
        job_id, approvals = await held(one)
        await one.stop_all()
        assert await expire_lapsed(one.pool, one.ids) == 0
        await database.shift_clock(3601)
        with pytest.raises(DeedboxError) as refused:
            await say(one, approvals[0])
        assert refused.value.code == "approval_expired"
        assert await expire_lapsed(one.pool, one.ids) == 1
        assert await one.state(job_id) == "failed_terminal"
        assert await database.value("SELECT code FROM deedbox.result") == "approval_expired"
        assert await database.value("SELECT count(*) FROM deedbox.effect") == 0
        with pytest.raises(DeedboxError) as refused:
            await say(one, approvals[0])
        assert refused.value.code == "already_decided"


async def test_groups_are_decided_apart(database: TestDatabase) -> None:
    async with road(database, make_app()) as one:
        job_id, approvals = await held(one, {"groups": ["mail", "note"]})
        assert len(approvals) == 2
        await say(one, approvals[0])
        assert await one.state(job_id) == "awaiting_human"
        assert await database.value("SELECT count(*) FROM deedbox.effect") == 1
        await say(one, approvals[1], "reject", "not this")
        assert await one.state(job_id) == "dispatching"


async def test_two_people_where_the_policy_wants_two(database: TestDatabase) -> None:
    async with road(database, make_app(hold(quorum=2))) as one:
        job_id, approvals = await held(one)
        assert await say(one, approvals[0]) == "pending"
        with pytest.raises(DeedboxError):
            await say(one, approvals[0])
        one.approver = await principal(database, one.ids, "second", "person", "manager")
        assert await say(one, approvals[0]) == "approved"
        assert await one.state(job_id) == "dispatching"


async def test_denied_and_allowed_policies(database: TestDatabase) -> None:
    async with road(database, make_app(deny())) as one:
        job_id, approvals = await held(one)
        assert approvals == []
        assert await one.state(job_id) == "failed_terminal"
        assert await database.value("SELECT code FROM deedbox.result") == "policy_denied"
        assert await database.value("SELECT decision FROM deedbox.verdict") == "deny"


async def test_allow_does_not_let_effects_through(database: TestDatabase) -> None:
    async with road(database, make_app(allow())) as one:
        job_id, approvals = await held(one)
        assert len(approvals) == 1
        assert await one.state(job_id) == "awaiting_human"


async def test_an_abstention_goes_to_a_person(database: TestDatabase) -> None:
    async with road(database, make_app()) as one:
        job_id, approvals = await held(one, {"abstain": True})
        assert len(approvals) == 1
        await say(one, approvals[0])
        assert await one.state(job_id) == "completed"
        assert await database.value("SELECT count(*) FROM deedbox.effect") == 0
