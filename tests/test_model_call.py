"""The model path against a real local server: what is accepted, what is repaired, what ends how, and what never leaks."""

import asyncio
import json
import socket
import ssl
from collections.abc import Callable
from typing import Annotated, Any, Literal

import httpx2
import pytest
from pydantic import BaseModel, Field, SecretStr

from deedbox.model.failure import ActionFailure, FailureClass, classify
from deedbox.worker.model_call import ModelCall, ModelClient, ModelEndpoint, ModelFailure, retry_after_s
from tests.guarantees import proves
from tests.servers.openai_endpoint import RETRY_AFTER_S, OpenAiEndpoint, Reply

NO_TRUST = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # no TLS here; reading the system's certificates would take longest
KEY = "sk-test-aYk3"
PROMPT = "The fridge of order 4711 hums: Grüße aus Köln ✓"
VALID: dict[str, Any] = {"priority": "high", "subject": "Fridge ✓", "lines": [{"sku": "F-1", "count": 2}]}


class Line(BaseModel):
    sku: str
    count: int = 1


class Ticket(BaseModel):
    priority: Literal["low", "high"]
    subject: Annotated[str, Field(max_length=200)]
    lines: list[Line] = []


def plain_client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(trust_env=False, verify=NO_TRUST)


def endpoint(base_url: str, **changes: Any) -> ModelEndpoint:
    settings: dict[str, Any] = {"api_key": SecretStr(KEY), "model": "configured", "timeout_s": 10.0, **changes}
    return ModelEndpoint(base_url, **settings)


def ask(base_url: str, **changes: Any) -> ModelCall:
    async def main() -> ModelCall:
        client = ModelClient(endpoint(base_url, **changes), plain_client())
        try:
            return await client.call(Ticket, PROMPT, instructions="Classify the mail.", prompt_version="p7")
        finally:
            await client.aclose()

    return asyncio.run(main())


def fail(base_url: str, **changes: Any) -> ModelFailure:
    with pytest.raises(ModelFailure) as caught:
        ask(base_url, **changes)
    failure = caught.value
    chain = f"{failure!r} {failure.__cause__!r} {failure.__context__!r} {failure.identity}"
    assert all(secret not in chain for secret in (KEY, PROMPT, "scripted", "whenever", "127.0.0.1"))
    return failure


@pytest.mark.parametrize("shape", ["valid", "fenced", "surrounded", "reasoning", "reasoning_field", "blocks"])
def test_a_usable_answer_needs_one_request(shape: str) -> None:
    with OpenAiEndpoint([shape], valid=VALID) as server:
        call = ask(server.base_url)
    assert call.output == Ticket.model_validate(VALID)
    assert call.identity == {
        "provider": "openai-compatible",
        "model": "tiny-instruct-1",
        "endpoint": "local",
        "name": "default",
    }
    assert (call.repairs, call.validation, call.prompt_version) == (0, "valid", "p7")
    assert call.usage == {"input_tokens": 11, "output_tokens": 5, "requests": 1}
    assert call.duration_ms >= 0
    assert len(server.requests) == 1


def test_the_key_travels_in_its_header_alone_and_nothing_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-ambient")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-ambient")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-ambient")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Extra: extra-ambient\nAuthorization: Bearer other-ambient")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/ambient")
    with OpenAiEndpoint(["valid"], valid=VALID) as server:
        ask(server.base_url)
        ask(server.base_url, api_key=None)
    with_key, without = server.requests
    assert with_key.path == "/v1/chat/completions"
    assert with_key.headers["authorization"] == f"Bearer {KEY}"
    assert "authorization" not in without.headers
    for request in server.requests:
        rest = {name: value for name, value in request.headers.items() if name != "authorization"}
        assert KEY not in f"{request.path}{rest}{request.text}"
        assert "ambient" not in f"{request.headers}{request.text}"
        assert not {"tools", "response_format", "max_tokens"} & set(request.body)


