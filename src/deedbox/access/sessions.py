"""Sessions of people: opened by a login, rows in the database, ended by time or by logging out.

The browser holds 256 random bits; the row holds their SHA-256. The CSRF token is derived from those bits, so that a page can
show it although the database knows only its hash, and the same page is the same bytes each time.
"""

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from uuid import UUID

from deedbox.access.entries import AT_TERMINAL, By, FailureBudget, failed_login_entry, login_entry
from deedbox.access.keys import clean_name, digest
from deedbox.access.passwords import LoginLimit, Passwords
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.model.values import storable_text
from deedbox.store import access as store
from deedbox.store.access import LinkPreview, SessionLine
from deedbox.store.audit import append
from deedbox.store.pool import Connection, Pool
from deedbox.store.transaction import autocommit, transaction

IDLE_S = 30 * 60.0
ABSOLUTE_S = 12 * 60 * 60.0
_LONGEST_TOKEN = 200
_LONGEST_PEER = 100


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """A login that succeeded: the cookie's value, the CSRF token of its forms, and who it is."""

    token: str
    csrf: str
    principal: Principal


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session that is alive, with its name, which opens nothing, and how the person logged in (`password`, `oidc`)."""

    principal: Principal
    csrf_sha256: bytes
    session_id: UUID
    how: str

    def owns(self, csrf: str) -> bool:
        """Whether the CSRF token belongs to this session."""
        return hmac.compare_digest(digest(csrf), self.csrf_sha256)


class LoginGuard:
    """What the logins of one process share: the hasher under its cap, the limit on guessing, and the audit's budget."""

    def __init__(self, passwords: Passwords | None = None) -> None:
        """A guard that has seen nobody yet."""
        self.passwords = passwords or Passwords()
        self.limit = LoginLimit()
        self.failures = FailureBudget()


def csrf_of(token: str) -> str:
    """The CSRF token of the session with this cookie."""
    mac = hmac.new(token.encode("utf-8", "surrogatepass"), b"deedbox csrf 1", hashlib.sha256).digest()
    return base64.urlsafe_b64encode(mac).rstrip(b"=").decode()


async def login(
    pool: Pool,
    tenant: str,
    name: str,
    password: str,
    *,
    guard: LoginGuard,
    peer: str,
    replaces: str | None = None,
    door: str = "api",
) -> SessionOpened | None:
    """Open a session, or None when name and password do not fit; an unknown name takes as long as a wrong password.

    `peer` is where the caller is; `replaces` is the session it came with, which ends. The session and its audit entry are
    one transaction; a failure has an entry within the guard's budget, and is counted beyond it. Raises
    DeedboxError("too_many_logins") after five failures of one name from one peer within a minute.
    """
    name = clean_name(name)
    try:
        mark = guard.limit.begin(name, peer)
    except DeedboxError:
        # Refused unread, so nothing is known of the password: it is counted, and costs the chain nothing.
        guard.failures.pass_over()
        raise
    try:
        found = await _named(pool, tenant, name)
        known = found.password_hash if found is not None and found.kind == "person" else None
        matched = await guard.passwords.verify(known, password)
    except BaseException:
        # A database that is away, a queue that is full and a caller that hung up are not wrong passwords.
        guard.limit.withdraw(name, peer, mark)
        raise
    if not matched or found is None or known is None:
        await _note_failure(pool, guard.failures, tenant, name, peer, door)
        return None
    guard.limit.succeeded(name, peer)
    renewed = await guard.passwords.hash(password) if guard.passwords.stale(known) else None
    token = secrets.token_urlsafe(32)
    owed = guard.failures.settle()
    try:
        async with transaction(pool) as connection:
            if renewed is not None:
                await store.rehash(connection, found.principal_id, known, renewed)
            replaced = await open_session(
                connection, found.principal_id, token, how="password", peer=peer, replaces=replaces, authenticated_s_ago=0.0
            )
            entry = login_entry(tenant, name, str(found.principal_id), door=door, source=peer, replaced=replaced, owed=owed)
            await append(connection, entry)
    except BaseException:
        guard.failures.pass_over(owed)
        raise
    who = (str(found.principal_id), tenant, name)
    principal = Principal(*who, "person", found.roles, "session", verbs=found.verbs, authenticated_s_ago=0.0)
    return SessionOpened(token, csrf_of(token), principal)


