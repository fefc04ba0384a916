"""Conditions in CEL: compiled and read once at the start, so that what they name is known before anything is decided.

Facts are variables (`payload.amount < 50 && role == "operator"`); `model` holds what a model judged. A payload is read by the
names of its fields alone: a field that no connector has is found at the start, and no judgement comes in by a back door.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from deedbox.model.facts import FIELDS, JUDGEMENTS, Case, without

if TYPE_CHECKING:
    import cel

LONGEST = 1000
"""Characters of a condition."""
MOST_INPUT = 65536
"""Characters of what a condition is evaluated over, as JSON."""
MODEL = "model"
FUNCTIONS = frozenset(
    {"size", "contains", "startsWith", "endsWith", "matches", "int", "uint", "double", "string", "dyn", "in"}
    | {"timestamp", "duration", "has", "getFullYear", "getMonth", "getDayOfMonth", "getDayOfWeek", "getHours", "getMinutes"}
)
_MACROS = frozenset({"all", "exists", "exists_one", "map", "filter"})
_WORDS = frozenset({"true", "false", "null", "in"})
_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*)|(?P<string>[rRbB]{0,2}(?:\"\"\".*?\"\"\"|'''.*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))"""
    r"""|(?P<number>\d[\w.]*)|(?P<name>[A-Za-z_]\w*)|(?P<sign>&&|\|\||[=!<>]=|.)|(?P<space>\s+)""",
    re.DOTALL,
)
_PLAIN_STRING = re.compile(r"""["']([^"'\\]*)["']""")


@dataclass(frozen=True, slots=True)
class Reads:
    """What a condition reads: facts by name, fields of the payload, of what a model judged, and whether it reads any judgement.

    `compared` are the words that a fact is compared with, by the fact's name.
    """

    facts: frozenset[str] = frozenset()
    payload: frozenset[str] = frozenset()
    model: frozenset[str] = frozenset()
    judgement: bool = False
    compared: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])


@dataclass(frozen=True, slots=True)
class Expression:
    """One condition, compiled."""

    source: str
    reads: Reads
    _program: "cel.Program"

    def holds(self, case: Case, *, judged: bool) -> object:
        """What the condition says of a case; anything but True and False is no answer. Raises whatever goes wrong.

        Without `judged` nothing that a model judged is there to be read.
        """
        facts = {name: getattr(case.facts, name) for name in FIELDS}
        if not judged:
            facts["payload"] = without(facts["payload"], case.hidden)
        else:
            facts[MODEL] = dict(case.judged)
        facts["payload"] = dict(facts["payload"])
        if len(json.dumps(facts, default=str)) > MOST_INPUT:
            raise ValueError("there is more to read than a condition may")
        return self._program.execute(facts)


@lru_cache(maxsize=1024)
def compiled(source: str) -> Expression:
    """A condition that can be evaluated. Raises ValueError saying what is wrong with it."""
    if not source.strip():
        raise ValueError("the condition is empty")
    if len(source) > LONGEST:
        raise ValueError(f"the condition has more than {LONGEST} characters")
    tokens = _tokens(source)
    import cel  # noqa: PLC0415 -- an application without such a rule does not wait for it

    try:
        program = cel.compile(source)
    except Exception as error:
        raise ValueError(f"the condition cannot be read: {str(error).splitlines()[0]}") from error
    reads, bound = _read(tokens)
    unknown = sorted(set(program.variables()) - set(FIELDS) - {MODEL} - bound)
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r}; the facts are {', '.join(FIELDS)}, and `{MODEL}` beside them")
    strange = sorted(name for name in program.functions() if name[0].isalpha() and name not in FUNCTIONS)
    if strange:
        raise ValueError(f"unknown function {strange[0]!r}")
    return Expression(source, reads, program)


def _tokens(source: str) -> list[tuple[str, str]]:
    found = [(str(match.lastgroup), match.group()) for match in _TOKEN.finditer(source)]
    tokens = [(kind, text) for kind, text in found if kind not in {"comment", "space"} and not text.isspace()]
    if any(text == "`" for _, text in tokens):
        raise ValueError("names in backquotes are not taken")
    return tokens


