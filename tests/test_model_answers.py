"""The corpus of shapes in which models answer: accepted as they stand, or refused naming path and rule."""

import json
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, RootModel

from deedbox.worker.model_answer import MAX_ANSWER_CHARS, AnswerError, read_answer

VALID: dict[str, Any] = {"priority": "high", "subject": "Fridge ✓", "lines": [{"sku": "F-1", "count": 2}]}


class Line(BaseModel):
    sku: str
    count: int = 1


class Ticket(BaseModel):
    priority: Literal["low", "high"]
    subject: Annotated[str, Field(max_length=200)]
    lines: list[Line] = []


JSON = json.dumps(VALID)
QUOTING: dict[str, Any] = {
    "priority": "low",
    "subject": 'Use ```json\n{"priority": "high"}\n``` and <think>x</think> and } and \\" here',
    "lines": [],
}
ACCEPTED = {
    "plain": JSON,
    "byte order and blanks": f"\n\n  {JSON}  \n",
    "fence": f"```json\n{JSON}\n```",
    "fence without a language": f"```\n{JSON}\n```",
    "fence never closed": f"```json\n{JSON}",
    "prose around": f"Of course! Here it is: {JSON} Let me know.",
    "placeholder in prose": f"For {{customer}} I chose: {JSON}",
    "reasoning": f'<think>maybe {{"priority": "low"}}\nno</think>{JSON}',
    "reasoning with the opening tag lost": f'Maybe {{"priority": "low", "subject": "x"}}.</think>\n\n{JSON}',
    "reasoning in capitals": f"<Reasoning>hm</Reasoning>{JSON}",
    "content blocks as text": json.dumps([{"type": "text", "text": JSON}]),
    "block with a fence": json.dumps([{"type": "reasoning", "text": "{}"}, {"type": "text", "text": f"```\n{JSON}\n```"}]),
    "twice the same": f"{JSON}\n\nAgain:\n\n{JSON}",
    "an example that does not fit": f'Not like {{"priority": "medium"}}, rather: {JSON}',
    "extra fields": json.dumps({**VALID, "confidence": 0.9}),
}


@pytest.mark.parametrize("shape", ACCEPTED)
def test_a_shape_that_is_accepted(shape: str) -> None:
    assert read_answer(Ticket, ACCEPTED[shape]) == Ticket.model_validate(VALID)


@pytest.mark.parametrize("wrap", ["{}", "```json\n{}\n```", "Here: {} Bye.", "<think>?</think>{}"])
def test_fences_tags_and_braces_inside_strings_are_text(wrap: str) -> None:
    assert read_answer(Ticket, wrap.replace("{}", json.dumps(QUOTING))).subject == QUOTING["subject"]


def test_a_raw_line_break_inside_a_string_is_accepted() -> None:
    assert read_answer(Ticket, '{"priority": "low", "subject": "a\nb"}').subject == "a\nb"


def test_a_list_can_be_an_output() -> None:
    lines = RootModel[list[Line]]
    assert read_answer(lines, 'Here: [{"sku": "a"}]').root == [Line(sku="a")]


REFUSED = {
    "prose": ("It is urgent.", "json"),
    "nothing": ("", "json"),
    "only reasoning": (f"<think>{JSON}", "json"),
    "cut inside": (JSON[:-3], "cut_off"),
    "two that differ": (f"{JSON} or {json.dumps(QUOTING)}", "one_object"),
    "single quotes": (str(VALID), "json"),
    "trailing comma": (JSON[:-1] + ",}", "json"),
    "duplicate key": ('{"priority": "low", "priority": "high", "subject": "x"}', "duplicate_key"),
    "not a number": ('{"priority": "low", "subject": NaN}', "not_finite"),
    "infinite": ('{"priority": "low", "subject": 1e400000}', "not_finite"),
    "deep": ('{"subject": ' + "[" * 100_000 + "]" * 100_000 + "}", "depth"),
    "rather deep": ('{"subject": ' + "[" * 100 + "]" * 100 + "}", "depth"),
    "huge": ("x" * (MAX_ANSWER_CHARS + 1), "too_long"),
    "number as text": ('{"priority": "low", "subject": "x", "lines": [{"sku": "a", "count": "2"}]}', "int_type"),
    "another type": ("[1, 2, 3]", "json"),
    "null": ("null", "model_type"),
    "nul in a key": ('{"priority": "low", "subject": "x", "\\u0000": 1}', "characters"),
    "escaped surrogate": ('{"priority": "low", "subject": "\\udfff"}', "characters"),
}


@pytest.mark.parametrize("shape", REFUSED)
def test_a_shape_that_is_refused_names_its_rule(shape: str) -> None:
    text, rule = REFUSED[shape]
    with pytest.raises(AnswerError) as caught:
        read_answer(Ticket, text)
    assert rule in [problem.rule for problem in caught.value.problems]


class Lenient(BaseModel, extra="allow"):
    inner: "Lenient | None" = None
    text: str = ""


def test_a_smaller_object_inside_a_cut_off_one_is_never_the_answer() -> None:
    with pytest.raises(AnswerError, match="cut_off"):
        read_answer(Lenient, '{"inner": {"text": "whole"}, "text": "cut he')


def test_an_example_before_the_cut_is_never_the_answer() -> None:
    text = 'For example {"text": "like this"}. And now the answ'
    assert read_answer(Lenient, text).text == "like this"
    with pytest.raises(AnswerError, match="cut_off"):
        read_answer(Lenient, text, cut=True)
    assert read_answer(Lenient, '```json\n{"text": "whole"}\n``', cut=True).text == "whole"


class Closed(BaseModel, extra="forbid"):
    known: int


def test_a_key_that_the_model_made_up_is_not_repeated() -> None:
    with pytest.raises(AnswerError) as caught:
        read_answer(Closed, '{"known": 1, "jane@example.org": 2}')
    assert str(caught.value) == "/* extra_forbidden"
