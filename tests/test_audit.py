"""The audit: whole under concurrency, append-only for the application, and telling on whoever changed it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from deedbox.access import (
    LoginGuard,
    Passwords,
    add_key,
    add_user,
    disable_user,
    enable_user,
    end_sessions,
    grant_roles,
    list_keys,
    login,
    logout,
    resolve_session,
    revoke_key,
    withdraw_roles,
)
from deedbox.access.entries import PER_MINUTE, PER_SOURCE
from deedbox.model.errors import DeedboxError
from deedbox.model.fingerprint import sha256
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
        assert await append(connection, AuditEntry("default", "a", "api", "session", "close", "job", "i")) == 2
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
    head = {"seq": 3, "entry_sha256": lines[-2]["entry_sha256"]}
    assert lines[-1] == {"head": head, "first": 1, "last": 3, "entries": 3}
    assert lines[1]["prev_sha256"] == lines[0]["entry_sha256"]
    assert lines[2]["detail"] == {"number": 2}
    with pytest.raises(DeedboxError, match="administer"):
        await anext(asked.export(box.pool, principal(box.ids, "manager")))


# Logins and accounts ---------------------------------------------------------------------------------------------------

PASSWORD = "ein langes Paßwort"


async def told(box: Outbox) -> list[tuple[Any, ...]]:
    """Actor, door, method, verb, subject kind and detail of each entry but the builder's own, first to last."""
    return await box.database.rows(
        "SELECT a.actor, a.door, a.method, a.verb, a.subject_kind, d.detail FROM deedbox.audit a"
        " JOIN deedbox.audit_detail d USING (seq) ORDER BY a.seq"
    )


async def log_in(box: Outbox, guard: LoginGuard, name: str, password: str = PASSWORD, peer: str = "10.0.0.1", **options: Any):
    return await login(box.pool, "default", name, password, guard=guard, peer=peer, **options)


class Quick(Passwords):
    """Says no at once: what is measured is what the audit is told, not argon2."""

    async def verify(self, known: str | None, password: str) -> bool:
        return password == PASSWORD and known is not None


@proves("G-AUDIT-WHO")
async def test_coming_in_and_going_are_in_the_audit_with_door_and_method(box: Outbox):
    person = await add_user(box.pool, box.ids, "default", "Zoë", ["manager"], PASSWORD)
    guard = LoginGuard()
    first = await log_in(box, guard, "Zoë", door="page")
    assert first is not None
    second = await log_in(box, guard, "Zoë", door="cli", replaces=first.token)
    assert second is not None
    assert not await logout(box.pool, first.token)
    assert await logout(box.pool, second.token)
    assert not await logout(box.pool, second.token)
    await log_in(box, guard, "Zoë")
    assert await end_sessions(box.pool, "default", "Zoë") == 1
    assert await end_sessions(box.pool, "default", "Zoë") == 0
    at = {"source": "10.0.0.1"}
    assert await told(box) == [
        ("terminal", "cli", "terminal", "add_user", "person", {"name": "Zoë", "roles": ["manager"]}),
        ("Zoë", "page", "password", "login", "person", {**at, "replaced": False}),
        ("Zoë", "cli", "password", "login", "person", {**at, "replaced": True}),
        ("Zoë", "page", "session", "logout", "person", {}),
        ("Zoë", "api", "password", "login", "person", {**at, "replaced": False}),
        ("terminal", "cli", "terminal", "end_sessions", "person", {"name": "Zoë", "sessions_ended": 1}),
    ]
    assert await box.database.rows("SELECT DISTINCT subject_id FROM deedbox.audit") == [(person,)]
    assert await verify(box.pool) is None


@proves("G-AUDIT-WHO")
async def test_a_failed_login_does_not_say_whether_there_is_such_an_account(box: Outbox):
    await add_user(box.pool, box.ids, "default", "Zoë", ["manager"], PASSWORD)
    await add_user(box.pool, box.ids, "default", "Gone", ["manager"], PASSWORD)
    await add_key(box.pool, box.ids, "default", "n8n", ["operator"], "flow")
    assert await disable_user(box.pool, "default", "Gone")
    before = len(await told(box))
    names = ["Zoë", "Gone", "n8n", "nobody at all", "\ud800\0"]
    for name in names:
        assert await log_in(box, LoginGuard(), name, "a wrong password") is None
    entries = (await told(box))[before:]
    assert [entry[:5] for entry in entries] == [("nobody", "api", "none", "login_failed", "name")] * len(names)
    assert [entry[5]["name"] for entry in entries] == ["Zoë", "Gone", "n8n", "nobody at all", "\\ud800\\u0000"]
    assert {frozenset(entry[5]) for entry in entries} == {frozenset({"name", "source"})}
    kept = await box.database.rows("SELECT subject_id FROM deedbox.audit WHERE verb = 'login_failed' ORDER BY seq")
    assert kept[0] == (sha256("default\0Zoë".encode()).hex(),)
    assert {len(str(row[0])) for row in kept} == {64}
    # What somebody typed can be erased, a password in the wrong field for one; the chain stays whole.
    await box.database.rows("DELETE FROM deedbox.audit_detail WHERE detail ? 'source'")
    assert await verify(box.pool) is None


