"""Which key a call has: the header, the schema's field, the form's field, what the source calls it, the action's own rule."""

from typing import Any

import pytest
from pydantic import BaseModel

from deedbox.extend.action import RegistrationError
from deedbox.extend.context import Context
from deedbox.extend.document import Document
from deedbox.extend.registry import App
from deedbox.intake.request import Accepted, Request, Upload
from deedbox.model.errors import DeedboxError
from deedbox.model.policy import allow
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import Road, road

pytestmark = pytest.mark.anyio


class Event(BaseModel):
    id: str | int | None = None


class Hook(BaseModel):
    event: Event = Event()
    text: str = ""


class Mail(BaseModel):
    file: Document


class Keyed(BaseModel):
    idempotency_key: str | None = None
    text: str = ""


class Done(BaseModel):
    ok: bool = True


def hooks() -> App:
    app = App()

    @app.action(roles=["operator"], policy=allow(), key_from="event.id")
    async def take_hook(_ctx: Context, _given: Hook) -> Done:
        return Done()

    @app.action(roles=["operator"], policy=allow(), key="new", key_from=lambda hook: f"hook {hook.event.id}")
    async def take_called(_ctx: Context, _given: Hook) -> Done:
        return Done()

    @app.action(roles=["operator"], policy=allow(), key_from="file.sha256")
    async def take_mail(_ctx: Context, _given: Mail) -> Done:
        return Done()

    @app.action(roles=["operator"], policy=allow())
    async def take_keyed(_ctx: Context, _given: Keyed) -> Done:
        return Done()

    assert len(app.actions) == 4, (take_hook, take_called, take_mail, take_keyed)
    return app


async def kept(one: Road, accepted: Accepted) -> tuple[object, ...]:
    rows = await one.database.rows("SELECT idempotency_key, key_source FROM deedbox.job WHERE job_id = %s", accepted.job_id)
    return rows[0]


@pytest.mark.parametrize(
    ("event_id", "key"),
    [
        ("evt_1", "evt_1"),
        (7001, "7001"),
        (" padded ", "padded"),
        ("<ünï@example.org>", "sha256:"),
        ("x" * 300, "sha256:"),
    ],
)
async def test_what_the_source_calls_its_event_is_the_key(database: TestDatabase, event_id: str | int, key: str) -> None:
    async with road(database, hooks()) as one:
        body: dict[str, Any] = {"event": {"id": event_id}, "text": "a"}
        first = await one.submit("take_hook", body)
        again = await one.submit("take_hook", body)
        assert (again.job_id, again.replayed) == (first.job_id, True)
        stored, source = await kept(one, first)
        assert source == "key_from"
        assert str(stored).startswith(key)


@proves("G-KEY-ORDER")
async def test_the_header_comes_before_the_field_and_the_field_before_the_source(database: TestDatabase) -> None:
    async with road(database, hooks()) as one:
        by_header = await one.submit("take_hook", {"event": {"id": "e"}}, key="h")
        assert await kept(one, by_header) == ("h", "header")
        by_header = await one.submit("take_keyed", {"idempotency_key": "f"}, key="h")
        assert await kept(one, by_header) == ("h", "header")
        by_field = await one.submit("take_keyed", {"idempotency_key": "f"})
        assert await kept(one, by_field) == ("f", "field")
        by_form = await one.intake.submit(Request(one.caller, "take_hook", {"event": {"id": "e"}}, None, "http", form_key="q"))
        assert await kept(one, by_form) == ("q", "field")


async def test_two_events_with_equal_bodies_are_two_and_one_document_is_one(database: TestDatabase) -> None:
    async with road(database, hooks()) as one:
        first = await one.submit("take_called", {"event": {"id": 1}, "text": "same"})
        second = await one.submit("take_called", {"event": {"id": 2}, "text": "same"})
        assert first.job_id != second.job_id

        async def deliver() -> Accepted:
            upload = Upload("a.txt", "text/plain", b"one document")
            return await one.intake.submit(Request(one.caller, "take_mail", {}, None, "http", uploads={"file": [upload]}))

        assert (await deliver()).job_id == (await deliver()).job_id


@pytest.mark.parametrize("body", [{}, {"event": {}}, {"event": {"id": None}}, {"event": {"id": " "}}])
async def test_where_the_source_names_nothing_the_rule_decides(database: TestDatabase, body: dict[str, Any]) -> None:
    async with road(database, hooks()) as one:
        with pytest.raises(DeedboxError) as refused:
            await one.submit("take_hook", body)
        assert refused.value.code == "key_required"


@pytest.mark.parametrize("key", ["", " ", " a", "ä", "a" * 256])
async def test_a_field_that_cannot_be_a_key_is_named(database: TestDatabase, key: str) -> None:
    async with road(database, hooks()) as one:
        with pytest.raises(DeedboxError) as refused:
            await one.submit("take_keyed", {"idempotency_key": key})
        assert refused.value.code == "key_invalid"
        assert refused.value.problems[0].pointer == "/idempotency_key"


def test_a_source_that_is_no_field_is_refused_where_it_is_declared() -> None:
    async def take_wrong(_ctx: Context, _given: Hook) -> Done:
        return Done()

    with pytest.raises(RegistrationError, match="key_from names 'evnt'"):
        App().action(roles=["operator"], policy=allow(), key_from="evnt.id")(take_wrong)
