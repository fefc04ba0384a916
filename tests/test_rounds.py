"""Running again, by its three rules: what is parked is taken up, what ended never is, and a correction is a job of its own."""

from uuid import UUID, uuid4

import pytest
from pydantic import BaseModel

from deedbox.dispatch.loop import Dispatcher
from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.gate.decide import decide
from deedbox.intake.request import Request
from deedbox.model.backoff import Retry
from deedbox.model.errors import DeedboxError
from deedbox.model.failure import ActionFailure
from deedbox.model.lease import Lease
from deedbox.model.policy import allow
from deedbox.operate.rounds import Rounds
from deedbox.store import switch
from deedbox.store.transaction import transaction
from deedbox.sweep.service import Sweep
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import Road, road
from tests.test_gate import held, make_app

pytestmark = pytest.mark.anyio
LONG_AGO, FAR_AWAY = "2020-01-01T00:00:00+00:00", "2999-01-01T00:00:00+00:00"


class Ask(BaseModel):
    text: str = ""


class Said(BaseModel):
    text: str


class Script:
    """An application whose provider is down until it is told otherwise."""

    def __init__(self) -> None:
        self.down = True
        self.app = App()
        self.runs = 0

        @self.app.action(roles=["operator"], policy=allow(), retry=Retry(attempts=1))
        async def ask_provider(_ctx: Context, given: Ask) -> Said:
            self.runs += 1
            if self.down:
                raise ActionFailure("overloaded", "provider_down", "The provider is down.")
            return Said(text=given.text)

        @self.app.action(roles=["operator"], policy=allow(), again=["manager"])
        async def ask_guarded(_ctx: Context, given: Ask) -> Said:
            return Said(text=given.text)

        assert len(self.app.actions) == 2, (ask_provider, ask_guarded)


async def parked(one: Road, key: str = "k") -> UUID:
    job_id = (await one.submit("ask_provider", {"text": "a"}, key)).job_id
    one.start(one.worker())
    await one.until(job_id, "failed_retryable")
    return job_id


def rounds_of(one: Road) -> Rounds:
    return Rounds(one.pool, one.ids, one.app.actions, one.intake)


@proves("G-TAKE-UP")
async def test_an_operator_takes_up_a_parked_job_in_a_new_round(database: TestDatabase) -> None:
    script = Script()
    async with road(database, script.app) as one:
        job_id = await parked(one)
        script.down = False
        assert await rounds_of(one).take_up(one.caller, job_id, "The provider is back.") == 2
        await one.until(job_id, "completed")
        types = [kind for _, kind in await one.events(job_id)]
        assert types == [
            "job.queued",
            "job.started",
            "job.failed",
            "job.queued",
            "job.started",
            "job.completed",
        ]
        rows = await database.rows("SELECT round, attempt, attempts_allowed FROM deedbox.result WHERE job_id = %s", job_id)
        assert rows == [(2, 2, 2)]
        assert [seq for seq, _ in await one.events(job_id)] == list(range(1, 7))
        verbs = await database.rows("SELECT verb FROM deedbox.audit WHERE verb = 'take_up'")
        assert len(verbs) == 1


@pytest.mark.parametrize("state", ["queued", "completed", "failed_terminal"])
async def test_what_is_not_parked_is_not_taken_up_and_the_refusal_says_its_state(database: TestDatabase, state: str) -> None:
    script = Script()
    async with road(database, script.app) as one:
        if state == "queued":
            job_id = (await one.submit("ask_provider", {}, "k")).job_id
        else:
            job_id = await parked(one)
            if state == "completed":
                script.down = False
                await rounds_of(one).take_up(one.caller, job_id, "again")
                await one.until(job_id, "completed")
            else:
                await rounds_of(one).close(one.caller, job_id, "Not wanted any more.")
        with pytest.raises(DeedboxError, match=f"The job is {state}") as refused:
            await rounds_of(one).take_up(one.caller, job_id, "again")
        assert refused.value.code == "illegal_move"
        assert "Only a parked job" in refused.value.detail


