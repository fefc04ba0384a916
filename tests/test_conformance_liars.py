"""Each way of lying fails the conformance run, and a real target is proven through a relay that breaks."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deedbox.connectors import (
    ConnectorSettings,
    Http,
    HttpTargetConfig,
)
from deedbox.extend.connector import Ambiguous, Capability, EffectOrder, LookUp, Outcome, Receipt, Refused, Transient
from deedbox.testing import HttpProvider, conform, prove
from deedbox.testing import __main__ as command
from tests.guarantees import proves
from tests.test_conformance import DEADLINE_S, LOOPBACK, NOTE, failed, played, target

# As in test_connector_smtp: CPython 3.11 complains of what a test server's connections leave behind.
pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

if TYPE_CHECKING:
    from collections.abc import Mapping


class Liar(Http):
    """An HTTP connector that can be made to lie in one way."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def capability(self, target: str) -> Capability:
        claims: dict[str, Capability] = {"claims_native_key": "native_key", "claims_searchable": "searchable"}
        return claims.get(self.kind, super().capability(target))

    def key_ttl_s(self, target: str) -> float | None:
        return 60.0 if self.kind == "claims_native_key" else super().key_ttl_s(target)

    async def send(self, order: EffectOrder) -> Outcome:
        if self.kind == "overruns":
            order = replace(order, deadline_s=10.0)
        outcome = await super().send(order)
        return await self._said(order, outcome)

    async def _said(self, order: EffectOrder, outcome: Outcome) -> Outcome:
        match self.kind, outcome:
            case "retries", Ambiguous():
                outcome = await super().send(order)
            case "raises", Ambiguous(message=message):
                raise ConnectionError(message)
            case ("refuses_500", Ambiguous(code="http_503" as code)):
                outcome = Refused("caller_error", code, "no", "answered")
            case ("reset_is_not_sent", Ambiguous(code="connection_lost" as code)) | ("retries_refusals", Refused(code=code)):
                outcome = Transient("not_sent", code, "again", "answered")
            case ("believes_garbage", Ambiguous(code="unreadable_receipt")) | ("one_receipt", Receipt()):
                outcome = Receipt("ok")
            case _:
                pass
        return outcome

    async def look_up(self, order: EffectOrder) -> LookUp:
        if self.kind == "denies":
            return LookUp("not_accepted")
        if self.kind == "finds_all":
            return LookUp("accepted", "note-1")
        return await super().look_up(order)


@proves("G-CONFORMANCE")
@pytest.mark.parametrize(
    ("kind", "caught"),
    [
        ("retries", "accept_then_503"),
        ("raises", "accept_then_reset"),
        ("refuses_500", "accept_then_503"),
        ("reset_is_not_sent", "accept_then_reset"),
        ("believes_garbage", "accept_then_garbage"),
        ("retries_refusals", "refuse"),
        ("overruns", "accept_then_hang"),
        ("one_receipt", "tells_apart"),
        ("claims_native_key", "resent_after_loss"),
        ("claims_searchable", "found_after_loss"),
        ("denies", "found_after_loss"),
        ("finds_all", "not_found"),
    ],
)
async def test_a_connector_that_lies_is_caught_and_told_where(kind: str, caught: str):
    async with HttpProvider(honours_keys=False).running() as provider:
        liar = Liar(kind)
        liar.bind(ConnectorSettings(http=(target(provider.url),)), LOOPBACK)
        report = await conform(liar, provider, target="crm", payload=NOTE, deadline_s=DEADLINE_S)
        await liar.aclose()
    assert caught in failed(report), report.text()
    assert not report.passed
    (check,) = [check for check in report.checks if check.name == caught]
    assert check.said
    assert check.said in report.text()
    with pytest.raises(ValueError, match="did not pass"):
        report.proven("Ada")


# A real provider, behind the relay -----------------------------------------------------------------------------------------


@proves("G-PROVEN")
async def test_a_target_with_native_keys_is_proven_through_a_relay_that_breaks():
    async with HttpProvider().running() as provider:
        config = target(f"{provider.url}/api", capability="native_key", key_ttl_s=60)
        report = await prove(config, NOTE, policy=LOOPBACK, deadline_s=DEADLINE_S)
        assert report.passed, report.text()
        assert "resent_after_loss" in played(report)
        assert {request.target for request in provider.requests} == {"/api/notes"}
        assert {request.headers["authorization"] for request in provider.requests} == {"Bearer token-1"}
        proven = report.proven("Ada")
        believed = Http()
        changed = config.model_dump() | {"bearer": "token-1", "proven": proven}
        believed.bind(ConnectorSettings(http=(HttpTargetConfig.model_validate(changed),)), LOOPBACK)
        assert believed.capability("crm") == "native_key"
    with pytest.raises(ValueError, match="answer for it"):
        report.proven(" ")


@proves("G-PROVEN")
async def test_a_target_that_makes_two_things_of_one_key_is_not_proven():
    async with HttpProvider(honours_keys=False).running() as provider:
        config = target(provider.url, capability="native_key", key_ttl_s=60)
        report = await prove(config, NOTE, policy=LOOPBACK, deadline_s=DEADLINE_S)
    assert "resent_after_loss" in failed(report)
    assert "several receipts" in report.text()


async def test_a_payload_that_does_not_fit_is_told_before_anything_is_sent():
    async with HttpProvider().running() as provider:
        wrong: Mapping[str, Any] = {"method": "GET", "path": "/x"}
        with pytest.raises(ValueError, match="method"):
            await prove(target(provider.url), wrong, policy=LOOPBACK)
        assert not provider.requests


@proves("G-PROVEN")
async def test_the_command_proves_a_target_of_the_settings_and_says_what_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    payload = tmp_path / "note.json"
    payload.write_text(json.dumps(NOTE | {"body": {"text": "of {effect_id}"}}), encoding="utf-8")
    arguments = ["crm", str(payload), "--by", "Ada", "--deadline", str(DEADLINE_S), "--yes"]
    for honours in (True, False):
        async with HttpProvider(honours_keys=honours).running() as provider:
            options = {"name": "crm", "base_url": provider.url, "capability": "native_key", "key_ttl_s": 60}
            monkeypatch.setenv("DEEDBOX_TARGETS", json.dumps([options]))
            monkeypatch.setenv("DEEDBOX_EGRESS_ALLOW", "127.0.0.1")
            code = await asyncio.to_thread(command.main, arguments)
        said = capsys.readouterr().out.splitlines()
        assert said[0] == "http → crm, declared native_key"
        if honours:
            assert (code, said[-1].endswith(' by Ada"')) == (0, True)
            proven = json.loads("{" + said[-1] + "}")["proven"]
            assert target(provider.url, **options, proven=proven).proven == proven
            assert all("of " in note["body"]["text"] for note in provider.performed)
        else:
            assert code == 1
            assert "checks failed" in said[-1]
    assert command.main(["nobody", *arguments[1:]]) == 2
    assert "no such target" in capsys.readouterr().err
    payload.write_text("{", encoding="utf-8")
    assert command.main(arguments) == 2
