"""What a rule may read: facts, which code or the database established, and apart from them what a model judged.

A fact is the content of an effect or something that was counted, looked up or declared. What a model says of its own work (a
score, a label, its confidence) is a judgement wherever it stands, in the output or in a payload: a rule that lets something out
never sees it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, cast, get_args

from pydantic import BaseModel

EffectKind = Literal["record", "message", "access", "money"]
KINDS: tuple[EffectKind, ...] = get_args(EffectKind)
"""From the lightest to the gravest: of several that are declared, the gravest counts."""

HELD_KINDS: frozenset[EffectKind] = frozenset({"access", "money"})
"""What holds by default: a rule lets it out only where it says that it covers it."""

Validation = Literal["valid", "repaired", "none"]
"""What the model's output needed before it matched its schema; `none` where no model was asked."""
VALIDATIONS: tuple[Validation, ...] = get_args(Validation)

JUDGEMENTS = frozenset(
    {"score", "label", "confidence", "auto_reply", "probability", "certainty", "likelihood", "sentiment", "risk_score"}
)
"""Names that stand for a judgement wherever they are found; a field may be marked as one by `{"judgement": True}`."""

RECIPIENT_FIELDS = ("to", "cc", "bcc", "recipients")


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about one effect of a proposal.

    `payload` are the fields as the connector's model has them; `role` is the role under which the caller asked; `effects` and
    `recipients` are counted over the whole proposal; `sensitive` says whether a field that is marked so is present in the
    input or in a payload.
    """

    action: str
    connector: str
    target: str
    payload: Mapping[str, Any]
    kind: EffectKind = "record"
    role: str = ""
    validation: Validation = "none"
    repairs: int = 0
    effects: int = 1
    recipients: int = 1
    sensitive: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """One effect as it is put to the rules: its slot and group, the facts, and what a model judged (never a fact).

    `judged` is the action's output; `hidden` are the names under which a payload holds judgements.
    """

    slot: str
    group: str
    facts: Facts
    judged: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    hidden: frozenset[str] = JUDGEMENTS


FIELDS = tuple(Facts.__dataclass_fields__)
SCHEMA = "facts-1:" + ",".join(FIELDS)
"""Part of every policy's version: the same rules over other facts are another policy."""


def without(value: Any, names: frozenset[str]) -> Any:
    """A JSON value without the members of these names, at any depth."""
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value).items()
        return {name: without(member, names) for name, member in members if name not in names}
    if isinstance(value, (list, tuple)):
        return [without(item, names) for item in cast("list[Any]", value)]
    return value


def gravest(*declared: EffectKind | None) -> EffectKind:
    """The gravest of the kinds that were declared; `record` where none was. Raises ValueError for a word that is no kind."""
    found = 0
    for kind in declared:
        if kind is not None:
            found = max(found, KINDS.index(checked_kind(kind)))
    return KINDS[found]


def checked_kind(kind: str) -> EffectKind:
    """The word as a kind. Raises ValueError."""
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r} is none of {', '.join(KINDS)}")
    return kind


def count_recipients(payload: Mapping[str, Any]) -> int:
    """How many recipients a payload names in the fields that mails and messages have; one, its target, where it names none."""
    found = 0
    for name in RECIPIENT_FIELDS:
        value = payload.get(name)
        if isinstance(value, (list, tuple)):
            found += len(cast("list[Any]", value))
        elif isinstance(value, str) and value.strip():
            found += sum(bool(part.strip()) for part in value.split(","))
    return max(1, found)


def marked(model: type[BaseModel], mark: Literal["sensitive", "judgement"]) -> frozenset[str]:
    """The names of a model's fields that carry a mark in `json_schema_extra`, those of models within it included."""
    return frozenset(name for name, extra in _fields(model, set()) if extra.get(mark) is True)


def holds_any(value: Any, names: frozenset[str]) -> bool:
    """Whether a JSON value has, at any depth, a member of one of these names that is neither null nor empty."""
    if not names:
        return False
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value).items()
        return any((name in names and member not in (None, "", [], {})) or holds_any(member, names) for name, member in members)
    return isinstance(value, (list, tuple)) and any(holds_any(item, names) for item in cast("list[Any]", value))


def _fields(model: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if model in seen:
        return
    seen.add(model)
    for name, info in model.model_fields.items():
        given: object = info.json_schema_extra
        extra: Mapping[str, Any] = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
        yield name, extra
        yield info.alias or name, extra
        for kind in _models(info.annotation):
            yield from _fields(kind, seen)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)
