"""The chain from outside: what the application may not do to it, what is found of tampering, and its exports."""

import csv
import json
from collections.abc import AsyncIterator, Callable

import psycopg
import pytest

from deedbox.model.audited import VERBS
from deedbox.model.chain import Head
from deedbox.model.errors import DeedboxError
from deedbox.operate import audit
from deedbox.store.audit import PAGE, AuditEntry, append
from deedbox.store.transaction import autocommit, transaction
from tests.builders import Outbox, outbox_on, principal
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.test_audit import tamper

pytestmark = pytest.mark.anyio


@pytest.fixture
async def box(database: TestDatabase) -> AsyncIterator[Outbox]:
    async with outbox_on(database) as made:
        yield made


async def write(box: Outbox, *numbers: int, tenant: str = "default", reason: str = "Gründe") -> None:
    async with transaction(box.pool) as connection:
        for number in numbers:
            entry = AuditEntry(tenant, "Zoë", "api", "session", "approve", "approval", f"id-{number}", reason, {"n": number})
            await append(connection, entry)


async def lines_of(box: Outbox, **options: object) -> list[str]:
    admin = principal(box.ids, "admin")
    return [line async for line in audit.export(box.pool, admin, **options)]  # pyright: ignore[reportArgumentType] -- as given


FORGED = (
    "INSERT INTO deedbox.audit SELECT 4, at, tenant, actor, door, method, verb, subject_kind, subject_id, reason,"
    " detail_sha256, entry_sha256, sha256('x') FROM deedbox.audit WHERE seq = 3"
)


@proves("G-AUDIT-APPEND")
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE deedbox.audit_head SET seq = 1, entry_sha256 = (SELECT entry_sha256 FROM deedbox.audit WHERE seq = 1)",
        "UPDATE deedbox.audit_head SET seq = seq + 1",
        "UPDATE deedbox.audit_head SET entry_sha256 = sha256('x')",
        "DELETE FROM deedbox.audit_head",
        "TRUNCATE deedbox.audit_head",
        "INSERT INTO deedbox.audit_head (only_row, seq, entry_sha256) VALUES (true, 0, sha256('x'))",
        FORGED,
        "UPDATE deedbox.audit_detail SET detail = '{}'",
        "TRUNCATE deedbox.audit_detail",
        "UPDATE deedbox.audit SET seq = seq",
        "DELETE FROM deedbox.audit WHERE seq = 3",
        "TRUNCATE deedbox.audit CASCADE",
    ],
)
async def test_the_application_can_append_and_nothing_else(box: Outbox, change: str):
    await write(box, 1, 2, 3)
    async with autocommit(box.pool) as connection:
        with pytest.raises(psycopg.Error) as refusal:
            await connection.execute(change.encode())
    assert refusal.value.sqlstate in {"42501", "DB003"}
    check = await audit.check(box.pool)
    assert (check.entries, check.whole) == (3, True)


@proves("G-AUDIT-APPEND")
@pytest.mark.parametrize("role", ["deedbox_app", "owner"])
async def test_grants_alone_and_triggers_alone_hold(box: Outbox, role: str):
    await write(box, 1, 2)
    async with await psycopg.AsyncConnection.connect(box.database.owner_url, autocommit=True) as connection:
        if role == "deedbox_app":
            await connection.execute("ALTER TABLE deedbox.audit DISABLE TRIGGER USER")
            await connection.execute("SET ROLE deedbox_app")
        with pytest.raises(psycopg.Error) as refusal:
            await connection.execute("DELETE FROM deedbox.audit WHERE seq = 2")
    assert refusal.value.sqlstate == ("42501" if role == "deedbox_app" else "DB003")


