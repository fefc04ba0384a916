"""Signatures: over the very bytes, with every secret that is set, and of no use to whoever has none."""

import asyncio
import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError
from standardwebhooks import Webhook, WebhookVerificationError

from deedbox.connectors import CallbackConfig, ConnectorSettings, Http, HttpTargetConfig
from deedbox.connectors.signing import TOLERANCE_S, BadSignatureError, sign, verify, wall_clock_s
from deedbox.egress import EgressPolicy
from deedbox.extend.connector import EffectOrder, Receipt
from deedbox.testing import HttpProvider
from tests.guarantees import proves


def secret(letter: bytes, length: int = 32) -> str:
    return "whsec_" + base64.b64encode(letter * length).decode()


OLD, NEW, OTHER = secret(b"o"), secret(b"n"), secret(b"x")
BODY = '{"text":"Grüße","number":1.0}'.encode()


def signed(*secrets: str, content: bytes = BODY, at_s: int | None = None) -> dict[str, str]:
    return sign([SecretStr(one) for one in secrets], "evt_1", content, at_s=wall_clock_s() if at_s is None else at_s)


@proves("G-SIGNED")
def test_the_reference_library_believes_it_with_either_secret_and_no_other():
    headers = signed(OLD, NEW)
    for one in (OLD, NEW):
        assert Webhook(one).verify(BODY, headers) == json.loads(BODY)
        assert verify([one], headers, BODY) == "evt_1"
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(BODY, headers)
    with pytest.raises(BadSignatureError, match="no signature"):
        verify([OTHER], headers, BODY)
    assert verify([OTHER, NEW], headers, BODY) == "evt_1"


@proves("G-SIGNED")
@given(st.integers(0, len(BODY) - 1), st.integers(1, 255))
def test_one_other_byte_anywhere_is_another_body(place: int, by: int):
    other = bytearray(BODY)
    other[place] ^= by
    with pytest.raises(BadSignatureError):
        verify([NEW], signed(NEW), bytes(other))


@proves("G-SIGNED")
def test_the_same_value_written_otherwise_is_not_what_was_signed():
    with pytest.raises(BadSignatureError):
        verify([NEW], signed(NEW), json.dumps(json.loads(BODY)).encode())


@pytest.mark.parametrize("change", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_id_and_time_are_signed_too(change: str):
    headers = {name.lower(): value for name, value in signed(NEW).items()}
    for value in (
        {"webhook-id": "evt_2", "webhook-timestamp": str(wall_clock_s() - 1), "webhook-signature": "v1,AAAA"}[change],
        "",
    ):
        with pytest.raises(BadSignatureError):
            verify([NEW], headers | {change: value}, BODY)
    with pytest.raises(BadSignatureError):
        verify([NEW], {name: value for name, value in headers.items() if name != change}, BODY)


@pytest.mark.parametrize("by", [-TOLERANCE_S - 1, TOLERANCE_S + 1])
def test_a_delivery_of_another_time_is_refused_and_one_within_five_minutes_is_not(by: int):
    headers = signed(NEW, at_s=1_800_000_000)
    with pytest.raises(BadSignatureError, match="old"):
        verify([NEW], headers, BODY, now_s=1_800_000_000 + by)
    assert verify([NEW], headers, BODY, now_s=1_800_000_000 + by - (1 if by > 0 else -1)) == "evt_1"


@pytest.mark.parametrize(
    "secrets",
    [
        [],
        [OLD, NEW, OTHER],
        ["whsec_"],
        ["not a secret"],
        [NEW.removeprefix("whsec_")],
        [secret(b"s", 23)],
        [secret(b"l", 65)],
        ["whsec_" + "é" * 32],
    ],
)
def test_a_secret_that_is_none_does_not_start_and_is_not_repeated(secrets: list[str]):
    with pytest.raises(ValidationError) as refused:
        CallbackConfig.model_validate({"name": "shop", "url": "https://shop.example/hook", "secrets": secrets})
    shown = "".join(str(error["msg"]) for error in refused.value.errors(include_input=False))
    assert not any(one in shown for one in secrets if len(one) > 10)


def test_secrets_do_not_show_when_printed():
    config = CallbackConfig.model_validate({"name": "shop", "url": "https://shop.example/hook", "secrets": [NEW]})
    target = HttpTargetConfig.model_validate({"name": "crm", "base_url": "https://crm.example", "signing": [NEW]})
    for shown in (repr(config), config.model_dump_json(), repr(target), target.model_dump_json()):
        assert NEW not in shown
        assert NEW.removeprefix("whsec_") not in shown


@proves("G-SIGNED")
def test_a_signed_http_target_gets_a_signature_over_the_bytes_it_received():
    async def main() -> None:
        async with HttpProvider().running() as provider:
            http = Http()
            options: dict[str, Any] = {"name": "crm", "base_url": provider.url, "signing": [OLD, NEW]}
            settings = ConnectorSettings(http=(HttpTargetConfig.model_validate(options),))
            http.bind(settings, EgressPolicy(frozenset({"127.0.0.1"})))
            body = {"path": "/notes", "body": {"text": "Grüße", "b": 1, "a": [1.5, None]}}
            order = EffectOrder("effect-1", "job", "default", "http", "crm", "note", body, 1, 5.0)
            assert isinstance(await http.send(order), Receipt)
            await http.aclose()
            (request,) = provider.requests
            for one in (OLD, NEW):
                assert verify([one], request.headers, request.body) == "effect-1"
                Webhook(one).verify(request.body, request.headers)

    asyncio.run(main())
