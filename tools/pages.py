"""The generated pages of the docs that come from the tests and the settings, rendered as text.

`proofs` reads the tests as source, so that a page is rendered without running or importing any of them.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import AliasChoices, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from deedbox.settings import Settings
from tests.doors import table
from tests.faults import SECTIONS
from tests.guarantees import GUARANTEES

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"


class MissingDescriptionError(ValueError):
    """A setting has no description, so that its page cannot be written."""


@dataclass(frozen=True, slots=True, order=True)
class Proof:
    """A test that says it proves a promise. `path` is relative to the root; `collected` tells whether pytest runs it."""

    guarantee: str
    path: str
    test: str
    collected: bool

    @property
    def node(self) -> str:
        """The test's id as pytest takes it."""
        return f"{self.path}::{self.test}"


def _claims(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Iterator[str]:
    for decorator in node.decorator_list:
        if not isinstance(decorator, ast.Call):
            continue
        name = decorator.func
        called = name.id if isinstance(name, ast.Name) else name.attr if isinstance(name, ast.Attribute) else ""
        if called == "proves":
            yield from (arg.value for arg in decorator.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str))


def _proofs(
    body: list[ast.stmt], path: str, *, collected: bool, prefix: str = "", inherited: tuple[str, ...] = ()
) -> Iterator[Proof]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            runs = collected and node.name.startswith("Test")
            claims = (*inherited, *_claims(node))
            yield from _proofs(node.body, path, collected=runs, prefix=f"{prefix}{node.name}::", inherited=claims)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            runs = collected and node.name.startswith("test")
            own = tuple(_claims(node))
            for guarantee in (*inherited, *own) if runs else own:
                yield Proof(guarantee, path, prefix + node.name, runs)


def proofs() -> list[Proof]:
    """Every claim of a proof in the tests, sorted."""
    found: list[Proof] = []
    for path in sorted(TESTS.rglob("*.py")):
        relative = path.relative_to(ROOT).as_posix()
        tree = ast.parse(path.read_bytes(), filename=relative)
        found += _proofs(tree.body, relative, collected=path.name.startswith("test_"))
    return sorted(found)


def guarantees_page() -> str:
    """The page of guarantees: each with its source and the tests that prove it."""
    nodes: dict[str, list[str]] = {}
    for proof in proofs():
        if proof.collected:
            nodes.setdefault(proof.guarantee, []).append(f"[`{proof.test}`](../{proof.path})")
    lines = ["# Guarantees", "", "<!-- written by `make derive` from tests/guarantees.py; do not edit -->", ""]
    lines += ["Each promise is proved by the tests beside it, on every run of `make test`.", ""]
    lines += ["| id | promise | from | proofs |", "|---|---|---|---|"]
    for guarantee in GUARANTEES:
        proved = ", ".join(nodes.get(guarantee.id, [])) or "none"
        lines.append(f"| {guarantee.id} | {guarantee.promise} | {guarantee.source} | {proved} |")
    return "\n".join([*lines, ""])


def doors_page() -> str:
    """The page of every door times every rule, from the table that a test proves cell by cell."""
    lines = ["# Every door, every rule", "", "<!-- written by `make derive` from tests/doors.py; do not edit -->", ""]
    lines += ["What becomes of a decision, by what it is and by which door it comes: the state of the approval, or the code of"]
    lines += ["the refusal. A refusal changes nothing. `tests/test_decision_doors.py` proves each cell on every run.", ""]
    return "\n".join([*lines, *table(), ""])


def faults_page() -> str:
    """The page of faults met in public, each with the tests in which it is met."""
    lines = ["# Faults met in public", "", "<!-- written by `make derive` from tests/faults.py; do not edit -->", ""]
    lines += ["What users of comparable systems reported, what is right, and the tests that show it on every run.", ""]
    for section, faults in SECTIONS.items():
        lines += [f"## {section}", "", "| fault | right | shown by |", "|---|---|---|"]
        for one in faults:
            shown = ", ".join(f"[`{test.split('::')[1]}`](../tests/{test.split('::')[0]}.py)" for test in one.tests)
            lines.append(f"| {one.fault} | {one.right} | {shown} |")
        lines.append("")
    return "\n".join(lines)


def variable(name: str, field: FieldInfo) -> str:
    """The environment variable that sets a field: its alias where it has one, else prefix and name."""
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        alias = next((choice for choice in alias.choices if isinstance(choice, str)), None)
    if isinstance(alias, str):
        return alias
    return f"{Settings.model_config.get('env_prefix', '')}{name}".upper()


def settings_fields() -> dict[str, FieldInfo]:
    """The fields of the settings by the environment variable that sets each."""
    return {variable(name, field): field for name, field in Settings.model_fields.items()}


def _type(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin in {Union, UnionType}:
        return " or ".join(_type(part) for part in get_args(annotation) if part is not NoneType)
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in get_args(annotation))
    if origin is not None and hasattr(annotation, "__metadata__"):
        return _type(get_args(annotation)[0])
    if origin in {tuple, list, set, frozenset, dict}:
        parts = ", ".join(_type(part) for part in get_args(annotation) if part is not Ellipsis)
        return f"{'list' if origin is tuple else origin.__name__} of {parts}"
    names = {
        "str": "text",
        "int": "whole number",
        "float": "number",
        "bool": "true or false",
        "SecretStr": "secret text",
        "Path": "path",
    }
    name = getattr(annotation, "__name__", str(annotation))
    return names.get(name, name)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default is PydanticUndefined:
        value: Any = field.get_default(call_default_factory=True, validated_data={})
    else:
        value = field.default
    if value is None or value in ("", (), [], {}) or isinstance(value, SecretStr):
        return "not set"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, Path) and value.is_absolute():
        return "see the description"  # a path of the machine that renders the page does not belong on it
    return f"`{value}`"


def settings_page() -> str:
    """The page of settings. Raises MissingDescriptionError, naming them, when settings have no description."""
    fields = settings_fields()
    silent = [name for name, field in fields.items() if not (field.description or "").strip()]
    if silent:
        raise MissingDescriptionError(f"settings without a description: {', '.join(silent)}")
    lines = ["# Settings", "", "<!-- written by `make derive` from deedbox.settings; do not edit -->", ""]
    lines += ["Everything is set by environment variables; `deedbox doctor` says what a process would use.", ""]
    lines += ["| variable | takes | default | what it does |", "|---|---|---|---|"]
    for name, field in fields.items():
        cells = (f"`{name}`", _type(field.annotation), _default(field), " ".join((field.description or "").split()))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join([*lines, ""])