def test_the_request_names_instructions_schema_and_prompt() -> None:
    with OpenAiEndpoint(["valid"], valid=VALID) as server:
        ask(server.base_url, max_output_tokens=300)
    [request] = server.requests
    system, user = request.body["messages"]
    assert system["content"].startswith("Classify the mail.")
    assert '"maxLength":200' in system["content"]
    assert (user["role"], user["content"]) == ("user", PROMPT)
    assert (request.body["model"], request.body["max_tokens"]) == ("configured", 300)


REPAIRABLE = {
    "prose": "rule json",
    "empty": "rule json",
    "wrong_enum": "at /priority: rule literal_error",
    "too_long": "at /subject: rule string_too_long",
    "nul": "rule characters",
    "surrogate": "rule characters",
}


@pytest.mark.parametrize("fault", REPAIRABLE)
def test_a_fault_is_repaired_once_naming_path_and_rule(fault: str) -> None:
    with OpenAiEndpoint([fault, "valid"], valid=VALID) as server:
        call = ask(server.base_url)
    assert call.output == Ticket.model_validate(VALID)
    assert (call.repairs, call.validation, call.usage["requests"]) == (1, "repaired", 2)
    assert call.usage["output_tokens"] == 10
    assert REPAIRABLE[fault] in server.requests[1].prompt
    assert REPAIRABLE[fault] not in server.requests[0].prompt


@proves("G-MODEL-REPAIR")
@pytest.mark.parametrize("fault", REPAIRABLE)
@pytest.mark.parametrize("repairs", [0, 1, 3])
def test_a_fault_that_stays_ends_after_the_repairs(fault: str, repairs: int) -> None:
    with OpenAiEndpoint([fault], valid=VALID) as server:
        failure = fail(server.base_url, repairs=repairs)
    assert (failure.failure_class, failure.code, failure.validation) == ("invalid_output", "invalid_output", "invalid")
    assert (failure.repairs, failure.usage["requests"], len(server.requests)) == (repairs, repairs + 1, repairs + 1)
    assert failure.identity["model"] == "tiny-instruct-1"
    assert all(len(request.body["messages"]) <= 4 for request in server.requests)


def test_the_failure_says_where_but_not_what() -> None:
    spoiled = Reply(json.dumps({"priority": "whenever", "lines": [{"sku": "F-1", "count": "secret words"}]}))
    with OpenAiEndpoint([spoiled], valid=VALID) as server:
        failure = fail(server.base_url)
    for part in ("/priority (literal_error)", "/subject (missing)", "/lines/0/count (int_type)", "after 1 repair:"):
        assert part in failure.message
    assert "secret" not in failure.message
    assert classify(failure).failure_class == "invalid_output"


def test_a_cut_off_answer_is_asked_for_again_with_a_larger_limit() -> None:
    with OpenAiEndpoint(["cut_off", "valid"], valid=VALID) as server:
        call = ask(server.base_url, max_output_tokens=50)
    assert (call.repairs, call.validation) == (1, "repaired")
    assert [request.body["max_tokens"] for request in server.requests] == [50, 100]


def test_without_a_limit_of_ours_the_larger_one_is_named() -> None:
    with OpenAiEndpoint([Reply("", "length"), "valid"], valid=VALID) as server:
        ask(server.base_url)
    assert "max_tokens" not in server.requests[0].body
    assert server.requests[1].body["max_tokens"] >= 4096


@pytest.mark.parametrize("repairs", [0, 1, 3])
def test_cut_off_twice_is_truncated_whatever_repairs_are_left(repairs: int) -> None:
    with OpenAiEndpoint(["cut_off"], valid=VALID) as server:
        failure = fail(server.base_url, repairs=repairs)
    assert (failure.failure_class, failure.code, failure.validation) == ("truncated", "truncated", "invalid")
    assert len(server.requests) == min(repairs, 1) + 1


def test_a_server_that_refuses_the_larger_limit_leaves_the_answer_truncated() -> None:
    with OpenAiEndpoint(["cut_off", 400], valid=VALID) as server:
        assert fail(server.base_url).failure_class == "truncated"


def test_a_refusal_is_not_repaired() -> None:
    with OpenAiEndpoint(["refusal", "valid"], valid=VALID) as server:
        failure = fail(server.base_url)
    assert (failure.failure_class, failure.code, len(server.requests)) == ("rejected_output", "model_refused", 1)


