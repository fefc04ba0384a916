"""Signatures as Standard Webhooks has them: HMAC-SHA256 over id, time and the very bytes that are sent.

Each secret that is set gives a signature of its own, all in one header, so that a receiver may change from one to the next
while both are sent.
"""

import base64
import binascii
import hmac
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, SecretStr
from standardwebhooks import Webhook

PREFIX = "whsec_"
TOLERANCE_S = 300
"""How far the time of a signature may be from the receiver's, in seconds: what Standard Webhooks says."""
_SHORTEST, _LONGEST = 24, 64  # bytes of a secret
_MOST_SECRETS = 2


class BadSignatureError(ValueError):
    """A delivery that is not signed by whoever has the secret, or is too old; nothing of it should be believed."""


def check_secret(value: SecretStr) -> SecretStr:
    """The secret unchanged if it is `whsec_` and base64 of 24 to 64 bytes; raises ValueError otherwise, without the value."""
    text = value.get_secret_value()
    try:
        raw = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if not text.startswith(PREFIX) or not _SHORTEST <= len(raw) <= _LONGEST:
        raise ValueError(f"a signing secret is {PREFIX} and the base64 of {_SHORTEST} to {_LONGEST} random bytes")
    return value


def check_secrets(value: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
    """At most two secrets, each fit to sign with: the one in use, and another while they change. Raises ValueError."""
    if len(value) > _MOST_SECRETS:
        raise ValueError("two secrets at most: the one in use, and the one before or after it")
    for secret in value:
        check_secret(secret)
    return value


SigningSecrets = Annotated[tuple[SecretStr, ...], AfterValidator(check_secrets)]


def wall_clock_s() -> int:
    """Seconds since 1970 by this machine's clock, for the time that is signed: the receiver holds it against its own."""
    return time.time_ns() // 1_000_000_000


def sign(secrets: Sequence[SecretStr], message_id: str, content: bytes, *, at_s: int) -> dict[str, str]:
    """The three headers of a delivery whose body is `content`, UTF-8 byte for byte; none where there are no secrets."""
    if not secrets:
        return {}
    at = datetime.fromtimestamp(at_s, UTC)
    made = [Webhook(secret.get_secret_value()).sign(message_id, at, content.decode()) for secret in secrets]
    return {"Webhook-Id": message_id, "Webhook-Timestamp": str(at_s), "Webhook-Signature": " ".join(made)}


def verify(secrets: Iterable[str], headers: Mapping[str, str], content: bytes, *, now_s: int | None = None) -> str:
    """The id of a delivery that one of the secrets signed within five minutes: keep it, and do each id once.

    `content` is the body as it arrived, before anything has parsed it; `now_s` the receiver's time, the machine's where it is
    not given. Raises BadSignatureError, ValueError for a secret that is none.
    """
    found = {name.lower(): value for name, value in headers.items()}
    message_id, stamp, given = (found.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    if not message_id or not given or not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 12):  # noqa: PLR2004 -- a time
        raise BadSignatureError("the delivery has no id, time or signature that can be read")
    now = wall_clock_s() if now_s is None else now_s
    if abs(now - int(stamp)) > TOLERANCE_S:
        raise BadSignatureError("the delivery is too old, or from a time to come")
    try:
        # The library signs text; what is no UTF-8 was not sent by us.
        content.decode()
    except UnicodeDecodeError:
        raise BadSignatureError("the body is no UTF-8") from None
    for secret in secrets:
        mine = sign([check_secret(SecretStr(secret))], message_id, content, at_s=int(stamp))["Webhook-Signature"]
        if any(hmac.compare_digest(mine.encode(), one.encode()) for one in given.split(" ")):
            return message_id
    raise BadSignatureError("no signature of the delivery fits the secret")
