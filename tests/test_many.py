"""Many calls at once: one commit for hundreds of them, and each with an answer of its own."""

import asyncio

import pytest
from pydantic import BaseModel

from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.intake.gathered import MANY
from deedbox.intake.request import Accepted, Request
from deedbox.model.errors import DeedboxError
from deedbox.model.policy import allow
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import Road, road, until

pytestmark = pytest.mark.anyio


class Note(BaseModel):
    number: int


def notes() -> App:
    app = App()

    @app.action(roles=["operator"], policy=allow())
    async def take_note(_ctx: Context, note: Note) -> Note:
        return note

    return app


def call(one: Road, number: int, key: str, action: str = "take_note") -> Request:
    return Request(one.caller, action, {"number": number}, key, "http")


@proves("G-ACCEPT-ONCE")
async def test_each_of_many_is_answered_as_if_it_had_come_alone(database: TestDatabase) -> None:
    async with road(database, notes()) as one:
        earlier = await one.intake.submit(call(one, 3, "k3"))
        calls = [call(one, number, f"k{number}") for number in range(2 * MANY + 7)]
        # The same key twice, with the same and with another payload; an input that does not fit; an action there is not.
        calls += [call(one, 5, "k5"), call(one, 6, "k7"), Request(one.caller, "take_note", {"number": "x"}, "kx", "http")]
        calls.append(call(one, 1, "ky", "do_nothing"))
        answers = await one.intake.submit_many(calls)
        assert len(answers) == len(calls)
        *plain, again, reused, unfit, unknown = answers
        for number, answer in enumerate(plain):
            assert isinstance(answer, Accepted)
            assert answer.replayed == (number == 3)
        assert plain[3] == Accepted(earlier.job_id, "queued", replayed=True)
        assert isinstance(again, Accepted)
        assert isinstance(plain[5], Accepted)
        assert (again.job_id, again.replayed) == (plain[5].job_id, True)
        refused = [error.code for error in (reused, unfit, unknown) if isinstance(error, DeedboxError)]
        assert refused == ["key_reused", "invalid_input", "not_found"]
        assert await database.value("SELECT count(*) FROM deedbox.job") == len(plain)
        stored = await database.rows(
            "SELECT idempotency_key, input ->> 'number' FROM deedbox.job JOIN deedbox.job_payload USING (job_id)"
        )
        assert {(f"k{number}", str(number)) for number in range(len(plain))} == {tuple(row) for row in stored}
        told = await database.rows("SELECT status, error_code FROM deedbox.call ORDER BY 1, 2")
        assert [tuple(row) for row in told] == [
            ("refused", "invalid_input"),
            ("refused", "key_reused"),
            ("refused", "not_found"),
            ("replayed", None),
            ("replayed", None),
        ]


async def test_two_who_bring_the_same_many_make_each_once(database: TestDatabase) -> None:
    async with road(database, notes()) as one:
        calls = [call(one, number, f"k{number}") for number in range(MANY)]
        both = await asyncio.gather(one.intake.submit_many(calls), one.intake.submit_many(list(reversed(calls))))
        first, second = ([answer for answer in answers if isinstance(answer, Accepted)] for answers in both)
        assert [answer.job_id for answer in first] == [answer.job_id for answer in reversed(second)]
        assert sum(not answer.replayed for answer in first + second) == MANY


async def test_what_one_of_many_waits_for_holds_up_that_one_alone(database: TestDatabase) -> None:
    async with road(database, notes()) as one, one.pool.connection() as rival:
        await one.intake.submit(call(one, 0, "k0"))
        async with rival.transaction(force_rollback=True):
            await rival.execute(
                "INSERT INTO deedbox.idempotency (tenant, action, key_sha256, job_id, payload_sha256) "
                "SELECT 'default', 'take_note', sha256('k1'), gen_random_uuid(), sha256('x')"
            )
            calls = [call(one, number, f"k{number}") for number in range(20)]
            under_way = asyncio.create_task(one.intake.submit_many(calls))
            await until(lambda: database.value("SELECT count(*) FROM deedbox.job"), lambda count: count == 19)
            assert not under_way.done()
        answers = await under_way
        assert [isinstance(answer, Accepted) for answer in answers] == [True] * 20