SWAP = (
    "UPDATE deedbox.audit SET seq = CASE seq WHEN 2 THEN 1002 ELSE 1003 END WHERE seq IN (2, 3)",
    "UPDATE deedbox.audit SET seq = CASE seq WHEN 1002 THEN 3 ELSE 2 END WHERE seq > 1000",
)
CUT = (
    "DELETE FROM deedbox.audit_detail WHERE seq > 3",
    "DELETE FROM deedbox.audit WHERE seq > 3",
    "UPDATE deedbox.audit_head SET seq = 3, entry_sha256 = (SELECT entry_sha256 FROM deedbox.audit WHERE seq = 3)",
)


@proves("G-AUDIT-APPEND")
@pytest.mark.parametrize(
    ("changes", "broken", "why"),
    [
        (["UPDATE deedbox.audit_detail SET detail = '{\"n\": 7}' WHERE seq = 3"], 3, "its detail was changed"),
        (["UPDATE deedbox.audit SET actor = 'Ada' WHERE seq = 3"], 3, "it was changed"),
        (["UPDATE deedbox.audit SET prev_sha256 = sha256('x') WHERE seq = 3"], 3, "does not continue"),
        (["DELETE FROM deedbox.audit WHERE seq = 3"], 3, "it is missing"),
        (SWAP, 2, "does not continue"),
        (["DELETE FROM deedbox.audit WHERE seq = 5"], 5, "it is missing"),
        ([CUT[2]], 4, "beyond the head"),
    ],
)
async def test_what_was_tampered_with_is_found_and_named(box: Outbox, changes: list[str], broken: int, why: str):
    await write(box, 1, 2, 3, 4, 5)
    for change in changes:
        await tamper(box, change)
    check = await audit.check(box.pool)
    assert check.first_broken == broken
    assert why in (check.why or "")


@proves("G-AUDIT-HEAD")
async def test_a_chain_cut_at_its_end_is_whole_in_itself_and_not_to_a_head_that_was_kept(box: Outbox):
    await write(box, 1, 2, 3, 4, 5)
    kept = await audit.head(box.pool)
    for change in CUT:
        await tamper(box, change)
    assert (await audit.check(box.pool)).whole
    check = await audit.check(box.pool, kept)
    assert (check.first_broken, check.why) == (4, "it is missing: the head that was kept names entry 5")
    await write(box, 6, 7)
    check = await audit.check(box.pool, kept)
    assert (check.first_broken, check.why) == (5, "it is not the one that the head that was kept names")
    assert (await audit.check(box.pool, Head.read(f"{3}:{(await lines_of(box))[2][-66:-2]}"))).whole


async def test_the_check_and_the_export_read_pages_of_a_long_chain(box: Outbox):
    await write(box, *range(2 * PAGE + 3))
    check = await audit.check(box.pool)
    assert (check.entries, check.whole) == (2 * PAGE + 3, True)
    assert audit.check_file(await lines_of(box)).entries == 2 * PAGE + 3
    await tamper(box, f"DELETE FROM deedbox.audit WHERE seq = {PAGE + 1}")  # noqa: S608 -- a number of ours
    assert (await audit.check(box.pool)).first_broken == PAGE + 1


def _change(lines: list[str]) -> None:
    lines[2] = lines[2].replace("Gründe", "Grunde")


def _change_detail(lines: list[str]) -> None:
    lines[2] = lines[2].replace('"detail":{"n":3}', '"detail":{"n":4}')


def _swap(lines: list[str]) -> None:
    lines[1], lines[2] = lines[2], lines[1]


def _remove(lines: list[str]) -> None:
    del lines[2]


def _cut(lines: list[str]) -> None:
    del lines[3:]


def _cut_with_a_last_line(lines: list[str]) -> None:
    del lines[3:5]


@proves("G-AUDIT-EXPORT")
@pytest.mark.parametrize(
    ("spoil", "broken"),
    [(_change, 3), (_change_detail, 3), (_swap, 2), (_remove, 3), (_cut, 4), (_cut_with_a_last_line, 4)],
)
async def test_an_export_is_verified_by_itself(box: Outbox, spoil: Callable[[list[str]], None], broken: int):
    await write(box, 1, 2, 3, 4, 5)
    lines = await lines_of(box)
    assert audit.check_file(lines).whole
    spoil(lines)
    assert audit.check_file(lines).first_broken == broken


