"""Calls written in settings, with places for values: no code, no conditions, and nothing but what the effect holds.

A place is `{effect_id}`, `{job_id}`, `{tenant}`, `{slot}` or `{values.NAME}`, where NAME may go on with dots into objects.
A text of a body that is one place and nothing else becomes the value itself, whatever JSON it is; in the midst of a text, in a
path and in a header a value is text or a number. In a path it is one segment, or part of one, whatever is in it.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal, cast
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

_PLACE = re.compile(r"\{(effect_id|job_id|tenant|slot|values(?:\.[A-Za-z0-9_-]{1,100}){1,8})\}")
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,998}[\x21-\x7e])?")
_MAX_DEPTH = 32
KEY = "{effect_id}"


class HttpTemplate(BaseModel):
    """How every call at a target is made. Where it has a template, a payload is the values alone."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: Literal["POST", "PUT", "PATCH", "DELETE"] = "POST"
    path: str = Field(max_length=500, description="Path below the base URL, with places such as {values.contact}.")
    headers: dict[str, str] = Field(default_factory=dict, description="Headers with places; fixed ones are the target's own.")
    body: JsonValue = Field(default=None, description="JSON with places in its texts; none where it is null.")

    @field_validator("path")
    @classmethod
    def _path(cls, value: str) -> str:
        if not value.startswith("/"):
            raise ValueError("path: must begin with /")
        return check_places(value, "path")

    @field_validator("headers")
    @classmethod
    def _headers(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            check_places(text, f"headers: {name}")
            if not _HEADER_VALUE.fullmatch(_PLACE.sub("x", text)):
                raise ValueError(f"headers: the value of {name!r} must be printable ASCII in one line")
        return value

    @field_validator("body")
    @classmethod
    def _body(cls, value: JsonValue) -> JsonValue:
        _check_body(value, 0)
        return value


def check_places(text: str, where: str) -> str:
    """The text unchanged if each brace in it belongs to a place; raises ValueError naming `where`: no typo is sent."""
    rest = _PLACE.sub("", text)
    if "{" in rest or "}" in rest:
        raise ValueError(f"{where}: a place is one of {{effect_id}}, {{job_id}}, {{tenant}}, {{slot}} and {{values.NAME}}")
    return text


def _check_body(value: JsonValue, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise ValueError(f"body: nested more than {_MAX_DEPTH} deep")
    if isinstance(value, str):
        check_places(value, "body")
    elif isinstance(value, list):
        for item in value:
            _check_body(item, depth + 1)
    elif isinstance(value, dict):
        for name, item in value.items():
            if "{" in name or "}" in name:
                raise ValueError("body: names have no places")
            _check_body(item, depth + 1)


class Places:
    """What the places of one effect's call stand for."""

    def __init__(self, values: Mapping[str, Any], **named: str) -> None:
        """`values` is the effect's payload, `named` what is known of it besides."""
        self._values = values
        self._named = named

    def path(self, text: str) -> str:
        """A path with its places filled, each percent-encoded. Raises ValueError where a value is missing or would vanish."""

        def fill(match: re.Match[str]) -> str:
            plain = self._text(match[1])
            if plain in {"", ".", ".."}:
                raise ValueError(f"{match[1]}: {plain!r} cannot stand in a path")
            return quote(plain, safe="")

        return _PLACE.sub(fill, text)

    def header(self, text: str) -> str:
        """A header's value with its places filled. Raises ValueError for what no header can carry."""
        filled = _PLACE.sub(lambda match: self._text(match[1]), text)
        if not _HEADER_VALUE.fullmatch(filled):
            raise ValueError("a value for a header must be printable ASCII in one line, without blanks at its ends")
        return filled

    def body(self, value: JsonValue) -> JsonValue:
        """JSON with its places filled. Raises ValueError where a value is missing."""
        if isinstance(value, str):
            whole = _PLACE.fullmatch(value)
            if whole is not None:
                return self._value(whole[1])
            return _PLACE.sub(lambda match: self._text(match[1]), value)
        if isinstance(value, list):
            return [self.body(item) for item in value]
        if isinstance(value, dict):
            return {name: self.body(item) for name, item in value.items()}
        return value

    def _value(self, name: str) -> JsonValue:
        if not name.startswith("values."):
            return self._named[name]
        found: Any = self._values
        for part in name.split(".")[1:]:
            if not isinstance(found, Mapping) or part not in found:
                raise ValueError(f"{name}: the payload has no such value")
            found = cast("Mapping[str, Any]", found)[part]
        return cast("JsonValue", found)

    def _text(self, name: str) -> str:
        value = self._value(name)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(  # noqa: TRY004 -- a payload that does not fit, which callers tell from a bug by ValueError
                f"{name}: must be text or a number where it stands"
            )
        return str(value)


def filled_headers(template: HttpTemplate, places: Places) -> dict[str, str]:
    """The template's headers with their places filled."""
    return {name: places.header(text) for name, text in template.headers.items()}
