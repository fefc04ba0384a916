"""Reading a model's answer: tolerant about what surrounds the JSON, strict about the JSON itself. Pure, no I/O.

Objects are found by matching brackets outside strings, so a fence inside a string is text, and an object that was cut off
is never replaced by a smaller one found inside of it.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from deedbox.model.errors import Problem

M = TypeVar("M", bound=BaseModel)

MAX_ANSWER_CHARS = 1_000_000
MAX_DEPTH = 64
MAX_PROBLEMS = 10
HELD_BACK = 40

_REASONING = re.compile(r"\s*<(think|thinking|thought|reasoning|analysis)>", re.IGNORECASE)


class AnswerError(Exception):
    """An answer that is not the wanted output: `problems` name path and rule, and so does the text of the exception.

    A problem's `message` is meant for the model alone: a validator of the output may have quoted the answer in it.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        """Keep the first problems only: a model is helped by few."""
        super().__init__(", ".join(f"{item.pointer or '/'} {item.rule}" for item in problems[:MAX_PROBLEMS]))
        self.problems = tuple(problems[:MAX_PROBLEMS])


class _RuleError(ValueError):
    """JSON that parses but has no single, storable meaning; the argument is the rule."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _RuleError("duplicate_key")
    return result


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _RuleError("not_finite")
    return value


# Not strict about control characters: a raw line break inside a string is common and has one meaning.
_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite, strict=False)


def read_answer(output: type[M], text: str, *, cut: bool = False) -> M:
    """The one JSON value in a model's answer, strictly validated as `output`.

    Accepted around it: a code fence, prose, reasoning text, content blocks. Of several objects exactly one may be valid.
    With `cut` (the answer reached the token limit) nothing may follow the object. Raises AnswerError otherwise.
    """
    if len(text) > MAX_ANSWER_CHARS:
        _refuse("", "too_long", f"the answer is longer than {MAX_ANSWER_CHARS} characters")
    schema = output.model_json_schema()
    body = _without_reasoning(text).strip()
    values = _values(body, "[" if schema.get("type") == "array" else "{", cut=cut)
    if not values:
        _refuse("", "json", "there is no complete JSON object in the answer")
    names = _property_names(schema)
    good: dict[str, M] = {}
    error: AnswerError | None = None
    for value in values:
        try:
            dumped = json.dumps(value, sort_keys=True)
            good[dumped] = _validated(output, value, dumped, names)
        except AnswerError as refused:
            error = refused
    if len(good) > 1:
        _refuse("", "one_object", "there is more than one JSON object in the answer")
    if error is not None and not good:
        raise error
    return next(iter(good.values()))


def read_draft(text: str, *, whole_texts: bool) -> dict[str, Any] | None:
    """What an answer that is still coming holds so far, None where that is nothing; never raises.

    Its last characters are held back, and with `whole_texts` every text that has not ended: half of something secret is not
    recognised as such.
    """
    body = _without_reasoning(text[:-HELD_BACK] if len(text) > HELD_BACK else "")
    start = body.find("{")
    if start < 0:
        return None
    try:
        value: Any = from_json(body[start:], allow_partial="on" if whole_texts else "trailing-strings")
    except ValueError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) and value else None


def _refuse(pointer: str, rule: str, message: str) -> NoReturn:
    raise AnswerError([Problem(pointer, rule, message)])


def _without_reasoning(text: str) -> str:
    opened = _REASONING.match(text)
    if opened is not None:
        _, _, after = text[opened.end() :].partition(f"</{opened.group(1)}>")
        return after
    # Some chat templates swallow the opening tag. A tag inside a string of the JSON is no such sign.
    before, closing, after = text.partition("</think>")
    if closing and "<think>" not in before and not text.lstrip().startswith(("{", "[", "`")):
        return after
    return text


def _values(body: str, opener: str, *, cut: bool) -> list[Any]:
    """The JSON values an answer may mean, in order: the whole text, or every balanced object in it."""
    try:
        value: Any = _DECODER.decode(body)
    except (_RuleError, RecursionError) as error:
        _refuse("", "depth" if isinstance(error, RecursionError) else str(error), "the JSON has no single storable meaning")
    except ValueError:
        return list(_embedded(body, opener, cut=cut))
    if isinstance(value, list) and opener == "{":
        blocks = [cast("dict[str, Any]", item) for item in cast("list[Any]", value) if isinstance(item, dict)]
        texts = [block["text"] for block in blocks if block.get("type") in {"text", "output_text"} and "text" in block]
        return list(_embedded("".join(item for item in texts if isinstance(item, str)), opener, cut=cut))
    return [value]


def _embedded(body: str, opener: str, *, cut: bool) -> Iterator[Any]:
    """Top-level objects among other text. An unbalanced one ends the search: what is inside of it is not the answer."""
    start = body.find(opener)
    while start >= 0:
        end = _balanced_end(body, start)
        if end < 0 or (cut and body[end:].strip(" \r\n\t`")):
            _refuse("", "cut_off", "the JSON ends before it is complete")
        try:
            yield _DECODER.decode(body[start:end])
        except (_RuleError, RecursionError) as error:
            _refuse("", "depth" if isinstance(error, RecursionError) else str(error), "the JSON has no single storable meaning")
        except ValueError:
            pass  # braces in prose, such as a placeholder
        start = body.find(opener, end)


def _balanced_end(text: str, start: int) -> int:
    """The index after the bracket that closes the one at `start`, or -1; brackets inside strings do not count."""
    depth, quoted, position = 0, False, start
    while position < len(text):
        character = text[position]
        if quoted:
            position += character == "\\"
            quoted = character != '"'
        elif character == '"':
            quoted = True
        elif character in "{[":
            depth += 1
        elif character in "}]":
            depth -= 1
            if depth == 0:
                return position + 1
        position += 1
    return -1


def _validated(output: type[M], value: Any, dumped: str, names: frozenset[str]) -> M:
    _check_storable(value)
    try:
        return output.model_validate_json(dumped, strict=True)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
    raise AnswerError([Problem(_pointer(item["loc"], names), item["type"], item["msg"]) for item in found])


def _check_storable(value: Any) -> None:
    """Refuse what PostgreSQL cannot keep, wherever it is in the value: U+0000, lone surrogates, absurd depth."""
    waiting: list[tuple[Any, int]] = [(value, 0)]
    while waiting:
        item, depth = waiting.pop()
        if depth > MAX_DEPTH:
            _refuse("", "depth", f"the JSON is nested deeper than {MAX_DEPTH} levels")
        if isinstance(item, str) and ("\x00" in item or any("\ud800" <= character <= "\udfff" for character in item)):
            _refuse("", "characters", "a text contains U+0000 or half of a surrogate pair")
        if isinstance(item, dict):
            waiting.extend((part, depth + 1) for pair in cast("dict[str, Any]", item).items() for part in pair)
        elif isinstance(item, list):
            waiting.extend((part, depth + 1) for part in cast("list[Any]", item))


def _property_names(schema: Mapping[str, Any]) -> frozenset[str]:
    names: set[str] = set()
    waiting: list[Any] = [schema]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            branch = cast("dict[str, Any]", item)
            if isinstance(branch.get("properties"), dict):
                names.update(cast("dict[str, Any]", branch["properties"]))
            waiting.extend(branch.values())
        elif isinstance(item, list):
            waiting.extend(cast("list[Any]", item))
    return frozenset(names)


def _pointer(location: Sequence[int | str], names: frozenset[str]) -> str:
    """RFC 6901, with `*` for a key that the model made up: it is part of the raw answer."""
    parts = [str(part) if isinstance(part, int) or part in names else "*" for part in location]
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)
