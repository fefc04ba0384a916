"""Secrets in what a caller sends: refused with the field's pointer, or masked where the action says so, before it is stored.

Every text of the input is looked at, the names of its members, the names of uploaded files, and the headers that are kept. What
was found is never repeated, neither to the caller nor in the journal.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deedbox.extend.action import Action
from deedbox.intake.documents import pointer
from deedbox.intake.request import Request, Upload
from deedbox.model.errors import DeedboxError, Problem
from deedbox.model.fingerprint import canonical_text
from deedbox.model.secrets import Finding, findings, kind_of, masked_fields, masked_value, suspicious

MOST_PROBLEMS = 20
MOST_SCANNED = 1 << 20
"""So many bytes of a document are looked at, where documents are looked at."""
_TEXT_LIKE = ("text/", "message/", "application/json", "application/xml", "application/x-ndjson", "application/yaml")


def guarded(action: Action, request: Request, body: dict[str, Any]) -> tuple[dict[str, Any], str, bytes]:
    """The body without secrets, the text of it, and its RFC 8785 bytes.

    Raises DeedboxError secret_in_input with a pointer to each that is not masked, and InvalidValueError for a body that has no
    canonical form.
    """
    parsed = request.parsed
    canonical, text = canonical_text(body) if parsed is None else (parsed.canonical, parsed.text)
    kept = _kept(request)
    # One look at all of it: almost always there is nothing.
    if not suspicious("\n".join((text, *kept.values()))):
        return body, text, canonical
    clean = masked_value(body) if action.mask is True else masked_fields(body, action.mask or ())
    found = [*findings(clean), *(Finding((name,), kind) for name, value in kept.items() if (kind := kind_of(value)))]
    if found:
        raise _refusal(found)
    if clean != body:
        canonical, text = canonical_text(clean)
    return clean, text, canonical


def check_upload(field: str, upload: Upload) -> None:
    """Look into a document that holds text, as far as MOST_SCANNED. Raises DeedboxError secret_in_input."""
    if upload.media_type.lower().startswith(_TEXT_LIKE):
        kind = kind_of(upload.content[:MOST_SCANNED].decode("utf-8", "replace"))
        if kind is not None:
            raise _refusal([Finding((field,), kind)])


def _kept(request: Request) -> Mapping[str, str]:
    """What is kept of a call besides its body, by the names under which it is pointed at."""
    named: Iterator[tuple[str, str | None]] = iter(
        (("Idempotency-Key", request.key), ("idempotency_key", request.form_key), ("Deedbox-Caller-Run", request.caller_run))
    )
    kept = {name: value for name, value in named if value is not None}
    for field, uploads in request.uploads.items():
        kept |= {field: "\n".join(upload.name for upload in uploads)}
    return kept


def _refusal(found: Sequence[Finding]) -> DeedboxError:
    problems = tuple(Problem(pointer(one.path), "secret", f"looks like {one.kind}") for one in found[:MOST_PROBLEMS])
    named = ", ".join(problem.pointer or "/" for problem in problems[:5])
    return DeedboxError(
        "secret_in_input", f"The input holds what looks like a secret, at {named}: send it without.", problems=problems
    )
