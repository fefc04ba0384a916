"""Sensitive values and secrets, planted in a real installation, are in nothing that it says: logs, events, answers, pages."""

import asyncio
import re
import sys
from collections import deque
from pathlib import Path
from typing import Annotated, Any

import httpx2
import pytest
from pydantic import BaseModel, Field, ValidationError

from deedbox import Sensitive
from deedbox.dispatch.loop import Dispatcher
from deedbox.extend.connector import Ambiguous, Outcome, Refused, Transient
from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.extend.sensitive import marked_fields, sensitive_paths
from deedbox.model.sensitive import MASKED, masked, scrubbed, texts_at
from deedbox.settings import Settings
from deedbox.store import sensitive
from deedbox.store.transaction import autocommit
from tests.builders import ScriptedConnector
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import road, until
from tests.ruled import approvals, say
from tests.servers.commands import PASSWORD, Cli, address_in, introduced, key_of, people
from tests.test_secrets import CARD, SAMPLES

ILLNESS = "Chorea Huntington"
TOKEN = SAMPLES["a GitHub token"]
KEPT_EXACTLY = {"job_payload", "proposal", "proposal_effect", "result"}
"""Where the contents themselves lie, as long as their retention says."""


class Inner(BaseModel):
    iban: Annotated[str, Sensitive()]
    name: str
    child: "Inner | None" = None


class Outer(BaseModel):
    plain: str = ""
    marked: str = Field(default="", json_schema_extra={"sensitive": True}, alias="Marked")
    one: Inner | None = None
    many: list[Inner] = []
    by_name: dict[str, Inner] = {}
    tags: list[Annotated[str, Sensitive()]] = []


def test_marks_are_found_wherever_a_model_holds_them_and_masked_there_alone():
    inner = {"iban": "DE02 1203", "name": "n", "child": {"iban": "DE99", "name": "c", "child": {"iban": "DE98", "name": "d"}}}
    value = {
        "plain": "p",
        "Marked": "m",
        "one": inner,
        "many": [inner, inner],
        "by_name": {"x": inner},
        "tags": ["t"],
        "unknown": "u",
    }
    paths = sensitive_paths(Outer)
    shown = masked(value, paths)
    text = str(shown)
    assert not [one for one in ("DE02 1203", "DE99", "DE98", "'m'", "'t'") if one in text]
    assert (shown["plain"], shown["unknown"], shown["many"][1]["child"]["name"]) == ("p", "u", "c")
    assert shown["one"]["child"]["child"]["iban"] == MASKED
    assert masked({"one": {"iban": None}}, paths) == {"one": {"iban": None}}
    assert texts_at(value, paths) == ("DE02 1203", "DE98", "DE99")
    assert scrubbed("pay DE99 now", texts_at(value, paths)) == f"pay {MASKED} now"
    assert Outer.model_json_schema()["$defs"]["Inner"]["properties"]["iban"]["sensitive"] is True
    assert sensitive_paths(BaseModel) == ()


@pytest.mark.parametrize("missing", ["log_payloads_keep_days", "log_payloads_readers", "log_payloads_masks"])
def test_payloads_are_not_logged_before_it_is_said_how(missing: str):
    given: dict[str, Any] = {"log_payloads_keep_days": 3, "log_payloads_readers": ["ops"], "log_payloads_masks": ["salutation"]}
    assert Settings(log_payloads=True, **given).payload_log is not None
    assert Settings(**given).payload_log is None
    del given[missing]
    with pytest.raises(ValidationError, match=missing):
        Settings(log_payloads=True, **given)


