"""Several endpoints, drafts while an answer comes, and what it all cost: through a real worker against a real local server."""

import asyncio
import json
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any, cast

import pytest
from pydantic import BaseModel, SecretStr, ValidationError

from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.extend.sensitive import Sensitive
from deedbox.model.backoff import Retry
from deedbox.model.errors import DeedboxError
from deedbox.model.failure import ActionFailure
from deedbox.model.policy import allow
from deedbox.operate.report import Reports
from deedbox.settings import Settings
from deedbox.store import model_calls
from deedbox.store.transaction import autocommit
from deedbox.worker.model_answer import read_draft
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.modelled import KEY, asking, endpoint, start
from tests.road import road, until
from tests.servers.openai_endpoint import OpenAiEndpoint, Reply

pytestmark = pytest.mark.anyio
FEW = Retry(attempts=3, base=0.01, cap=0.05)
PRICED = {"input_price": Decimal(3), "output_price": Decimal(15)}
LONG = {"priority": "high", "subject": "Fridge", "body": "It hums. " * 40}


class Given(BaseModel):
    text: str = "What is it?"
    endpoint: str | None = None


class Draft(BaseModel):
    priority: str = "low"
    subject: str = ""
    body: str = ""


class Card(BaseModel):
    """An answer with something in it that is not for everybody."""

    subject: str = ""
    iban: Annotated[str, Sensitive()] = ""
    body: str = ""


def make_app(*, draft: bool = False, fails: int = 0, in_step: bool = False) -> App:
    app = App()

    @app.action(roles=["operator"], policy=allow(), key="new", retry=FEW)
    async def draft_reply(ctx: Context, given: Given) -> Draft:
        """Draft a reply."""

        async def ask() -> Draft:
            return await ctx.model(Draft, given.text, endpoint=given.endpoint, draft=draft, prompt_version="p7")

        answer = await ctx.step("draft", ask) if in_step else await ask()
        if ctx.attempt <= fails:
            raise ActionFailure("overloaded", "crm_busy", "The CRM is busy.")
        return answer

    @app.action(roles=["operator"], policy=allow(), key="new", retry=FEW)
    async def draft_card(ctx: Context, given: Given) -> Card:
        """Draft a card."""
        return await ctx.model(Card, given.text, draft=True)

    assert len(app.actions) == 2, (draft_reply, draft_card)
    return app


async def calls(database: TestDatabase) -> list[dict[str, Any]]:
    rows = await database.rows("SELECT to_jsonb(m) FROM deedbox.model_call m ORDER BY called_at, call_id")
    return [dict(row[0]) for row in rows]  # type: ignore[call-overload]


@proves("G-MODEL-JOURNAL")
async def test_every_question_is_kept_with_tokens_and_cost_also_those_that_failed(database: TestDatabase) -> None:
    script = [500, "prose", Reply(json.dumps(LONG), usage=(1_000_000, 200_000))]
    with OpenAiEndpoint(script, valid=LONG) as server:
        async with asking(endpoint(server.base_url, currency="EUR", **PRICED)) as client, road(database, make_app()) as one:
            job = await one.submit("draft_reply", {})
            start(one, client)
            await one.until(job.job_id, "completed", within=30)
    first, second = await calls(database)
    assert (first["code"], first["requests"], first["input_tokens"], Decimal(str(first["cost"]))) == (
        "model_overloaded",
        1,
        0,
        0,
    )
    assert (second["code"], second["requests"], second["repairs"], second["currency"]) == (None, 2, 1, "EUR")
    # 1,000,011 tokens in at 3 the million, 200,005 out at 15.
    assert Decimal(str(second["cost"])) == Decimal("3.000033") + Decimal("3.000075")
    assert (second["part"], second["endpoint"], second["model"]) == ("model", "default", "tiny-instruct-1")
    assert first["attempt_id"] != second["attempt_id"]
    kept = await database.rows("SELECT prompt_version, model FROM deedbox.attempt WHERE report = 'ended' ORDER BY attempt")
    assert [row[0] for row in kept] == ["p7", "p7"], "an attempt that failed says it too"
    assert all(row[1][0]["prompt_version"] == "p7" for row in kept)  # type: ignore[index]
    texts = json.dumps([first, second])
    assert "What is it" not in texts
    assert KEY not in texts


async def test_without_a_price_the_cost_is_unknown_and_not_nothing(database: TestDatabase) -> None:
    with OpenAiEndpoint(["valid"], valid=LONG) as server:
        async with asking(endpoint(server.base_url)) as client, road(database, make_app()) as one:
            job = await one.submit("draft_reply", {})
            start(one, client)
            await one.until(job.job_id, "completed", within=30)
    (only,) = await calls(database)
    assert (only["cost"], only["currency"], only["input_tokens"]) == (None, None, 11)


