"""A payload as the fields of a form, and what came back as a payload: plain fields where its model has them, JSON elsewhere.

A field that comes back as it was shown keeps its exact value, so that opening and sending a form changes no byte.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from deedbox.model.errors import DeedboxError, Problem

Kind = Literal["line", "text", "number", "choice", "lines", "json"]
WHOLE = ""
"""The name of the one field that holds a whole payload, where no model says what is in it."""
_SHORT = 300
_MANY_LINES = 72


@dataclass(frozen=True, slots=True)
class EditField:
    """One field: its name in the payload, what a person calls it, how it is entered, and its text.

    `lines` takes one entry per line; `choice` is `true` or `false`; `json` is any JSON value, exactly as it will be sent.
    """

    name: str
    label: str
    kind: Kind
    text: str
    wanted: bool = False


def fields_of(payload: Any, model: type[BaseModel] | None) -> tuple[EditField, ...]:
    """The fields of a payload, in the order of its model; other names after."""
    if model is None or not isinstance(payload, dict):
        return (EditField(WHOLE, "Content", "json", _json(payload)),)
    given = cast("dict[str, Any]", payload)
    found: dict[str, EditField] = {}
    for name, info in model.model_fields.items():
        key = next((key for key in (name, info.serialization_alias, info.alias) if key is not None and key in given), name)
        words = name.replace("_", " ").strip()
        kind = _kind(given.get(key), info)
        label = info.title or words[:1].upper() + words[1:]
        found[key] = EditField(key, label, kind, _text(given.get(key), kind), wanted=info.is_required())
    for key, value in given.items():
        if key not in found:
            found[key] = EditField(key, key, "json", _json(value))
    return tuple(found.values())


def payload_of(payload: Any, model: type[BaseModel] | None, given: Mapping[str, str], place: str) -> Any:
    """The payload with what was entered in it; a field that was not sent stays as it is.

    Raises DeedboxError invalid_input with a pointer below `place` for a field that holds no JSON where JSON is entered.
    """
    changed = dict(_entered(payload, model, given, place))
    if WHOLE in changed:
        return changed[WHOLE]
    return {**cast("dict[str, Any]", payload), **changed} if isinstance(payload, dict) else payload


def _entered(payload: Any, model: type[BaseModel] | None, given: Mapping[str, str], place: str) -> Iterator[tuple[str, Any]]:
    for field in fields_of(payload, model):
        if field.name not in given:
            continue
        # Browsers send the ends of lines as CRLF, whatever they were shown.
        text = given[field.name].replace("\r\n", "\n")
        if text != field.text.replace("\r\n", "\n"):
            info = None if model is None else model.model_fields.get(field.name)
            yield field.name, _value(text, field, info, place)


def _kind(value: Any, info: FieldInfo) -> Kind:
    if isinstance(value, bool):
        return "choice"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str) or (value is None and _takes(info.annotation, str)):
        return "text" if _long(value or "", info) else "line"
    if isinstance(value, list) and _takes(info.annotation, list):
        entries = cast("list[Any]", value)
        plain = all(isinstance(one, str) and one.strip() == one and one and "\n" not in one for one in entries)
        return "lines" if plain and _takes(info.annotation, list[str]) else "json"
    return "json"


def _long(value: str, info: FieldInfo) -> bool:
    longest = next((item.max_length for item in info.metadata if getattr(item, "max_length", None) is not None), None)
    if "\n" in value or len(value) > _MANY_LINES:
        return True
    return " " in value and (longest is None or longest > _SHORT)


def _takes(annotation: Any, kind: Any) -> bool:
    """Whether an annotation, or a part of the union it is, is this type."""
    todo, wanted = [annotation], kind
    while todo:
        one = todo.pop()
        origin = getattr(one, "__origin__", None)
        if one == wanted or origin is wanted:
            return True
        arguments = get_args(one)
        if wanted == list[str] and origin is list and arguments and _takes(arguments[0], str):
            return True
        # What a list holds is no part of the union.
        if origin is not list:
            todo.extend(argument for argument in arguments if not isinstance(argument, str))
    return False


def _text(value: Any, kind: Kind) -> str:
    match kind:
        case "line" | "text":
            return "" if value is None else str(value)
        case "lines":
            return "\n".join(value)
        case "choice":
            return "true" if value else "false"
        case _:
            return _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _value(text: str, field: EditField, info: FieldInfo | None, place: str) -> Any:
    match field.kind:
        case "line" | "text":
            return None if not text and info is not None and _takes(info.annotation, type(None)) else text
        case "lines":
            return [line.strip() for line in text.split("\n") if line.strip()]
        case "choice" if text in ("true", "false"):
            return text == "true"
        case _:
            try:
                return json.loads(text)
            except (ValueError, RecursionError) as error:
                problem = Problem(f"{place}/{field.name}" if field.name else place, "json", "is not a JSON value")
                raise DeedboxError("invalid_input", f"{field.label}: this is not JSON.", problems=(problem,)) from error