@proves("G-AUDIT-EXPORT")
async def test_an_export_of_a_time_is_a_chain_of_its_own(box: Outbox):
    await write(box, 1, 2)
    await box.database.shift_clock(3600)
    await write(box, 3, 4)
    await box.database.shift_clock(7200)
    await write(box, 5)
    [at_3, at_5] = await box.database.rows("SELECT at FROM deedbox.audit WHERE seq IN (3, 5) ORDER BY seq")
    lines = await lines_of(box, since=at_3[0], until=at_5[0])
    assert [json.loads(line).get("seq") for line in lines] == [3, 4, None]
    assert json.loads(lines[-1])["head"]["seq"] == 5
    assert audit.check_file(lines).whole
    assert not audit.check_file(lines[1:]).whole
    with pytest.raises(DeedboxError, match="line 1"):
        audit.check_file(["nothing of ours"])


@proves("G-AUDIT-TENANT")
async def test_what_others_tenants_did_is_a_link_in_the_export_and_not_in_the_list(box: Outbox):
    await box.database.rows("INSERT INTO deedbox.tenant (tenant) VALUES ('north')")
    await write(box, 1)
    await write(box, 2, tenant="north", reason="theirs alone")
    await write(box, 3)
    lines = await lines_of(box)
    assert "theirs alone" not in "".join(lines)
    assert "north" not in "".join(lines)
    check = audit.check_file(lines)
    assert (check.whole, check.withheld) == (True, 1)
    page = await audit.listed(box.pool, principal(box.ids, "admin"))
    assert [entry["seq"] for entry in page.entries] == [3, 1]
    theirs = await audit.listed(box.pool, principal(box.ids, "admin", tenant="north"))
    assert [entry["reason"] for entry in theirs.entries] == ["theirs alone"]
    for asked in (audit.listed(box.pool, principal(box.ids, "manager")), anext(audit.export(box.pool, principal(box.ids)))):
        with pytest.raises(DeedboxError, match="administer"):
            await asked


async def test_a_list_is_filtered_and_paged(box: Outbox):
    await write(box, 1, 2, 3)
    admin = principal(box.ids, "admin")
    assert [one["seq"] for one in (await audit.listed(box.pool, admin, subject="id-2")).entries] == [2]
    assert not (await audit.listed(box.pool, admin, actor="nobody")).entries
    assert not (await audit.listed(box.pool, admin, verb="reject")).entries
    first = await audit.listed(box.pool, admin, limit=2, actor="Zoë", verb="approve")
    assert ([one["seq"] for one in first.entries], first.before) == ([3, 2], 2)
    rest = await audit.listed(box.pool, admin, before=first.before)
    assert ([one["seq"] for one in rest.entries], rest.before) == ([1], None)


async def test_a_spreadsheet_is_given_no_formula(box: Outbox):
    await write(box, 1, reason='=HYPERLINK("http://example.org")')
    rows = list(csv.reader(await lines_of(box, form="csv")))
    assert rows[0][:3] == ["seq", "at", "tenant"]
    assert rows[1][rows[0].index("reason")].startswith("'=HYPERLINK")
    assert json.loads(rows[1][rows[0].index("detail")]) == {"n": 1}


async def test_a_verb_that_is_not_listed_leaves_no_entry(box: Outbox):
    async with autocommit(box.pool) as connection:
        with pytest.raises(ValueError, match=r"deedbox\.model\.audited"):
            await append(connection, AuditEntry("default", "a", "api", "session", "do_something", "job", "i"))
    assert all(verb.islower() and said and not said.endswith(".") for verb, said in VERBS.items())
