"""Failure classes: the whole matrix for jobs and effects, what an action may say of it, and how long is waited."""

import math
import ssl
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, get_args

import httpx2
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from deedbox.extend.action import RegistrationError
from deedbox.extend.connector import Ambiguous, Outcome, Refused, Transient
from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.model.backoff import Retry
from deedbox.model.failure import MATRIX, ActionFailure, Answer, FailureClass, classify, decide
from deedbox.model.lease import Lease
from deedbox.model.policy import allow, hold
from deedbox.sweep.service import Sweep
from deedbox.worker.loop import Worker, WorkerSettings
from deedbox.worker.model_call import ModelClient, ModelEndpoint, ModelFailure
from deedbox.worker.patience import ENOUGH, WINDOW, Patience
from tests.builders import Planned, outbox_on
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import Poll, Road, road, until
from tests.servers.openai_endpoint import OpenAiEndpoint

pytestmark = pytest.mark.anyio
NO_TRUST = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TWO = Retry(attempts=2, base=0.01, cap=0.05)

# The table of the design, written down a second time: class, job, effect, effect at a native key, whether a person is told.
TABLE: list[tuple[FailureClass, str, str, str, bool]] = [
    ("not_sent", "back_off", "retry", "retry", False),
    ("rate_limited", "back_off", "retry", "retry", False),
    ("overloaded", "back_off", "lose_track", "resend_same_key", False),
    ("invalid_output", "fail", "lose_track", "resend_same_key", True),
    ("truncated", "fail", "lose_track", "resend_same_key", True),
    ("rejected_output", "fail", "lose_track", "resend_same_key", False),
    ("caller_error", "fail", "refuse", "refuse", False),
    ("denied", "fail", "refuse", "refuse", True),
    ("bug", "fail", "lose_track", "resend_same_key", True),
    ("ambiguous", "fail", "lose_track", "resend_same_key", False),
    ("lost", "back_off", "lose_track", "resend_same_key", False),
    ("canceled", "cancel", "lose_track", "resend_same_key", False),
]


class Given(BaseModel):
    """Which class to fail with."""

    name: str = ""


class Done(BaseModel):
    """Nothing of importance."""

    text: str = ""


@proves("G-MATRIX")
def test_every_class_has_one_line_and_it_says_what_the_design_says() -> None:
    assert [row[0] for row in TABLE] == list(get_args(FailureClass)) == list(MATRIX)
    for failure_class, job, effect, with_key, alert in TABLE:
        plain, keyed = decide(failure_class), decide(failure_class, native_key=True)
        assert (plain.job, plain.effect, plain.alert, keyed.effect) == (job, effect, alert, with_key), failure_class
    assert decide("overloaded", not_taken=True).effect == "retry"
    assert decide("ambiguous", not_taken=True).effect == "lose_track"


def failing_app(errors: Mapping[str, Callable[[], BaseException]], **declared: Any) -> App:
    """One action that fails as it is told."""
    app = App()

    async def fail_so(_: Context, given: Given) -> Done:
        error = errors[given.name]()
        raise error

    given: dict[str, Any] = {"policy": allow(), "retry": TWO, **declared}
    app.action(roles=["operator"], key="new", **given)(fail_so)
    return app


async def run_all(one: Road, names: list[str], *ends: str) -> dict[str, tuple[object, ...]]:
    """Run a job for each name to its end: state, class, attempts made and open alerts of each."""
    one.start(one.worker())
    one.start(Sweep(one.pool, one.ids, Lease(2.0)))
    jobs = {name: (await one.submit("fail_so", {"name": name})).job_id for name in names}
    found: dict[str, tuple[object, ...]] = {}
    for name, job_id in jobs.items():
        state = await one.until(job_id, *(ends or ("failed_terminal", "failed_retryable", "canceled")), within=30)
        last = "SELECT class, attempt FROM deedbox.attempt WHERE job_id = %s ORDER BY attempt DESC LIMIT 1"
        alerts = await one.database.rows("SELECT cause FROM deedbox.alert WHERE job_id = %s", job_id)
        found[name] = (state, *(await one.database.rows(last, job_id))[0], [row[0] for row in alerts])
    return found


