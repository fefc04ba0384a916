"""Every built-in connector passes the conformance run."""

import asyncio
import base64
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from deedbox.connectors import (
    Callback,
    ConnectorSettings,
    Http,
    HttpTargetConfig,
    HttpTemplate,
    Slack,
    Smtp,
    SmtpConfig,
    Submit,
    Telegram,
)
from deedbox.egress import EgressPolicy
from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.intake.child import ChildIntake
from deedbox.model.errors import DeedboxError
from deedbox.model.policy import allow
from deedbox.testing import CallbackReceiver, HttpProvider, Report, SmtpServer, conform
from deedbox.testing.conformance import CHECKS
from deedbox.testing.http_provider import Request
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import Road, road

# As in test_connector_smtp: CPython 3.11 complains of what a test server's connections leave behind.
pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

LOOPBACK = EgressPolicy(frozenset({"127.0.0.1"}))
DEADLINE_S = 0.4
SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()
NOTE = {"method": "POST", "path": "/notes", "body": {"text": "a note"}}
WAIT = {"Retry-After": "7"}


def target(url: str, **options: Any) -> HttpTargetConfig:
    return HttpTargetConfig.model_validate({"name": "crm", "base_url": url, "bearer": "token-1"} | options)


def failed(report: Report) -> list[str]:
    return [check.name for check in report.checks if check.mark == "failed"]


def played(report: Report) -> set[str]:
    return {check.name for check in report.checks if check.mark == "passed"}


@proves("G-CONFORMANCE")
@pytest.mark.parametrize(
    ("options", "honours"),
    [
        ({}, False),
        ({"capability": "searchable", "look_up": "/by-key/{key}"}, False),
        ({"capability": "searchable", "look_up": "/search?key={key}"}, False),
        ({"capability": "native_key", "key_ttl_s": 60, "proven": "2026-01-31 by the house"}, True),
    ],
    ids=["blind", "by key", "search", "native key"],
)
async def test_http_conforms_with_every_capability(options: dict[str, Any], *, honours: bool):
    async with HttpProvider(honours_keys=honours, extra_headers=WAIT).running() as provider:
        http = Http()
        http.bind(ConnectorSettings(http=(target(provider.url, **options),)), LOOPBACK)
        report = await conform(http, provider, target="crm", payload=NOTE, deadline_s=DEADLINE_S)
        await http.aclose()
    assert report.passed, report.text()
    assert len(played(report)) >= len(CHECKS) - 4


CRM_NOTE: dict[str, Any] = {
    "call": {
        "method": "PUT",
        "path": "/contacts/{values.contact}/notes/{effect_id}",
        "headers": {"X-Job": "{job_id}"},
        "body": {"text": "{values.text}", "tags": "{values.tags}", "source": "deedbox job {job_id}"},
    },
    "capability": "upsert_key",
    "look_up": "/notes/{key}",
    "signing": [SECRET],
}


@proves("G-CONFORMANCE", "G-UPSERT")
async def test_a_note_that_is_put_under_our_own_key_is_one_note_however_often_it_is_sent():
    async with HttpProvider(honours_keys=False, upserts=True, extra_headers=WAIT).running() as provider:
        connector = HttpTemplate()
        connector.bind(ConnectorSettings(http=(target(provider.url, **CRM_NOTE),)), LOOPBACK)
        values = {"contact": "42/7", "text": "Grüße", "tags": ["a", "b"]}
        report = await conform(connector, provider, target="crm", payload=values, deadline_s=DEADLINE_S)
        await connector.aclose()
        assert report.passed, report.text()
        assert not [check for check in report.checks if check.mark == "not played"], report.text()
        paths = [note["path"] for note in provider.performed]
        assert len(paths) == len(set(paths)) < sum(request.method == "PUT" for request in provider.requests)
        assert all(path.startswith("/contacts/42%2F7/notes/") for path in paths)


@proves("G-CONFORMANCE")
async def test_smtp_conforms():
    async with SmtpServer().running() as server:
        smtp = Smtp()
        config = {"host": server.host, "port": server.port, "sender": "desk@house.example", "security": "none"}
        smtp.bind(ConnectorSettings(smtp=SmtpConfig.model_validate(config)), LOOPBACK)
        to = "ada@customer.example"
        mail = {"to": to, "subject": "Your question", "body": "Hello\n"}
        report = await conform(smtp, server, target=to, payload=mail, deadline_s=DEADLINE_S)
    assert report.passed, report.text()
    assert {"accept_then_hang", "accept_then_reset", "accept_then_garbage", "refuse", "away"} <= played(report)


def of_slack(note: dict[str, Any]) -> Any:
    return {"ok": True, "channel": note["body"]["channel"], "ts": f"1700000000.{note['id'].removeprefix('note-')}"}


@proves("G-CONFORMANCE")
@pytest.mark.parametrize("history", [False, True])
async def test_slack_conforms(*, history: bool):
    provider = HttpProvider(
        honours_keys=False,
        receipt=of_slack,
        refusal=200,
        refusal_body={"ok": False, "error": "channel_not_found"},
        limit_body={"ok": False, "error": "ratelimited"},
        extra_headers=WAIT,
    )

    def messages(_request: Request) -> tuple[int, Any]:
        found = [{"ts": of_slack(note)["ts"], "metadata": note["body"]["metadata"]} for note in provider.performed]
        return 200, {"ok": True, "messages": found}

    provider.look_up = messages
    async with provider.running():
        slack = Slack()
        slack.bind(
            ConnectorSettings.model_validate({"slack": {"token": TOKEN, "base_url": provider.url, "history": history}}),
            LOOPBACK,
        )
        report = await conform(slack, provider, target="C0123456789", payload={"text": "hello"}, deadline_s=DEADLINE_S)
        await slack.aclose()
    assert report.passed, report.text()


