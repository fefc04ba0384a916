"""Which key a call has: `params.idempotencyKey`, else one in `_meta`, else the HTTP header's.

Where it brings none of these, the tools look for one among the arguments, and last hold equal calls together themselves. A
JSON-RPC id or a session is never a key.
"""

import re

from deedbox.intake.keys import check_key
from deedbox.mcp.context import Ctx, meta_of, request_of
from deedbox.model.errors import DeedboxError, Problem

META_KEY = "deedbox/idempotencyKey"
META_RUN = "deedbox/callerRun"
META_PARENT = "deedbox/parentJobId"
META_VERSION = "deedbox/version"
_RUN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,198}[\x21-\x7e])?")
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_SF_STRING = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')


def key_of(ctx: Ctx) -> str | None:
    """The key that a caller sent, None where it sent none. Raises DeedboxError key_invalid for one that cannot be used."""
    given = (ctx.params or {}).get("idempotencyKey")
    if given is not None:
        return _text(given, "/idempotencyKey")
    given = meta_of(ctx).get(META_KEY)
    if given is not None:
        return _text(given, f"/_meta/{META_KEY.replace('/', '~1')}")
    values = request_of(ctx).headers.getlist("idempotency-key")
    if len(values) > 1:
        raise _invalid("/Idempotency-Key", "stands more than once")
    if not values:
        return None
    value = values[0].strip(" \t")
    if not value.startswith('"'):
        return check_key(value)
    match = _SF_STRING.fullmatch(value)
    if match is None:
        raise _invalid("/Idempotency-Key", "is not a string of RFC 8941")
    return check_key(re.sub(r"\\(.)", r"\1", match[1]))


def _text(given: object, where: str) -> str:
    if not isinstance(given, str):
        raise _invalid(where, "is not a text")
    return check_key(given, where)


def _invalid(where: str, what: str) -> DeedboxError:
    return DeedboxError("key_invalid", f"The key {what}.", problems=(Problem(where, "key", what),))


def caller_run(ctx: Ctx) -> str | None:
    """The caller's own run id, from `_meta` or the header; one that is malformed is dropped, since it is never a key."""
    for given in (meta_of(ctx).get(META_RUN), request_of(ctx).headers.get("deedbox-caller-run")):
        if isinstance(given, str) and _RUN.fullmatch(given):
            return given
    return None


def traceparent(ctx: Ctx) -> str | None:
    """The caller's trace, from `_meta` or the header; one that is malformed is dropped, as W3C Trace Context asks."""
    for given in (meta_of(ctx).get("traceparent"), request_of(ctx).headers.get("traceparent")):
        if isinstance(given, str) and _TRACEPARENT.fullmatch(given):
            return given
    return None


def parent_of(ctx: Ctx) -> str | None:
    """The job within which the call is made, as the caller names it."""
    given = meta_of(ctx).get(META_PARENT)
    return given if isinstance(given, str) else None


def version_of(ctx: Ctx) -> int | None:
    """The version of the action that the call was made for."""
    given = meta_of(ctx).get(META_VERSION)
    return given if isinstance(given, int) and not isinstance(given, bool) else None