@proves("G-MODEL-FALLBACK")
@pytest.mark.parametrize("away", [500, "rate_limited", "hang", "drop", "not_json"])
async def test_a_declared_fallback_is_asked_while_the_first_is_away(database: TestDatabase, away: str | int) -> None:
    with OpenAiEndpoint([away], valid=LONG) as first, OpenAiEndpoint(["valid"], valid=LONG) as second:
        ends = endpoint(first.base_url, timeout_s=0.5, name="big"), endpoint(second.base_url, api_key=None, name="local")
        async with asking(*ends, fallback={"big": ["local"]}) as client, road(database, make_app()) as one:
            job = await one.submit("draft_reply", {})
            start(one, client)
            await one.until(job.job_id, "completed", within=30)
    assert [(call["endpoint"], call["code"] is None) for call in await calls(database)] == [("big", False), ("local", True)]
    assert len(first.requests) == len(second.requests) == 1
    assert "authorization" not in second.requests[0].headers


@proves("G-MODEL-FALLBACK")
@pytest.mark.parametrize(("end", "declared"), [(500, False), (401, True), (400, True), ("refusal", True)])
async def test_no_other_endpoint_is_asked_unless_it_is_declared_and_the_first_is_away(
    database: TestDatabase, end: str | int, declared: bool
) -> None:
    with OpenAiEndpoint([end], valid=LONG) as first, OpenAiEndpoint(["valid"], valid=LONG) as second:
        ends = endpoint(first.base_url, name="big"), endpoint(second.base_url, name="local")
        fallback = {"big": ["local"]} if declared else {}
        async with asking(*ends, fallback=fallback) as client, road(database, make_app()) as one:
            job = await one.submit("draft_reply", {})
            start(one, client)
            await one.until(job.job_id, "failed_terminal", "failed_retryable", within=30)
    assert second.requests == []


async def test_an_endpoint_is_asked_by_its_name_with_its_own_key(database: TestDatabase) -> None:
    with OpenAiEndpoint(["valid"], valid=LONG) as first, OpenAiEndpoint(["valid"], valid=LONG) as second:
        other = endpoint(second.base_url, name="hermes", api_key=SecretStr("hermes-key"), send_key=True)
        async with asking(endpoint(first.base_url), other) as client, road(database, make_app(fails=1)) as one:
            job = await one.submit("draft_reply", {"endpoint": "hermes"})
            start(one, client)
            await one.until(job.job_id, "completed", within=30)
            with pytest.raises(ActionFailure, match="No model endpoint 'nowhere'"):
                client.chain("nowhere")
    assert first.requests == []
    asked, again = second.requests
    assert asked.headers["authorization"] == "Bearer hermes-key"
    # The same question of the same job has the same key: a server that is an agent itself does not do it twice.
    assert asked.headers["idempotency-key"] == again.headers["idempotency-key"]


async def test_no_more_requests_are_under_way_than_the_endpoint_takes(database: TestDatabase) -> None:
    with OpenAiEndpoint([Reply(json.dumps(LONG), wait_s=0.05)], valid=LONG) as server:
        async with asking(endpoint(server.base_url, at_once=2)) as client, road(database, make_app()) as one:
            jobs = [await one.submit("draft_reply", {"text": f"{number}"}) for number in range(6)]
            start(one, client, slots=6)
            for job in jobs:
                await one.until(job.job_id, "completed", within=30)
    assert server.most_at_once == 2


@proves("G-MODEL-DRAFT")
async def test_an_answer_is_shown_as_a_draft_while_it_comes(database: TestDatabase) -> None:
    with OpenAiEndpoint([Reply(json.dumps(LONG), pieces=6)], valid=LONG) as server:
        server.let_on.clear()
        async with asking(endpoint(server.base_url)) as client, road(database, make_app(draft=True)) as one:
            job = await one.submit("draft_reply", {})
            start(one, client)
            await until(lambda: asyncio.sleep(0, len(server.requests)), lambda count: count == 1)
            server.let_through(3)
            partials = "SELECT payload FROM deedbox.event WHERE type = 'job.partial' ORDER BY seq"
            (shown,) = [row[0] for row in await until(lambda: database.rows(partials), bool)]
            assert await one.state(job.job_id) == "running"
            server.let_on.set()
            await one.until(job.job_id, "completed", within=30)
    shown = cast("dict[str, Any]", shown)
    assert shown["draft"] is True
    value: dict[str, str] = shown["value"]
    assert value
    assert all(LONG[name].startswith(text) for name, text in value.items())
    assert server.requests[0].streamed
    (only,) = await calls(database)
    assert (only["input_tokens"], only["output_tokens"]) == (11, 5)


