"""What people must give when they settle something: a reason, and evidence that names the provider's own id."""

import json
from collections.abc import Mapping
from typing import Any, cast

from deedbox.model.errors import DeedboxError, Problem
from deedbox.model.secrets import kind_of
from deedbox.model.values import short_message, storable

MAX_EVIDENCE = 16_384


def checked_reason(reason: str | None) -> str:
    """A reason as it is kept: one sentence of at most 1,000 characters.

    Raises DeedboxError: invalid_input where it is blank, secret_in_input where it holds what looks like a secret.
    """
    if reason is None or not reason.strip():
        problem = Problem("/reason", "required", "say why, in a sentence")
        raise DeedboxError("invalid_input", "A reason is needed.", problems=(problem,))
    _refuse_secret(reason, "/reason", "reason")
    return short_message(reason.strip())


def _refuse_secret(text: str, pointer: str, what: str) -> None:
    """What is said here is kept for long, a reason in the audit's chain for ever."""
    kind = kind_of(text)
    if kind is not None:
        problem = Problem(pointer, "secret", f"looks like {kind}")
        raise DeedboxError(
            "secret_in_input", f"The {what} holds what looks like a secret: say it without.", problems=(problem,)
        )


def checked_evidence(evidence: Mapping[str, Any] | None, *, needed: bool) -> dict[str, Any]:
    """Evidence as it is kept.

    Raises DeedboxError: invalid_input where it is too long, no JSON, or has no `provider_id` where `needed`; secret_in_input.
    """
    kept = cast("dict[str, Any]", storable(dict(evidence or {})))
    provider_id = kept.get("provider_id")
    if needed and (not isinstance(provider_id, str) or not provider_id.strip()):
        problem = Problem("/evidence/provider_id", "required", "the provider's own id for what it accepted")
        raise DeedboxError("invalid_input", "Confirming needs evidence.", problems=(problem,))
    try:
        text = json.dumps(kept, allow_nan=False)
        size = len(text)
    except (TypeError, ValueError) as error:
        problem = Problem("/evidence", "json", "must be JSON")
        raise DeedboxError("invalid_input", "The evidence is not JSON.", problems=(problem,)) from error
    if size > MAX_EVIDENCE:
        problem = Problem("/evidence", "too_long", f"at most {MAX_EVIDENCE} bytes as JSON")
        raise DeedboxError("invalid_input", "The evidence is too long.", problems=(problem,))
    _refuse_secret(text, "/evidence", "evidence")
    return kept
