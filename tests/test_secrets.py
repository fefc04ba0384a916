"""Secrets in what is sent: found by their form, refused with a pointer or masked, and never repeated anywhere."""

import json
import time
from collections.abc import AsyncIterator

import pytest
from pydantic import BaseModel, Field

from deedbox.extend.action import RegistrationError
from deedbox.extend.context import Context
from deedbox.extend.document import Document
from deedbox.extend.registry import App
from deedbox.intake.request import Request, Upload
from deedbox.intake.submit import Intake
from deedbox.model import secrets
from deedbox.model.errors import DeedboxError
from deedbox.model.policy import allow
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import Road, road
from tests.servers.api import api, form, part, problem_of

A, D, H = "abcdefghijKLMNOPQRSTuvwxyz012345", "0123456789", "0123456789abcdef"
CARD = "4111 1111 " + "1111 1111"
PEM = "-----BEGIN RSA PRIV" + "ATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIV" + "ATE KEY-----"
JWT = "ey" + "J" + "hbGciOiJIUzI1NiJ9.ey" + "J" + f"zdWIiOiIxMjM0In0.{A}"

# Put together here, so that no file holds what looks like one.
SAMPLES: dict[str, str] = {
    "an AWS access key": "AK" + "IA" + "ABCDEFGH23456789",
    "a Google API key": "AI" + "za" + A + "abc",
    "a Google client secret": "GOC" + "SPX-" + A,
    "a Google access token": "ya" + "29." + A,
    "an Azure storage key": "Account" + "Key=" + A * 2 + "==",
    "an Azure access signature": "https://x.example/y?si" + "g=" + A * 2,
    "a GitHub token": "gh" + "p_" + A + "abcd",
    "a GitLab token": "glp" + "at-" + A,
    "an Atlassian token": "ATA" + "TT3" + A,
    "a Slack token": "xo" + "xb-123456789012-" + A,
    "a Slack app token": "xa" + "pp-1-" + A,
    "a Slack webhook": "https://hooks.sl" + "ack.com/services/T0/B0/" + A,
    "a Telegram bot token": "123456789:" + "AA" + A + "x",
    "a Stripe key": "sk" + "_live_" + A,
    "a webhook secret": "whs" + "ec_" + A,
    "a Square token": "sq" + "0atp-" + A,
    "a Shopify token": "shp" + "at_" + H * 2,
    "a Twilio key": "S" + "K" + H * 2,
    "a SendGrid key": "S" + "G." + A + "." + A,
    "a Mailgun key": "ke" + "y-" + H * 2,
    "a Mailchimp key": H * 2 + "-u" + "s12",
    "a key of a model provider": "s" + "k-" + "proj-" + A,
    "a Hugging Face token": "h" + "f_" + A + "ab",
    "a Replicate token": "r" + "8_" + A,
    "an npm token": "np" + "m_" + A + "abcd",
    "a PyPI token": "py" + "pi-AgE" + A * 2,
    "a Docker token": "dck" + "r_pat_" + A,
    "a DigitalOcean token": "do" + "p_v1_" + H * 4,
    "a Databricks token": "da" + "pi" + H * 2,
    "a HashiCorp Vault token": "hv" + "s." + A,
    "a Grafana token": "gl" + "sa_" + A,
    "a New Relic key": "NR" + "AK-" + "ABCDEFGH23456789ABCDEFGH234",
    "a Postman key": "PM" + "AK-" + H + H[:8] + "-" + H * 2 + "ab",
    "a Linear key": "lin" + "_api_" + A,
    "a Notion token": "nt" + "n_" + A + A,
    "an age key": "AGE-SEC" + "RET-KEY-1" + "ABCDEFGH23456789" * 3 + "ABCDEFGH23",
    "a key of this Deedbox": "db" + "x_" + A,
    "a JSON Web Token": JWT,
    "a password in a URL": "postgres://desk:" + "hunter2hunter2@db.example/desk",
    "a private key": PEM,
    "a payment card's number": CARD,
}
HARMLESS = (
    "The parcel 00340434161094042557 came late; order 2026-0417 of 12 May.",
    "0197f2a8-0000-7000-8000-00000000a001",
    "see https://shop.example/orders/0197f2a8-0000-7000-8000-00000000a001?page=2",
    "task-list-for-the-people-of-the-warehouse-and-the-desk",
    "IBAN DE02120300000000202051, phone +49 30 901820, 1234567890123",
    "INV-4111111111111111 and #4111111111111111 are references",
    "4111111111111112 does not pass the check, 41111111111111 is too short",
    "zoe@lukasiewicz.example wrote to desk@handel.example",
    "sk-learn and a long-word-without-any-digit-in-it-at-all",
)