@proves("G-MODEL-DRAFT")
async def test_a_later_attempt_repeats_no_draft(database: TestDatabase) -> None:
    with OpenAiEndpoint([Reply(json.dumps(LONG), pieces=1)], valid=LONG) as server:
        async with asking(endpoint(server.base_url)) as client, road(database, make_app(draft=True, fails=2)) as one:
            job = await one.submit("draft_reply", {})
            start(one, client)
            await one.until(job.job_id, "completed", within=30)
            kinds = [kind for _, kind in await one.events(job.job_id)]
    assert len(server.requests) == 3
    assert kinds.count("job.partial") == 1
    assert kinds.count("job.started") == 3


async def test_a_stream_that_breaks_off_is_classified_and_asked_again(database: TestDatabase) -> None:
    with OpenAiEndpoint([Reply(json.dumps(LONG), cut_stream=True), "valid"], valid=LONG) as server:
        async with asking(endpoint(server.base_url, repairs=0)) as client, road(database, make_app(draft=True)) as one:
            job = await one.submit("draft_reply", {})
            start(one, client)
            state = await one.until(job.job_id, "completed", "failed_terminal", within=30)
            rows = await database.rows("SELECT class, code FROM deedbox.attempt WHERE move = 'back_off'")
    assert (state, rows) == ("completed", [("overloaded", "model_bad_response")])


async def test_what_is_sensitive_in_an_answer_is_in_no_draft(database: TestDatabase) -> None:
    card = {"subject": "Refund", "iban": "DE02120300000000202051", "body": "word " * 60}
    with OpenAiEndpoint([Reply(json.dumps(card), pieces=2)], valid=card) as server:
        async with asking(endpoint(server.base_url)) as client, road(database, make_app()) as one:
            job = await one.submit("draft_card", {})
            start(one, client)
            await one.until(job.job_id, "completed", within=30)
    shown = await database.rows("SELECT payload::text FROM deedbox.event WHERE type = 'job.partial'")
    assert shown
    assert all("DE021203" not in str(row[0]) for row in shown)


@pytest.mark.parametrize(
    ("text", "whole", "found"),
    [
        ('{"a": "one", "b": "two and a half' + "x" * 60, False, {"a": "one", "b": "two and a half" + "x" * 20}),
        ('{"a": "one", "b": "two and a half' + "x" * 60, True, {"a": "one"}),
        ('<think>{"a": 1}' + "x" * 60, False, None),
        ('<think>no</think>```json\n{"a": 1, ' + " " * 60, False, {"a": 1}),
        ("words without an object" + "x" * 60, False, None),
        ("{" + " " * 60, False, None),
        ('{"a": nonsense' + "x" * 60, False, None),
    ],
)
async def test_a_draft_is_read_as_far_as_it_can_be(text: str, whole: bool, found: dict[str, Any] | None) -> None:
    assert read_draft(text, whole_texts=whole) == found


@pytest.mark.parametrize(
    ("models", "says"),
    [
        ([{"name": "a", "base_url": "http://x/v1", "model": "m"}] * 2, "two endpoints"),
        ([{"name": "a", "base_url": "http://x/v1", "model": "m", "fallback": ["b"]}], "no endpoint"),
        ([{"name": "a", "base_url": "http://x/v1", "model": "m", "fallback": ["a"]}], "names other"),
        ([{"name": "A b", "base_url": "http://x/v1", "model": "m"}], "lower-case"),
        ([{"name": "a", "base_url": "http://x/v1", "model": "m", "input_price": "1"}], "both or neither"),
        ([{"name": "a", "base_url": "http://x/v1", "model": "m", "modle": "x"}], "modle"),
    ],
)
async def test_settings_of_endpoints_that_cannot_stand_are_refused(models: Any, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Settings(models=models)


async def test_what_was_spent_is_added_up_over_all_attempts(database: TestDatabase) -> None:
    with OpenAiEndpoint(["valid"], valid=LONG) as server:
        priced = endpoint(server.base_url, **PRICED)
        async with asking(priced) as client, road(database, make_app(fails=2)) as one:
            job = await one.submit("draft_reply", {})
            start(one, client)
            await one.until(job.job_id, "completed", within=30)
            async with autocommit(one.pool) as connection:
                spent = await model_calls.spent(connection, job.job_id, "USD")
                (line,) = await model_calls.report(connection, "default", 3600)
            reader = replace(one.approver, roles=frozenset({"manager"}))
            report = await Reports(one.pool).models(reader, 3600)
            with pytest.raises(DeedboxError, match="may read"):
                await Reports(one.pool).models(replace(reader, roles=frozenset()), 3600)
    assert (report.cost, report.unpriced, len(report.models)) == ({"USD": "0.000324"}, 0, 1)
    assert (spent.requests, spent.input_tokens, spent.output_tokens) == (3, 33, 15)
    assert spent.cost == 3 * (Decimal(33) + Decimal(75)) / 1_000_000
    assert (line.action, line.calls, line.jobs, line.currency) == ("draft_reply", 3, 1, "USD")
    assert Decimal(line.cost or "0") == spent.cost