def _raising(failure_class: FailureClass) -> Callable[[], BaseException]:
    return lambda: ActionFailure(failure_class, "as_told", "It failed as it was told.")


@proves("G-MATRIX", "G-BACKOFF", "G-ALERT")
async def test_the_class_of_a_failure_decides_what_becomes_of_the_job(database: TestDatabase) -> None:
    async with road(database, failing_app({row[0]: _raising(row[0]) for row in TABLE})) as one:
        found = await run_all(one, [row[0] for row in TABLE])
    ends = {"back_off": ("failed_retryable", 2), "fail": ("failed_terminal", 1), "cancel": ("canceled", 1)}
    for failure_class, verb, _, _, alert in TABLE:
        state, attempts = ends[verb]
        told = ["exhausted"] if verb == "back_off" else [failure_class] if alert else []
        assert found[failure_class] == (state, failure_class, attempts, told), failure_class


@proves("G-MATRIX")
@pytest.mark.parametrize(
    ("failure_class", "answer", "state", "attempts"),
    [
        ("bug", "retry_once", "failed_terminal", 2),
        ("overloaded", "fail", "failed_terminal", 1),
        ("rate_limited", "retry_once", "failed_terminal", 2),
        ("caller_error", "retry", "failed_retryable", 4),
        ("ambiguous", "retry_once", "failed_terminal", 2),
        ("invalid_output", "retry_once", "failed_terminal", 2),
        ("rejected_output", "hold", "awaiting_human", 1),
        ("truncated", "hold", "awaiting_human", 1),
    ],
)
async def test_an_action_says_otherwise(
    database: TestDatabase, failure_class: FailureClass, answer: Answer, state: str, attempts: int
) -> None:
    declared: dict[str, Any] = {"policy": hold(), "approvers": ["manager"], "retry": Retry(4, base=0.01, cap=0.05)}
    app = failing_app({"it": _raising(failure_class)}, on_failure={failure_class: answer}, **declared)
    async with road(database, app) as one:
        found = await run_all(one, ["it"], state)
        assert found["it"][0] == state
        assert await database.value("SELECT max(attempt) FROM deedbox.attempt") == attempts
        held = 1 if answer == "hold" else 0
        assert await database.value("SELECT count(*) FROM deedbox.approval WHERE state = 'pending'") == held


async def test_a_bug_that_is_tried_once_more_may_have_been_one_of_the_moment(database: TestDatabase) -> None:
    ends = iter([KeyError("gone"), None])
    app = App()

    @app.action(roles=["operator"], policy=allow(), key="new", retry=TWO, on_failure={"bug": "retry_once"})
    async def fail_so(_: Context, given: Given) -> Done:
        if error := next(ends):
            raise error
        return Done(text=given.name)

    async with road(database, app) as one:
        job = await one.submit("fail_so", {"name": "fine"})
        one.start(one.worker())
        one.start(Sweep(one.pool, one.ids, Lease(2.0)))
        await one.until(job.job_id, "completed")
        assert await database.value("SELECT count(*) FROM deedbox.alert") == 0


@pytest.mark.parametrize(
    ("on_failure", "said"),
    [
        ({"bugg": "fail"}, "is no failure class"),
        ({"bug": "retry"}, "may be retry_once, fail, not 'retry'"),
        ({"overloaded": "ignore"}, "may be retry, retry_once, fail"),
        ({"lost": "fail"}, "is not the action's to decide"),
        ({"canceled": "retry"}, "is not the action's to decide"),
        ({"rejected_output": "hold"}, "approvers must name a role"),
    ],
)
def test_what_an_action_cannot_say_is_refused_where_it_says_it(on_failure: dict[Any, Any], said: str) -> None:
    with pytest.raises(RegistrationError, match=said):
        failing_app({}, on_failure=on_failure)


def _group(*errors: Exception) -> ExceptionGroup[Exception]:
    return ExceptionGroup("of a TaskGroup", [*errors])