@proves("G-SENSITIVE", "G-SECRET-REFUSED")
@pytest.mark.anyio
async def test_what_is_planted_in_a_real_installation_is_in_nothing_that_it_says(database: TestDatabase, tmp_path: Path):
    (tmp_path / "app.py").write_text((Path(__file__).parent / "apps" / "sensitive.py").read_text(encoding="utf-8"))
    await people(database.url, ada="manager", vera="viewer", root="admin")
    key = await key_of(database.url)
    cli = Cli(
        database.owner_url,
        tmp_path,
        {
            "DEEDBOX_PORT": "0",
            "AI_ACTIONS_ENABLED": "true",
            "DEEDBOX_LOG_LEVEL": "debug",
            "DEEDBOX_LOG_PAYLOADS": "true",
            "DEEDBOX_LOG_PAYLOADS_KEEP_DAYS": "3",
            "DEEDBOX_LOG_PAYLOADS_READERS": '["ops"]',
            "DEEDBOX_LOG_PAYLOADS_MASKS": '["salutation"]',
            "PYTHONUNBUFFERED": "1",
        },
    )
    log = tmp_path / "log"
    said: dict[str, str] = {}
    with log.open("wb") as errors:
        server = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "deedbox.cli.main", "serve", "app.py"),
            cwd=tmp_path,
            env=cli.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
        async with introduced(server, within=240) as introduction:
            url = address_in(introduction)
            async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=120) as client:
                await _walk(client, cli, key, said, database)
    said["log"] = log.read_text(encoding="utf-8")
    assert '"event": "payload"' in said["log"]
    assert '"readers": ["ops"]' in said["log"]
    assert "handler_error" in said["log"]
    for name, text in said.items():
        assert ILLNESS not in text, (name, text[max(0, text.find(ILLNESS) - 300) :][:600])
        assert TOKEN not in text, name
        assert CARD not in text, name
    assert "not for a log" not in said["log"]
    tables = [str(row[0]) for row in await database.rows("SELECT tablename::text FROM pg_tables WHERE schemaname = 'deedbox'")]
    for table in tables:
        rows = str(await database.rows(f"SELECT t::text FROM deedbox.{table} t"))  # noqa: S608 -- from the catalogue
        assert TOKEN not in rows, table
        assert CARD not in rows, table
        if table.startswith("receipt"):
            # The provider repeated both; the field that is not marked is masked where it is shown.
            assert f"C-{ILLNESS}" not in rows
        elif not table.startswith(tuple(KEPT_EXACTLY)):
            assert ILLNESS not in rows, (table, rows[max(0, rows.find(ILLNESS) - 300) :][:600])


async def _walk(client: httpx2.AsyncClient, cli: Cli, key: str, said: dict[str, str], database: TestDatabase) -> None:
    """Send it along every road, decide, and collect what each door says to somebody who neither asked nor decides."""
    program = {"Authorization": f"Bearer {key}"}
    tokens = {name: await _log_in(client, name) for name in ("ada", "vera", "root")}
    jobs = await _send(client, program, said)
    await _decide(client, tokens, said)

    async def states() -> list[str]:
        answers = [await client.get(f"/api/jobs/{job}", headers=tokens["vera"]) for job in jobs.values()]
        return [answer.json()["state"] for answer in answers]

    async def effects() -> list[str]:
        return sorted(str(row[0]) for row in await database.rows("SELECT state FROM deedbox.effect"))

    await until(effects, lambda found: found == ["completed", "unknown", "unknown"], within=240)
    await until(
        states, lambda found: found == ["completed", "dispatching", "dispatching", *["failed_terminal"] * 2], within=240
    )
    for how, job in jobs.items():
        said[f"job that {how}"] = (await client.get(f"/api/jobs/{job}", headers=tokens["vera"])).text
        page = await client.get(f"/api/jobs/{job}/events", headers={**program, "Accept": "application/json"})
        said[f"events of {how}"] = page.text
        for more in ((), ("--json",)):
            said[f"terminal of {how} {more}"] = (await cli("jobs", "show", job, *more)).out
    stream = await client.get(f"/api/jobs/{jobs['well']}/events", headers=program)
    assert stream.headers["content-type"].startswith("text/event-stream")
    said["stream"] = stream.text
    # The caller gets what it asked for.
    assert f"It is {ILLNESS}." in (await client.get(f"/api/jobs/{jobs['well']}", headers=program)).text
    assert f'"{MASKED}"' in said["job that well"]
    ledger = await client.get("/api/effects", headers=tokens["vera"])
    said["effects"] = ledger.text
    assert MASKED in ledger.text
    for effect in ledger.json()["effects"]:
        where = effect["effect_id"]
        said[f"effect {where}"] = (await client.get(f"/api/effects/{where}", headers=tokens["vera"])).text
        said[f"terminal of {where}"] = (await cli("effects", "show", where)).out
    for command in ("jobs list", "effects list", "approvals list", "audit list", "audit export", "audit sent POST-1 --json"):
        said[command] = (await cli(*command.split())).out
    said["export"] = (await client.get("/api/audit/export", headers=tokens["root"])).text
    assert "refuse_call" in said["export"]
    said["metrics"] = (await client.get("/metrics")).text


async def _send(client: httpx2.AsyncClient, program: dict[str, str], said: dict[str, str]) -> dict[str, str]:
    """A job for every way that the handler and the provider have, and two calls that are refused."""
    url = "/api/actions/write_letter/jobs"
    jobs: dict[str, str] = {}
    for how in ("well", "rough", "lost", "fails", "breaks"):
        body = {"patient": {"name": f"Ada, card {CARD}", "diagnosis": ILLNESS}, "how": how}
        made = await client.post(url, json=body, headers=program)
        assert made.status_code == 202, made.text
        jobs[how] = made.json()["job_id"]
    secret = {"patient": {"name": "x", "diagnosis": f"{ILLNESS} {TOKEN}"}, "how": TOKEN}
    invalid = {"patient": {"name": 1, "diagnosis": ILLNESS}, "how": ILLNESS * 9, "extra": ILLNESS}
    for name, body in (("secret", secret), ("invalid", invalid)):
        refused = await client.post(url, json=body, headers=program)
        assert refused.status_code == 400
        said[name] = refused.text
    return jobs