TOKEN = "not-a-real-token"
BOT = "123456:not-a-real-token"


def of_telegram(note: dict[str, Any]) -> Any:
    return {
        "ok": True,
        "result": {"message_id": int(note["id"].removeprefix("note-")), "chat": {"id": note["body"]["chat_id"]}},
    }


@proves("G-CONFORMANCE")
async def test_telegram_conforms():
    provider = HttpProvider(
        honours_keys=False,
        receipt=of_telegram,
        refusal=400,
        refusal_body={"ok": False, "error_code": 400, "description": "Bad Request: chat not found"},
        limit_body={"ok": False, "error_code": 429, "parameters": {"retry_after": 7}},
    )
    async with provider.running():
        telegram = Telegram()
        telegram.bind(ConnectorSettings.model_validate({"telegram": {"token": BOT, "base_url": provider.url}}), LOOPBACK)
        report = await conform(
            telegram,
            provider,
            target="-100123",
            payload=lambda effect_id: {"text": f"hello {effect_id}"},
            deadline_s=DEADLINE_S,
        )
        await telegram.aclose()
    assert report.passed, report.text()


def event(effect_id: str) -> dict[str, Any]:
    return {
        "event_id": effect_id,
        "type": "job.completed",
        "job_id": "0197f0a0-0000-7000-8000-000000000009",
        "action": "answer_enquiry",
        "seq": 4,
        "round": 1,
        "timestamp": "2026-01-31T10:00:00Z",
        "payload": {"summary": "1 done"},
    }


@proves("G-CONFORMANCE", "G-CALLBACK-ONCE")
async def test_callbacks_conform_and_a_receiver_that_keeps_ids_is_told_once():
    receiver = CallbackReceiver(secrets=(SECRET,), extra_headers=WAIT)
    async with receiver.running():
        callback = Callback()
        settings = {"callbacks": [{"name": "shop", "url": f"{receiver.url}/hooks", "secrets": [SECRET]}]}
        callback.bind(ConnectorSettings.model_validate(settings), LOOPBACK)
        report = await conform(callback, receiver, target="shop", payload=event, deadline_s=DEADLINE_S)
        await callback.aclose()
        assert report.passed, report.text()
        assert not receiver.unsigned
        ids = [one["event_id"] for one in receiver.events]
        assert len(ids) == len(set(ids))
        assert len(receiver.requests) > len(ids)


class Parcel(BaseModel):
    """What is packed."""

    number: int = 0


@dataclass
class BreakingIntake:
    """A store behind the intake that answers late, or not at all, after the real one has stored the job."""

    inner: ChildIntake
    road: Road
    fault: str = ""
    calls: int = 0
    wait_s: float = 7.0

    def check(self, action: str, given: Mapping[str, Any]) -> None:
        self.inner.check(action, given)

    async def submit(self, action: str, given: Mapping[str, Any], *, effect_id: str, parent_job_id: str, tenant: str) -> str:
        self.calls += 1
        before: dict[str, Exception] = {
            "refuse": DeedboxError("permission_denied", "No."),
            "rate_limited": DeedboxError("too_many_waiting", "Not now.", retry_after=7),
            "away": DeedboxError("unavailable", "Away.", retry_after=1),
        }
        if self.fault in before:
            raise before[self.fault]
        if self.fault == "hang_before_reading":
            await asyncio.Event().wait()
        made = await self.inner.submit(action, given, effect_id=effect_id, parent_job_id=parent_job_id, tenant=tenant)
        if self.fault == "accept_then_hang":
            await asyncio.Event().wait()
        if self.fault == "accept_then_reset":
            raise DeedboxError("unavailable", "Lost.", retry_after=1)
        return made

    async def find(self, action: str, *, effect_id: str, tenant: str) -> str | None:
        self.calls += 1
        if self.fault == "accept_then_hang":
            await asyncio.Event().wait()
        return await self.inner.find(action, effect_id=effect_id, tenant=tenant)

    def plays(self, fault: str) -> bool:
        return fault in {"refuse", "rate_limited", "hang_before_reading", "accept_then_hang", "accept_then_reset"}

    def play_next(self, fault: str) -> None:
        self.fault = fault

    def forget(self) -> None:
        self.fault = ""

    @asynccontextmanager
    async def away(self) -> AsyncGenerator[None]:
        self.fault = "away"
        yield
        self.fault = ""

    async def effects_of(self, effect_id: str) -> int | None:
        query = "SELECT count(*) FROM deedbox.job WHERE idempotency_key = %s"
        return int(str(await self.road.database.value(query, f"effect:{effect_id}")))


@proves("G-CONFORMANCE")
async def test_starting_another_action_conforms(database: TestDatabase):
    submit = Submit()
    app = App(connectors=[submit])

    @app.action(roles=["operator"], policy=allow())
    async def pack_parcel(_ctx: Context, parcel: Parcel) -> Parcel:
        """Pack a parcel."""
        return parcel

    async with road(database, app) as one:
        parent = await one.submit("pack_parcel", {}, "parent")
        provider = BreakingIntake(ChildIntake(one.pool, app.actions, one.intake), one)
        submit.take_submitter(provider)
        report = await conform(
            submit,
            provider,
            target="pack_parcel",
            payload={"input": {"number": 7}},
            deadline_s=DEADLINE_S,
            job_id=str(parent.job_id),
        )
    assert report.passed, report.text()
    assert {"resent_after_loss", "found_after_loss", "not_found", "look_up_hang", "refuse"} <= played(report)