def test_a_group_of_failures_is_its_gravest_and_anything_else_in_it_is_a_bug() -> None:
    busy, slow = _raising("overloaded")(), ActionFailure("rate_limited", "slow", "Slow.", retry_after=30)
    denied = _raising("denied")()
    assert isinstance(busy, ActionFailure)
    assert isinstance(denied, ActionFailure)
    assert classify(_group(busy, slow)).retry_after == 30
    assert classify(_group(slow, _group(denied), busy)).failure_class == "denied"
    assert classify(_group(slow, KeyError("k"))).failure_class == "bug"


@proves("G-MATRIX")
async def test_where_a_failure_came_from_decides_and_whatever_it_carries_the_job_ends(database: TestDatabase) -> None:
    odd: Any = "boom"
    wait: Any = "soon"
    errors: dict[str, Callable[[], BaseException]] = {
        "its own database": lambda: psycopg.OperationalError("the handler's own connection"),
        "its own clock": lambda: TimeoutError("the handler's own deadline"),
        "no such class": lambda: ActionFailure(odd, "x", "x"),
        "no characters": lambda: ActionFailure("denied", "a\x00\ud800" * 99, "b\x00\ud800" * 999),
        "no wait": lambda: ActionFailure("rate_limited", "slow", "Slow.", retry_after=wait),
        "nan": lambda: ActionFailure("rate_limited", "slow", "Slow.", retry_after=math.nan),
        "for ever": lambda: ActionFailure("rate_limited", "slow", "Slow.", retry_after=math.inf),
        "before": lambda: ActionFailure("rate_limited", "slow", "Slow.", retry_after=-5),
    }
    async with road(database, failing_app(errors)) as one:
        found = await run_all(one, list(errors))
    classes = {name: row[1] for name, row in found.items()}
    assert classes == dict.fromkeys(list(errors)[:3], "bug") | {"no characters": "denied"} | dict.fromkeys(
        list(errors)[4:], "rate_limited"
    )


ENDS: dict[str, tuple[Outcome, FailureClass]] = {
    "refused connection": (Transient("not_sent", "refused", "Nobody listens.", "connect"), "not_sent"),
    "429": (Transient("rate_limited", "http_429", "Slow down.", "answered", 7.0), "rate_limited"),
    "503": (Ambiguous("http_503", "It is busy.", "answered"), "overloaded"),
    "404": (Refused("caller_error", "http_404", "Not there.", "answered"), "caller_error"),
    "403": (Refused("denied", "http_403", "Not you.", "answered"), "denied"),
    "reset": (Ambiguous("reset", "It was cut off.", "body_sent"), "ambiguous"),
}
BECOMES = {"retry": "pending", "resend_same_key": "pending", "refuse": "failed", "lose_track": "unknown"}


@proves("G-MATRIX")
@pytest.mark.parametrize("native_key", [False, True])
@pytest.mark.parametrize("end", ENDS)
async def test_the_class_of_a_failure_decides_what_becomes_of_an_effect(
    database: TestDatabase, end: str, *, native_key: bool
) -> None:
    outcome, failure_class = ENDS[end]
    async with outbox_on(database) as box:
        if native_key:
            box.connector.can, box.connector.ttl_s = "native_key", 3600.0
        box.connector.script.append(outcome)
        built = await box.build(Planned())
        await box.dispatcher().once()
        expected = BECOMES[decide(failure_class, native_key=native_key).effect]
        assert await box.state(built.effect_id) == expected
        told = {"denied": ["effect_denied"]}.get(failure_class, ["effect_unknown"] if expected == "unknown" else [])
        alerts = await database.rows("SELECT cause FROM deedbox.alert WHERE effect_id = %s", built.effect_id)
        assert [row[0] for row in alerts] == told


@proves("G-MATRIX")
async def test_a_lost_sender_leaves_what_nobody_knows(database: TestDatabase) -> None:
    async with outbox_on(database) as box:
        built = await box.build(Planned())
        assert await box.lease(lease_s=60)
        await database.shift_clock(61)
        await box.rescue()
        assert await box.state(built.effect_id) == BECOMES[decide("lost").effect]


