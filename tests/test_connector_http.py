"""JSON calls to named targets: one key, one effect, and the right word for every end."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic import ValidationError

from deedbox.connectors import ConnectorSettings, Http, HttpCall, HttpTargetConfig
from deedbox.connectors.answers import retry_after
from deedbox.connectors.targets import check_path
from deedbox.egress import Answer, EgressPolicy
from deedbox.extend.connector import Ambiguous, Connector, EffectOrder, LookUp, Outcome, Receipt, Refused, Transient
from tests.servers.http_provider import Fault, HttpProvider

LOOPBACK = EgressPolicy(frozenset({"127.0.0.1"}))
KEY = "0197f0a0-0000-7000-8000-000000000001"


def order(*, payload: dict[str, Any] | None = None, target: str = "crm", attempt: int = 1, deadline_s: float = 5.0):
    body = {"method": "POST", "path": "/notes", "body": {"text": "Grüße"}} if payload is None else payload
    return EffectOrder(KEY, "job", "default", "http", target, "note", body, attempt, deadline_s)


def bound(url: str, policy: EgressPolicy = LOOPBACK, **options: Any) -> Http:
    connector = Http()
    target = HttpTargetConfig.model_validate({"name": "crm", "base_url": url, "bearer": "token-1"} | options)
    connector.bind(ConnectorSettings(http=(target,)), policy)
    return connector


def with_provider(story: Callable[[HttpProvider, Http], Awaitable[None]], **options: Any) -> None:
    async def main():
        async with HttpProvider().running() as provider:
            connector = bound(provider.url, **options)
            await story(provider, connector)
            await connector.aclose()

    asyncio.run(asyncio.wait_for(main(), 20))


def send_once(fault: Fault, *, deadline_s: float = 5.0, refusal: int = 422, **options: Any) -> tuple[Outcome, HttpProvider]:
    seen: list[tuple[Outcome, HttpProvider]] = []

    async def story(provider: HttpProvider, connector: Http):
        provider.refusal = refusal
        provider.faults.append(fault)
        seen.append((await connector.send(order(deadline_s=deadline_s)), provider))

    with_provider(story, **options)
    return seen[0]


def test_it_is_a_connector():
    assert isinstance(Http(), Connector)


def test_an_accepted_call_gives_the_providers_id_and_carries_key_and_credentials():
    outcome, provider = send_once("none", headers={"X-Tenant": "one"})
    assert outcome == Receipt("note-1", {"status": 201})
    (request,) = provider.requests
    assert (request.method, request.target) == ("POST", "/notes")
    assert request.headers["idempotency-key"] == KEY
    assert request.headers["authorization"] == "Bearer token-1"
    assert request.headers["x-tenant"] == "one"
    assert request.body == '{"text":"Grüße"}'.encode()


def test_sending_again_repeats_the_same_bytes_under_the_same_key_and_the_provider_acts_once():
    async def story(provider: HttpProvider, connector: Http):
        provider.faults.append("accept_then_hang")
        first = await connector.send(order(deadline_s=0.3))
        second = await connector.send(order(attempt=2))
        assert isinstance(first, Ambiguous)
        assert isinstance(second, Receipt)
        assert len(provider.performed) == 1
        one, two = provider.requests
        assert (one.body, one.headers["idempotency-key"]) == (two.body, two.headers["idempotency-key"])

    with_provider(story)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("accept_then_hang", "deadline"),
        ("accept_then_drip", "deadline"),
        ("accept_then_reset", "connection_lost"),
        ("accept_then_close", "unreadable_answer"),
        ("accept_then_cut", "unreadable_answer"),
        ("accept_then_not_http", "unreadable_answer"),
        ("accept_then_oversized", "answer_too_large"),
        ("accept_then_gzip", "unreadable_answer"),
        ("accept_then_503", "http_503"),
        ("accept_then_garbage", "unreadable_receipt"),
        ("accept_without_id", "receipt_without_id"),
    ],
)
def test_an_end_after_which_it_may_be_done_is_ambiguous_and_never_sent_again_here(fault: Fault, code: str):
    outcome, provider = send_once(fault, deadline_s=0.3 if code == "deadline" else 5.0)
    assert isinstance(outcome, Ambiguous)
    assert outcome.code == code
    assert outcome.closed
    assert len(provider.performed) == 1
    assert provider.connections == 1


@pytest.mark.parametrize(
    ("status", "failure_class"),
    [
        (400, "caller_error"),
        (404, "caller_error"),
        (422, "caller_error"),
        (410, "caller_error"),
        (307, "caller_error"),
        (308, "caller_error"),
        (401, "denied"),
        (403, "denied"),
    ],
)
def test_a_refusal_is_permanent(status: int, failure_class: str):
    outcome, _ = send_once("refuse", refusal=status)
    assert isinstance(outcome, Refused)
    assert (outcome.failure_class, outcome.code) == (failure_class, f"http_{status}")


@pytest.mark.parametrize("status", [301, 302, 408, 409, 425, 500, 502, 504, 599])
def test_a_status_that_may_come_after_acting_is_ambiguous(status: int):
    outcome, _ = send_once("refuse", refusal=status)
    assert isinstance(outcome, Ambiguous)


def test_a_303_without_an_id_but_with_a_location_is_not_believed():
    outcome, provider = send_once("accept_as_303")
    assert isinstance(outcome, Ambiguous)
    assert len(provider.requests) == 1


def test_a_status_declared_as_not_taken_may_be_sent_again():
    outcome, _ = send_once("refuse", refusal=503, not_taken=[503])
    assert isinstance(outcome, Transient)
    assert outcome.failure_class == "not_sent"


def test_429_carries_the_providers_wait():
    async def story(provider: HttpProvider, connector: Http):
        for value, expected in (("7", 7.0), ("999999999999999999", 3600.0), ("soon", None), ("-1", None)):
            provider.faults.append("rate_limited")
            provider.extra_headers = {"Retry-After": value}
            outcome = await connector.send(order())
            assert isinstance(outcome, Transient)
            assert (outcome.failure_class, outcome.retry_after) == ("rate_limited", expected)
        assert not provider.performed

    with_provider(story)


def test_a_wait_given_as_a_date_is_measured_by_the_providers_own_clock():
    def at(then: str, now: str | None) -> float | None:
        headers = {"retry-after": then} | ({} if now is None else {"date": now})
        return retry_after(Answer(429, headers, b""))

    now = "Wed, 21 Oct 2015 07:28:00 GMT"
    assert at("Wed, 21 Oct 2015 07:28:30 GMT", now) == 30.0
    assert at("Wed, 21 Oct 2015 07:27:30 GMT", now) == 0.0
    assert at("Wed, 21 Oct 2099 07:27:30 GMT", now) == 3600.0
    assert at("Wed, 21 Oct 2015 07:28:30 GMT", None) is None
    assert at("Wed, 99 Oct 2015 07:28:30 GMT", now) is None


def test_a_blocked_address_is_final_and_a_closed_port_may_be_tried_again():
    async def main():
        async with HttpProvider().running() as provider:
            blocked = await bound(provider.url, EgressPolicy()).send(order())
            assert isinstance(blocked, Refused)
            assert (blocked.failure_class, blocked.code) == ("denied", "egress_blocked")
            assert provider.connections == 0
        gone = await bound(provider.url).send(order())
        assert isinstance(gone, Transient)
        assert (gone.failure_class, gone.phase) == ("not_sent", "connect")

    asyncio.run(main())


@pytest.mark.parametrize(
    "path",
    [
        "notes",
        "",
        "//evil.example/x",
        "/%2fevil.example",
        "/../admin",
        "/a/../../admin",
        "/a/%2e%2e/admin",
        "/a/%252e%252e/admin",
        "/a\\b",
        "/a%5cb",
        "/a b",
        "/a\r\nX: y",
        "/a#b",
        "/\x00",
        "@evil.example/",
        "http://evil.example/",
        "/" + "a" * 3000,
        "/\ud800",
    ],
)
def test_a_path_that_could_leave_the_target_is_refused(path: str):
    with pytest.raises(ValueError, match="path"):
        check_path(path)


@pytest.mark.parametrize(
    "payload",
    [
        {"path": "/notes", "headers": {"Authorization": "x"}},
        {"path": "/notes", "host": "evil.example"},
        {"path": "/notes", "method": "GET"},
        {"path": "/notes", "method": "post"},
        {"path": 1},
        {"method": "POST"},
        {"path": "/notes", "body": float("nan")},
        {"path": "/notes", "body": {"text": "\ud800"}},
    ],
)
def test_a_payload_names_neither_headers_nor_hosts_and_is_checked_before_a_byte_leaves(payload: dict[str, Any]):
    async def story(provider: HttpProvider, connector: Http):
        outcome = await connector.send(order(payload=payload))
        assert isinstance(outcome, Refused)
        assert (outcome.failure_class, outcome.code) == ("caller_error", "payload_invalid")
        assert provider.connections == 0

    with_provider(story)


def test_an_unknown_target_is_refused_when_planned_and_when_sent():
    async def story(_provider: HttpProvider, connector: Http):
        connector.check_target("crm")
        with pytest.raises(ValueError, match="no target named 'other'"):
            connector.check_target("other")
        assert isinstance(await connector.send(order(target="other")), Refused)
        assert (await connector.look_up(order(target="other"))).verdict == "still_unknown"

    with_provider(story)


def test_a_base_path_stays_in_front_and_puts_name_their_thing_by_the_path():
    async def main():
        async with HttpProvider().running() as provider:
            connector = bound(provider.url + "/api/v1/")
            provider.faults.append("accept_without_id")
            call = {"method": "PUT", "path": "/notes/7?x=ü", "body": None}
            assert await connector.send(order(payload=call)) == Receipt("/notes/7?x=ü", {"status": 201})
            assert provider.requests[0].target == "/api/v1/notes/7?x=%C3%BC"
            assert provider.requests[0].body == b""

    asyncio.run(main())


def looked_up(path: str | None, *, fault: Fault = "none", accepted: bool = True, **options: Any) -> LookUp:
    seen: list[LookUp] = []

    async def story(provider: HttpProvider, connector: Http):
        if accepted:
            provider.faults.append("accept_then_503")
            assert isinstance(await connector.send(order()), Ambiguous)
        provider.faults.append(fault)
        seen.append(await connector.look_up(order(deadline_s=0.3)))

    with_provider(story, look_up=path, **options)
    return seen[0]


@pytest.mark.parametrize("path", ["/by-key/{key}", "/search?key={key}"])
def test_a_look_up_finds_what_was_accepted(path: str):
    assert looked_up(path, capability="searchable") == LookUp("accepted", "note-1", {"status": 200})


@pytest.mark.parametrize("path", ["/by-key/{key}", "/search?key={key}"])
def test_absence_is_believed_only_where_the_target_declares_it_conclusive(path: str):
    assert looked_up(path, accepted=False, capability="searchable").verdict == "not_accepted"
    assert looked_up(path, accepted=False, capability="native_key", key_ttl_s=60, conclusive=True).verdict == "not_accepted"
    assert looked_up(path, accepted=False, capability="native_key", key_ttl_s=60).verdict == "still_unknown"
    assert looked_up(path, accepted=False).verdict == "still_unknown"


def test_a_search_that_ignores_the_key_proves_nothing():
    async def story(provider: HttpProvider, connector: Http):
        provider.performed.append({"id": "someone-elses", "key": "other", "body": None})
        assert (await connector.look_up(order())).verdict == "still_unknown"

    with_provider(story, look_up="/all?key={key}", capability="searchable")


@pytest.mark.parametrize(
    "fault", ["accept_then_hang", "accept_then_reset", "accept_then_503", "accept_then_garbage", "rate_limited", "refuse"]
)
def test_a_look_up_that_fails_leaves_it_unknown(fault: Fault):
    assert looked_up("/by-key/{key}", fault=fault, capability="searchable").verdict == "still_unknown"


def test_without_a_look_up_it_stays_unknown():
    assert looked_up(None).verdict == "still_unknown"


def test_a_native_key_counts_only_once_proven():
    url = "https://crm.example"
    native: dict[str, Any] = {"capability": "native_key", "key_ttl_s": 60}
    assert bound(url).capability("crm") == "blind"
    assert bound(url, **native).capability("crm") == "blind"
    assert bound(url, **native, look_up="/k/{key}", conclusive=True).capability("crm") == "searchable"
    assert bound(url, **native, proven="2026-01-31 by the house").capability("crm") == "native_key"
    assert bound(url, **native).key_ttl_s("crm") == 60


@pytest.mark.parametrize(
    "wrong",
    [
        {"base_url": "ftp://crm.example"},
        {"base_url": "https://u:p@crm.example"},
        {"base_url": "https://crm.example?x=1"},
        {"base_url": "https://127.1"},
        {"bearer": "a\r\nb"},
        {"bearer": ""},
        {"headers": {"Host": "evil.example"}},
        {"headers": {"Idempotency-Key": "x"}},
        {"headers": {"X": "a\nb"}},
        {"bearer": "x", "headers": {"authorization": "y"}},
        {"capability": "searchable"},
        {"capability": "native_key"},
        {"capability": "upsert"},
        {"conclusive": True},
        {"look_up": "/by-key"},
        {"look_up": "by-key/{key}"},
        {"key_ttl_s": 0},
        {"key_ttl_s": float("inf")},
        {"not_taken": [404]},
        {"typo": 1},
    ],
)
def test_a_target_that_is_set_wrongly_does_not_start(wrong: dict[str, Any]):
    with pytest.raises(ValidationError):
        HttpTargetConfig.model_validate({"name": "crm", "base_url": "https://crm.example"} | wrong)


def test_two_targets_of_one_name_do_not_start():
    one = HttpTargetConfig(name="crm", base_url="https://crm.example")
    with pytest.raises(ValidationError):
        ConnectorSettings(http=(one, one))


def test_credentials_do_not_show_when_printed():
    settings = ConnectorSettings(
        http=(HttpTargetConfig.model_validate({"name": "c", "base_url": "https://c.example", "bearer": "hush"}),)
    )
    assert "hush" not in repr(settings) + str(settings) + settings.model_dump_json()


def test_the_card_says_what_will_be_sent():
    payload = HttpCall(path="/notes", body={"text": "x", "author": "y"}).model_dump()
    assert Http().describe("crm", payload) == "Sends POST /notes to the target crm, with the fields author, text."
