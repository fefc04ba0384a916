"""Messages to chats: shown as they were approved, each end called by its name, and no token anywhere."""

import asyncio
import json
import logging
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from deedbox.connectors import ConnectorSettings, Slack, SlackConfig, Telegram, TelegramConfig
from deedbox.connectors.slack import escaped
from deedbox.connectors.telegram import WORD_JOINER, plain
from deedbox.egress import EgressPolicy
from deedbox.extend.announce import Announces
from deedbox.extend.connector import Ambiguous, Connector, EffectOrder, LookUp, Outcome, Receipt, Refused, Transient
from deedbox.testing import HttpProvider
from tests.guarantees import proves

LOOPBACK = EgressPolicy(frozenset({"127.0.0.1"}))
SLACK_TOKEN = "planted-token-of-slack"
BOT_TOKEN = "4711:planted-token-of-telegram"
PLANTED = re.compile("planted-token")


def settings(url: str, **more: Any) -> ConnectorSettings:
    slack = {"token": SLACK_TOKEN, "base_url": url, **more}
    return ConnectorSettings.model_validate({"slack": slack, "telegram": {"token": BOT_TOKEN, "base_url": url}})


def order(target: str, payload: dict[str, Any], deadline_s: float = 5.0) -> EffectOrder:
    return EffectOrder("effect-1", "job-1", "default", "chat", target, "note", payload, 1, deadline_s)


def send(
    connector: Slack | Telegram, provider: HttpProvider, payload: dict[str, Any] | None = None, policy: EgressPolicy = LOOPBACK
) -> Outcome:
    target = "C0123456789" if isinstance(connector, Slack) else "-100123"

    async def main() -> Outcome:
        async with provider.running():
            connector.bind(settings(provider.url), policy)
            outcome = await connector.send(order(target, payload or {"text": "hello"}, 0.5))
            await connector.aclose()
            return outcome

    return asyncio.run(main())


def answering(status: int, body: Any) -> HttpProvider:
    """A provider that answers so and has done nothing."""
    provider = HttpProvider(refusal=status, refusal_body=body)
    provider.faults.append("refuse")
    return provider


@pytest.mark.parametrize("connector", [Slack(), Telegram()])
def test_it_is_a_connector(connector: Slack | Telegram):
    assert isinstance(connector, Connector)
    assert connector.capability("anything") == "blind"


@proves("G-CHAT-PLAIN")
def test_slack_gets_the_text_without_anything_that_it_would_interpret():
    provider = HttpProvider(receipt=lambda _note: {"ok": True, "channel": "C0123456789", "ts": "1700000000.000100"})
    text = "Hi <!channel> & <@U123> <https://evil.example|bank> *bold* @here"
    outcome = send(Slack(), provider, {"text": text, "thread": "1699999999.000001"})
    assert outcome == Receipt("C0123456789/1700000000.000100", {"channel": "C0123456789", "ts": "1700000000.000100"})
    (request,) = provider.requests
    sent = json.loads(request.body)
    assert (request.method, request.target) == ("POST", "/chat.postMessage")
    assert request.headers["authorization"] == f"Bearer {SLACK_TOKEN}"
    assert sent["text"] == text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert (sent["mrkdwn"], sent["parse"], sent["link_names"], sent["unfurl_links"]) == (False, "none", False, False)
    assert (sent["channel"], sent["thread_ts"]) == ("C0123456789", "1699999999.000001")
    assert sent["metadata"]["event_payload"] == {"effect_id": "effect-1"}


@proves("G-CHAT-PLAIN")
@given(st.text(max_size=50))
def test_slacks_escaping_leaves_no_sign_of_its_markup_and_can_be_undone(text: str):
    out = escaped(text)
    assert "<" not in out
    assert ">" not in out
    assert not re.search(r"&(?!(?:amp|lt|gt);)", out)
    assert out.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") == text


@proves("G-CHAT-PLAIN")
@given(st.text(alphabet="aZ9_é@#$/ .:\n", max_size=40))
def test_telegram_makes_nothing_of_the_text_and_it_looks_the_same(text: str):
    out = plain(text)
    assert out.replace(WORD_JOINER, "") == text
    assert not re.search(r"(?<![A-Za-z0-9_])[@#$]\w", out)
    assert not re.search(r"(?<![A-Za-z0-9_/])/\w", out)


def test_addresses_stay_as_they_are():
    text = "ada@customer.example, https://shop.example/a/b#c"
    assert plain(text) == text


