"""Every refusal as RFC 9457 problem details, with the codes of the one table in deedbox.model.errors."""

import json
import math
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from deedbox.model.errors import CODES, DeedboxError

MEDIA_TYPE = "application/problem+json"
_BY_STATUS = {400: "invalid_header", 404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}


def problem(error: DeedboxError, headers: Mapping[str, str] | None = None) -> Response:
    """The answer to a refused call. `headers` are added to those that the code brings with it."""
    code = CODES[error.code]
    body = {
        "type": f"urn:deedbox:problem:{error.code}",
        "title": code.title,
        "status": code.status,
        "detail": error.detail,
        "code": error.code,
        "retryable": code.retryable,
        "errors": [{"pointer": item.pointer, "rule": item.rule, "message": item.message} for item in error.problems],
    }
    sent = {"Cache-Control": "no-store", **(headers or {})}
    if error.retry_after is not None:
        sent["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    if error.code == "unauthenticated":
        sent.setdefault("WWW-Authenticate", 'Bearer realm="deedbox"')
    # ASCII alone: whatever a detail repeats of the input can be sent.
    return Response(json.dumps(body).encode(), code.status, sent, MEDIA_TYPE)


def internal() -> Response:
    """The answer when something failed that should not have; what it was is in the log and nowhere else."""
    return problem(DeedboxError("internal", "An unexpected error. Send the same request again, with the same key."))


def unavailable() -> Response:
    """The answer while the database is away."""
    return problem(DeedboxError("unavailable", "The store cannot be reached; try again shortly.", retry_after=1))


async def from_router(_request: Request, error: Exception) -> Response:
    """What the router refuses (an unknown path, a method) as a problem."""
    if not isinstance(error, HTTPException):
        return internal()
    code = _BY_STATUS.get(error.status_code, "invalid_header")
    details = {"not_found": "There is nothing at this address.", "method_not_allowed": "The route does not take this method."}
    return problem(DeedboxError(code, details.get(code, CODES[code].title)), error.headers)
