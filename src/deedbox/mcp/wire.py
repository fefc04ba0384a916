"""JSON-RPC as it goes over HTTP: one message in, one message or a stream of them out."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from mcp.shared.dispatcher import as_request_id
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS
from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, ErrorData, RequestId
from starlette.responses import Response

from deedbox import telemetry
from deedbox.intake.documents import parse_json
from deedbox.model.errors import CODES, DeedboxError
from deedbox.operate.views import AWAY

JSON = "application/json"
SSE = "text/event-stream"
STREAM_HEADERS = {"Cache-Control": "no-store, no-transform", "Content-Type": SSE, "X-Accel-Buffering": "no"}
PING = b": ping\n\n"

Kind: TypeAlias = Literal["request", "notification", "reply"]
_SERVER_SIDE = 500
_encode = json.JSONEncoder(separators=(",", ":")).encode


class WireError(Exception):
    """What cannot be taken as a message of JSON-RPC, with the error that says why."""

    def __init__(self, code: int, message: str) -> None:
        """`code` is JSON-RPC's."""
        super().__init__(message)
        self.error = ErrorData(code=code, message=message)


@dataclass(frozen=True, slots=True)
class Incoming:
    """One message. `refusal` says why its values cannot be kept, where nothing else is wrong with it."""

    kind: Kind
    method: str
    request_id: RequestId | None
    params: dict[str, Any] | None
    body: dict[str, Any]
    refusal: DeedboxError | None = None


def read_message(raw: bytes) -> Incoming:
    """The message of a body. Raises WireError for what is none: not JSON, a batch, an envelope of another form."""
    body, refusal = _value(raw)
    message = object_of(body)
    if not isinstance(body, dict):
        raise WireError(INVALID_REQUEST, "The body is one JSON-RPC message; batches are not taken.")
    method, given, request_id = message.get("method"), message.get("params"), as_request_id(message.get("id"))
    params = None if given is None else object_of(given)
    if message.get("jsonrpc") != "2.0":
        raise WireError(INVALID_REQUEST, "The body is not a message of JSON-RPC 2.0.")
    if method is None and request_id is not None and ("result" in message or "error" in message):
        return Incoming("reply", "", request_id, None, message, refusal)
    if not isinstance(method, str) or not (given is None or isinstance(given, dict)):
        raise WireError(INVALID_REQUEST, "The body is neither a request nor a notification.")
    if "id" not in message:
        return Incoming("notification", method, None, params, message, refusal)
    if request_id is None:
        raise WireError(INVALID_REQUEST, "The id of a request is a text or a whole number.")
    return Incoming("request", method, request_id, params, message, refusal)


def object_of(value: object) -> dict[str, Any]:
    """A JSON object as it is, and an empty one for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _value(raw: bytes) -> tuple[Any, DeedboxError | None]:
    try:
        return parse_json(raw), None
    except DeedboxError as error:
        refusal = error
    if refusal.code == "invalid_json":
        raise WireError(PARSE_ERROR, refusal.detail)
    # JSON it is; a value in it cannot be kept. Read for its id alone, so that the refusal reaches the call it belongs to.
    try:
        return json.loads(raw), refusal
    except (ValueError, RecursionError) as error:
        raise WireError(PARSE_ERROR, refusal.detail) from error


def result_message(request_id: RequestId, result: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a request."""
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def error_message(request_id: RequestId | None, error: ErrorData) -> dict[str, Any]:
    """The refusal of a request; its id is null where none could be read."""
    return {"jsonrpc": "2.0", "id": request_id, "error": error.model_dump(by_alias=True, mode="json", exclude_none=True)}


def failure_message(request_id: RequestId, method: str, failure: Exception) -> dict[str, Any]:
    """The refusal of a request whose handler raised: what it was stays in the log unless it was meant for the wire."""
    return error_message(request_id, _error_of(method, failure))


def _error_of(method: str, failure: Exception) -> ErrorData:
    if isinstance(failure, DeedboxError):
        ours = CODES[failure.code].status >= _SERVER_SIDE
        return ErrorData(
            code=INTERNAL_ERROR if ours else INVALID_PARAMS, message=failure.sentence, data={"error_code": failure.code}
        )
    if isinstance(failure, AWAY):
        telemetry.log("mcp").warning("store_away", method=method, error=type(failure).__name__)
        said = CODES["unavailable"].title
        return ErrorData(code=INTERNAL_ERROR, message=said, data={"error_code": "unavailable"})
    known = handler_exception_to_error_data(failure)
    if known is None:
        telemetry.log("mcp").error("request_failed", method=method, exc_info=failure)
    return known or ErrorData(code=INTERNAL_ERROR, message=CODES["internal"].title, data={"error_code": "internal"})


def json_response(message: Mapping[str, Any], *, modern: bool, headers: Mapping[str, str] | None = None) -> Response:
    """A message as a JSON answer. The newer protocol gives errors of the protocol a status; the older one answers 200."""
    error = message.get("error")
    status = ERROR_CODE_HTTP_STATUS.get(error["code"], 200) if error is not None and modern else 200
    if error is not None and message["id"] is None:
        status = 400
    return Response(_encode(message), status, {"Cache-Control": "no-store", **(headers or {})}, JSON)


def frame(message: Mapping[str, Any]) -> bytes:
    """A message as a server-sent event."""
    return f"event: message\ndata: {_encode(message)}\n\n".encode()


def accepts(header: str, wanted: str) -> bool:
    """Whether an Accept header lets a media type through; an empty one lets everything through."""
    names = [part.split(";", 1)[0].strip().lower() for part in header.split(",")] if header.strip() else ["*/*"]
    return any(name in {wanted, "*/*", f"{wanted.partition('/')[0]}/*"} for name in names)