async def open_session(
    connection: Connection,
    principal_id: UUID,
    token: str,
    *,
    how: str,
    peer: str,
    replaces: str | None,
    authenticated_s_ago: float | None,
) -> bool:
    """Open a session under a new token and end the one it came with; true where that one was open."""
    return await store.open_session(
        connection,
        session_sha256=digest(token),
        principal_id=principal_id,
        method=how,
        csrf_sha256=digest(csrf_of(token)),
        absolute_s=ABSOLUTE_S,
        replaces=digest(replaces) if replaces else None,
        authenticated_s_ago=authenticated_s_ago,
        peer=storable_text(peer[:_LONGEST_PEER]),
    )


async def _named(pool: Pool, tenant: str, name: str) -> store.Named | None:
    # What the database cannot hold is nobody's name, and takes the road of every unknown one.
    if storable_text(name) != name:
        return None
    async with autocommit(pool) as connection:
        return await store.named(connection, tenant, name)


async def _note_failure(pool: Pool, failures: FailureBudget, tenant: str, name: str, peer: str, door: str) -> None:
    owed = failures.take(peer)
    if owed is None:
        return
    try:
        async with transaction(pool) as connection:
            await append(connection, failed_login_entry(tenant, name, door=door, source=peer, owed=owed))
    except BaseException:
        failures.pass_over(owed + 1)
        raise


async def resolve_session(pool: Pool, token: str) -> SessionInfo | None:
    """Who the session belongs to; None when it is unknown, was ended, sat idle for 30 minutes or is 12 hours old."""
    if not token or len(token) > _LONGEST_TOKEN:
        return None
    async with autocommit(pool) as connection:
        found = await store.session(connection, digest(token), IDLE_S)
    if found is None:
        return None
    holder = found.holder
    principal = Principal(
        str(holder.principal_id),
        holder.tenant,
        holder.name,
        "person",
        holder.roles,
        "session",
        verbs=holder.verbs,
        authenticated_s_ago=found.authenticated_s_ago,
    )
    return SessionInfo(principal, found.csrf_sha256, found.session_id, found.method)


async def list_sessions(pool: Pool, tenant: str, name: str) -> list[SessionLine]:
    """The living sessions of a person, the newest first: how and from where they were opened, and when they were last seen."""
    async with autocommit(pool) as connection:
        return await store.sessions(connection, tenant, clean_name(name), IDLE_S)


async def logout(pool: Pool, token: str, *, door: str = "page") -> bool:
    """End the session at once, with an audit entry; false when it was not open."""
    async with transaction(pool) as connection:
        holder = await store.close_session(connection, digest(token))
        if holder is not None:
            subject = ("person", str(holder.principal_id))
            await append(connection, By(holder.name, door, "session").entry(holder.tenant, "logout", subject, {}))
    return holder is not None


async def end_sessions(pool: Pool, tenant: str, name: str, *, session_id: UUID | None = None, by: By = AT_TERMINAL) -> int:
    """End every session of a person, or the one that is named, and say how many were open; an audit entry says so too."""
    name = clean_name(name)
    async with transaction(pool) as connection:
        ended = await store.close_sessions(connection, tenant, name, session_id)
        if ended:
            subject = ("person", str(ended[0]))
            detail = {"name": name, "sessions_ended": len(ended), **({"session": str(session_id)} if session_id else {})}
            await append(connection, by.entry(tenant, "end_sessions", subject, detail))
    return len(ended)


async def preview_link(pool: Pool, tenant: str, approval_id: UUID, token: str) -> LinkPreview | None:
    """What the holder of an approval link may know before login: action, who asks, deadline and state. Changes nothing."""
    if not token or len(token) > _LONGEST_TOKEN:
        return None
    async with autocommit(pool) as connection:
        return await store.link(connection, tenant, approval_id, digest(token))
