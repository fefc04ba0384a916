"""multipart/form-data as it arrives: parts told apart while streaming, each under its own limit, and nothing cut off.

A file part fills the input's document field of its name. Every other part is a text field, but for a part named `input`,
which holds a JSON object of fields, and one named `idempotency_key`, which is the key (where the action has no field of that
name).
"""

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from deedbox.extend.action import KEY_FIELD
from deedbox.http.body import ARRIVES_WITHIN_S, capped
from deedbox.http.deps import Limits
from deedbox.intake.documents import check, parse_json, pointer
from deedbox.intake.request import Upload
from deedbox.model.errors import DeedboxError, InvalidValueError, Problem
from deedbox.model.values import storable_text

INPUT = "input"
_LONGEST_NAME = 255
_LONGEST_BOUNDARY = 70  # RFC 2046
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_MEDIA_TYPE = re.compile(r"[!-~]+/[!-~][ -~]*")
# The parser repeats bytes of the body in its warnings; they do not belong into a log, so this logger is nobody's child.
_SILENT = logging.Logger("deedbox.multipart", logging.CRITICAL + 1)  # noqa: LOG001


@dataclass(frozen=True, slots=True)
class Form:
    """What a form held: the input's fields as JSON values, and the files by field."""

    body: dict[str, Any]
    uploads: dict[str, list[Upload]]
    key: str | None = None


@dataclass(slots=True)
class _Part:
    headers: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    name: str = ""
    file: str | None = None
    media_type: str = ""
    chunks: list[bytes] = field(default_factory=list[bytes])
    size: int = 0


class _Reader:
    """Takes the parser's callbacks and builds the parts."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._part = _Part()
        self._header = (bytearray(), bytearray())
        self._text_size = 0
        self.parts: list[_Part] = []
        self.ended = False

    def callbacks(self) -> dict[str, Any]:
        """What the parser calls, by its names."""
        return {
            "on_part_begin": self._begin,
            "on_header_begin": self._header_begin,
            "on_header_field": self._header_name,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_headers_finished": self._describe,
            "on_part_data": self._data,
            "on_part_end": self._end,
            "on_end": self._all,
        }

    def _begin(self) -> None:
        if len(self.parts) >= self._limits.parts:
            raise DeedboxError("body_too_large", f"A form has at most {self._limits.parts} parts.")
        self._part = _Part()

    def _header_begin(self) -> None:
        self._header = (bytearray(), bytearray())

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._header[0].extend(data[start:end])

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._header[1].extend(data[start:end])

    def _header_end(self) -> None:
        name, value = bytes(self._header[0]).lower(), bytes(self._header[1])
        if name in self._part.headers:
            raise _broken("A part has a header twice.")
        self._part.headers[name] = value

    def _describe(self) -> None:
        """Read a part's headers before its content: what is wrong with them is refused before megabytes arrive."""
        part = self._part
        kind, options = parse_options_header(part.headers.get(b"content-disposition", b"").decode("latin-1"))
        if kind != b"form-data" or b"name" not in options:
            raise _broken("Every part needs `Content-Disposition: form-data` with a name.")
        if part.headers.get(b"content-transfer-encoding", b"binary").strip().lower() not in {b"binary", b"8bit", b"7bit"}:
            raise _broken("Parts are taken as they are, without a transfer encoding.")
        part.name = _name(options[b"name"])
        if not part.name.strip() or len(part.name) > _LONGEST_NAME:
            raise _refused("", "name", f"a part's name has 1 to {_LONGEST_NAME} characters")
        _check_text(part.name, part.name, "the name of a part")
        if b"filename" in options:
            part.file = _file_name(part.name, _name(options[b"filename"]))
        part.media_type = part.headers.get(b"content-type", b"").decode("latin-1").strip()
        if part.media_type and (not _MEDIA_TYPE.fullmatch(part.media_type) or len(part.media_type) > _LONGEST_NAME):
            raise _refused(part.name, "media_type", "the part's media type cannot be read")

    def _data(self, data: bytes, start: int, end: int) -> None:
        part, limits = self._part, self._limits
        part.size += end - start
        if part.file is None:
            self._text_size += end - start
            if self._text_size > limits.json_bytes:
                problem = Problem(pointer((part.name,)), "too_large", f"all text parts have at most {limits.json_bytes} bytes")
                raise DeedboxError("body_too_large", "The text parts of the form are too large.", problems=(problem,))
        elif part.size > limits.upload_bytes:
            problem = Problem(pointer((part.name,)), "too_large", f"{part.file!r} has more than {limits.upload_bytes} bytes")
            said = f"The file {part.file!r} is too large: at most {limits.upload_bytes} bytes."
            raise DeedboxError("document_too_large", said, problems=(problem,))
        part.chunks.append(data[start:end])

    def _end(self) -> None:
        self.parts.append(self._part)

    def _all(self) -> None:
        self.ended = True


