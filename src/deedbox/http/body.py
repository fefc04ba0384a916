"""Reading bodies: never more than the limit, whatever Content-Length says, and only media types that were asked for."""

import asyncio
from collections.abc import AsyncIterator, Generator
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError
from python_multipart.multipart import parse_options_header
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from deedbox.http.headers import header_values, one_header
from deedbox.intake.documents import input_problems, parse_json
from deedbox.model.errors import DeedboxError, Problem

ARRIVES_WITHIN_S = 120.0
"""How long a whole body may take to arrive, in seconds."""

Model = TypeVar("Model", bound=BaseModel)


class StrictBody(BaseModel):
    """A body of our own routes: no member that is not named, no value of another type."""

    model_config = ConfigDict(extra="forbid", strict=True)


def media_type(request: Request) -> tuple[str, dict[str, str]]:
    """The body's media type in lower case with its parameters; empty where none is named.

    Raises DeedboxError unsupported_media_type for a body that is compressed, or whose type stands twice.
    """
    if (one_header(request, "Content-Encoding", "unsupported_media_type") or "identity").lower() != "identity":
        raise DeedboxError("unsupported_media_type", "Bodies are taken as they are, without Content-Encoding.")
    value = one_header(request, "Content-Type", "unsupported_media_type")
    if value == "application/json":
        return value, {}
    name, options = parse_options_header(value)
    return name.decode("latin-1"), {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in options.items()}


def is_json(name: str) -> bool:
    """Whether a media type is JSON (RFC 8259, RFC 6839)."""
    return name == "application/json" or (name.startswith("application/") and name.endswith("+json"))


def require_utf8(options: dict[str, str]) -> None:
    """Raise DeedboxError unsupported_media_type for a charset other than UTF-8."""
    charset = options.get("charset", "utf-8").lower()
    if charset not in {"utf-8", "utf8"}:
        raise DeedboxError("unsupported_media_type", "JSON is taken in UTF-8 alone.")


def _refuse_declared(request: Request, limit: int) -> None:
    declared = header_values(request, "Content-Length")
    if declared and declared[0].isdecimal() and int(declared[0][:18]) > limit:
        raise too_large(limit)


async def capped(request: Request, limit: int) -> AsyncIterator[bytes]:
    """The body's chunks. Raises DeedboxError body_too_large at once when it is declared larger or turns out to be."""
    _refuse_declared(request, limit)
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        if chunk:
            yield chunk


def too_large(limit: int) -> DeedboxError:
    """The refusal of a body beyond the limit."""
    problem = Problem("", "too_large", f"at most {limit} bytes")
    return DeedboxError("body_too_large", f"A body has at most {limit} bytes here.", problems=(problem,))


async def read_json(request: Request, limit: int) -> Any:
    """The value of a JSON body. Raises DeedboxError: unsupported_media_type, body_too_large, invalid_json, invalid_value."""
    name, options = media_type(request)
    if not is_json(name):
        raise DeedboxError("unsupported_media_type", "The body must be application/json.")
    require_utf8(options)
    return parse_json(await read_bytes(request, limit))


class _Begun:
    """A call that was begun by hand and waits for something; awaiting it goes on with it."""

    def __init__(self, call: Generator[Any, Any, Message], waits_for: Any) -> None:
        self._call = call
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Message]:
        try:
            yield self._waits_for
        except BaseException as error:  # noqa: BLE001 -- passed on to the call: a cancellation, for one
            try:
                yield self._call.throw(error)
            except StopIteration as ended:
                return ended.value
        return (yield from self._call)


async def read_bytes(request: Request, limit: int) -> bytes:
    """The whole body. Raises DeedboxError body_too_large, or invalid_json when it does not arrive in time."""
    _refuse_declared(request, limit)
    call = request.receive().__await__()
    begun: _Begun | None = None
    message: Message | None = None
    try:
        begun = _Begun(call, next(call))
    except StopIteration as ended:
        message = cast("Message", ended.value)
        # Mostly the whole body is there, because it came with the head: then there is nothing to time.
        if not message.get("more_body", False):
            chunk = _chunk(message)
            if len(chunk) > limit:
                raise too_large(limit) from None
            return chunk
    try:
        async with asyncio.timeout(ARRIVES_WITHIN_S):
            return await _gathered(request, message if begun is None else await begun, limit)
    except TimeoutError as error:
        raise DeedboxError("invalid_json", f"The body did not arrive within {ARRIVES_WITHIN_S:.0f} s.") from error


async def _gathered(request: Request, message: Message | None, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while message is not None:
        chunks.append(_chunk(message))
        size += len(chunks[-1])
        if size > limit:
            raise too_large(limit)
        message = await request.receive() if message.get("more_body", False) else None
    return b"".join(chunks)


def _chunk(message: Message) -> bytes:
    if message["type"] != "http.request":
        raise ClientDisconnect
    return message.get("body", b"")


async def read_model(request: Request, model: type[Model], limit: int, *, optional: bool = False) -> Model:
    """A JSON body as one of our own models; with `optional`, no body stands for an empty object.

    Raises DeedboxError as `read_json` does, and invalid_input with pointers.
    """
    if optional and one_header(request, "Content-Type") is None:
        raw = await read_bytes(request, limit)
        value = parse_json(raw or b"{}")
    else:
        value = await read_json(request, limit)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        problems = input_problems(error.errors(include_url=False, include_input=False, include_context=False))
        names = ", ".join(problem.pointer or "/" for problem in problems[:5])
        raise DeedboxError("invalid_input", f"The body does not match its schema at {names}.", problems=problems) from error
