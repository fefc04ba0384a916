"""Which key a call has, at every face in this order: the header, the field of the schema, the form's, the action's own rule."""

from collections.abc import Mapping
from typing import Any, cast
from uuid import UUID

from pydantic import BaseModel

from deedbox.extend.action import KEY_FIELD, Action, KeyFrom
from deedbox.model.errors import DeedboxError, Problem
from deedbox.model.fingerprint import sha256

MOST_KEY = 255


def is_key(text: str) -> bool:
    """Whether this can be an idempotency key: 1 to 255 printable ASCII characters, not blank at its ends."""
    # Of ASCII the characters from U+0020 to U+007E are printable.
    return 0 < len(text) <= MOST_KEY and text.isascii() and text.isprintable() and text[0] != " " and text[-1] != " "


def check_key(key: str, where: str = "/Idempotency-Key") -> str:
    """A usable idempotency key, or DeedboxError key_invalid: 1 to 255 printable ASCII characters, not blank at its ends."""
    if not is_key(key):
        raise DeedboxError(
            "key_invalid",
            "An idempotency key is 1 to 255 printable ASCII characters and neither begins nor ends with a blank.",
            problems=(Problem(where, "key", "is empty, blank, too long or not printable"),),
        )
    return key


def choose_key(  # noqa: PLR0911 -- one return per place where a key may come from
    action: Action,
    *,
    header: str | None,
    form: str | None,
    body: Mapping[str, Any],
    given: BaseModel,
    payload_sha256: bytes,
    job_id: UUID,
    otherwise: str | None = None,
) -> tuple[str, str]:
    """The call's key and where it came from, as the job's `key_source` names it.

    `body` is the input as stored (a document is there with its sha256), `given` the same validated; `otherwise` comes instead
    of the action's rule. Raises DeedboxError:
    key_invalid for a key that was sent and cannot be used, key_required where the action wants one and none is found.
    """
    if header is not None:
        return check_key(header), "header"
    if KEY_FIELD in action.input_model.model_fields and body.get(KEY_FIELD) is not None:
        return check_key(str(body[KEY_FIELD]), f"/{KEY_FIELD}"), "field"
    if form is not None:
        return check_key(form, f"/{KEY_FIELD}"), "field"
    found = _of_source(action, body, given)
    if found is not None:
        return found, "key_from"
    if otherwise is not None:
        return otherwise, "content"
    if action.key_rule == "require":
        raise DeedboxError("key_required", f"{action.name} acts on the outside world: send an Idempotency-Key.")
    if action.key_rule == "content":
        return f"content:{payload_sha256.hex()}", "content"
    return f"new:{job_id}", "new"


def _of_source(action: Action, body: Mapping[str, Any], given: BaseModel) -> str | None:
    """What the source of the call calls it: an event id, a Message-ID. What no key can hold stands there by its digest."""
    if action.key_from is None:
        return None
    value = _found(action.key_from, body, given)
    if value is None or isinstance(value, bool | float) or not str(value).strip():
        return None
    text = str(value).strip()
    if is_key(text):
        return text
    return f"sha256:{sha256(text.encode('utf-8', 'surrogatepass')).hex()}"


def data_subject(action: Action, body: Mapping[str, Any], given: BaseModel) -> str | None:
    """Whom the input is about, as the action finds it there: what an erasure is asked for by. None where it names nobody."""
    if action.data_subject is None:
        return None
    value = _found(action.data_subject, body, given)
    if value is None or isinstance(value, bool | float | list | dict) or not str(value).strip():
        return None
    return normal_subject(str(value))


def normal_subject(text: str) -> str:
    """A name of a person as it is kept and looked for: without blanks around it, case ignored, its digest where it is long."""
    text = text.strip().casefold()
    return text if len(text) <= MOST_KEY else f"sha256:{sha256(text.encode('utf-8', 'surrogatepass')).hex()}"


def _found(where: KeyFrom, body: Mapping[str, Any], given: BaseModel) -> Any:
    if callable(where):
        return where(given)
    value: Any = body
    for name in where.split("."):
        value = cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else None
    return value