@proves("G-CHAT-PLAIN")
def test_telegram_gets_plain_text_for_one_chat():
    provider = HttpProvider(receipt=lambda _note: {"ok": True, "result": {"message_id": 7, "chat": {"id": -100123}}})
    outcome = send(Telegram(), provider, {"text": "<i>@all /stop", "silent": True})
    assert outcome == Receipt("-100123/7", {"chat_id": "-100123", "message_id": "7"})
    (request,) = provider.requests
    assert request.target == f"/bot{BOT_TOKEN}/sendMessage"
    assert json.loads(request.body) == {
        "chat_id": -100123,
        "text": f"<i>@{WORD_JOINER}all /{WORD_JOINER}stop",
        "disable_notification": True,
        "link_preview_options": {"is_disabled": True},
    }


@pytest.mark.parametrize(
    ("status", "body", "kind", "failure_class"),
    [
        (200, {"ok": False, "error": "channel_not_found"}, Refused, "caller_error"),
        (200, {"ok": False, "error": "is_archived"}, Refused, "caller_error"),
        (200, {"ok": False, "error": "invalid_auth"}, Refused, "denied"),
        (200, {"ok": False, "error": "missing_scope"}, Refused, "denied"),
        (200, {"ok": False, "error": "ratelimited"}, Transient, "rate_limited"),
        (200, {"ok": False, "error": "fatal_error"}, Ambiguous, None),
        (200, {"ok": False, "error": "internal_error"}, Ambiguous, None),
        (200, {"ok": False, "error": "a_code_of_tomorrow"}, Ambiguous, None),
        (200, {"ok": False}, Ambiguous, None),
        (200, {"ok": True}, Ambiguous, None),
        (200, {"ok": "true", "channel": "C1", "ts": "1"}, Ambiguous, None),
        (200, ["ok"], Ambiguous, None),
        (200, None, Ambiguous, None),
        (400, {}, Refused, "caller_error"),
        (403, {}, Refused, "denied"),
        (408, {}, Ambiguous, None),
        (302, {}, Ambiguous, None),
        (500, {"ok": False, "error": "channel_not_found"}, Ambiguous, None),
    ],
)
def test_what_slack_says(status: int, body: Any, kind: type[Outcome], failure_class: str | None):
    outcome = send(Slack(), answering(status, body))
    assert isinstance(outcome, kind)
    assert getattr(outcome, "failure_class", None) == failure_class


@pytest.mark.parametrize(
    ("status", "body", "kind", "failure_class"),
    [
        (400, {"ok": False, "description": "Bad Request: chat not found"}, Refused, "caller_error"),
        (401, {"ok": False, "description": "Unauthorized"}, Refused, "denied"),
        (403, {"ok": False, "description": "Forbidden: bot was blocked by the user"}, Refused, "denied"),
        (404, {"ok": False, "description": "Not Found"}, Refused, "denied"),
        (429, {"ok": False, "parameters": {"retry_after": 31}}, Transient, "rate_limited"),
        (409, {"ok": False}, Ambiguous, None),
        (502, {"ok": False}, Ambiguous, None),
        (200, {"ok": True, "result": {}}, Ambiguous, None),
        (200, {"ok": True, "result": True}, Ambiguous, None),
        (200, {"ok": False}, Ambiguous, None),
        (200, None, Ambiguous, None),
    ],
)
def test_what_telegram_says(status: int, body: Any, kind: type[Outcome], failure_class: str | None):
    outcome = send(Telegram(), answering(status, body))
    assert isinstance(outcome, kind)
    assert getattr(outcome, "failure_class", None) == failure_class
    if isinstance(outcome, Transient):
        assert outcome.retry_after == 31.0


def test_what_telegram_says_of_a_refusal_is_kept_without_the_token():
    outcome = send(Telegram(), answering(400, {"ok": False, "description": f"Bad\n path /bot{BOT_TOKEN}/sendMessage"}))
    assert isinstance(outcome, Refused)
    assert outcome.message == "Telegram answered 400. It said: Bad  path /bot…/sendMessage"


@proves("G-CHAT-PLAIN")
@pytest.mark.parametrize("connector", [Slack, Telegram])
@pytest.mark.parametrize("end", ["accept_then_hang", "accept_then_reset", "accept_then_garbage", "refuse", "blocked"])
def test_no_token_is_in_what_comes_back_or_in_a_log(
    connector: type[Slack | Telegram], end: Any, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
):
    caplog.set_level(logging.DEBUG)
    provider = HttpProvider(refusal=401, refusal_body={"ok": False, "description": f"bad {BOT_TOKEN}", "error": SLACK_TOKEN})
    if end != "blocked":
        provider.faults.append(end)
    outcome = send(connector(), provider, policy=EgressPolicy() if end == "blocked" else LOOPBACK)
    assert not isinstance(outcome, Receipt)
    printed = capsys.readouterr()
    assert not PLANTED.search(repr(outcome) + caplog.text + printed.out + printed.err)