@proves("G-RETRY-AFTER")
@pytest.mark.parametrize(
    ("behaviour", "cap", "wait_ms"),
    [("rate_limited", "5m", 7000), ("rate_limited_date", "5m", 30000), ("rate_limited", 2, 2000)],
)
async def test_the_providers_wait_is_kept_within_the_actions_cap(
    database: TestDatabase, behaviour: str, cap: str | float, wait_ms: int
) -> None:
    app = App()

    @app.action(roles=["operator"], policy=allow(), key="new", retry=Retry(attempts=3, base=1, cap=cap))
    async def ask_model(ctx: Context, _: Given) -> Done:
        return await ctx.model(Done, "What is it?")

    async def waited(one: Road) -> object:
        return await one.database.value(
            "SELECT max((payload->>'next_attempt_in_ms')::int) FROM deedbox.event WHERE type = 'job.retrying'"
        )

    async def story(client: ModelClient) -> None:
        async with road(database, app) as one:
            job = await one.submit("ask_model", {})
            one.start(_worker(one, client))
            await one.until(job.job_id, "queued")
            assert await until(lambda: waited(one), bool) == wait_ms
            row = "SELECT due, extract(epoch FROM run_at - deedbox.clock())::float8 FROM deedbox.queue"
            (due, left) = (await database.rows(row))[0]
            assert isinstance(left, float)
            assert (due, left <= wait_ms / 1000) == (False, True)

    with OpenAiEndpoint([behaviour], valid={"text": "fine"}) as server:
        await with_client(ModelEndpoint(server.base_url, None, "tiny"), story)


def _worker(one: Road, models: ModelClient) -> Worker:
    settings = WorkerSettings(name="w", build="test", slots=1, poll_s=0.05)
    return Worker(
        url=one.database.url,
        pool=one.pool,
        ids=one.ids,
        app=one.app,
        lease=Lease(2.0),
        settings=settings,
        wake=Poll(),
        models=models,
    )


async def with_client(endpoint: ModelEndpoint, story: Callable[[ModelClient], Coroutine[Any, Any, None]]) -> None:
    """Run a story with a client of its own."""
    client = ModelClient(endpoint, httpx2.AsyncClient(trust_env=False, verify=NO_TRUST))
    try:
        await story(client)
    finally:
        await client.aclose()


@given(st.integers(1, 100), st.none() | st.floats())
def test_a_wait_is_never_above_the_cap_and_never_below_what_was_asked(attempt: int, asked: float | None) -> None:
    retry = Retry(base=1, cap=300)
    wait = retry.delay(attempt, retry_after=asked)
    assert 0 <= wait <= 300
    if asked is not None and math.isfinite(asked):
        assert wait >= min(asked, 300)


def test_the_patience_with_an_endpoint_follows_what_it_takes_within_bounds() -> None:
    def measured(*took: float, most: float = 60.0, least: float = 5.0) -> float:
        patience = Patience(most, least)
        for seconds in took:
            patience.took(time.monotonic() - seconds)
        return patience.limit_s

    assert measured(*[4.0] * (ENOUGH - 1)) == 60.0
    assert measured(*[4.0] * ENOUGH) == pytest.approx(12.0, abs=0.1)
    assert measured(*[0.01] * ENOUGH) == 5.0
    assert measured(*[50.0] * ENOUGH) == 60.0
    assert measured(*[0.01] * ENOUGH, most=2.0) == 2.0
    # All but one in a hundred, and only the last ones.
    assert measured(*[4.0] * 99, 19.0) == pytest.approx(12.0, abs=0.1)
    assert measured(*[19.0] * 50, *[4.0] * WINDOW) == pytest.approx(12.0, abs=0.1)


async def test_a_model_that_hangs_is_given_up_by_what_was_measured_of_it() -> None:
    async def story(client: ModelClient) -> None:
        for _ in range(ENOUGH):
            await client.call(Done, "What is it?")
        started = time.monotonic()
        with pytest.raises(ModelFailure, match="in time"):
            await client.call(Done, "What is it?")
        assert time.monotonic() - started < 30

    with OpenAiEndpoint(["valid"] * ENOUGH + ["hang"], valid={"text": "fine"}) as server:
        await with_client(ModelEndpoint(server.base_url, None, "tiny", timeout_s=300.0, least_timeout_s=0.3), story)
