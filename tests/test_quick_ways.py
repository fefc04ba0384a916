"""The quick ways of reading and of writing JSON answer exactly as the thorough ones do, or step aside."""

import json
from typing import Any, cast

import rfc8785
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deedbox.intake import documents
from deedbox.model.errors import DeedboxError
from deedbox.model.fingerprint import MAX_SAFE_INTEGER, jcs


def _kept(value: Any) -> bool:
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return all(map(_kept, members.values())) and all(map(_text, members))
    if isinstance(value, list):
        return all(map(_kept, cast("list[Any]", value)))
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) <= MAX_SAFE_INTEGER
    return not isinstance(value, str) or _text(value)


def _text(value: str) -> bool:
    return not any(0xD800 <= ord(character) <= 0xDFFF for character in value)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
# Names that are equal, or become so when they are read, and all that can stand between two quotation marks.
NAMES = st.sampled_from(
    ['"a"', '"\\u0061"', '"b"', '"\\""', '"\\u0022"', '""', '"é"', '"\\u00e9"', '"\\ue000"', '"\U0001f600"']
)
NUMBERS = st.one_of(
    st.sampled_from(
        ["0.0", "-0.0", "1.0", "1e2", "1E-7", "1e400", "-0", "1e15", "999999999999999.0", "0.0001", "0.00001", "1e-400"]
    ),
    st.integers(2**53 - 3, 2**53 + 3).map(str),
    st.integers(-(10**18), 10**18).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-(10**17), 10**17, allow_nan=False).map(lambda number: f"{number:f}"),
)
LEAVES = st.one_of(
    NAMES,
    NUMBERS,
    st.sampled_from(["true", "null", '"\\\\"', '"\\\\u0022"', '"\\\\\\""', '"\\n\\u000b\\/"', '"12345678901234567890.0"']),
)
SPELT = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda items: f"[{', '.join(items)}]"),
        st.lists(st.tuples(NAMES, inner), max_size=4).map(
            lambda pairs: "{" + ",".join(f"{name} :{item}" for name, item in pairs) + "}\n"
        ),
    ),
    max_leaves=10,
)
TEXTS = st.one_of(
    VALUES.map(lambda value: json.dumps(value, ensure_ascii=False)),
    VALUES.map(json.dumps),
    SPELT,
    st.sampled_from(
        [
            '{"a":1,"a":2}',
            "[NaN]",
            "[-Infinity]",
            "[1e400]",
            "[9007199254740992]",
            "[123456789012345]",
            "[1234567890123456]",
            '["\\u0000"]',
            '["\\ud800"]',
            '["\x00"]',
            "[" * 65 + "]" * 65,
            "[" * 64 + "]" * 64,
            "{",
            "",
            "[1,]",
            "\ufeff[]",
        ]
    ),
    st.text(max_size=20),
)


def outcome(raw: bytes) -> tuple[str, Any]:
    try:
        return "value", documents.parse_json(raw)
    except DeedboxError as error:
        return error.code, [(problem.pointer, problem.rule) for problem in error.problems]


def thoroughly(raw: bytes) -> tuple[str, Any]:
    """What the long way says, by a text that the quick one never judges."""
    quick = documents._quickly  # pyright: ignore[reportPrivateUsage]
    try:

        def odd(_raw: bytes) -> tuple[Any, bytes]:
            raise documents._Odd  # pyright: ignore[reportPrivateUsage]

        documents._quickly = odd  # pyright: ignore[reportPrivateUsage]
        return outcome(raw)
    finally:
        documents._quickly = quick  # pyright: ignore[reportPrivateUsage]


@settings(max_examples=1000, deadline=None, derandomize=True)
@given(TEXTS)
@example('{"\ue000":1,"\U0001f600":2}')
@example('{"\ue000":1,"\\ud83d\\ude00":2}')
@example('["\\ud83d",1234567890123456]')
@example('{"\\ue000":1,"z":2.0,"\\u0061":"\\"}')
@example('{"a":1,"a":"\\u0022\\u0022"}')
def test_a_text_is_read_the_same_way_quickly_and_thoroughly(text: str) -> None:
    raw = text.encode("utf-8", "surrogatepass")
    short, long = outcome(raw), thoroughly(raw)
    assert repr(short) == repr(long)
    if short[0] == "value":
        assert documents.parse_canonically(raw).canonical == rfc8785.dumps(long[1])


@settings(max_examples=400, deadline=None, derandomize=True)
@given(VALUES.filter(_kept))
@example(1e-7)
@example(123456789012345680.0)
@example(5e-324)
@example(-0.0)
@example({"é": 1, "z": 2, "\U0001f600": 3, "\ufffd": 4})
@example({"b": [1.5, True, None, "\x7f\u2028"], "a": {}})
def test_canonical_bytes_are_those_of_the_standard(value: Any) -> None:
    assert jcs(value) == rfc8785.dumps(value)
