"""What an approver reads: fields in the order of their model, and nothing of what leaves left out."""

import json
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field

from deedbox.connectors.http import HttpCall
from deedbox.connectors.mail import Email
from deedbox.model.fingerprint import jcs
from deedbox.operate.approvals import Approvals
from deedbox.operate.cards import Row
from deedbox.operate.rows import rows_of
from tests.builders import AnyPayload, Planned, ScriptedConnector, outbox_on, principal
from tests.database import TestDatabase
from tests.servers.console import console, log_in, make_card

pytestmark = pytest.mark.anyio


class Line(BaseModel):
    """A line of an order."""

    what: str
    amount: int


class Order(BaseModel):
    """A payload with everything that has an order of its own, which is not the alphabet's."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)

    to: str
    subject: str = Field(title="What it is about")
    lines: list[Line]
    first: Line | None = None
    by_post: bool = Field(default=False, serialization_alias="byPost")


def stored(value: object) -> Any:
    """The value after its way through the store, which keeps it in the order of the alphabet."""
    return json.loads(jcs(value))


def labels(rows: tuple[Row, ...]) -> list[str]:
    return [row.label for row in rows]


def test_a_mail_reads_as_a_mail():
    mail = Email(to=["zoe@example.org", "bo@example.org"], cc=["ada@example.org"], subject="Grüße", body="Two\nlines")
    rows = rows_of(stored(mail.model_dump(mode="json")), Email)
    assert rows == (
        Row("To", "zoe@example.org, bo@example.org"),
        Row("Cc", "ada@example.org"),
        Row("Reply-To", "none", empty=True),
        Row("Subject", "Grüße"),
        Row("Body", "Two\nlines"),
    )


def test_what_was_not_given_is_said_so_and_an_empty_value_of_ones_own_is_not():
    mail = Email(to="zoe@example.org", subject="Grüße", body="One line")
    rows = rows_of(stored(mail.model_dump(mode="json")), Email)
    assert [(row.label, row.value, row.empty) for row in rows[1:3]] == [("Cc", "none", True), ("Reply-To", "none", True)]
    call = HttpCall(path="/notes")
    assert rows_of(stored(call.model_dump(mode="json")), HttpCall)[-1] == Row("Body", "none", empty=True)
    order: dict[str, Any] = {"to": "", "subject": None, "lines": [], "by_post": False}
    assert [row.value for row in rows_of(order, Order)] == ["empty text", "null", "empty list", "false"]


def test_a_call_shows_what_it_clears():
    call = HttpCall(method="PATCH", path="/customers/7", body={"phone": None, "tags": [], "name": "", "note": {}})
    rows = rows_of(stored(call.model_dump(mode="json")), HttpCall)
    assert rows == (
        Row("Method", "PATCH"),
        Row("Path", "/customers/7"),
        Row("Body.name", "empty text", empty=True),
        Row("Body.note", "nothing in it", empty=True),
        Row("Body.phone", "null", empty=True),
        Row("Body.tags", "empty list", empty=True),
    )


def test_nested_models_keep_their_order_and_what_no_model_names_comes_after_unchanged():
    order = Order.model_validate(
        {
            "to": "Zoë",
            "subject": "Screws",
            "lines": [{"what": "M3", "amount": 4}, {"what": "M4", "amount": 5}],
            "first": {"what": "M3", "amount": 4},
            "a_note": "extra_text",
            "Zzz": {"b": 1, "a": 2},
        }
    )
    rows = rows_of(stored(order.model_dump(mode="json", by_alias=True)), Order)
    assert labels(rows) == [
        "To",
        "What it is about",
        *("Lines 1.What", "Lines 1.Amount", "Lines 2.What", "Lines 2.Amount"),
        *("First.What", "First.Amount"),
        "By post",
        *("Zzz.a", "Zzz.b"),
        "a_note",
    ]


def test_values_that_a_line_would_blur_stand_apart():
    assert rows_of(["a", "b"], None, "to") == (Row("to", "a, b"),)
    assert rows_of(["a, b"], None, "to") == (Row("to 1", "a, b"),)
    assert rows_of(["a", None, "b"], None, "to") == (Row("to 1", "a"), Row("to 2", "null", empty=True), Row("to 3", "b"))
    assert rows_of(["null", 0, False], None, "it") == (Row("it", "null, 0, false"),)
    assert rows_of({}) == ()
    assert rows_of({"": None}) == (Row('""', "null", empty=True),)
    assert rows_of("null", None, "it") == (Row("it", "null"),)


@pytest.mark.parametrize("model", [None, Order, Email])
def test_every_value_is_somewhere_whatever_the_model(model: type[BaseModel] | None):
    payload = {"to": {"deep": [{"x": "one"}, {"x": "two"}]}, "lines": "three", "body": ["four", ["five"]], "": "six"}
    text = "\n".join(row.value for row in rows_of(stored(payload), model))
    for value in ("one", "two", "three", "four", "five", "six"):
        assert value in text


class Note(AnyPayload):
    """A payload in an order of its own."""

    text: str
    about: str | None = None


async def test_the_card_of_a_proposal_follows_the_connectors_model(database: TestDatabase):
    async with outbox_on(database) as box:
        payload = {"about": None, "text": "Grüße", "extra": [1, 2]}
        built = await box.build(Planned(payload=payload))
        found = await database.value("SELECT approval_id FROM deedbox.approval WHERE job_id = %s", built.job_id)
        reader = principal(box.ids, "manager")
        known = Approvals(
            box.pool,
            box.ids,
            public_url="http://127.0.0.1",
            connectors={"note": ScriptedConnector(payload_model=Note)},
        )
        unknown = Approvals(box.pool, box.ids, public_url="http://127.0.0.1")
        shown = await known.card("default", found, reader)  # pyright: ignore[reportArgumentType] -- a uuid column
        plain = await unknown.card("default", found, reader)  # pyright: ignore[reportArgumentType] -- a uuid column
    assert shown is not None
    assert plain is not None
    assert labels(shown.effects[0].rows) == ["Text", "About", "extra"]
    assert labels(plain.effects[0].rows) == ["about", "extra", "text"]
    assert shown.digest_hex == plain.digest_hex


async def test_the_page_tells_nothing_from_the_word_for_it(database: TestDatabase):
    card = make_card()
    (first, *_) = card.effects
    rows = (Row("Phone", "null", empty=True), Row("Said", "(null)"))
    async with console(database) as site:
        await site.person("Ada", "manager")
        site.desk.put(make_card(effects=(type(first)("http", "crm", "note", rows),)))
        async with site.client() as client:
            await log_in(client)
            page = (await client.get(f"/approvals/{card.approval_id}")).text
    assert '<dt>Phone</dt><dd class="soft">(null)</dd>' in page
    assert '<dt>Said</dt><dd dir="auto">(null)</dd>' in page