ENDS: list[tuple[str | int, FailureClass, str]] = [
    ("rate_limited", "rate_limited", "model_rate_limited"),
    *((status, "overloaded", "model_overloaded") for status in (500, 502, 503, 504)),
    *((status, "denied", "model_denied") for status in (401, 403)),
    *((status, "caller_error", "model_request_refused") for status in (400, 404, 422)),
    ("drop", "overloaded", "model_connection_lost"),
    ("not_json", "overloaded", "model_bad_response"),
    ("no_choices", "overloaded", "model_bad_response"),
]


@pytest.mark.parametrize(("end", "failure_class", "code"), ENDS)
def test_a_server_that_fails_is_classified_and_not_asked_again(end: str | int, failure_class: str, code: str) -> None:
    with OpenAiEndpoint([end, "valid"], valid=VALID) as server:
        failure = fail(server.base_url, repairs=3)
    assert (failure.failure_class, failure.code, failure.validation) == (failure_class, code, "none")
    assert len(server.requests) == 1


def test_a_redirect_is_refused_and_the_key_stays_here() -> None:
    with OpenAiEndpoint(["valid"], valid=VALID) as other:
        away = Reply(status=307, headers={"Location": f"{other.base_url}/chat/completions"}, raw=b"")
        with OpenAiEndpoint([away], valid=VALID) as server:
            assert fail(server.base_url).failure_class == "caller_error"
    assert other.requests == []


@pytest.mark.parametrize(("behaviour", "wait"), [("rate_limited", RETRY_AFTER_S), ("rate_limited_date", 30.0)])
def test_both_forms_of_retry_after_are_honoured(behaviour: str, wait: float) -> None:
    with OpenAiEndpoint([behaviour], valid=VALID) as server:
        assert fail(server.base_url).retry_after == wait


def test_a_rate_limit_in_mid_repair_keeps_its_class_and_the_facts() -> None:
    with OpenAiEndpoint(["prose", "rate_limited"], valid=VALID) as server:
        failure = fail(server.base_url)
    assert (failure.failure_class, failure.repairs, failure.usage["requests"]) == ("rate_limited", 1, 1)


@pytest.mark.parametrize("value", ["", "-1", "soon", "nan", "inf", "1e9", "9" * 40, "Wed, 99 Oct 2026 07:28:30 GMT"])
def test_a_useless_retry_after_is_none(value: str) -> None:
    assert retry_after_s({"retry-after": value, "date": "Wed, 21 Oct 2026 07:28:00 GMT"}) is None


def test_a_retry_after_date_in_the_past_means_now_and_without_a_date_nothing() -> None:
    late = "Wed, 21 Oct 2026 07:28:00 GMT"
    assert retry_after_s({"retry-after": late, "date": "Wed, 21 Oct 2026 08:00:00 GMT"}) == 0
    assert retry_after_s({"retry-after": late}) is None


def test_a_hang_ends_with_the_time_out() -> None:
    with OpenAiEndpoint(["hang"], valid=VALID) as server:
        failure = fail(server.base_url, timeout_s=0.2, repairs=3)
        assert server.hanging.is_set()
    assert (failure.failure_class, failure.code, len(server.requests)) == ("overloaded", "model_timeout", 1)


def test_a_cancelled_call_ends_as_cancelled() -> None:
    async def main(base_url: str, hanging: Callable[[], bool]) -> None:
        client = ModelClient(endpoint(base_url, timeout_s=300), plain_client())
        task = asyncio.create_task(client.call(Ticket, PROMPT))
        await asyncio.to_thread(hanging)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.aclose()

    with OpenAiEndpoint(["hang"], valid=VALID) as server:
        asyncio.run(main(server.base_url, server.hanging.wait))