@pytest.mark.parametrize("kind", sorted(SAMPLES))
def test_each_kind_is_found_wherever_it_stands_and_masked(kind: str):
    secret = SAMPLES[kind]
    assert secrets.kind_of(f"It is {secret}, please.") == kind
    assert secrets.kind_of(json.dumps({"text": secret})) == kind
    masked = secrets.masked(f"It is {secret}, please.")
    assert kind in masked
    assert secret not in masked
    assert masked.endswith(", please.")
    found = list(secrets.findings({"a": [{"b/c": f"x {secret}"}]}))
    assert [(one.path, one.kind) for one in found] == [(("a", 0, "b/c"), kind)]


def test_every_kind_there_is_has_a_sample():
    assert set(SAMPLES) == set(secrets.KINDS)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_a_little_like_one_is_let_through(text: str):
    assert secrets.kind_of(text) is None
    assert secrets.masked(text) == text


@pytest.mark.parametrize(
    "card",
    [
        "4111111111111111",
        "4111-1111-1111-1111",
        "5555 5555 5555 4444",
        "3782 822463 10005",
        "6011111111111117",
        "30569309025904",
    ],
)
def test_cards_are_found_in_every_spelling(card: str):
    card = card.replace("1111 ", "1111 ")
    assert secrets.kind_of(f"My card is {card}.") == "a payment card's number"
    assert secrets.kind_of(f"12 {card}") == "a payment card's number"
    assert list(secrets.findings(int("4" + "1" * 15)))