async def _decide(client: httpx2.AsyncClient, tokens: dict[str, dict[str, str]], said: dict[str, str]) -> None:
    """Approve what waits; the card is exact for who decides, and masked for whoever else may look."""
    ada = tokens["ada"]

    async def waiting() -> int:
        return len((await client.get("/api/approvals", headers=ada)).json()["approvals"])

    await until(waiting, lambda count: count == 3, within=240)
    inbox = await client.get("/api/approvals", headers=ada)
    said["inbox"] = inbox.text
    for line in inbox.json()["approvals"]:
        where = f"/api/approvals/{line['approval_id']}"
        card = await client.get(where, headers=ada)
        # Who decides, decides on exactly what goes out.
        assert f"About {ILLNESS}." in card.text
        assert f"It is {ILLNESS}." in card.text
        said[f"card of {line['approval_id']}"] = (await client.get(where, headers=tokens["vera"])).text
        said[f"page of {line['approval_id']}"] = await _page(client, line["approval_id"])
        digest = {"decision": "approve", "digest": card.json()["digest"]}
        assert (await client.post(f"{where}/decision", json=digest, headers=ada)).status_code == 200
    on = {"on": True, "reason": "The desk opens."}
    assert (await client.put("/api/switch", json=on, headers=ada)).status_code == 200


async def _log_in(client: httpx2.AsyncClient, name: str) -> dict[str, str]:
    opened = await client.post("/api/login", json={"name": name, "password": PASSWORD})
    return {"Authorization": f"Bearer {opened.json()['token']}"}


async def _page(client: httpx2.AsyncClient, approval_id: str) -> str:
    """The page of an approval for somebody who may read it and not decide it, and before any login."""
    before = await client.get(f"/approvals/{approval_id}")
    async with httpx2.AsyncClient(base_url=client.base_url, trust_env=False, follow_redirects=True, timeout=120) as browser:
        found = re.search(r'name="csrf" value="([^"]+)"', (await browser.get("/login")).text)
        assert found is not None
        form = {"name": "vera", "password": PASSWORD, "next": f"/approvals/{approval_id}", "csrf": found[1]}
        own = {"Origin": str(client.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"}
        await browser.post("/login", data=form, headers=own)
        page = await browser.get(f"/approvals/{approval_id}")
        assert "may read this" in page.text or "needs one of these roles" in page.text, page.text[:500]
        return before.text + page.text


class Patient(BaseModel):
    illness: Annotated[str, Sensitive()]


@proves("G-SENSITIVE")
@pytest.mark.anyio
@pytest.mark.parametrize("how", ["refused", "ambiguous", "not sent"])
async def test_what_a_provider_repeats_in_its_error_is_masked_in_the_effects_event_and_wherever_it_is_kept(
    database: TestDatabase, how: str
):
    said = f"422: {ILLNESS} is no department."
    outcomes: dict[str, Outcome] = {
        "refused": Refused("caller_error", "bad_field", said, "answered"),
        "ambiguous": Ambiguous("timed_out", said, "body_sent"),
        "not sent": Transient("not_sent", "busy", said, "connect", 0.1),
    }
    connector = ScriptedConnector(script=deque([outcomes[how]]))
    app = App(connectors=[connector])

    @app.action(roles=["operator"], approvers=["manager"])
    async def refer_patient(ctx: Context, given: Patient) -> Inner:
        # The connector marks none of its fields.
        ctx.effect("note", target="desk", slot="one", payload={"text": given.illness})
        return Inner(iban="-", name="-")

    assert refer_patient
    async with road(database, app) as one:
        async with autocommit(one.pool) as connection:
            await sensitive.keep(connection, marked_fields(app.actions, app.connectors))
        await database.rows("UPDATE deedbox.switch SET is_on = true WHERE switch_id = 'acts'")
        one.start(one.worker())
        job_id = (await one.submit("refer_patient", {"illness": ILLNESS}, "k")).job_id
        await one.until(job_id, "awaiting_human")
        await say(one, (await approvals(one, job_id))["default"])
        await Dispatcher(one.pool, one.ids, app.connectors, environment_on=True).once()
        rows = await database.rows(
            "SELECT payload::text FROM deedbox.event UNION ALL SELECT message FROM deedbox.effect"
            " UNION ALL SELECT message FROM deedbox.alert UNION ALL SELECT message FROM deedbox.result"
        )
    assert connector.sent[0].payload == {"text": ILLNESS}
    assert ILLNESS not in str(rows)
    assert f"422: {MASKED} is no department." in str(rows)
