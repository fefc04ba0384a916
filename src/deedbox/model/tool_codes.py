"""The codes that tools answer with, in the words an agent knows, and the one table that leads to them from everything else.

A code of the table `deedbox.model.errors.CODES`, a failure's class, or a failure's own code becomes one of `TOOL_CODES`, or the
action's own code in capitals (`customer_not_found` is `CUSTOMER_NOT_FOUND`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from deedbox.model.errors import CODES


@dataclass(frozen=True, slots=True)
class ToolCode:
    """What a code means, and whether calling again with the same arguments can help."""

    retryable: bool
    meaning: str


TOOL_CODES: Mapping[str, ToolCode] = {
    "INVALID_INPUT": ToolCode(False, "The arguments do not match the schema; `errors` points at each field."),
    "SECRET_IN_INPUT": ToolCode(False, "An argument holds what looks like a secret; it was not kept."),
    "PERMISSION_DENIED": ToolCode(False, "The caller's role may not do this."),
    "KEY_REUSED": ToolCode(False, "The key belongs to a call with other arguments."),
    "KEY_INVALID": ToolCode(False, "The key cannot be used as one."),
    "NOT_FOUND": ToolCode(False, "There is no such action or job, or it is not the caller's."),
    "RATE_LIMITED": ToolCode(True, "Too many calls; wait and call again."),
    "PROVIDER_TIMEOUT": ToolCode(True, "The provider did not answer in time."),
    "PROVIDER_ERROR": ToolCode(True, "The provider failed or refused."),
    "APPROVAL_REJECTED": ToolCode(False, "A person said no; nothing was sent."),
    "APPROVAL_EXPIRED": ToolCode(False, "Nobody decided in time; nothing was sent."),
    "VERSION_MISMATCH": ToolCode(False, "The action has another version than the call was made for; list the tools again."),
    "BUDGET_EXHAUSTED": ToolCode(False, "The job has used up the calls of tools that it may make."),
    "INVALID_OUTPUT": ToolCode(False, "The action produced a result that does not match its schema."),
    "POLICY_DENIED": ToolCode(False, "The policy does not let the action do this."),
    "PARTIALLY_DONE": ToolCode(False, "A part was done; `data` has the receipts and `errors` what was not done."),
    "UNDELIVERED": ToolCode(False, "Nothing of it was done; `errors` says why."),
    "ABSTAINED": ToolCode(False, "The action declined to propose anything."),
    "CANCELED": ToolCode(False, "It was canceled."),
    "NOT_CANCELED": ToolCode(False, "It is in a state in which it cannot be canceled."),
    "REMOVED": ToolCode(False, "The records of the earlier call are gone; its key stays taken."),
    "UNAVAILABLE": ToolCode(True, "The store cannot be reached; the same call is safe to send again."),
    "INTERNAL_ERROR": ToolCode(False, "Something went wrong inside; a person is told."),
}
"""Every code of our own. An action's own codes come beside them and are never one of these."""

BY_ERROR: Mapping[str, str] = {
    "invalid_json": "INVALID_INPUT",
    "invalid_input": "INVALID_INPUT",
    "secret_in_input": "SECRET_IN_INPUT",
    "invalid_value": "INVALID_INPUT",
    "invalid_multipart": "INVALID_INPUT",
    "invalid_header": "INVALID_INPUT",
    "invalid_parameter": "INVALID_INPUT",
    "empty_document": "INVALID_INPUT",
    "key_required": "KEY_INVALID",
    "key_invalid": "KEY_INVALID",
    "callback_refused": "INVALID_INPUT",
    "unauthenticated": "PERMISSION_DENIED",
    "permission_denied": "PERMISSION_DENIED",
    "insufficient_scope": "PERMISSION_DENIED",
    "login_refused": "PERMISSION_DENIED",
    "csrf_failed": "PERMISSION_DENIED",
    "session_required": "PERMISSION_DENIED",
    "confirmation_required": "PERMISSION_DENIED",
    "person_required": "PERMISSION_DENIED",
    "not_found": "NOT_FOUND",
    "method_not_allowed": "INVALID_INPUT",
    "illegal_move": "NOT_CANCELED",
    "already_decided": "NOT_CANCELED",
    "approval_changed": "VERSION_MISMATCH",
    "repeat_unconfirmed": "POLICY_DENIED",
    "policy_denied": "POLICY_DENIED",
    "approval_expired": "APPROVAL_EXPIRED",
    "lease_lost": "UNAVAILABLE",
    "pruned": "REMOVED",
    "erased": "REMOVED",
    "body_too_large": "INVALID_INPUT",
    "document_too_large": "INVALID_INPUT",
    "unsupported_media_type": "INVALID_INPUT",
    "version_mismatch": "VERSION_MISMATCH",
    "budget_exhausted": "BUDGET_EXHAUSTED",
    "key_reused": "KEY_REUSED",
    "too_many_waiting": "RATE_LIMITED",
    "too_many_calls": "RATE_LIMITED",
    "too_many_logins": "RATE_LIMITED",
    "internal": "INTERNAL_ERROR",
    "provider_away": "PROVIDER_ERROR",
    "unavailable": "UNAVAILABLE",
}
"""From every code of `CODES`."""

