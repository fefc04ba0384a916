"""Who is asking: people with passwords and sessions, services with keys. Nothing here decides what they may do."""

from deedbox.access.accounts import disable_user, enable_user, grant_roles, set_email, withdraw_roles
from deedbox.access.browsers import (
    add_form_key,
    allows_origin,
    checked_origin,
    give_status_token,
    resolve_status_token,
    spend,
)
from deedbox.access.entries import By
from deedbox.access.keys import RotatedKey, add_key, add_user, list_keys, revoke_key, rotate_key
from deedbox.access.passwords import LoginLimit, Passwords
from deedbox.access.personal import MintedKey, mint_personal_key, own_keys, revoke_own_key
from deedbox.access.resolve import KeyCache, resolve_acting, resolve_key
from deedbox.access.roles import add_tenant, list_roles, list_tenants, put_role, remove_role
from deedbox.access.sessions import (
    LoginGuard,
    SessionInfo,
    SessionOpened,
    csrf_of,
    end_sessions,
    list_sessions,
    login,
    logout,
    preview_link,
    resolve_session,
)
from deedbox.store.access import LinkPreview, SessionLine
from deedbox.store.ids import IdSource
from deedbox.store.keys import KeyLine
from deedbox.store.pool import Pool
from deedbox.store.roles import RoleLine, TenantLine

__all__ = [
    "By",
    "IdSource",
    "KeyCache",
    "KeyLine",
    "LinkPreview",
    "LoginGuard",
    "LoginLimit",
    "MintedKey",
    "Passwords",
    "Pool",
    "RoleLine",
    "RotatedKey",
    "SessionInfo",
    "SessionLine",
    "SessionOpened",
    "TenantLine",
    "add_form_key",
    "add_key",
    "add_tenant",
    "add_user",
    "allows_origin",
    "checked_origin",
    "csrf_of",
    "disable_user",
    "enable_user",
    "end_sessions",
    "give_status_token",
    "grant_roles",
    "list_keys",
    "list_roles",
    "list_sessions",
    "list_tenants",
    "login",
    "logout",
    "mint_personal_key",
    "own_keys",
    "preview_link",
    "put_role",
    "remove_role",
    "resolve_acting",
    "resolve_key",
    "resolve_session",
    "resolve_status_token",
    "revoke_key",
    "revoke_own_key",
    "rotate_key",
    "set_email",
    "spend",
    "withdraw_roles",
]
