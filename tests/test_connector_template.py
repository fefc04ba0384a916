"""Calls written in settings: an effect gives values, and nothing of them becomes a path, a header or code."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from deedbox.connectors import ConnectorSettings, Http, HttpTargetConfig, HttpTemplate
from deedbox.connectors.template import Places
from deedbox.egress import EgressPolicy
from deedbox.extend.connector import Connector, EffectOrder, Outcome, Receipt, Refused
from deedbox.testing import HttpProvider
from deedbox.testing.http_provider import Request

CALL: dict[str, Any] = {
    "method": "POST",
    "path": "/contacts/{values.contact}/notes",
    "headers": {"X-Kind": "{values.kind}", "X-Job": "job={job_id}"},
    "body": {
        "text": "{values.text}",
        "about": "On {values.date.day}: {values.text}",
        "tags": "{values.tags}",
        "fixed": [1, None],
    },
}
VALUES: dict[str, Any] = {
    "contact": "a b/ü",
    "kind": "note",
    "text": "{effect_id}",
    "date": {"day": "Monday"},
    "tags": ["x", 2],
}


def connector(url: str, call: dict[str, Any] = CALL, **options: Any) -> HttpTemplate:
    made = HttpTemplate()
    target = HttpTargetConfig.model_validate({"name": "crm", "base_url": url, "call": call} | options)
    plain = HttpTargetConfig(name="plain", base_url=url)
    made.bind(ConnectorSettings(http=(target, plain)), EgressPolicy(frozenset({"127.0.0.1"})))
    return made


def send(values: dict[str, Any], call: dict[str, Any] = CALL, **options: Any) -> tuple[Outcome, list[Request]]:
    async def main() -> tuple[Outcome, list[Request]]:
        async with HttpProvider(upserts=True).running() as provider:
            made = connector(provider.url, call, **options)
            order = EffectOrder("effect-1", "job-1", "default", "http_template", "crm", "note", values, 1, 5.0)
            outcome = await made.send(order)
            await made.aclose()
            return outcome, provider.requests

    return asyncio.run(main())


def test_it_is_a_connector():
    assert isinstance(HttpTemplate(), Connector)


def test_values_stand_where_the_template_says_and_keep_their_kind():
    outcome, (request,) = send(VALUES)
    assert outcome == Receipt("note-1", {"status": 201})
    assert request.target == "/contacts/a%20b%2F%C3%BC/notes"
    assert (request.headers["x-kind"], request.headers["x-job"]) == ("note", "job=job-1")
    assert request.headers["idempotency-key"] == "effect-1"
    # A value that looks like a place is a value.
    assert json.loads(request.body) == {
        "text": "{effect_id}",
        "about": "On Monday: {effect_id}",
        "tags": ["x", 2],
        "fixed": [1, None],
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"contact": None},
        {"contact": ""},
        {"contact": ".."},
        {"contact": "."},
        {"contact": True},
        {"contact": ["a"]},
        {"kind": "a\r\nX-Evil: b"},
        {"kind": "é"},
        {"kind": " a"},
        {"kind": ""},
        {"date": {}},
        {"date": "Monday"},
        {"text": None},
        {"text": {"an": "object"}},
        {"text": "\ud800"},
    ],
)
def test_a_value_that_does_not_fit_is_refused_when_planned_and_when_sent(wrong: dict[str, Any]):
    values = VALUES | wrong
    with pytest.raises(ValueError):  # noqa: PT011 -- each has a sentence of its own
        connector("https://crm.example").check_plan("crm", values)
    outcome, requests = send(values)
    assert isinstance(outcome, Refused)
    assert (outcome.failure_class, outcome.code) == ("caller_error", "payload_invalid")
    assert requests == []


def test_a_value_that_is_missing_is_named():
    with pytest.raises(ValueError, match=r"values\.contact: the payload has no such value"):
        connector("https://crm.example").check_plan("crm", {"kind": "x"})
    connector("https://crm.example").check_plan("crm", VALUES)


@given(st.text(min_size=1, max_size=30))
def test_a_value_in_a_path_is_one_segment_whatever_is_in_it(value: str):
    try:
        path = Places({"v": value}).path("/a/{values.v}/b")
    except ValueError:
        assert value in {".", ".."} or any(0xD800 <= ord(char) <= 0xDFFF for char in value)
        return
    assert path.count("/") == 3
    assert path.isascii()
    assert not {"?", "#", " ", "\\"} & set(path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"path": "notes"},
        {"path": "/notes/{value.x}"},
        {"path": "/notes/{values}"},
        {"path": "/notes/{values.x"},
        {"path": "/notes/{}"},
        {"path": "/notes/{values.x.__class__()}"},
        {"path": "/{secret}"},
        {"headers": {"Host": "{values.x}"}},
        {"headers": {"Idempotency-Key": "x"}},
        {"headers": {"Webhook-Signature": "x"}},
        {"headers": {"Authorization": "{values.x}"}},
        {"headers": {"X": "a\nb"}},
        {"headers": {"X Y": "a"}},
        {"headers": {"X": "{values.x"}},
        {"body": {"a": ["{values.x}}"]}},
        {"body": {"{values.x}": 1}},
        {"method": "GET"},
        {"more": 1},
    ],
)
def test_a_template_with_a_mistake_does_not_start(wrong: dict[str, Any]):
    given_call = {"path": "/notes"} | wrong
    with pytest.raises(ValidationError):
        HttpTargetConfig.model_validate({"name": "crm", "base_url": "https://crm.example", "bearer": "b", "call": given_call})


@pytest.mark.parametrize("call", [None, {"path": "/notes/{effect_id}"}, {"method": "PUT", "path": "/notes/{values.id}"}])
def test_an_upsert_key_needs_a_put_under_our_own_key(call: dict[str, Any] | None):
    options = {"name": "crm", "base_url": "https://crm.example", "capability": "upsert_key", "call": call}
    with pytest.raises(ValidationError, match="upsert_key"):
        HttpTargetConfig.model_validate(options)


def test_an_upsert_is_receipted_by_our_own_key_and_sends_the_same_bytes_again():
    call = {"method": "PUT", "path": "/notes/{effect_id}", "body": {"text": "{values.text}"}}
    outcome, (request,) = send({"text": "x"}, call, capability="upsert_key")
    assert outcome == Receipt("effect-1", {"status": 201})
    assert (request.method, request.target) == ("PUT", "/notes/effect-1")
    assert connector("https://crm.example", call, capability="upsert_key").capability("crm") == "upsert_key"


def test_each_connector_has_its_targets():
    made = connector("https://crm.example")
    with pytest.raises(ValueError, match=r"'plain' is addressed by Http\(\)"):
        made.check_target("plain")
    http = Http()
    target = HttpTargetConfig.model_validate({"name": "crm", "base_url": "https://crm.example", "call": CALL})
    http.bind(ConnectorSettings(http=(target,)), EgressPolicy())
    with pytest.raises(ValueError, match=r"'crm' is addressed by HttpTemplate\(\)"):
        http.check_target("crm")


def test_the_card_says_what_will_be_called():
    said = connector("https://crm.example").describe("crm", VALUES)
    assert said.startswith("Sends POST /contacts/a%20b%2F%C3%BC/notes to the target crm, with the values contact, date")
