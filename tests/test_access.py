"""Who is asking: passwords, sessions, keys, and their ends."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from uuid import UUID

import pytest

from deedbox.access import (
    IdSource,
    KeyCache,
    LoginGuard,
    LoginLimit,
    Passwords,
    Pool,
    add_key,
    add_user,
    csrf_of,
    end_sessions,
    list_keys,
    login,
    logout,
    resolve_key,
    resolve_session,
    revoke_key,
)
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import VERBS
from tests.database import TestDatabase
from tests.guarantees import proves

pytestmark = pytest.mark.anyio
PASSWORD = "ein langes Paßwort"


@dataclass
class Setting:
    database: TestDatabase
    pool: Pool
    ids: IdSource
    guard: LoginGuard

    async def user(self, name: str = "Ada", *roles: str) -> str:
        return await add_user(self.pool, self.ids, "default", name, roles or ("manager",), PASSWORD)

    async def log_in(self, name: str = "Ada", password: str = PASSWORD, peer: str = "here", replaces: str | None = None):
        return await login(self.pool, "default", name, password, guard=self.guard, peer=peer, replaces=replaces)


@pytest.fixture
async def setting(database: TestDatabase) -> AsyncIterator[Setting]:
    pool = Pool(database.url, "test access", size=4)
    await pool.open()
    try:
        yield Setting(database, pool, await IdSource.read(pool), LoginGuard())
    finally:
        await pool.close()


async def refused(code: str, awaited: object) -> DeedboxError:
    with pytest.raises(DeedboxError) as caught:
        await awaited  # pyright: ignore[reportGeneralTypeIssues]
    assert caught.value.code == code
    return caught.value


async def test_a_password_is_kept_as_argon2id_with_a_salt_of_its_own(setting: Setting):
    await setting.user("Ada")
    await setting.user("Bo")
    rows = await setting.database.rows("SELECT password_hash FROM deedbox.principal WHERE kind = 'person'")
    hashes = [str(row[0]) for row in rows]
    assert len(set(hashes)) == 2
    assert all(one.startswith("$argon2id$v=19$m=65536,t=3,p=4$") for one in hashes)


async def test_hashing_leaves_the_loop_free():
    passwords = Passwords()
    beats = 0
    done = asyncio.Event()

    async def beat() -> None:
        nonlocal beats
        while not done.is_set():
            beats += 1
            await asyncio.sleep(0)

    beating = asyncio.create_task(beat())
    hashed = await passwords.hash(PASSWORD)
    assert await passwords.verify(hashed, PASSWORD)
    done.set()
    await beating
    assert beats > 100


async def test_a_login_opens_a_session_with_the_roles_of_the_person(setting: Setting):
    principal_id = await setting.user("Ada", "manager", "viewer")
    opened = await setting.log_in(" Ada ")
    assert opened is not None
    assert opened.principal.principal_id == principal_id
    assert opened.principal.roles == {"manager", "viewer"}
    session = await resolve_session(setting.pool, opened.token)
    assert session is not None
    assert session.principal == opened.principal
    assert session.principal.method == "session"
    assert session.owns(opened.csrf)
    assert opened.csrf == csrf_of(opened.token)
    assert not session.owns(csrf_of("another"))
    assert not session.owns("")
    stored = await setting.database.rows("SELECT session_sha256, csrf_sha256 FROM deedbox.session")
    assert stored == [(hashlib.sha256(opened.token.encode()).digest(), hashlib.sha256(opened.csrf.encode()).digest())]


async def test_a_wrong_password_opens_nothing(setting: Setting):
    await setting.user()
    for peer, password in enumerate(("", "ein langes Passwort", PASSWORD + " ", "\0", "\ud800", "x" * 5000)):
        assert await setting.log_in(password=password, peer=str(peer)) is None
    assert await setting.database.rows("SELECT 1 FROM deedbox.session") == []


async def test_one_spelling_of_a_letter_is_as_good_as_the_other(setting: Setting):
    await add_user(setting.pool, setting.ids, "default", "Zoe\u0308", ["viewer"], "pa\u0308sswort lang")
    assert await setting.log_in("Zo\u00eb", "p\u00e4sswort lang") is not None


async def test_neither_an_unknown_name_nor_a_service_nor_a_disabled_person_logs_in(setting: Setting):
    await setting.user("Ada")
    await add_key(setting.pool, setting.ids, "default", "n8n", ["operator"], "first")
    assert await setting.log_in("nobody") is None
    assert await setting.log_in("n8n") is None
    opened = await setting.log_in("Ada")
    assert opened is not None
    await setting.database.rows("UPDATE deedbox.principal SET disabled_at = deedbox.clock() WHERE name = 'Ada'")
    assert await setting.log_in("Ada") is None
    assert await resolve_session(setting.pool, opened.token) is None


async def test_an_unknown_name_costs_the_same_work(setting: Setting):
    await setting.user()
    verified: list[str | None] = []

    class Counting(Passwords):
        async def verify(self, known: str | None, password: str) -> bool:
            verified.append(known)
            return await super().verify(known, password)

    setting.guard = LoginGuard(Counting())
    await setting.log_in("Ada", "wrong password")
    await setting.log_in("nobody", "wrong password")
    assert verified[0] is not None
    assert verified[1] is None


async def test_the_sixth_failure_within_a_minute_is_refused(setting: Setting):
    await setting.user()
    for _ in range(5):
        assert await setting.log_in(password="wrong password") is None
    error = await refused("too_many_logins", setting.log_in())
    assert error.retry_after is not None
    assert 0 < error.retry_after <= 60
    assert await setting.log_in(peer="elsewhere") is not None


async def test_many_guesses_at_once_do_not_slip_past_the_limit(setting: Setting):
    await setting.user()
    answers = await asyncio.gather(*(setting.log_in(password="wrong password") for _ in range(12)), return_exceptions=True)
    assert [answer for answer in answers if answer is None] == [None] * 5
    assert {getattr(answer, "code", None) for answer in answers if answer is not None} == {"too_many_logins"}


async def test_a_success_forgets_the_failures_before_it(setting: Setting):
    await setting.user()
    for _ in range(2):
        for _ in range(4):
            assert await setting.log_in(password="wrong password") is None
        assert await setting.log_in() is not None


def test_the_limit_remembers_a_bounded_number_of_names():
    limit = LoginLimit()
    for number in range(10_050):
        limit.begin(f"name {number}", "here")
    limit.begin("one more", "here")


async def test_a_session_ends_when_it_sits_idle(setting: Setting):
    await setting.user()
    opened = await setting.log_in()
    assert opened is not None
    await setting.database.shift_clock(29 * 60)
    assert await resolve_session(setting.pool, opened.token) is not None
    await setting.database.shift_clock(58 * 60)
    assert await resolve_session(setting.pool, opened.token) is not None
    await setting.database.shift_clock(58 * 60 + 31 * 60)
    assert await resolve_session(setting.pool, opened.token) is None


async def test_a_session_ends_after_twelve_hours_however_busy(setting: Setting):
    await setting.user()
    opened = await setting.log_in()
    assert opened is not None
    for minutes in range(25, 12 * 60, 25):
        await setting.database.shift_clock(minutes * 60)
        assert await resolve_session(setting.pool, opened.token) is not None
    await setting.database.shift_clock(12 * 3600 + 1)
    assert await resolve_session(setting.pool, opened.token) is None


async def test_looking_again_within_a_minute_writes_nothing(setting: Setting):
    await setting.user()
    opened = await setting.log_in()
    assert opened is not None
    before = await setting.database.rows("SELECT xmin, seen_at FROM deedbox.session")
    assert await resolve_session(setting.pool, opened.token) is not None
    assert await setting.database.rows("SELECT xmin, seen_at FROM deedbox.session") == before


async def test_logging_in_again_ends_the_session_it_came_with(setting: Setting):
    await setting.user()
    first = await setting.log_in()
    assert first is not None
    second = await setting.log_in(replaces=first.token)
    assert second is not None
    assert second.token != first.token
    assert await resolve_session(setting.pool, first.token) is None
    assert await resolve_session(setting.pool, second.token) is not None


async def test_logging_out_ends_one_session_and_all_can_be_ended(setting: Setting):
    await setting.user()
    opened = [await setting.log_in() for _ in range(3)]
    tokens = [one.token for one in opened if one is not None]
    assert await logout(setting.pool, tokens[0])
    assert not await logout(setting.pool, tokens[0])
    assert await resolve_session(setting.pool, tokens[0]) is None
    assert await end_sessions(setting.pool, "default", "Ada") == 2
    assert await resolve_session(setting.pool, tokens[1]) is None


async def test_a_token_that_is_none_is_nobody(setting: Setting):
    for token in ("", "x", "x" * 10_000, "\ud800", "\0"):
        assert await resolve_session(setting.pool, token) is None


@proves("G-PERSON-DECIDES")
async def test_a_key_is_a_service_whatever_its_roles(setting: Setting):
    key = await add_key(setting.pool, setting.ids, "default", "n8n", ["admin", "manager"], "first")
    assert key.startswith("dbx_")
    assert len(key) == 4 + 43
    principal = await resolve_key(setting.pool, key)
    assert principal is not None
    assert (principal.kind, principal.method, principal.roles) == ("service", "api_key", {"admin", "manager"})
    stored = await setting.database.rows("SELECT key_sha256, last_used_at IS NOT NULL FROM deedbox.api_key")
    assert stored == [(hashlib.sha256(key.encode()).digest(), True)]


async def test_a_revoked_key_opens_nothing_and_the_memory_is_short(setting: Setting):
    key = await add_key(setting.pool, setting.ids, "default", "n8n", ["operator"], "first")
    cache = KeyCache()
    assert await resolve_key(setting.pool, key, cache) is not None
    (line,) = await list_keys(setting.pool, "default")
    assert await revoke_key(setting.pool, "default", line.key_id)
    assert not await revoke_key(setting.pool, "default", line.key_id)
    assert await resolve_key(setting.pool, key) is None
    assert await resolve_key(setting.pool, key, cache) is not None
    cache.put(hashlib.sha256(key.encode()).digest(), None, float("-inf"))
    assert await resolve_key(setting.pool, key, cache) is None


async def test_a_remembered_key_costs_no_look_up(setting: Setting):
    key = await add_key(setting.pool, setting.ids, "default", "n8n", ["operator"], "first")
    cache = KeyCache()
    first = await resolve_key(setting.pool, key, cache)
    unknown = await resolve_key(setting.pool, "dbx_unknown", cache)
    await setting.pool.close()
    assert await resolve_key(setting.pool, key, cache) is first is not None
    assert await resolve_key(setting.pool, "dbx_unknown", cache) is unknown is None


async def test_an_expired_key_and_one_of_a_disabled_service_open_nothing(setting: Setting):
    short = await add_key(setting.pool, setting.ids, "default", "n8n", ["operator"], "short", 60)
    long = await add_key(setting.pool, setting.ids, "default", "n8n", ["operator"], "long")
    await setting.database.shift_clock(61)
    assert await resolve_key(setting.pool, short) is None
    assert await resolve_key(setting.pool, long) is not None
    await setting.database.rows("UPDATE deedbox.principal SET disabled_at = deedbox.clock() WHERE name = 'n8n'")
    assert await resolve_key(setting.pool, long) is None


async def test_a_key_that_is_none_is_nobody(setting: Setting):
    for bearer in ("", "dbx_", "x" * 100_000, "\0", "\ud800", "Bearer x"):
        assert await resolve_key(setting.pool, bearer, KeyCache()) is None


async def test_a_key_with_less_than_its_holders_rights_is_not_taken_for_the_holder(setting: Setting):
    key = await add_key(setting.pool, setting.ids, "default", "n8n", ["operator"], "first")
    # A personal key is a person's: one of a service opens nothing.
    await setting.database.rows("UPDATE deedbox.api_key SET kind = 'personal', expires_at = created_at + interval '1 hour'")
    assert await resolve_key(setting.pool, key) is None
    await setting.database.rows(
        "UPDATE deedbox.api_key SET kind = 'form', action = 'note_thing', origins = '{https://a.example}', rate_per_minute = 1"
    )
    form = await resolve_key(setting.pool, key)
    assert form is not None
    assert form.method == "form_key"
    assert [verb for verb in VERBS if form.may(verb)] == ["submit"]


async def test_a_second_key_rotates_and_never_widens(setting: Setting):
    first = await add_key(setting.pool, setting.ids, "default", "n8n", ["operator"], "first")
    second = await add_key(setting.pool, setting.ids, "default", "n8n", ["operator"], "second")
    one, two = await resolve_key(setting.pool, first), await resolve_key(setting.pool, second)
    assert one is not None
    assert one == two
    await refused("invalid_input", add_key(setting.pool, setting.ids, "default", "n8n", ["admin"], "third"))
    await setting.user("Ada", "operator")
    await refused("invalid_input", add_key(setting.pool, setting.ids, "default", "Ada", ["operator"], "hers"))


async def test_a_user_that_cannot_be_is_refused(setting: Setting):
    await setting.user("Ada")
    for tenant, name, roles, password in (
        ("default", "Ada", ["viewer"], PASSWORD),
        ("nowhere", "Bo", ["viewer"], PASSWORD),
        ("default", " ", ["viewer"], PASSWORD),
        ("default", "B\0o", ["viewer"], PASSWORD),
        ("default", "B\u202eo", ["viewer"], PASSWORD),
        ("default", "x" * 201, ["viewer"], PASSWORD),
        ("default", "Bo", [], PASSWORD),
        ("default", "Bo", ["Viewer"], PASSWORD),
        ("default", "Bo", ["viewer"], "short"),
        ("default", "Bo", ["viewer"], "\ud800" * 20),
    ):
        await refused("invalid_input", add_user(setting.pool, setting.ids, tenant, name, roles, password))
    assert await setting.database.value("SELECT count(*) FROM deedbox.principal") == 1


async def test_a_key_needs_a_lifetime_that_is_one(setting: Setting):
    for expires_s in (0, -1, float("inf"), float("nan")):
        await refused("invalid_input", add_key(setting.pool, setting.ids, "default", "n8n", ["viewer"], "x", expires_s))


async def test_a_key_of_another_tenant_cannot_be_revoked(setting: Setting):
    await add_key(setting.pool, setting.ids, "default", "n8n", ["viewer"], "x")
    (line,) = await list_keys(setting.pool, "default")
    assert not await revoke_key(setting.pool, "other", line.key_id)
    assert not await revoke_key(setting.pool, "default", UUID(int=0))