def test_no_text_makes_the_search_slow():
    """Half a megabyte of what each pattern begins with: what grows with the square of it would take minutes."""
    began = time.process_time()
    for text in ("ey" + "J", "s" + "k-", "xo" + "xb-", "0", "4111 ", "-----BEGIN ", "://", "S" + "G.", "k", "Account" + "Key="):
        secrets.masked(text * (500_000 // len(text)))
    assert time.process_time() - began < 60


def test_looking_at_an_ordinary_body_costs_next_to_nothing():
    """Measured at about two microseconds; the bound is for a machine that is busy with ten other things."""
    body = json.dumps(
        {"subject": "Late delivery", "text": "The parcel came late and one cup was broken. " * 3, "urgent": False}
    )
    secrets.suspicious(body)
    began = time.process_time()
    for _ in range(2000):
        assert not secrets.suspicious(body)
    assert (time.process_time() - began) / 2000 < 50e-6


# At the door -----------------------------------------------------------------------------------------------------------


class Mail(BaseModel):
    subject: str = Field(default="", max_length=200)
    text: str = Field(default="", max_length=5000)
    parts: list[dict[str, str | int]] = []
    file: Document | None = None


class Read(BaseModel):
    length: int


def desk() -> App:
    app = App()

    @app.action(roles=["operator"], policy=allow(), key="new")
    async def read_strictly(_ctx: Context, mail: Mail) -> Read:
        return Read(length=len(mail.text))

    @app.action(roles=["operator"], policy=allow(), key="new", mask=["text", "parts.note"])
    async def read_mail(_ctx: Context, mail: Mail) -> Read:
        return Read(length=len(mail.text))

    @app.action(roles=["operator"], policy=allow(), key="new", mask=True)
    async def read_anything(_ctx: Context, mail: Mail) -> Read:
        return Read(length=len(mail.text))

    assert len(app.actions) == 3, (read_strictly, read_mail, read_anything)
    return app


@pytest.fixture
async def one(database: TestDatabase) -> AsyncIterator[Road]:
    async with road(database, desk()) as made:
        yield made


async def everything(database: TestDatabase) -> str:
    """Every row of every table, as text."""
    tables = await database.rows("SELECT tablename::text FROM pg_tables WHERE schemaname = 'deedbox'")
    texts = [await database.rows(f"SELECT t::text FROM deedbox.{name[0]} t") for name in tables]  # noqa: S608 -- from the catalogue
    return str(texts)


@proves("G-SECRET-REFUSED")
@pytest.mark.anyio
async def test_a_secret_is_refused_with_its_pointer_and_is_nowhere(one: Road, database: TestDatabase):
    secret = SAMPLES["a GitHub token"]
    for body, pointer in (
        ({"text": f"use {secret}"}, "/text"),
        ({"parts": [{"a": "b"}, {"note": secret}]}, "/parts/1/note"),
        ({"parts": [{secret: "b"}]}, "/parts/0/[a GitHub token was here]"),
        ({"unknown": secret}, "/unknown"),
        ({"parts": [{"n": int(CARD.replace(" ", ""))}]}, "/parts/0/n"),
    ):
        with pytest.raises(DeedboxError) as refused:
            await one.submit("read_strictly", body)
        assert refused.value.code == "secret_in_input"
        assert [problem.pointer for problem in refused.value.problems] == [pointer]
        assert secret not in str(refused.value.sentence)
    for request in (
        Request(one.caller, "read_strictly", {}, secret, "http"),
        Request(one.caller, "read_strictly", {}, "k", "http", caller_run=secret),
    ):
        with pytest.raises(DeedboxError) as refused:
            await one.intake.submit(request)
        assert refused.value.code == "secret_in_input"
    kept = await everything(database)
    assert secret not in kept
    assert await database.value("SELECT count(*) FROM deedbox.job") == 0
    assert await database.value("SELECT count(*) FROM deedbox.call WHERE error_code = 'secret_in_input'") == 7
    rows = await database.rows(
        "SELECT a.verb, a.subject_id, d.detail->>'code' FROM deedbox.audit a JOIN deedbox.audit_detail d USING (seq)"
    )
    assert rows == [("refuse_call", "read_strictly", "secret_in_input")] * 7


@proves("G-SECRET-REFUSED")
@pytest.mark.anyio
async def test_where_the_action_masks_nothing_of_it_is_stored(one: Road, database: TestDatabase):
    body = {"text": f"My card is {CARD}.", "parts": [{"note": SAMPLES["a Stripe key"]}], "subject": "Refund"}
    accepted = await one.submit("read_mail", body, "k")
    [[stored]] = await database.rows("SELECT input FROM deedbox.job_payload WHERE job_id = %s", accepted.job_id)
    assert stored == {
        "text": "My card is [a payment card's number was here].",
        "parts": [{"note": "[a Stripe key was here]"}],
        "subject": "Refund",
    }
    assert (await one.submit("read_mail", body, "k")).replayed
    with pytest.raises(DeedboxError) as refused:
        await one.submit("read_mail", {**body, "subject": CARD})
    assert [problem.pointer for problem in refused.value.problems] == ["/subject"]
    await one.submit("read_anything", {**body, "subject": CARD})
    kept = await everything(database)
    assert CARD not in kept
    assert SAMPLES["a Stripe key"] not in kept


@pytest.mark.anyio
async def test_uploads_that_hold_text_are_looked_into_where_that_is_set(one: Road):
    file = Upload("note.txt", "text/plain; charset=utf-8", f"the key is {SAMPLES['a Twilio key']}".encode())
    picture = Upload("note.png", "image/png", file.content)
    named = Upload(f"{SAMPLES['a Twilio key']}.txt", "text/plain", b"nothing")
    careful = Intake(one.pool, one.ids, one.app.actions, public_url="http://127.0.0.1", max_waiting=1000, scan_uploads=True)
    for intake, upload, refused in (
        (one.intake, file, False),
        (careful, file, True),
        (careful, picture, False),
        (one.intake, named, True),
    ):
        call = intake.submit(Request(one.caller, "read_strictly", {}, None, "http", uploads={"file": [upload]}))
        if refused:
            with pytest.raises(DeedboxError) as refusal:
                await call
            assert (refusal.value.code, refusal.value.problems[0].pointer) == ("secret_in_input", "/file")
        else:
            await call


@pytest.mark.anyio
async def test_over_http_as_json_and_as_a_form(database: TestDatabase):
    secret = SAMPLES["a JSON Web Token"]
    url = "/api/actions/note_thing/jobs"
    async with api(database) as site, site.client() as client:
        before = await site.stored()
        body, headers = form([part("text", secret.encode())])
        for answer in (
            await client.post(url, json={"text": secret}, headers={"Idempotency-Key": "k"}),
            await client.post(url, content=body, headers={**headers, "Idempotency-Key": "k"}),
        ):
            assert problem_of(answer) == (400, "secret_in_input", ["/text"])
            assert secret not in answer.text
        answer = await client.post(url, json={"text": "a"}, headers={"Idempotency-Key": secret})
        assert problem_of(answer) == (400, "secret_in_input", ["/Idempotency-Key"])
        assert await site.stored() == before


def test_a_mask_names_fields_of_the_input():
    app = App()

    async def read_mail(_ctx: Context, mail: Mail) -> Read:
        return Read(length=len(mail.text))

    for wrong in (["nothing"], "text"):
        with pytest.raises(RegistrationError, match="mask"):
            app.action(roles=["operator"], policy=allow(), mask=wrong)(read_mail)