@proves("G-TAKE-UP")
async def test_a_repeated_delivery_takes_up_after_its_wait_and_three_times_at_most(database: TestDatabase) -> None:
    script = Script()
    async with road(database, script.app) as one:
        job_id = await parked(one)
        early = await one.submit("ask_provider", {"text": "a"}, "k")
        assert (early.job_id, early.state, early.taken_up) == (job_id, "failed_retryable", False)
        for number in range(1, 5):
            await database.shift_clock(301.0 * number)
            again = await one.submit("ask_provider", {"text": "a"}, "k")
            assert (again.job_id, again.taken_up, again.replayed) == (job_id, number <= 3, True)
            if again.taken_up:
                await one.until(job_id, "queued", "running", "failed_retryable")
                await one.until(job_id, "failed_retryable")
        assert script.runs == 4
        # An operator is not bound by what callers have used up.
        assert await rounds_of(one).take_up(one.caller, job_id, "again") == 5


async def test_another_payload_under_the_key_of_a_parked_job_starts_nothing(database: TestDatabase) -> None:
    script = Script()
    async with road(database, script.app) as one:
        job_id = await parked(one)
        await database.shift_clock(400)
        with pytest.raises(DeedboxError) as refused:
            await one.submit("ask_provider", {"text": "b"}, "k")
        assert refused.value.code == "key_reused"
        assert await one.state(job_id) == "failed_retryable"


@proves("G-ONE-ENDING-EVENT")
async def test_a_parked_job_that_is_closed_or_canceled_ends_in_a_round_of_its_own(database: TestDatabase) -> None:
    script = Script()
    async with road(database, script.app) as one:
        job_id = await parked(one)
        await rounds_of(one).close(one.caller, job_id, "Not wanted any more.")
        rows = await database.rows(
            "SELECT round, count(*) FROM deedbox.event WHERE job_id = %s"
            " AND type IN ('job.completed', 'job.failed', 'job.canceled') GROUP BY round ORDER BY round",
            job_id,
        )
        assert rows == [(1, 1), (2, 1)]
        assert await database.rows("SELECT state, code FROM deedbox.result WHERE job_id = %s", job_id) == [
            ("failed_terminal", "closed")
        ]
        with pytest.raises(DeedboxError, match="The job is failed_terminal"):
            await rounds_of(one).close(one.caller, job_id, "twice")


@proves("G-REPLACEMENT")
@pytest.mark.parametrize("key", ["k", "k-2", "k2"])
async def test_a_key_made_from_the_old_one_is_refused(database: TestDatabase, key: str) -> None:
    script = Script()
    script.down = False
    async with road(database, script.app) as one:
        job_id = (await one.submit("ask_provider", {}, "k")).job_id
        one.start(one.worker())
        await one.until(job_id, "completed")
        with pytest.raises(DeedboxError) as refused:
            await rounds_of(one).replace(one.caller, job_id, {"text": "b"}, key, "A typo.")
        assert refused.value.code == "key_invalid"
        assert refused.value.problems[0].pointer == "/key"
        assert await database.value("SELECT count(*) FROM deedbox.job") == 1


@proves("G-REPLACEMENT")
async def test_a_correction_is_linked_both_ways_and_its_key_replays(database: TestDatabase) -> None:
    script = Script()
    script.down = False
    async with road(database, script.app) as one:
        job_id = (await one.submit("ask_provider", {}, "old")).job_id
        one.start(one.worker())
        with pytest.raises(DeedboxError) as early:
            await rounds_of(one).replace(one.caller, uuid4(), {}, "new", "No such job.")
        assert early.value.code == "not_found"
        await one.until(job_id, "completed")
        new = await rounds_of(one).replace(one.caller, job_id, {"text": "b"}, "new", "A typo.")
        again = await rounds_of(one).replace(one.caller, job_id, {"text": "b"}, "new", "A typo.")
        assert (again.job_id, again.replayed, new.replayed) == (new.job_id, True, False)
        assert await database.value("SELECT replaces FROM deedbox.job WHERE job_id = %s", new.job_id) == job_id
        assert await database.value("SELECT count(*) FROM deedbox.audit WHERE verb = 'replace'") == 1


