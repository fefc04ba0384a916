"""The gate with rules: what it lets out, what bounds that, and that it is asked once."""

import asyncio
from uuid import UUID

import psycopg
import pytest

from deedbox.dispatch.loop import Dispatcher
from deedbox.gate.weigh import draw
from deedbox.model.lease import Lease
from deedbox.model.policy import Policy, allow, hold, rules
from deedbox.model.rules import Rule
from deedbox.operate.verbs import Verbs
from deedbox.store import places
from deedbox.store.transaction import transaction
from deedbox.sweep.service import Sweep
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import Road, road, until
from tests.ruled import Want, app_with, approvals, ask, bank_of, grounds, said, say, small

pytestmark = pytest.mark.anyio


async def dispatcher(one: Road) -> Dispatcher:
    """A dispatcher that is allowed to send; not running yet."""
    await one.database.rows("UPDATE deedbox.switch SET is_on = true WHERE switch_id = 'acts'")
    return Dispatcher(one.pool, one.ids, one.app.connectors, environment_on=True)


@proves("G-OUTBOX-ONLY-GATE", "G-RULES-FIRST")
async def test_what_a_rule_allows_leaves_by_its_verdict(database: TestDatabase) -> None:
    made = app_with()
    async with road(database, made) as one:
        job_id = await ask(one)
        assert await said(database, job_id) == {"default": ("allow", "small")}
        assert await database.value("SELECT count(*) FROM deedbox.approval") == 0
        rows = await database.rows("SELECT approval_id, verdict_id IS NOT NULL, state FROM deedbox.effect")
        assert rows == [(None, True, "pending")]
        assert [kind for _, kind in await one.events(job_id)] == ["job.queued", "job.started", "job.dispatching"]
        await (await dispatcher(one)).once()
        assert await one.until(job_id, "completed") == "completed"
        assert bank_of(made).sent == ["one"]


async def test_groups_are_decided_each_and_what_is_allowed_leaves_at_once(database: TestDatabase) -> None:
    made = app_with()
    async with road(database, made) as one:
        job_id = await ask(one, Want(slot="a", group="x"), Want(slot="b", group="y", amount=50))
        assert await one.state(job_id) == "awaiting_human"
        assert await said(database, job_id) == {"x": ("allow", "small"), "y": ("hold", "no rule applies")}
        assert list(await approvals(one, job_id)) == ["y"]
        sending = await dispatcher(one)
        await sending.once()
        assert bank_of(made).sent == ["a"]
        # Nothing more is authorised, but something was: the job goes on to what it has done.
        assert await say(one, (await approvals(one, job_id))["y"], "reject") == "rejected"
        assert await one.until(job_id, "completed") == "completed"
        declined = await database.value("SELECT declined FROM deedbox.result WHERE job_id = %s", job_id)
        assert declined == [{"group": "y", "state": "rejected", "reason": "not this"}]


async def test_the_strictest_effect_decides_about_its_group_and_a_denial_about_all(database: TestDatabase) -> None:
    ordered = rules(Rule("never", "deny", "payload.amount > 1000"), small())
    async with road(database, app_with(ordered)) as one:
        mixed = await ask(one, Want(slot="a"), Want(slot="b", amount=50), key="mixed")
        assert await said(database, mixed) == {"default": ("hold", "no rule applies")}
        denied = await ask(one, Want(slot="a", group="x"), Want(slot="b", group="y", amount=2000), key="denied")
        assert await one.state(denied) == "failed_terminal"
        assert await said(database, denied) == {"x": ("hold", "small: another group was denied"), "y": ("deny", "never")}
        assert await database.value("SELECT count(*) FROM deedbox.effect") == 0
        assert await database.value("SELECT message FROM deedbox.result WHERE job_id = %s", denied) == (
            "The policy does not let this action act (never)."
        )
        assert await database.value("SELECT coalesce(sum(used), 0) FROM deedbox.rule_day") == 0


