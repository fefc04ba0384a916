"""The questions after the fact, from whatever id is at hand, and the session of them that the documentation shows."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import httpx2
import pytest
from pydantic import BaseModel, Field

from deedbox.access import add_key
from deedbox.dispatch.loop import Dispatcher
from deedbox.extend.connector import EffectOrder, Outcome, Receipt
from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.gate.decide import decide
from deedbox.intake.request import Request
from deedbox.model.errors import DeedboxError
from deedbox.model.lease import Lease
from deedbox.operate.answers import ask, ask_key
from deedbox.store import switch
from deedbox.store.transaction import transaction
from deedbox.worker.loop import Worker, WorkerSettings
from deedbox.worker.model_call import ModelClient, ModelEndpoint
from tests.builders import principal
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.pasted import same_in
from tests.road import Poll, Road, road
from tests.servers.api import PERSON_TOKEN, Api, api, problem_of
from tests.servers.commands import Cli
from tests.servers.openai_endpoint import OpenAiEndpoint
from tests.test_gate import Paper

pytestmark = pytest.mark.anyio
PAGE = Path(__file__).resolve().parent.parent / "docs" / "audit.md"
"""Set to write the session into the page instead of comparing it."""


class Mail(BaseModel):
    text: str = Field(max_length=1000)


class Draft(BaseModel):
    answer: str


class Desk(Paper):
    """A connector whose provider gives its own numbers."""

    async def send(self, order: EffectOrder) -> Outcome:
        self.sent.append(order.slot)
        return Receipt(f"NOTE-{4710 + len(self.sent)}", {"status": 201})


def desk() -> App:
    app = App(connectors=[Desk()])

    @app.action(roles=["operator"], approvers=["manager"])
    async def answer_mail(ctx: Context, mail: Mail) -> Draft:
        draft = await ctx.model(Draft, f"Answer this: {mail.text}")
        ctx.effect("paper", target="crm", slot="note", payload={"text": draft.answer})
        return draft

    assert answer_mail
    return app


@dataclass(frozen=True)
class Answered:
    """A road on which one mail was drafted, approved and sent, and another waits."""

    one: Road
    job_id: UUID
    waiting: UUID


@asynccontextmanager
async def answered(database: TestDatabase) -> AsyncGenerator[Answered]:
    """Walk one job from request to receipt, drafted by a model behind a real endpoint."""
    app = desk()
    async with road(database, app) as one:
        with OpenAiEndpoint(["valid"], valid={"answer": "A new cup is on its way."}, model="tiny-drafter") as server:
            async with httpx2.AsyncClient(trust_env=False) as plain:
                worker = Worker(
                    url=database.url,
                    pool=one.pool,
                    ids=one.ids,
                    app=app,
                    lease=Lease(2.0),
                    settings=WorkerSettings(name="w1", build="0.1.0", slots=4, drain_s=10, poll_s=0.05),
                    wake=Poll(),
                    models=ModelClient(ModelEndpoint(server.base_url, None, "tiny-drafter"), plain),
                )
                one.start(worker)
                call = Request(one.caller, "answer_mail", {"text": "A cup is broken."}, "mail-0931", "http", caller_run="run-7")
                job_id = (await one.intake.submit(call)).job_id
                await one.intake.submit(call)
                await one.until(job_id, "awaiting_human")
                [row] = await database.rows("SELECT approval_id, encode(digest, 'hex') FROM deedbox.approval")
                async with transaction(one.pool) as connection:
                    await switch.turn_root(connection, "acts", is_on=True, changed_by="test", reason="a test")
                await decide(
                    one.pool,
                    one.ids,
                    one.approver,
                    approval_id=UUID(str(row[0])),
                    digest_hex=str(row[1]),
                    choice="approve",
                    reason=None,
                    how="page",
                )
                one.start(Dispatcher(one.pool, one.ids, app.connectors, environment_on=True))
                await one.until(job_id, "completed")
                second = await one.submit("answer_mail", {"text": "Where is it?"}, "mail-0932")
                await one.until(second.job_id, "awaiting_human")
                yield Answered(one, job_id, second.job_id)


@proves("G-FOUR-QUESTIONS")
async def test_each_question_is_answered_from_every_id_at_hand(database: TestDatabase):
    async with answered(database) as desk_of:
        one, job_id = desk_of.one, desk_of.job_id
        [row] = await database.rows("SELECT effect_id, approval_id FROM deedbox.effect")
        for what in (str(job_id), str(row[0]), str(row[1]), "mail-0931", "run-7", "NOTE-4711"):
            [sent] = await ask(one.pool, one.approver, "sent", what)
            assert sent.sentence.startswith("Yes: note to paper:crm was accepted, and is NOTE-4711 there (it answered, on ")
            [approved] = await ask(one.pool, one.approver, "approved", what)
            assert approved.sentence.startswith("approver approved group default on ")
            [drafted] = await ask(one.pool, one.approver, "drafted", what)
            assert drafted.sentence.startswith("tiny-drafter (local) wrote what was proposed in attempt 1, on ")
            [request] = await ask(one.pool, one.approver, "request", what)
            assert "caller asked for answer_mail on" in request.sentence
            assert "under the key mail-0931 (http, run run-7)" in request.sentence
            assert {answer.job_id for answer in (sent, approved, drafted, request)} == {job_id}
        [waits] = await ask(one.pool, one.approver, "sent", "mail-0932")
        assert waits.sentence == "No: it waits for a person, and nothing is on the outbox."
        [nobody] = await ask(one.pool, one.approver, "approved", "mail-0932")
        assert nobody.sentence.startswith("Nobody yet: group default waits for manager until ")
        key = await ask_key(one.pool, one.approver, "answer_mail", "mail-0931")
        assert key.facts["processed"]
        assert "The job is completed" in key.sentence
        assert "1 later delivery of the key got the same job." in key.sentence
        free = await ask_key(one.pool, one.approver, "answer_mail", "mail-0933")
        assert (free.job_id, free.facts["processed"]) == (None, False)
        for stranger in (principal(one.ids, "operator", kind="service"), principal(one.ids, "admin", tenant="north")):
            with pytest.raises(DeedboxError, match="may see"):
                await ask(one.pool, stranger, "sent", str(job_id))
        theirs = await ask_key(one.pool, principal(one.ids, "operator", kind="service"), "answer_mail", "mail-0931")
        assert (theirs.job_id, str(job_id) in theirs.sentence) == (None, False)
        [own] = await ask(one.pool, one.caller, "sent", "NOTE-4711")
        assert own.job_id == job_id


async def test_the_same_over_http(database: TestDatabase):
    async with api(database) as site, site.client() as client, site.client(PERSON_TOKEN) as person:
        made = await client.post("/api/actions/note_thing/jobs", json={"text": "a"}, headers={"Idempotency-Key": "k"})
        found = (await client.get("/api/audit/key", params={"action": "note_thing", "key": "k"})).json()
        assert found["job_id"] == made.json()["job_id"]
        answer = (await person.get("/api/audit/answers", params={"question": "sent", "what": "k"})).json()
        assert [one["sentence"] for one in answer["answers"]] == ["No: nothing of it was put on the outbox. The job is queued."]
        wrong = await person.get("/api/audit/answers", params={"question": "why", "what": "k"})
        assert problem_of(wrong)[:2] == (400, "invalid_parameter")
        unknown = await person.get("/api/audit/answers", params={"question": "sent", "what": "nothing"})
        assert problem_of(unknown)[:2] == (404, "not_found")
        # The approver is no administrator.
        for path in ("/api/audit", "/api/audit/check", "/api/audit/export"):
            assert problem_of(await person.get(path))[:2] == (403, "permission_denied")
        token = await add_key(site.road.pool, site.road.ids, "default", "auditor", ["admin"], "test")
        await _read_by_an_administrator(site, token)


async def _read_by_an_administrator(site: Api, token: str) -> None:
    async with site.client(token) as admin:
        check = (await admin.get("/api/audit/check")).json()
        assert check["whole"] is True
        page = (await admin.get("/api/audit", params={"limit": "1", "since": "2020-01-01T00:00:00Z"})).json()
        assert [entry["verb"] for entry in page["entries"]] == ["add_key"]
        assert page["before"] == check["entries"]
        lines = (await admin.get("/api/audit/export")).text.splitlines()
        assert len(lines) == check["entries"] + 1
        sheet = await admin.get("/api/audit/export", params={"format": "csv"})
        assert sheet.headers["content-type"].startswith("text/csv")
        assert problem_of(await admin.get("/api/audit", params={"since": "yesterday"}))[:2] == (400, "invalid_parameter")
        old = await admin.get("/api/audit/check", params={"head": f"{check['entries'] + 1}:{'0' * 64}"})
        assert old.json()["whole"] is False


# The session in the documentation --------------------------------------------------------------------------------------


@proves("G-FOUR-QUESTIONS")
async def test_the_session_in_the_documentation_is_what_the_commands_say(database: TestDatabase, tmp_path: Path):
    async with answered(database):
        cli = Cli(database.url, tmp_path, {"COLUMNS": "120"})
        said: list[str] = []
        for command in (
            "audit key answer_mail mail-0931",
            "audit sent mail-0931",
            "audit approved mail-0931",
            "audit drafted mail-0931",
            "audit request NOTE-4711",
            "audit sent mail-0932",
            "audit list --limit 3",
            "audit export --head",
            "audit verify",
        ):
            ended = await cli(*command.split())
            assert ended.code == 0, ended.err
            said += [f"$ deedbox {command}", *(line.rstrip() for line in ended.out.splitlines())]
            if command == "audit export --head":
                (tmp_path / "audit.ndjson").write_text((await cli("audit", "export")).out, encoding="utf-8")
        said += ["$ deedbox audit export > audit.ndjson", "$ deedbox audit verify --file audit.ndjson"]
        said += (await Cli(None, tmp_path)("audit", "verify", "--file", "audit.ndjson")).out.splitlines()
    session = steady("\n".join(said))
    same_in(PAGE, session)


def steady(text: str) -> str:
    """The text with ids, times and hashes that are the same in every run."""
    ids: dict[str, str] = {}

    def named(match: re.Match[str]) -> str:
        return ids.setdefault(match[0], f"01a22d45-0000-7000-8000-{len(ids) + 1:012}")

    text = re.sub(r"[0-9a-f]{64}", "5e8dd316726b0335" * 4, text)
    text = re.sub(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", named, text)
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "2026-11-30 09:31:00", text)