async def read_form(request: Request, options: Mapping[str, str], limits: Limits, fields: frozenset[str]) -> Form:
    """The form of a request whose media type had these `options`; `fields` are those of the action's input.

    Raises DeedboxError: invalid_multipart for what is broken or cut off, body_too_large, document_too_large naming the file,
    invalid_value and invalid_input with a pointer, invalid_json for an `input` part that is none.
    """
    boundary = options.get("boundary", "")
    if not 1 <= len(boundary) <= _LONGEST_BOUNDARY or not boundary.isascii():
        raise _broken(f"The media type names no boundary of 1 to {_LONGEST_BOUNDARY} characters.")
    reader = _Reader(limits)
    try:
        parser = MultipartParser(boundary, cast("Any", reader.callbacks()))
        parser.logger = _SILENT
        async with asyncio.timeout(ARRIVES_WITHIN_S):
            async for chunk in capped(request, limits.whole_bytes):
                parser.write(chunk)
                if reader.ended:
                    # What stands after the closing delimiter has no meaning; it is read and dropped.
                    parser = _Epilogue()
    except FormParserError as error:
        raise _broken("The multipart body is broken.") from error
    except TimeoutError as error:
        raise _broken(f"The body did not arrive within {ARRIVES_WITHIN_S:.0f} s.") from error
    if not reader.ended:
        raise _broken("The multipart body is cut off: its closing delimiter is missing.")
    return _assemble(reader.parts, fields)


class _Epilogue:
    """Takes what follows the end."""

    def write(self, data: bytes) -> int:
        """Nothing is done with it."""
        return len(data)


def _assemble(parts: list[_Part], fields: frozenset[str]) -> Form:
    body: dict[str, Any] = {}
    uploads: dict[str, list[Upload]] = {}
    for part in parts:
        content = b"".join(part.chunks)
        if part.name == INPUT and INPUT not in fields:
            given = _object(content)
        elif part.file is not None:
            if not part.file and not content:
                continue  # a file input of a page in which nothing was chosen
            if not part.file:
                raise _refused(part.name, "file_name", "the file has no name")
            uploads.setdefault(part.name, []).append(Upload(part.file, part.media_type or "application/octet-stream", content))
            continue
        else:
            given = {part.name: _text(part, content)}
        for name, value in given.items():
            if name in body:
                problem = Problem(pointer((name,)), "repeated_member", "the field is given twice")
                raise DeedboxError("invalid_value", f"The field {name!r} is given twice.", problems=(problem,))
            body[name] = value
    for name in uploads:
        if name in body:
            problem = Problem(pointer((name,)), "repeated_member", "the field is given as a file and as text")
            raise DeedboxError("invalid_value", f"The field {name!r} is given twice.", problems=(problem,))
    key = None if KEY_FIELD in fields else body.pop(KEY_FIELD, None)
    return Form(body, uploads, None if key is None else str(key))


def _object(content: bytes) -> dict[str, Any]:
    given = parse_json(content)
    if not isinstance(given, dict):
        problem = Problem(f"/{INPUT}", "object", "must be a JSON object")
        raise DeedboxError("invalid_input", "The part `input` holds an object of fields.", problems=(problem,))
    return cast("dict[str, Any]", given)


def _text(part: _Part, content: bytes) -> str:
    _, options = parse_options_header(part.media_type)
    if options.get(b"charset", b"utf-8").lower() not in {b"utf-8", b"utf8"}:
        raise _refused(part.name, "charset", "text parts are taken in UTF-8 alone")
    text = _readable(content)
    _check_text(part.name, text, "the text of a part")
    return text


def _file_name(name: str, given: str) -> str:
    """The last part of what may be a path, checked; empty where no file was chosen."""
    _check_text(name, given, "the name of the file")
    file = re.split(r"[/\\]", given)[-1].strip()
    if _CONTROLS.search(file) or len(file) > _LONGEST_NAME or (given.strip() and file in {"", ".", ".."}):
        raise _refused(name, "file_name", f"a file's name has 1 to {_LONGEST_NAME} characters, none of them a control")
    return file


def _readable(raw: bytes) -> str:
    """The text; bytes that are not UTF-8 become lone surrogates, which the check finds and names."""
    return raw.decode("utf-8", "surrogateescape")


def _name(raw: bytes) -> str:
    """A name as browsers write it: they spell a quotation mark %22 and escape nothing else that is allowed here."""
    return _readable(raw.replace(b"%22", b'"'))


def _check_text(name: str, text: str, what: str) -> None:
    try:
        check(text)
    except InvalidValueError as error:
        raise _refused(name, error.problem.rule, f"{what} is not UTF-8 text without U+0000") from error


def _refused(name: str, rule: str, message: str) -> DeedboxError:
    where = storable_text(pointer((name,))) if name else ""
    return DeedboxError("invalid_value", f"The form cannot be kept: {message}.", problems=(Problem(where, rule, message),))


def _broken(detail: str) -> DeedboxError:
    return DeedboxError("invalid_multipart", detail, problems=(Problem("", "multipart", "is broken or cut off"),))