async def test_facts_are_counted_over_the_proposal_and_a_sensitive_input_holds(database: TestDatabase) -> None:
    made = app_with(rules(small(grounds=grounds(most=2))))
    async with road(database, made) as one:
        split = await ask(one, *(Want(slot=f"s{n}", group=f"g{n}") for n in range(3)), key="split")
        assert set((await said(database, split)).values()) == {("hold", "small: more than 2 effects at once")}
        many = await ask(one, Want(to=["a", "b", "c"]), key="many")
        assert (await said(database, many))["default"][1] == "small: more than 2 recipients at once"
        secret = await ask(one, key="secret", iban="an account")
        assert (await said(database, secret))["default"][1] == "small: sensitive fields are not covered"
        cash = await ask(one, Want(kind="money"), key="cash")
        assert (await said(database, cash))["default"][1] == "small: money is not covered"
        assert await database.value("SELECT count(*) FROM deedbox.effect") == 0


@proves("G-GROUNDS")
async def test_after_its_time_a_rule_holds_by_the_databases_clock(database: TestDatabase) -> None:
    later = await database.value("SELECT (deedbox.clock() + interval '1 hour')::text || ':00'")
    async with road(database, app_with(rules(small(grounds=grounds(valid_until=str(later)))))) as one:
        await database.shift_clock(3590)
        assert (await said(database, await ask(one, key="before")))["default"] == ("allow", "small")
        await database.shift_clock(3610)
        assert (await said(database, await ask(one, key="after")))["default"] == ("hold", "small: its validity has ended")


@proves("G-DAY-CEILING")
@pytest.mark.parametrize("first_today", [True, False])
async def test_of_two_admissions_at_once_one_has_the_last_place(database: TestDatabase, *, first_today: bool) -> None:
    made = app_with(rules(small(grounds=grounds(per_day=1))))
    async with road(database, made) as one:
        key = places.Key("default", "refund_customer", "small")
        wanted = [places.Wanted(key, small(grounds=grounds(per_day=1)).identity, "2999-01-01T00:00:00Z")]
        if not first_today:
            async with transaction(one.pool) as earlier:
                await places.lock_days(earlier, wanted)
        async with transaction(one.pool) as rival:
            day = (await places.lock_days(rival, wanted))[key]
            assert day.used == 0
            waits = asyncio.create_task(ask(one))
            blocked = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
                " AND query LIKE '%%rule_day%%'"
            )
            await until(lambda: database.value(blocked), lambda count: count == 1)
            assert not waits.done()
            await places.take(rival, {key: (day.day, 1)})
        job_id = await waits
        assert (await said(database, job_id))["default"] == ("hold", "small: the day's 1 are used up")
        assert await database.value("SELECT used FROM deedbox.rule_day") == 1
        assert await database.value("SELECT wanted FROM deedbox.verdict") == "allow"


@proves("G-DAY-CEILING")
async def test_many_at_once_never_pass_the_ceiling_and_the_next_day_has_its_own(database: TestDatabase) -> None:
    made = app_with(
        rules(small(grounds=grounds(per_day=3)), Rule("other", "allow", "payload.amount <= 30", grounds(per_day=2)))
    )
    async with road(database, made) as one:
        jobs = await asyncio.gather(
            *(one.submit("refund_customer", {"wants": [{"amount": 5 + 20 * (n % 2)}]}, f"k{n}") for n in range(16))
        )
        for name in ("w1", "w2", "w3"):
            one.start(one.worker(name))
        for job in jobs:
            await one.until(job.job_id, "awaiting_human", "dispatching")
        rows = await database.rows("SELECT decision, rule, count(*)::int FROM deedbox.verdict GROUP BY 1, 2 ORDER BY 1, 2")
        assert rows == [
            ("allow", "other", 2),
            ("allow", "small", 3),
            ("hold", "other: the day's 2 are used up", 6),
            ("hold", "small: the day's 3 are used up", 5),
        ]
        await database.shift_clock(86400)
        assert (await said(database, await ask(one, key="tomorrow")))["default"] == ("allow", "small")