class _Reader:
    """Walks over the tokens once and notes every name with what follows it."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = [*tokens, ("end", ""), ("end", ""), ("end", "")]
        self.facts: set[str] = set()
        self.payload: set[str] = set()
        self.model: set[str] = set()
        self.bound: set[str] = set()
        self.judgement = False
        self.compared: dict[str, set[str]] = {}
        self._depth = 0
        # Within the parentheses of which depth something goes over each item.
        self._within: int | None = None

    def read(self) -> Reads:
        """Everything that is read. Raises ValueError for what a condition may not do."""
        for at in range(len(self._tokens) - 3):
            kind, text = self._tokens[at]
            if kind == "sign":
                self._sign(text)
            elif kind == "name" and at and self._tokens[at - 1][1] == ".":
                self._after_dot(at, text)
            elif kind == "name" and text not in _WORDS and self._tokens[at + 1][1] != "(":
                self._name(at, text)
            elif kind == "string":
                self._string(at)
        frozen = {name: frozenset(words) for name, words in self.compared.items()}
        return Reads(frozenset(self.facts), frozenset(self.payload), frozenset(self.model), self.judgement, frozen)

    def _sign(self, text: str) -> None:
        if text in "([{":
            self._depth += 1
        elif text in ")]}":
            self._depth -= 1
            self._within = None if self._within is not None and self._within > self._depth else self._within

    def _after_dot(self, at: int, text: str) -> None:
        if self._tokens[at + 1][1] != "(":
            self.judgement = self.judgement or text in JUDGEMENTS
        elif text in _MACROS:
            if self._within is not None:
                raise ValueError(f"`{text}` within another goes over too much; write two rules")
            self._within = self._depth + 1
            self._bind(self._tokens[at + 2])

    def _bind(self, token: tuple[str, str]) -> None:
        if token[0] != "name" or token[1] in {*FIELDS, MODEL}:
            raise ValueError(f"{token[1]!r} cannot stand for each item: it is a fact")
        self.bound.add(token[1])

    def _name(self, at: int, text: str) -> None:
        if text in {"payload", MODEL}:
            member = self._member(at)
            if member is None:
                raise ValueError(f"`{text}` is read by the names of its fields, as in {text}.amount")
            (self.payload if text == "payload" else self.model).add(member)
            self.judgement = self.judgement or text == MODEL or member in JUDGEMENTS
        if text in FIELDS:
            self.facts.add(text)
            self._compare(at, text)

    def _member(self, at: int) -> str | None:
        following = self._tokens[at + 1 : at + 4]
        if following[0][1] == "." and following[1][0] == "name" and self._tokens[at + 3][1] != "(":
            return following[1][1]
        if following[0][1] == "[" and following[1][0] == "string" and following[2][1] == "]":
            return _plain(following[1][1])
        return None

    def _string(self, at: int) -> None:
        before, after = self._tokens[at - 1][1] if at else "", self._tokens[at + 1][1]
        if before == "[" and after == "]":
            self.judgement = self.judgement or _plain(self._tokens[at][1]) in JUDGEMENTS

    def _compare(self, at: int, name: str) -> None:
        """Note the words that a fact is compared with: `role == "x"`, `"x" == role`, `role in ["x", "y"]`."""
        words = self.compared.setdefault(name, set())
        sign, right = self._tokens[at + 1][1], self._tokens[at + 2]
        if sign in {"==", "!="} and right[0] == "string":
            words.add(_plain(right[1]))
        if at > 1 and self._tokens[at - 1][1] in {"==", "!="} and self._tokens[at - 2][0] == "string":
            words.add(_plain(self._tokens[at - 2][1]))
        if sign == "in" and right[1] == "[":
            for kind, text in self._tokens[at + 3 :]:
                if text == "]" or kind == "end":
                    break
                if kind == "string":
                    words.add(_plain(text))


def _read(tokens: list[tuple[str, str]]) -> tuple[Reads, set[str]]:
    reader = _Reader(tokens)
    return reader.read(), reader.bound


def _plain(text: str) -> str:
    """The value of a string as it stands. Raises ValueError for one with escapes or a prefix, which could hide a name."""
    match = _PLAIN_STRING.fullmatch(text)
    if match is None:
        raise ValueError(f"{text}: a name is written plainly, without escapes")
    return match.group(1)