def test_settings_keep_their_tokens_and_send_them_over_tls_alone():
    one = settings("http://127.0.0.1:1")
    assert not PLANTED.search(repr(one) + one.model_dump_json())
    for model, token in ((SlackConfig, SLACK_TOKEN), (TelegramConfig, BOT_TOKEN)):
        for wrong in (
            {"base_url": "http://chat.example"},
            {"base_url": "https://u:p@chat.example"},
            {"token": "a b"},
            {"more": 1},
        ):
            with pytest.raises(ValidationError) as refused:
                model.model_validate({"token": token} | wrong)
            assert not PLANTED.search("".join(str(error["msg"]) for error in refused.value.errors(include_input=False)))


@pytest.mark.parametrize(
    ("connector", "target", "payload"),
    [
        (Slack(), "#general", {"text": "x"}),
        (Slack(), "general", {"text": "x"}),
        (Slack(), "U0123456789", {"text": "x"}),
        (Slack(), "C0123456789", {"text": ""}),
        (Slack(), "C0123456789", {"text": "   "}),
        (Slack(), "C0123456789", {"text": "a\x07b"}),
        (Slack(), "C0123456789", {"text": "x" * 4001}),
        (Slack(), "C0123456789", {"text": "x", "blocks": []}),
        (Slack(), "C0123456789", {"text": "x", "channel": "C9"}),
        (Slack(), "C0123456789", {"text": "x", "thread": "now"}),
        (Telegram(), "general", {"text": "x"}),
        (Telegram(), "0123", {"text": "x"}),
        (Telegram(), "-100123", {"text": "x" * 4097}),
        (Telegram(), "-100123", {"text": "@a " * 1365}),
        (Telegram(), "-100123", {"text": "x", "parse_mode": "HTML"}),
    ],
)
def test_what_could_be_more_than_it_seems_is_refused_when_planned(
    connector: Slack | Telegram, target: str, payload: dict[str, Any]
):
    connector.bind(settings("http://127.0.0.1:1"), LOOPBACK)
    with pytest.raises(ValueError):  # noqa: PT011 -- each has a sentence of its own
        connector.check_plan(target, payload)
    outcome = asyncio.run(connector.send(order(target, payload)))
    assert isinstance(outcome, Refused)
    assert outcome.code == "payload_invalid"


@pytest.mark.parametrize("connector", [Slack(), Telegram()])
def test_without_a_token_nothing_is_sent(connector: Slack | Telegram):
    connector.bind(ConnectorSettings(), LOOPBACK)
    with pytest.raises(ValueError, match="is set"):
        connector.check_target("C0123456789")
    outcome = asyncio.run(connector.send(order("C0123456789", {"text": "x"})))
    assert isinstance(outcome, Refused)
    assert outcome.code.endswith("_not_configured")


def test_a_message_that_was_lost_is_found_in_the_history_by_its_effect_and_none_proves_nothing():
    async def main() -> None:
        provider = HttpProvider()
        mine = {"event_type": "deedbox_effect", "event_payload": {"effect_id": "effect-1"}}
        other = {"event_type": "deedbox_effect", "event_payload": {"effect_id": "effect-2"}}
        history: list[Any] = [{"ts": "1.2", "metadata": other}, {"ts": "1.1"}, "odd", {"ts": "1.0", "metadata": "odd"}]
        provider.look_up = lambda _request: (200, {"ok": True, "messages": history})
        async with provider.running():
            slack = Slack()
            slack.bind(settings(provider.url, history=True), LOOPBACK)
            asked = order("C0123456789", {"text": "x"})
            assert (await slack.look_up(asked)).verdict == "still_unknown"
            history.append({"ts": "0.9", "metadata": mine})
            assert await slack.look_up(asked) == LookUp("accepted", "C0123456789/0.9", {"ts": "0.9"})
            history.append({"ts": "0.8", "metadata": mine})
            assert (await slack.look_up(asked)).verdict == "still_unknown"
            assert "channel=C0123456789" in provider.requests[0].target
            await slack.aclose()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("connector", "said"),
    [
        (Slack(), "Posts a message of 5 characters to the Slack channel C0123456789."),
        (Telegram(), "Sends a message of 5 characters to the Telegram chat C0123456789."),
    ],
)
def test_the_card_says_where_it_goes(connector: Slack | Telegram, said: str):
    assert connector.describe("C0123456789", {"text": "hello"}) == said


@pytest.mark.parametrize("connector", [Slack(), Telegram()], ids=["slack", "telegram"])
def test_what_the_house_has_to_say_fits_a_message_however_long_it_is(connector: Slack | Telegram) -> None:
    assert isinstance(connector, Announces)
    said = connector.announcement("C0123456789", "A target is left alone", "@all " * 3000)
    assert connector.payload_model.model_validate(said).model_dump()["text"].startswith("A target is left alone\n@all ")