@proves("G-SAMPLE-DRAWN-ONCE")
async def test_a_sample_is_drawn_once_for_a_job_and_its_slot(database: TestDatabase) -> None:
    made = app_with(rules(small("sample", share=0.5)))
    async with road(database, made) as one:
        salt = bytes(await database.value("SELECT salt FROM deedbox.draw_salt"))  # pyright: ignore[reportArgumentType]
        version = made.actions["refund_customer"].policy.version
        seen: set[tuple[bool, str]] = set()
        job_id = UUID(int=0)
        for n in range(60):
            if len(seen) == 2 and n > 5:
                break
            job_id = await ask(one, key=f"k{n}")
            drawn = draw(salt, job_id, "one", version) < 0.5
            decision, rule = (await said(database, job_id))["default"]
            assert (decision, rule) == (("hold", "small: drawn") if drawn else ("sample", "small"))
            assert await one.state(job_id) == ("awaiting_human" if drawn else "dispatching")
            seen.add((drawn, decision))
        assert len(seen) == 2
        # Whatever the policy is by now: the version of the first draw stays the job's.
        async with transaction(one.pool) as connection:
            again = await places.draws(connection, {job_id: "another version"})
        assert again[job_id] == places.Draw(salt, version)


async def test_a_share_of_one_draws_all_and_a_draw_is_even() -> None:
    ids = [UUID(int=n) for n in range(4000)]
    drawn = [draw(b"s" * 32, job_id, "one", "v") for job_id in ids]
    assert all(0 <= number < 1 for number in drawn)
    assert 0.45 < sum(number < 0.5 for number in drawn) / len(drawn) < 0.55
    assert drawn[0] != draw(b"t" * 32, ids[0], "one", "v")


@proves("G-GROUNDS")
async def test_below_its_threshold_of_agreement_a_rule_holds_until_persons_agree_again(database: TestDatabase) -> None:
    made = app_with(rules(small("sample", share=1.0, grounds=grounds(threshold=0.6))))
    async with road(database, made) as one:

        async def asked(key: str, choice: str) -> str:
            job_id = await ask(one, key=key)
            rule = (await said(database, job_id))["default"][1]
            await say(one, (await approvals(one, job_id))["default"], choice)
            return rule

        assert await asked("1", "approve") == "small: drawn"
        assert await asked("2", "reject") == "small: drawn"
        assert await asked("3", "approve") == "small: persons agreed with 1 of 2, below 0.6"
        assert await asked("4", "approve") == "small: drawn"
        # A changed rule begins anew: what was said of the other is not its agreement.
        assert await asked("5", "reject") == "small: drawn"


@proves("G-CANCEL-WINDOW")
async def test_a_delayed_effect_leaves_when_its_window_has_passed_and_not_before(database: TestDatabase) -> None:
    made = app_with(rules(small("delay", window="10m")))
    async with road(database, made) as one:
        job_id = await ask(one)
        assert await said(database, job_id) == {"default": ("delay", "small")}
        sending = await dispatcher(one)
        for early in (0, 590, 598):
            await database.shift_clock(early)
            assert await sending.once() == 0
        assert bank_of(made).sent == []
        await database.shift_clock(605)
        assert await sending.once() == 1
        assert bank_of(made).sent == ["one"]
        assert await one.until(job_id, "completed") == "completed"


@proves("G-CANCEL-WINDOW")
@pytest.mark.parametrize("first", ["cancel", "send"])
async def test_cancel_and_send_exclude_each_other(database: TestDatabase, first: str) -> None:
    made = app_with(rules(small("delay", window="10m")))
    async with road(database, made) as one:
        job_id = await ask(one)
        await database.shift_clock(605)
        effect_id = UUID(str(await database.value("SELECT effect_id FROM deedbox.effect")))
        verbs = Verbs(one.pool, one.ids, made.connectors)
        sending = await dispatcher(one)
        if first == "send":
            assert await sending.once() == 1
            with pytest.raises(Exception, match="completed"):
                await verbs.effect_verb(one.approver, effect_id, "cancel", reason="too late")
            assert bank_of(made).sent == ["one"]
            return
        # The cancellation holds its locks while the dispatcher runs at full speed: it passes by.
        async with transaction(one.pool) as rival:
            await rival.execute("SELECT FROM deedbox.queue WHERE job_id = %s FOR UPDATE", [job_id])
            assert await sending.once() == 0
        await verbs.effect_verb(one.approver, effect_id, "cancel", reason="changed my mind")
        assert await sending.once() == 0
        assert bank_of(made).sent == []
        assert await one.state(job_id) == "canceled"