def test_a_refused_connection_was_not_sent() -> None:
    with socket.socket() as taken:  # bound but not listening: nobody else gets the port, and connecting is refused
        taken.bind(("127.0.0.1", 0))
        failure = fail(f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
    assert (failure.failure_class, failure.code) == ("not_sent", "model_unreachable")
    assert failure.identity["model"] == "configured"


CLIENT_ERRORS: list[tuple[Exception, FailureClass, str]] = [
    (httpx2.ConnectError(f"[Errno -2] Name or service not known: {KEY}"), "not_sent", "model_unreachable"),
    (httpx2.ConnectTimeout(KEY), "not_sent", "model_unreachable"),
    (httpx2.PoolTimeout(KEY), "not_sent", "model_unreachable"),
    (httpx2.ReadTimeout(KEY), "overloaded", "model_timeout"),
    (httpx2.RemoteProtocolError(KEY), "overloaded", "model_connection_lost"),
    (ConnectionResetError(KEY), "overloaded", "model_connection_lost"),
    (ActionFailure("denied", "egress_blocked", "The address is not allowed."), "denied", "egress_blocked"),
]


@pytest.mark.parametrize(("error", "failure_class", "code"), CLIENT_ERRORS)
def test_what_the_http_client_raises_keeps_its_class(error: Exception, failure_class: str, code: str) -> None:
    def refuse(_: httpx2.Request) -> httpx2.Response:
        raise error

    async def main() -> None:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(refuse)) as http_client:
            await ModelClient(endpoint("https://models.example.org/v1"), http_client).call(Ticket, PROMPT)

    with pytest.raises(ModelFailure) as caught:
        asyncio.run(main())
    failure = caught.value
    assert (failure.failure_class, failure.code, failure.identity["endpoint"]) == (failure_class, code, "remote")
    assert failure.__context__ is None
    assert KEY not in str(failure)


@pytest.mark.parametrize("name", ["/srv/models/tiny.gguf", "http://10.0.0.9/tiny", "a\x00b", "", "x" * 500])
def test_a_model_name_that_could_give_something_away_is_not_journalled(name: str) -> None:
    with OpenAiEndpoint(["valid"], valid=VALID, model=name) as server:
        assert ask(server.base_url).identity["model"] == "configured"


def test_one_client_serves_concurrent_calls() -> None:
    async def main(base_url: str) -> list[ModelCall]:
        client = ModelClient(endpoint(base_url), plain_client())
        calls = await asyncio.gather(*(client.call(Ticket, f"{PROMPT} {number}") for number in range(8)))
        await client.aclose()
        return calls

    with OpenAiEndpoint(["valid"], valid=VALID) as server:
        assert [call.usage["requests"] for call in asyncio.run(main(server.base_url))] == [1] * 8


def test_half_a_surrogate_pair_in_the_prompt_does_not_stop_the_call() -> None:
    async def main(base_url: str) -> None:
        client = ModelClient(endpoint(base_url), plain_client())
        await client.call(Ticket, "a\ud800b\x00c")
        await client.aclose()

    with OpenAiEndpoint(["valid"], valid=VALID) as server:
        asyncio.run(main(server.base_url))
    assert server.requests[0].body["messages"][-1]["content"] == "a?b?c"


BAD_SETTINGS: list[dict[str, Any]] = [
    {"repairs": -1},
    {"repairs": 4},
    {"timeout_s": 0},
    {"timeout_s": float("nan")},
    {"timeout_s": float("inf")},
    {"model": "  "},
    {"max_output_tokens": 0},
    {"api_key": SecretStr("")},
    {"api_key": SecretStr("a\r\nb")},
    {"base_url": "ftp://127.0.0.1/v1"},
    {"base_url": "http:///v1"},
    {"base_url": "http://user:hunter2@127.0.0.1/v1"},
    {"base_url": "http://127.0.0.1/v1?key=hunter2"},
]


@pytest.mark.parametrize("changes", BAD_SETTINGS, ids=str)
def test_settings_that_cannot_work_are_refused_without_quoting_secrets(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))) as caught:
        endpoint(**{"base_url": "http://127.0.0.1/v1", **changes})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost:8080", "local"),
        ("[::1]:8080", "local"),
        ("127.0.0.1", "local"),
        ("10.1.2.3", "local"),
        ("models.example.org", "remote"),
        ("8.8.8.8", "remote"),
    ],
)
def test_the_endpoint_class_is_read_off_the_address(host: str, expected: str) -> None:
    assert endpoint(f"http://{host}/v1").endpoint_class == expected
    assert KEY not in repr(endpoint(f"http://{host}/v1"))
