"""Who is asking: people with passwords and sessions, services with keys. Nothing here decides what they may do."""

from deedbox.access.accounts import disable_user, enable_user, grant_roles, set_email, withdraw_roles
from deedbox.access.entries import By
from deedbox.access.keys import add_key, add_user, list_keys, revoke_key
from deedbox.access.passwords import LoginLimit, Passwords
from deedbox.access.resolve import KeyCache, resolve_key
from deedbox.access.sessions import (
    LoginGuard,
    SessionInfo,
    SessionOpened,
    csrf_of,
    end_sessions,
    login,
    logout,
    preview_link,
    resolve_session,
)
from deedbox.store.access import KeyLine, LinkPreview
from deedbox.store.ids import IdSource
from deedbox.store.pool import Pool

__all__ = [
    "By",
    "IdSource",
    "KeyCache",
    "KeyLine",
    "LinkPreview",
    "LoginGuard",
    "LoginLimit",
    "Passwords",
    "Pool",
    "SessionInfo",
    "SessionOpened",
    "add_key",
    "add_user",
    "csrf_of",
    "disable_user",
    "enable_user",
    "end_sessions",
    "grant_roles",
    "list_keys",
    "login",
    "logout",
    "preview_link",
    "resolve_key",
    "resolve_session",
    "revoke_key",
    "set_email",
    "withdraw_roles",
]