BY_FAILURE: Mapping[str, str] = {
    "rejected": "APPROVAL_REJECTED",
    "approval_expired": "APPROVAL_EXPIRED",
    "policy_denied": "POLICY_DENIED",
    "partially_done": "PARTIALLY_DONE",
    "undelivered": "UNDELIVERED",
    "abstained": "ABSTAINED",
    "canceled": "CANCELED",
    "invalid_output": "INVALID_OUTPUT",
    "input_unreadable": "VERSION_MISMATCH",
}
"""From the codes with which we end jobs ourselves."""

BY_CLASS: Mapping[str, str] = {
    "not_sent": "PROVIDER_ERROR",
    "rate_limited": "RATE_LIMITED",
    "overloaded": "PROVIDER_ERROR",
    "invalid_output": "INVALID_OUTPUT",
    "truncated": "INVALID_OUTPUT",
    "rejected_output": "INVALID_OUTPUT",
    "caller_error": "INTERNAL_ERROR",
    "denied": "PROVIDER_ERROR",
    "bug": "INTERNAL_ERROR",
    "ambiguous": "PROVIDER_ERROR",
    "lost": "UNAVAILABLE",
    "canceled": "CANCELED",
}
"""From the class of a failure, where neither its own code nor who raised it says more."""

_OWN = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_OF_PROVIDERS = re.compile(r"(?:read|http)_[0-9a-z_]+")
_TIME = ("timeout", "deadline", "overran", "max_runtime")
_BUSINESS = frozenset({"caller_error", "rejected_output"})
_NOT_OURS_TO_GIVE = frozenset({"unknown_target", "path_invalid"})


def of_error(code: str) -> str:
    """The tool's code for one of `CODES`."""
    return BY_ERROR.get(code, "INTERNAL_ERROR")


def of_failure(failure_class: str, code: str) -> str:
    """The tool's code for how a job or an effect failed; an action's own code in capitals where it is one."""
    known = BY_FAILURE.get(code)
    if known is not None:
        return known
    if code in _NOT_OURS_TO_GIVE:
        return "INTERNAL_ERROR"
    if any(word in code for word in _TIME):
        return "PROVIDER_TIMEOUT"
    if _OF_PROVIDERS.fullmatch(code):
        return "RATE_LIMITED" if failure_class == "rate_limited" else "PROVIDER_ERROR"
    if failure_class in _BUSINESS and _OWN.fullmatch(code):
        own = code.upper()
        return own if own not in TOOL_CODES or own == "NOT_FOUND" else "INTERNAL_ERROR"
    return BY_CLASS.get(failure_class, "INTERNAL_ERROR")


def is_retryable(tool_code: str) -> bool:
    """Whether calling again with the same arguments can help. An action's own failure is final."""
    known = TOOL_CODES.get(tool_code)
    return known is not None and known.retryable


def unmapped() -> list[str]:
    """Codes of `CODES` that lead nowhere, and those that lead to a code that is none; empty while the table is whole."""
    return [code for code in CODES if BY_ERROR.get(code) not in TOOL_CODES]
