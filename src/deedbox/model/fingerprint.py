"""Canonical bytes and hashes: of keys, payloads, effects and approvals.

Canonical JSON is RFC 8785. Its domain is I-JSON (RFC 7493): integers from 2^53 on are refused, the caller sends text.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, cast

import rfc8785

from deedbox.model.errors import InvalidValueError

MAX_SAFE_INTEGER = 2**53 - 1


_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True, check_circular=False).encode


# Between these neither Python nor ECMAScript writes an exponent.
_PLAIN_FROM, _PLAIN_TO = 1e-4, 1e15


def _plain(value: Any) -> bool:
    """Whether Python's own encoder, which is ten times as fast, writes this value exactly as RFC 8785 does.

    It escapes the same characters in the same way; it sorts by code point instead of UTF-16 unit, which is the same for
    names in ASCII; it writes floats as ECMAScript does while neither needs an exponent and there is a fraction.
    """
    return _all_plain((value,))


def _all_plain(items: Iterable[Any]) -> bool:
    for item in items:
        kind = cast("type[object]", type(item))
        if kind is str or kind is bool or item is None:
            continue
        if kind is int:
            if not -MAX_SAFE_INTEGER <= item <= MAX_SAFE_INTEGER:
                return False
        elif kind is float:
            if not _PLAIN_FROM <= abs(item) < _PLAIN_TO or item.is_integer():
                return False
        elif kind is dict:
            if not all(type(name) is str for name in item) or not "".join(item).isascii() or not _all_plain(item.values()):
                return False
        elif kind is not list or not _all_plain(item):
            return False
    return True


def encode(value: Any) -> str:
    """Canonical text of a value in which the caller has ruled out whatever would make it differ from RFC 8785.

    That is: integers are below 2^53; floats have a fraction and no exponent; names hold no lone surrogate and nothing from
    U+10000 on, so that their order by code point is the one by UTF-16 unit.
    """
    return _ENCODE(value)


def sha256(data: bytes) -> bytes:
    """The 32 bytes of SHA-256."""
    return hashlib.sha256(data).digest()


def _canonical(value: Any) -> tuple[bytes, str | None]:
    """RFC 8785 bytes, and them as text where Python's own encoder wrote them."""
    try:
        if _plain(value):
            text = _ENCODE(value)
            return text.encode(), text
        return rfc8785.dumps(value), None
    except (rfc8785.CanonicalizationError, RecursionError, UnicodeEncodeError) as error:
        raise InvalidValueError("", "not_canonical", f"the value has no canonical JSON form: {error}") from error


def jcs(value: Any) -> bytes:
    """RFC 8785 bytes of a JSON value. Raises InvalidValueError where the value has no canonical form."""
    return _canonical(value)[0]


def key_hash(key: str) -> bytes:
    """What is stored of an idempotency key for ever; the raw key is erasable."""
    return sha256(key.encode())


def canonical_text(value: Any) -> tuple[bytes, str]:
    """The RFC 8785 bytes of a JSON value, and a text from which it can be read again. Raises InvalidValueError like `jcs`."""
    canonical, text = _canonical(value)
    return canonical, _ENCODE(value) if text is None else text


def effect_body(connector: str, target: str, slot: str, payload: Any, attachments: Sequence[dict[str, str]] = ()) -> bytes:
    """All that one effect is, canonically: what the person sees, what the digest covers, what the connector gets."""
    return jcs(
        {
            "connector": connector,
            "target": target,
            "slot": slot,
            "payload": payload,
            "attachments": [
                {"name": item["name"], "media_type": item["media_type"], "sha256": item["sha256"]} for item in attachments
            ],
        }
    )


def approval_digest(action: str, version: int, policy_version: str, effect_digests: Sequence[bytes]) -> bytes:
    """What a decision is bound to: the action, its version, the policy's version and the effects in order."""
    return sha256(jcs([action, version, policy_version, [digest.hex() for digest in effect_digests]]))
