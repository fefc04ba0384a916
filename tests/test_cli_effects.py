"""The verbs for effects of which nobody knows, from the terminal to a provider that was really called."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deedbox.access import add_user
from deedbox.connectors import ConnectorSettings, Http, HttpTargetConfig
from deedbox.egress import EgressPolicy
from tests.builders import Built, Outbox, Planned, outbox_on
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.commands import PASSWORD, Cli, Ended, refused
from tests.servers.http_provider import Fault, HttpProvider

pytestmark = pytest.mark.anyio

SEARCHABLE: dict[str, Any] = {"capability": "searchable", "look_up": "/notes/{key}"}
NOTE = {"method": "POST", "path": "/notes", "body": {"text": "Grüße"}}


@dataclass
class Desk:
    """An outbox, its provider, and two people at the terminal: Ada and Bo operate, Vera only looks."""

    box: Outbox
    provider: HttpProvider
    http: Http
    cli: Cli

    async def unknown(self, fault: Fault) -> Built:
        """Really send an effect to a provider that breaks off."""
        self.provider.faults.append(fault)
        built = await self.box.build(Planned(connector="http", target="crm", payload=NOTE))
        await self.send()
        assert await self.box.state(built.effect_id) == "unknown"
        return built

    async def send(self) -> int:
        """One round of dispatch; returns how many were sent."""
        return await self.box.dispatcher(connectors={"http": self.http}, lease_s=1.5).once()

    async def do(self, verb: str, built: Built, *more: str, name: str = "Ada") -> Ended:
        """A verb as this person."""
        return await self.cli("effects", verb, str(built.effect_id), "--as", name, *more, stdin=f"{PASSWORD}\n")

    async def audited(self) -> list[tuple[object, ...]]:
        """Verb, person, door and reason of everything on record about effects."""
        return await self.box.database.rows(
            "SELECT verb, actor, door, reason FROM deedbox.audit WHERE subject_kind = 'effect' ORDER BY seq"
        )


@asynccontextmanager
async def desk(database: TestDatabase, folder: Path, **target: Any) -> AsyncGenerator[Desk]:
    async with HttpProvider().running() as provider, outbox_on(database) as box:
        given = {"name": "crm", "base_url": provider.url, **target}
        http = Http()
        http.bind(ConnectorSettings(http=(HttpTargetConfig.model_validate(given),)), EgressPolicy(frozenset({"127.0.0.1"})))
        for name, role in (("Ada", "operator"), ("Bo", "operator"), ("Vera", "viewer")):
            await add_user(box.pool, box.ids, "default", name, [role], PASSWORD)
        settings = {"DEEDBOX_TARGETS": json.dumps([given]), "DEEDBOX_EGRESS_ALLOW": "127.0.0.1"}
        try:
            yield Desk(box, provider, http, Cli(database.url, folder, settings))
        finally:
            await http.aclose()


@proves("G-LOOKUP")
async def test_look_up_asks_the_provider_and_the_job_ends_with_its_receipt(database: TestDatabase, tmp_path: Path) -> None:
    async with desk(database, tmp_path, **SEARCHABLE) as one:
        built = await one.unknown("accept_then_reset")
        (line,) = (await one.cli("effects", "list", "--state", "unknown", "--json")).json()
        assert line["effect_id"] == str(built.effect_id)
        refused(await one.do("look-up", built, name="Vera"), 1, "role")
        ended = await one.do("look-up", built)
        assert ended.code == 0, ended
        assert "note-1" in ended.out
        assert "completed" in ended.out
        assert [request.method for request in one.provider.requests] == ["POST", "GET"]
        assert len(one.provider.performed) == 1
        assert await one.box.job_state(built.job_id) == "completed"
        assert await one.audited() == [("look_up", "Ada", "cli", None)]
        refused(await one.do("look-up", built), 1, "is completed")
        shown = (await one.cli("effects", "show", str(built.effect_id), "--json")).json()
        assert [(receipt["provider_id"], receipt["source"]) for receipt in shown["receipts"]] == [("note-1", "look_up")]
        assert [probe["verdict"] for probe in shown["probes"]] == ["accepted"]


async def test_confirm_keeps_the_persons_evidence_as_the_receipt(database: TestDatabase, tmp_path: Path) -> None:
    async with desk(database, tmp_path) as one:
        built = await one.unknown("accept_then_reset")
        refused(await one.do("confirm", built, "--provider-id", " "), 1, "provider_id")
        said = ("--provider-id", "note-1", "--evidence", '{"ticket": "T-7"}', "--reason", "their support showed it", "--json")
        answer = (await one.do("confirm", built, *said)).json()
        assert (answer["state"], answer["message"]) == ("completed", "Confirmed with the evidence given.")
        (receipt,) = answer["receipts"]
        assert (receipt["provider_id"], receipt["source"]) == ("note-1", "human")
        assert receipt["evidence"] == {"ticket": "T-7", "provider_id": "note-1"}
        assert len(one.provider.requests) == 1
        assert await one.box.job_state(built.job_id) == "completed"
        assert await one.audited() == [("confirm", "Ada", "cli", "their support showed it")]


async def test_what_one_person_disproves_is_sent_again_where_the_target_can_be_asked(
    database: TestDatabase, tmp_path: Path
) -> None:
    async with desk(database, tmp_path, **SEARCHABLE) as one:
        built = await one.unknown("hang_before_reading")
        one.provider.faults.clear()
        ended = await one.do("disprove", built, "--reason", "their log has nothing")
        assert ended.code == 0, ended
        assert ended.out.startswith("Nothing had arrived; it is sent again.\n")
        assert one.provider.performed == []
        assert await one.send() == 1
        assert [note["key"] for note in one.provider.performed] == [str(built.effect_id)]
        assert await one.box.job_state(built.job_id) == "completed"


async def test_at_a_target_that_cannot_be_asked_two_people_disprove(database: TestDatabase, tmp_path: Path) -> None:
    async with desk(database, tmp_path) as one:
        built = await one.unknown("hang_before_reading")
        one.provider.faults.clear()
        for _ in range(2):
            refused(await one.do("disprove", built, "--reason", "nothing there"), 1, "second person")
        assert await one.send() == 0
        answer = (await one.do("disprove", built, "--reason", "nor for me", "--json", name="Bo")).json()
        assert answer["state"] == "pending"
        assert await one.send() == 1
        assert len(one.provider.performed) == 1
        assert [row[:2] for row in await one.audited()] == [("disprove_asked", "Ada")] * 2 + [("disprove", "Bo")]


async def test_what_is_abandoned_is_never_sent_again_and_the_job_says_so(database: TestDatabase, tmp_path: Path) -> None:
    async with desk(database, tmp_path) as one:
        built = await one.unknown("accept_then_reset")
        refused(await one.do("abandon", built, "--reason", " "), 1, "reason")
        ended = await one.do("abandon", built, "--reason", "the customer has left")
        assert ended.code == 0, ended
        assert ended.out.startswith("Given up; it is not sent again.\n")
        assert "abandoned" in ended.out
        assert await one.send() == 0
        assert len(one.provider.requests) == 1
        assert await one.box.job_state(built.job_id) == "failed_terminal"
        shown = (await one.cli("jobs", "show", str(built.job_id), "--json")).json()
        assert [effect["state"] for effect in shown["effects"]] == ["failed"]
