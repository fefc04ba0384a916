"""Erasing a person: what goes, what stays, and that it goes on where it stood."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from pydantic import BaseModel, Field

from deedbox.dispatch.loop import Dispatcher
from deedbox.extend.connector import EffectOrder, Outcome, Receipt
from deedbox.extend.context import Context
from deedbox.extend.document import Document
from deedbox.extend.registry import App
from deedbox.gate.decide import decide
from deedbox.intake.request import Request, Upload
from deedbox.model.errors import DeedboxError
from deedbox.model.fingerprint import key_hash
from deedbox.operate import erasure
from deedbox.operate.audit import check
from deedbox.operate.erasure import Erasure
from deedbox.store import switch
from deedbox.store.transaction import transaction
from tests.builders import principal
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import Road, road
from tests.servers.api import PERSON_TOKEN, api, problem_of
from tests.servers.commands import PASSWORD, Cli, people, refused
from tests.test_gate import Paper
from tests.test_secrets import everything

pytestmark = pytest.mark.anyio
WHO = "Zoe@Lukasiewicz.example"
TRACES = ("lukasiewicz", "tarragon", "marjoram")
"""What must be nowhere afterwards: who it was, what was written, and what was said about it."""


class Customer(BaseModel):
    email: str = Field(max_length=200)


class Mail(BaseModel):
    customer: Customer
    text: str = Field(max_length=1000)
    file: Document | None = None


class Draft(BaseModel):
    text: str


class Desk(Paper):
    async def send(self, order: EffectOrder) -> Outcome:
        return Receipt("NOTE-1", {"echo": order.payload["text"]})


def desk() -> App:
    app = App(connectors=[Desk()])

    @app.action(roles=["operator"], approvers=["manager"], data_subject="customer.email")
    async def answer_mail(ctx: Context, mail: Mail) -> Draft:
        await ctx.progress(1, 2, f"reads {mail.text}")
        await ctx.partial({"draft": mail.text})
        await ctx.step("read", lambda: mail.text)
        ctx.effect("paper", target="crm", slot="note", payload={"text": mail.text})
        return Draft(text=mail.text)

    assert answer_mail
    return app


@pytest.fixture
async def one(database: TestDatabase) -> AsyncIterator[Road]:
    async with road(database, desk()) as made:
        yield made


def mail(key: str, who: str = WHO, **more: Any) -> dict[str, Any]:
    return {"customer": {"email": who}, "text": f"tarragon {key}", **more}


async def done(one: Road, key: str, who: str = WHO) -> UUID:
    """A job about somebody from request to receipt, with an upload, a repeated delivery and a reason."""
    files = {"file": [Upload("tarragon.txt", "text/plain", b"marjoram")]}
    call = Request(one.caller, "answer_mail", mail(key, who), key, "http", uploads=files, caller_run=f"of {who}")
    job_id = (await one.intake.submit(call)).job_id
    await one.intake.submit(call)
    await one.until(job_id, "awaiting_human")
    [row] = await one.database.rows("SELECT approval_id, encode(digest, 'hex') FROM deedbox.approval WHERE job_id = %s", job_id)
    await decide(
        one.pool,
        one.ids,
        one.approver,
        approval_id=UUID(str(row[0])),
        digest_hex=str(row[1]),
        choice="approve",
        reason="marjoram is fine",
        how="page",
    )
    await one.until(job_id, "completed")
    return job_id


@proves("G-ERASED")
async def test_nothing_of_a_person_stays_but_skeletons_hashes_and_a_whole_chain(one: Road, database: TestDatabase):
    async with transaction(one.pool) as connection:
        await switch.turn_root(connection, "acts", is_on=True, changed_by="test", reason="a test")
    one.start(one.worker())
    one.start(Dispatcher(one.pool, one.ids, one.app.connectors, environment_on=True))
    job_id = await done(one, "lukasiewicz-1")
    other = await done(one, "k-2", "ada@example.org")
    admin = principal(one.ids, "admin")
    with pytest.raises(DeedboxError, match="administer"):
        await Erasure(one.pool).erase(principal(one.ids, "manager"), WHO, "They asked.")
    erased = await Erasure(one.pool).erase(admin, f"  {WHO.lower()} ", "They asked for it.")
    assert (erased.jobs, erased.not_ended, erased.complete) == (1, (), True)
    rows = await database.rows("SELECT t.tablename::text FROM pg_tables t WHERE schemaname = 'deedbox'")
    mine = [row for name in rows for row in await _rows_of(database, str(name[0])) if str(job_id) in row]
    assert not [trace for trace in TRACES if trace in str(mine).lower()]
    # Hashes of what was sent twice are in no row, and what the other person's job holds is untouched.
    assert "lukasiewicz" not in (await everything(database)).lower()
    assert await database.value("SELECT count(*) FROM deedbox.job_payload WHERE job_id = %s", other) == 1
    assert await database.rows(
        "SELECT key_sha256, payload_sha256, erased FROM deedbox.idempotency WHERE job_id = %s", job_id
    ) == [(key_hash("lukasiewicz-1"), None, True)]
    assert await database.value("SELECT count(*) FROM deedbox.call WHERE job_id = %s AND input_sha256 IS NULL", job_id) == 1
    assert await database.rows("SELECT provider_id, evidence FROM deedbox.receipt WHERE job_id = %s", job_id) == [
        ("NOTE-1", {})
    ]
    assert await database.value("SELECT decided_how FROM deedbox.approval WHERE job_id = %s", job_id) == "page"
    found = await check(one.pool)
    assert (found.whole, found.erased) == (True, 1)
    with pytest.raises(DeedboxError) as gone:
        await one.submit("answer_mail", mail("lukasiewicz-1"), "lukasiewicz-1")
    assert (gone.value.code, gone.value.status) == ("erased", 410)
    [entry] = await database.rows(
        "SELECT a.subject_id, a.reason, d.detail FROM deedbox.audit a JOIN deedbox.audit_detail d USING (seq)"
        " WHERE verb = 'erase'"
    )
    assert (len(str(entry[0])), entry[1], entry[2]) == (64, "They asked for it.", {"jobs": [str(job_id)], "not_ended": 0})
    again = await Erasure(one.pool).erase(admin, WHO, "They asked for it.")
    assert (again.jobs, again.complete) == (0, True)


async def _rows_of(database: TestDatabase, table: str) -> list[str]:
    rows = await database.rows(f"SELECT t::text FROM deedbox.{table} t")  # noqa: S608 -- from the catalogue
    return [str(row[0]) for row in rows]


@proves("G-ERASED")
async def test_it_goes_page_by_page_and_on_where_it_was_interrupted(
    one: Road, database: TestDatabase, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(erasure, "PAGE", 2)
    ids = [(await one.submit("answer_mail", mail(f"k{number}"), f"k{number}")).job_id for number in range(7)]
    async with await psycopg.AsyncConnection.connect(database.owner_url, autocommit=True) as connection:
        await connection.execute("SET session_replication_role = replica")
        await connection.execute(
            "INSERT INTO deedbox.result (job_id, state, code, attempt, attempts_allowed, round, last_seq, ended_at)"
            " SELECT job_id, 'canceled', 'canceled', 0, 5, 1, 1, deedbox.clock() FROM deedbox.queue WHERE job_id <> %s",
            [ids[0]],
        )
        await connection.execute("DELETE FROM deedbox.queue WHERE job_id <> %s", [ids[0]])
    admin = principal(one.ids, "admin")
    first = await Erasure(one.pool).erase(admin, WHO, "They asked.", pages=2)
    # The one that has not ended is named, and is no reason to stop.
    assert (first.jobs, first.not_ended, first.complete) == (3, (ids[0],), False)
    rest = await Erasure(one.pool).erase(admin, WHO, "They asked.")
    assert (rest.jobs, rest.not_ended, rest.complete) == (3, (ids[0],), True)
    assert await database.rows("SELECT job_id FROM deedbox.job WHERE data_subject IS NOT NULL") == [(ids[0],)]
    assert await database.value("SELECT count(*) FROM deedbox.audit WHERE verb = 'erase'") == 4


async def test_over_http_and_at_the_terminal(database: TestDatabase, tmp_path: Path):
    async with api(database) as site, site.client(PERSON_TOKEN) as person:
        answer = await person.post("/api/erasures", json={"data_subject": WHO, "reason": "They asked."})
        assert problem_of(answer)[:2] == (403, "permission_denied")
    await people(database.url, ada="admin")
    cli = Cli(database.url, tmp_path)
    asked = ("jobs", "erase", "--subject", WHO, "--as", "ada", "--reason", "They asked.")
    refused(await cli(*asked, "--yes", "--reason", " ", stdin=PASSWORD), 1, "reason")
    ended = await cli(*asked, "--yes", "--json", stdin=PASSWORD)
    assert json.loads(ended.out) == {"jobs": 0, "not_ended": [], "complete": True}
    assert (await cli(*asked, stdin=f"{PASSWORD}\nn\n")).code == 1
