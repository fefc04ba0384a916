"""Marking fields as sensitive, and finding the marks: in an action's input and output, and in what a connector sends."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast, get_args, get_origin

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from deedbox.model.sensitive import ANY_DEPTH, EVERY, Path


@dataclass(frozen=True, slots=True)
class Sensitive:
    """Marks a field: `Annotated[str, Sensitive()]`, the same as `Field(json_schema_extra={"sensitive": True})`.

    What it holds is masked in events, progress, logs, error texts, lists, pages and exports. The card of an approval shows it
    to those who decide, because they decide on exactly that; the caller gets it in the result of its own job.
    """

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Say it in the schema as well, for whoever reads that."""
        return {**handler(core_schema), "sensitive": True}


@lru_cache(maxsize=1024)
def sensitive_paths(model: type[BaseModel]) -> tuple[Path, ...]:
    """The paths of all fields that a model or any model below it marks, by the names under which they are stored."""
    return tuple(dict.fromkeys(_paths(model, (), ())))


@lru_cache(maxsize=1024)
def sensitive_names(model: type[BaseModel]) -> frozenset[str]:
    """The names of those fields, wherever they stand."""
    return frozenset(next(part for part in reversed(path) if part not in {EVERY, ANY_DEPTH}) for path in sensitive_paths(model))


def _paths(model: type[BaseModel], at: Path, above: tuple[type[BaseModel], ...]) -> list[Path]:
    if model in above:
        # It holds itself: what it marks is sensitive at any depth from its own place on.
        return [(*at, ANY_DEPTH, *path) for path in _marked_here(model)]
    found: list[Path] = []
    for name, field in model.model_fields.items():
        for key in _names(name, field):
            if _marked(field):
                found.append((*at, key))
            else:
                found += _inside(field.annotation, (*at, key), (*above, model))
    return found


def _inside(annotation: Any, at: Path, above: tuple[type[BaseModel], ...]) -> list[Path]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _paths(annotation, at, above)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if any(_says(argument) for argument in arguments):
        return [at]
    if isinstance(origin, type) and issubclass(origin, Collection):
        arguments = arguments[-1:] if issubclass(origin, Mapping) else arguments
        at = (*at, EVERY)
    return [path for argument in arguments for path in _inside(argument, at, above)]


def _marked_here(model: type[BaseModel]) -> list[Path]:
    return [(key,) for name, field in model.model_fields.items() if _marked(field) for key in _names(name, field)]


def _names(name: str, field: FieldInfo) -> tuple[str, ...]:
    """Under which names a field may be stored: its own, and its aliases."""
    aliases = (field.alias, field.serialization_alias, field.validation_alias)
    return tuple(dict.fromkeys([name, *(one for one in aliases if isinstance(one, str))]))


def _marked(field: FieldInfo) -> bool:
    extra: object = field.json_schema_extra
    said = isinstance(extra, dict) and cast("dict[str, object]", extra).get("sensitive") is True
    return said or any(_says(one) for one in field.metadata)


def _says(one: object) -> bool:
    return isinstance(one, Sensitive) or one is Sensitive


def marked_fields(actions: Mapping[str, Any], connectors: Mapping[str, Any]) -> Iterator[tuple[str, str, Path]]:
    """Everything that actions and connectors mark, as (kind, name, path): what a database keeps of it."""
    for name, action in actions.items():
        for kind, model in (("input", action.input_model), ("output", action.output_model)):
            yield from ((kind, name, path) for path in sensitive_paths(model))
    for name, connector in connectors.items():
        yield from (("payload", name, path) for path in sensitive_paths(connector.payload_model))
