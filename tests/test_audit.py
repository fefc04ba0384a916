"""The audit: whole under concurrency, append-only for the application, and telling on whoever changed it."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from deedbox.model.errors import DeedboxError
from deedbox.operate import audit as asked
from deedbox.store.audit import AuditEntry, append, verify
from deedbox.store.transaction import autocommit, transaction
from tests.builders import Outbox, outbox_on, principal
from tests.database import TestDatabase
from tests.guarantees import proves

pytestmark = pytest.mark.anyio


@pytest.fixture
async def box(database: TestDatabase) -> AsyncIterator[Outbox]:
    async with outbox_on(database) as made:
        yield made


async def write(box: Outbox, number: int, /, **detail: Any) -> int:
    async with transaction(box.pool) as connection:
        entry = AuditEntry("default", "Zoë", "api", "session", "approve", "approval", f"id-{number}", "Gründe", detail)
        return await append(connection, entry)


async def tamper(box: Outbox, statement: str) -> None:
    """What only a superuser can do: change rows under the trigger."""
    async with await psycopg.AsyncConnection.connect(box.database.owner_url, autocommit=True) as connection:
        await connection.execute("SET session_replication_role = replica")
        await connection.execute(statement.encode())


async def test_entries_are_numbered_without_gap_and_the_chain_is_whole_under_concurrency(box: Outbox):
    numbers = await asyncio.gather(*(write(box, number) for number in range(25)))
    assert sorted(numbers) == list(range(1, 26))
    assert await verify(box.pool) is None
    check = await asked.check(box.pool)
    assert (check.entries, check.whole) == (25, True)


async def test_an_entry_that_is_rolled_back_leaves_no_gap(box: Outbox):
    await write(box, 1)
    async with autocommit(box.pool) as connection, connection.transaction(force_rollback=True):
        assert await append(connection, AuditEntry("default", "a", "api", "session", "v", "k", "i")) == 2
    assert await write(box, 2) == 2
    assert await verify(box.pool) is None


async def test_details_of_every_shape_verify_after_their_way_through_the_database(box: Outbox):
    await write(box, 1, large=1e25, one=1.0, small=1e-7, text="\u202eüñ\U0001f600", nested=[{"b": None, "a": [True, -0.0]}])
    assert await verify(box.pool) is None


@proves("G-AUDIT-APPEND")
@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ("UPDATE deedbox.audit SET reason = 'another' WHERE seq = 2", 2),
        ("UPDATE deedbox.audit SET at = at + interval '1 microsecond' WHERE seq = 3", 3),
        ("UPDATE deedbox.audit_detail SET detail = '{}' WHERE seq = 2", 2),
        ("DELETE FROM deedbox.audit WHERE seq = 1", 1),
        ("DELETE FROM deedbox.audit WHERE seq = 3", 3),
        ("DELETE FROM deedbox.audit WHERE seq = 5", 5),
        ("UPDATE deedbox.audit SET entry_sha256 = sha256('x') WHERE seq = 4", 4),
        ("UPDATE deedbox.audit_head SET entry_sha256 = sha256('x')", 5),
    ],
)
async def test_the_first_broken_link_is_found(box: Outbox, change: str, broken: int):
    for number in range(5):
        await write(box, number, number=number)
    await tamper(box, change)
    assert await verify(box.pool) == broken


async def test_an_erased_detail_does_not_break_the_chain(box: Outbox):
    await write(box, 1, subject="a person's data")
    await write(box, 2)
    async with autocommit(box.pool) as connection:
        await connection.execute("DELETE FROM deedbox.audit_detail WHERE seq = 1")
    assert await verify(box.pool) is None


@proves("G-AUDIT-APPEND")
@pytest.mark.parametrize(
    "change",
    ["UPDATE deedbox.audit SET reason = 'x'", "DELETE FROM deedbox.audit", "TRUNCATE deedbox.audit CASCADE"],
)
async def test_the_application_cannot_change_or_shorten_it(box: Outbox, change: str):
    await write(box, 1)
    async with autocommit(box.pool) as connection:
        with pytest.raises(psycopg.Error) as refusal:
            await connection.execute(change.encode())
    assert refusal.value.sqlstate in {"42501", "DB003"}
    assert await verify(box.pool) is None


async def test_the_export_is_lines_of_json_with_the_head_last_and_for_administrators(box: Outbox):
    for number in range(3):
        await write(box, number, number=number)
    lines = [json.loads(line) async for line in asked.export(box.pool, principal(box.ids, "admin"))]
    assert [line["seq"] for line in lines[:-1]] == [1, 2, 3]
    assert lines[-1] == {"head": {"seq": 3, "entry_sha256": lines[-2]["entry_sha256"]}}
    assert lines[1]["prev_sha256"] == lines[0]["entry_sha256"]
    assert lines[2]["detail"] == {"number": 2}
    with pytest.raises(DeedboxError, match="administer"):
        await anext(asked.export(box.pool, principal(box.ids, "manager")))