@proves("G-CANCEL-WINDOW")
async def test_the_schema_refuses_what_a_verdict_does_not_let_out_yet(database: TestDatabase) -> None:
    async with road(database, app_with(rules(small("delay", window="10m")))) as one:
        await ask(one)
        early = (
            "INSERT INTO deedbox.effect SELECT (jsonb_populate_record(old, jsonb_build_object('effect_id', gen_random_uuid(),"
            " 'slot', 'other', 'not_before', deedbox.clock()))).* FROM deedbox.effect old"
        )
        with pytest.raises(psycopg.Error, match="or not yet"):
            await database.rows(early)
        with pytest.raises(psycopg.Error, match="verdict_drawn"):
            await database.rows("UPDATE deedbox.verdict SET decision = 'sample'")


async def test_decided_is_decided_whatever_the_policy_says_later(database: TestDatabase) -> None:
    lenient = app_with()
    async with road(database, lenient) as one:
        job_id = await ask(one)
        version = await database.value("SELECT policy_version FROM deedbox.proposal WHERE job_id = %s", job_id)
        assert version == lenient.actions["refund_customer"].policy.version
        await one.stop_all()
        # Another build of the application, that would hold it, dispatches what was authorised and asks nothing again.
        strict = app_with(hold())
        await database.rows("UPDATE deedbox.switch SET is_on = true WHERE switch_id = 'acts'")
        await Dispatcher(one.pool, one.ids, strict.connectors, environment_on=True).once()
        assert bank_of(strict).sent == ["one"]
        assert await database.value("SELECT count(*) FROM deedbox.verdict") == 1


@proves("G-RULE-FAILS-HOLDS")
async def test_a_truthy_word_is_no_yes(database: TestDatabase) -> None:
    vip = Rule("vip", "allow", "payload.vip", grounds())
    async with road(database, app_with(rules(vip))) as one:
        for key, value in (("word", "yes"), ("one", 1), ("list", [1])):
            assert (await said(database, await ask(one, Want(vip=value), key=key)))["default"] == (
                "hold",
                "vip: failed to evaluate (neither true nor false)",
            )
        assert (await said(database, await ask(one, Want(vip=True), key="true")))["default"] == ("allow", "vip")


@proves("G-AFTER")
async def test_what_waits_for_a_slot_of_another_group_leaves_after_it(database: TestDatabase) -> None:
    made = app_with()
    async with road(database, made) as one:
        job_id = await ask(one, Want(slot="first", group="x", amount=50), Want(slot="then", group="y", after="first"))
        sending = await dispatcher(one)
        assert await sending.once() == 0
        assert await say(one, (await approvals(one, job_id))["x"]) == "approved"
        assert await sending.once() == 1
        assert await sending.once() == 1
        assert bank_of(made).sent == ["first", "then"]
        assert await one.until(job_id, "completed") == "completed"


@proves("G-AFTER")
async def test_what_waits_for_a_slot_that_a_person_declined_is_canceled(database: TestDatabase) -> None:
    made = app_with()
    async with road(database, made) as one:
        job_id = await ask(one, Want(slot="first", group="x", amount=50), Want(slot="then", group="y", after="first"))
        await say(one, (await approvals(one, job_id))["x"], "reject")
        assert await (await dispatcher(one)).once() == 0
        await Sweep(one.pool, one.ids, Lease(2.0)).round()
        assert await one.state(job_id) == "canceled"
        assert bank_of(made).sent == []


async def test_an_after_that_is_not_planned_is_a_bug(database: TestDatabase) -> None:
    async with road(database, app_with()) as one:
        job_id = await ask(one, Want(slot="then", after="first"), Want(slot="first"))
        assert await database.value("SELECT code FROM deedbox.result WHERE job_id = %s", job_id) == "bad_after"


@pytest.mark.parametrize("policy", [hold(), allow()])
async def test_a_plain_policy_asks_nothing_more_of_the_database(database: TestDatabase, policy: Policy) -> None:
    async with road(database, app_with(policy)) as one:
        job_id = await ask(one)
        assert await said(database, job_id) == {"default": ("hold", policy.rule)}
        assert await database.value("SELECT count(*) FROM deedbox.rule_day") == 0
