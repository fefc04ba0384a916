"""What an action keeps to be offered to agents as a tool, and the schemas under which it is offered.

Agents fill in what they are given, so nothing is given that has no bounds: every object names its members, every text has a
longest length. What a conversation would be poured into needs a reason. See docs/tools.md and decision 0022.
"""

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

REASON = "reason"
_POURED_INTO = frozenset({"history", "histories", "message", "messages", "thread", "threads", "conversation", "transcript"})
"""Words of a field's name that say that a whole conversation might be handed over."""
_ALONE = frozenset({"message", "thread"})
"""Those of them that also name one single thing, a text with a length: there they need no reason where they stand alone."""
_BOUNDED_FORMATS = frozenset({"date", "date-time", "time", "duration", "uuid", "ipv4", "ipv6"})
_DECIMAL = "^(?!^[-+.]*$)"
"""How the pattern of a decimal number begins; a number has no longest length, and needs none."""
_LOOKED_AT = 40


@dataclass(frozen=True, slots=True)
class Reason:
    """Says why a tool needs a field such as `history`, `messages` or `thread`: `Annotated[list[Line], Reason("…")]`.

    The same as `Field(json_schema_extra={"reason": "…"})`.
    """

    why: str

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Say it in the schema, for whoever reads that."""
        return {**handler(core_schema), REASON: self.why}


def input_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of what a tool takes: closed. An upload, which no agent can send, is named by its number."""
    return closed(model.model_json_schema(mode="validation"))


def output_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of what a tool's `data` holds after success."""
    return closed(model.model_json_schema(mode="serialization"))


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with every object that names its members refusing all others."""
    made = deepcopy(schema)
    for _, part in _parts(made, ""):
        if "properties" in part:
            part["additionalProperties"] = False
    return made


def faults(name: str, given: type[BaseModel], made: type[BaseModel]) -> list[str]:
    """Why an action cannot be offered as a tool, each in a sentence that names the field; empty where it can."""
    try:
        taken, shown = input_schema(given), output_schema(made)
    except Exception as error:  # noqa: BLE001 -- whatever pydantic says of a type that no schema can tell
        return [f"{name}: its schema cannot be told: {type(error).__name__}"]
    found = [f"{name}: input {where or '/'} {what}" for where, what in _faults(taken)]
    found += [f"{name}: output {where or '/'} {what}" for where, what in _faults(shown)]
    return found


def _faults(schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for where, part in _parts(schema, ""):
        yield from ((where, what) for what in _object(part))
        yield from ((where, what) for what in _text(part))
        if _is_anything(part):
            yield where, "takes anything: say what it is"
        for field, inner in cast("dict[str, Any]", part.get("properties", {})).items():
            if _pours(field, inner) and not str(inner.get(REASON, "")).strip():
                yield f"{where}/{field}", "may hold a whole conversation: say why with Reason(…), or hand over what is needed"


def _object(part: Mapping[str, Any]) -> Iterator[str]:
    if part.get("type") != "object" or "properties" in part:
        return
    more = part.get("additionalProperties", True)
    if more is False:
        return
    names = cast("Mapping[str, Any]", part.get("propertyNames") or {})
    bounded = "maxProperties" in part and ("maxLength" in names or "enum" in names)
    if not isinstance(more, dict) or not more or not bounded:
        yield "is a free-form object: name its members, or bound their number and the length of their names"


def _text(part: Mapping[str, Any]) -> Iterator[str]:
    if part.get("type") != "string" or "maxLength" in part or "enum" in part or "const" in part:
        return
    if part.get("format") in _BOUNDED_FORMATS or str(part.get("pattern", "")).startswith(_DECIMAL):
        return
    yield "is a text without a longest length: set max_length"


def _is_anything(part: Mapping[str, Any]) -> bool:
    said = set(part) - {"title", "description", "default", "examples", "deprecated", "sensitive", "judgement", REASON, "$defs"}
    return not said


def _pours(field: str, inner: Mapping[str, Any]) -> bool:
    words = re.split(r"[_\W]+", field.lower())
    found = _POURED_INTO.intersection(words)
    if not found:
        return False
    return not (found <= _ALONE and inner.get("type") == "string")


def _parts(schema: dict[str, Any], where: str, depth: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    """The schema and every one inside it, each with a pointer by which a person finds it."""
    if depth > _LOOKED_AT:
        return
    yield where, schema
    for field, inner in cast("dict[str, Any]", schema.get("properties", {})).items():
        yield from _inner(inner, f"{where}/{field}", depth)
    for named, inner in cast("dict[str, Any]", schema.get("$defs", {})).items():
        yield from _inner(inner, f"{where}#{named}", depth)
    for word in ("items", "additionalProperties", "contains"):
        yield from _inner(schema.get(word), f"{where}/*", depth)
    for word in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for inner in cast("list[Any]", schema.get(word, [])):
            yield from _inner(inner, where, depth)


def _inner(inner: Any, where: str, depth: int) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(inner, dict):
        yield from _parts(cast("dict[str, Any]", inner), where, depth + 1)
