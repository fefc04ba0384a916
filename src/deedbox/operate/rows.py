"""A JSON value as labelled rows for people: in the order its model declares, other names after, nothing left out.

What is stored is canonical, so its order is the alphabet's; the order in which a person reads a mail is its model's.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from deedbox.operate.cards import Row


def rows_of(value: Any, model: type[BaseModel] | None = None, label: str = "") -> tuple[Row, ...]:
    """Every value in it, one labelled row each, null and empty ones too; none for nothing without a label.

    A field that `model` declares is labelled with its title, or its name in words, and says "none" where it holds nothing
    because nothing was given; every other name is shown as it is, and null and empty values as what exactly they are.
    """
    if isinstance(value, dict) and value:
        given = cast("dict[str, Any]", value)
        return tuple(row for one in _fields(given, model) for row in _member(one, label))
    if isinstance(value, list) and value:
        parts = cast("list[Any]", value)
        if all(_joinable(part) for part in parts):
            return (Row(label, ", ".join(_text(part) for part in parts)),)
        return tuple(row for number, part in enumerate(parts, 1) for row in rows_of(part, model, f"{label} {number}".strip()))
    nothing = _nothing(value)
    if nothing is None:
        return (Row(label, _text(value)),)
    # A row says itself that it is empty, so that no text can be taken for it.
    return (Row(label, nothing, empty=True),) if label else ()


@dataclass(frozen=True, slots=True)
class _Field:
    """A member of an object: its label, value and model, and whether it is a default that holds nothing."""

    label: str
    value: Any
    model: type[BaseModel] | None = None
    not_given: bool = False


def _member(field: _Field, label: str) -> tuple[Row, ...]:
    # A name may be empty, and is still a name.
    name = field.label or '""'
    label = f"{label}.{name}" if label else name
    return (Row(label, "none", empty=True),) if field.not_given else rows_of(field.value, field.model, label)


def _nothing(value: Any) -> str | None:
    """Our word for null and for what is empty; None for a value that has a text of its own."""
    match value:
        case None:
            return "null"
        case "":
            return "empty text"
        case list():
            return "empty list"
        case dict():
            return "nothing in it"
        case _:
            return None


def _fields(given: dict[str, Any], model: type[BaseModel] | None) -> Iterator[_Field]:
    """Declared members in their order, then the others in the order they stand."""
    shown: set[str] = set()
    for name, field in ({} if model is None else model.model_fields).items():
        # Stored under its name, or under an alias where the model says so.
        for key in dict.fromkeys((name, field.serialization_alias or name, field.alias or name)):
            if key in given and key not in shown:
                shown.add(key)
                yield _Field(_label(name, field), given[key], _model_in(field.annotation), _not_given(field, given[key]))
    for name, item in given.items():
        if name not in shown:
            yield _Field(name, item)


def _not_given(field: FieldInfo, value: Any) -> bool:
    if field.default_factory in (list, dict):
        return value in ([], {})
    return _nothing(value) is not None and value == field.default


def _label(name: str, field: FieldInfo) -> str:
    words = name.replace("_", " ").strip()
    return field.title or words[:1].upper() + words[1:]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The one model in an annotation, also within lists and unions; None where there is none, or several to choose from."""
    found: set[type[BaseModel]] = set()
    todo = [annotation]
    while todo:
        one = todo.pop()
        if isinstance(one, type) and issubclass(one, BaseModel):
            found.add(one)
        else:
            todo.extend(get_args(one))
    return found.pop() if len(found) == 1 else None


def _joinable(part: Any) -> bool:
    """Whether it can stand in a line with others and still be told from them."""
    if part is None or isinstance(part, (dict, list)):
        return False
    return not isinstance(part, str) or (part != "" and not set(part) & set(",\n\r"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