async def test_an_action_may_narrow_who_runs_its_jobs_again(database: TestDatabase) -> None:
    script = Script()
    async with road(database, script.app) as one:
        job_id = (await one.submit("ask_guarded", {}, "k")).job_id
        with pytest.raises(DeedboxError) as refused:
            await rounds_of(one).take_up(one.caller, job_id, "again")
        assert refused.value.code == "permission_denied"
        with pytest.raises(DeedboxError) as state:
            await rounds_of(one).take_up(one.approver, job_id, "again")
        assert state.value.code == "illegal_move"


@proves("G-DEADLINE")
async def test_a_deadline_cancels_what_waits_and_stops_what_runs(database: TestDatabase) -> None:
    script = Script()
    async with road(database, script.app) as one:
        late = await one.intake.submit(Request(one.caller, "ask_provider", {}, "a", "http", deadline=LONG_AGO))
        kept = await one.intake.submit(Request(one.caller, "ask_provider", {}, "b", "http", deadline=FAR_AWAY))
        await Sweep(one.pool, one.ids, Lease(2.0)).round()
        assert await one.state(late.job_id) == "canceled"
        assert await one.state(kept.job_id) == "queued"
        rows = await database.rows("SELECT message FROM deedbox.result WHERE job_id = %s", late.job_id)
        assert rows == [("Its deadline has passed.",)]


@proves("G-RUN-AT")
async def test_a_job_for_later_waits_and_is_not_in_the_way(database: TestDatabase) -> None:
    script = Script()
    script.down = False
    async with road(database, script.app) as one:
        later = await one.intake.submit(Request(one.caller, "ask_provider", {}, "a", "http", run_at=FAR_AWAY))
        now = await one.submit("ask_provider", {}, "b")
        one.start(one.worker())
        one.start(Sweep(one.pool, one.ids, Lease(2.0)))
        await one.until(now.job_id, "completed")
        assert await one.state(later.job_id) == "queued"
        await database.rows("UPDATE deedbox.queue SET run_at = deedbox.clock() WHERE job_id = %s", later.job_id)
        await one.until(later.job_id, "completed")


@proves("G-NO-SILENT-REPEAT")
async def test_a_replacement_repeats_no_effect_that_nobody_confirmed(database: TestDatabase) -> None:
    app = make_app()
    async with road(database, app) as one:
        async with transaction(one.pool) as connection:
            await switch.turn_root(connection, "acts", is_on=True, changed_by="test", reason="a test")
        job_id, [approval] = await held(one)

        async def approve(which: tuple[UUID, str], *repeat: str) -> str:
            done = await decide(
                one.pool,
                one.ids,
                one.approver,
                approval_id=which[0],
                digest_hex=which[1],
                choice="approve",
                reason=None,
                how="test",
                repeat=repeat,
            )
            return done.state

        assert await approve(approval) == "approved"
        one.start(Dispatcher(one.pool, one.ids, app.connectors, environment_on=True))
        await one.until(job_id, "completed")
        new = await rounds_of(one).replace(one.caller, job_id, {"groups": ["default", "more"]}, "another", "One was missing.")
        await one.until(new.job_id, "awaiting_human")
        rows = await database.rows(
            "SELECT approval_id, encode(digest, 'hex') FROM deedbox.approval WHERE job_id = %s ORDER BY group_name", new.job_id
        )
        default, more = [(UUID(str(row[0])), str(row[1])) for row in rows]
        # A slot that the first job did not have is nothing that could be done twice.
        assert await approve(more) == "approved"
        for named in [(), ("slot-more",), ("",)]:
            with pytest.raises(DeedboxError) as refused:
                await approve(default, *named)
            assert refused.value.code == "repeat_unconfirmed"
            assert "slot-default (completed)" in refused.value.detail
        assert await approve(default, "slot-default") == "approved"
        await one.until(new.job_id, "completed")