@proves("G-AUDIT-WHO")
async def test_a_flood_of_failed_logins_is_counted_and_leaves_the_chain_to_the_others(box: Outbox):
    await add_user(box.pool, box.ids, "default", "Zoë", ["manager"], PASSWORD)
    guard = LoginGuard(Quick())

    async def flood(peer: str, names: int, tries: int) -> None:
        for number in range(names):
            for _ in range(tries):
                with suppress(DeedboxError):
                    assert await log_in(box, guard, f"name {number}", "wrong", peer) is None

    await asyncio.gather(*(flood("10.0.0.2", 200, 1) for _ in range(3)))
    assert len(await told(box)) == 1 + PER_SOURCE
    await flood("10.0.0.3", 1, 9)
    entries = await told(box)
    # Another place has entries of its own, the first of which tells what had none; four tries were refused unread.
    assert len(entries) == 1 + PER_SOURCE + 5
    assert [entry[5].get("without_entry", 0) for entry in entries[-5:]] == [600 - PER_SOURCE, 0, 0, 0, 0]
    await asyncio.gather(*(flood(f"10.0.1.{number}", 5, 1) for number in range(40)))
    assert len(await told(box)) == 1 + PER_MINUTE
    assert await log_in(box, guard, "Zoë") is not None
    last = (await told(box))[-1]
    assert (last[0], last[3]) == ("Zoë", "login")
    assert last[5]["without_entry"] == 200 - (PER_MINUTE - PER_SOURCE - 5)
    assert await verify(box.pool) is None


async def test_what_an_entry_should_have_told_is_not_forgotten_when_it_cannot_be_written(box: Outbox):
    guard = LoginGuard(Quick())
    guard.failures.pass_over(7)
    async with await psycopg.AsyncConnection.connect(box.database.owner_url) as holder:
        await holder.execute("SELECT FROM deedbox.audit_head FOR UPDATE")
        waiting = asyncio.create_task(log_in(box, guard, "Zoë", "wrong"))
        await box.until_blocked()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert await told(box) == []
    assert await log_in(box, guard, "Zoë", "wrong") is None
    assert [entry[5]["without_entry"] for entry in await told(box)] == [8]


@proves("G-AUDIT-WHO")
async def test_every_change_of_an_account_or_a_key_has_an_entry_and_a_refusal_has_none(box: Outbox):
    pool, ids = box.pool, box.ids
    await add_user(pool, ids, "default", "Zoë", ["viewer"], PASSWORD)
    key = await add_key(pool, ids, "default", "n8n", ["operator"], "flow", 60.0)
    await add_key(pool, ids, "default", "n8n", ["operator"], "next")
    old = next(line for line in await list_keys(pool, "default") if line.label == "flow")
    assert await revoke_key(pool, "default", old.key_id)
    opened = await log_in(box, LoginGuard(), "Zoë")
    assert opened is not None
    assert await grant_roles(pool, "default", "Zoë", ["viewer", "manager"]) == ["manager"]
    session = await resolve_session(pool, opened.token)
    assert session is not None
    assert session.principal.roles == {"viewer", "manager"}
    assert await withdraw_roles(pool, "default", "Zoë", ["viewer", "admin"]) == ["viewer"]
    assert await disable_user(pool, "default", "Zoë")
    assert await resolve_session(pool, opened.token) is None
    assert await enable_user(pool, "default", "Zoë")
    assert await resolve_session(pool, opened.token) is None
    service = ("terminal", "cli", "terminal", "add_key", "key")
    flow = {"name": "n8n", "roles": ["operator"], "label": "flow", "expires_s": 60, "service_made": True}
    entries = [entry for entry in await told(box) if entry[3] != "login"]
    assert entries == [
        ("terminal", "cli", "terminal", "add_user", "person", {"name": "Zoë", "roles": ["viewer"]}),
        (*service, flow),
        (*service, {**flow, "label": "next", "expires_s": None, "service_made": False}),
        ("terminal", "cli", "terminal", "revoke_key", "key", {"name": "n8n", "label": "flow"}),
        ("terminal", "cli", "terminal", "grant", "person", {"name": "Zoë", "roles": ["manager"]}),
        ("terminal", "cli", "terminal", "withdraw", "person", {"name": "Zoë", "roles": ["viewer"]}),
        ("terminal", "cli", "terminal", "disable", "person", {"name": "Zoë", "sessions_ended": 1}),
        ("terminal", "cli", "terminal", "enable", "person", {"name": "Zoë"}),
    ]
    assert key not in str(await box.database.rows("SELECT a::text FROM deedbox.audit a"))
    assert await grant_roles(pool, "default", "Zoë", ["manager"]) == []
    assert await withdraw_roles(pool, "default", "Zoë", ["viewer"]) == []
    assert not await enable_user(pool, "default", "Zoë")
    assert not await disable_user(pool, "default", "nobody")
    assert not await revoke_key(pool, "default", old.key_id)
    for refused, code in (
        (add_user(pool, ids, "default", "Zoë", ["viewer"], PASSWORD), "invalid_input"),
        (add_key(pool, ids, "default", "Zoë", ["viewer"], ""), "invalid_input"),
        (grant_roles(pool, "default", "nobody", ["viewer"]), "not_found"),
        (withdraw_roles(pool, "other", "Zoë", ["manager"]), "not_found"),
        (grant_roles(pool, "default", "Zoë", ["Viewer"]), "invalid_input"),
        (grant_roles(pool, "default", "Zoë", []), "invalid_input"),
    ):
        with pytest.raises(DeedboxError) as refusal:
            await refused
        assert refusal.value.code == code
    assert len(await told(box)) == len(entries) + 1
    assert await verify(pool) is None
