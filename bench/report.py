"""The table of a result file, on the terminal and in the docs."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.child import ROOT
from bench.targets import LINES, Line, Medians

RESULTS = ROOT / "bench" / "results"
DOCS = ROOT / "docs" / "performance.md"
_BEGIN, _END = "<!-- figures: begin -->", "<!-- figures: end -->"
_HEADS = ("", "work", "figure", "beside it", "ratio", "must", "aim", "reached")


def newest() -> Path:
    """The newest whole result file. Raises FileNotFoundError where there is none."""
    found = sorted(path for path in RESULTS.glob("*.json") if not json.loads(path.read_text(encoding="utf-8"))["quick"])
    if not found:
        raise FileNotFoundError("no results yet: run `python -m bench.run` first")
    return found[-1]


def show(result: dict[str, Any]) -> None:
    """Print the table, and below it what was measured where."""
    # Where the output goes into a file there is no width to keep to.
    console = Console() if Console().is_terminal else Console(width=150)
    table = Table(*_HEADS, title="Deedbox: medians", title_justify="left")
    for row in _rows(result["medians"]):
        table.add_row(*row)
    console.print(table)
    for sentence in _sentences(result):
        console.print(sentence, markup=False, highlight=False)


def write_docs() -> Path:
    """Put the table of the newest result file into the page on performance, and return the file's path."""
    path = newest()
    result = json.loads(path.read_text(encoding="utf-8"))
    page = DOCS.read_text(encoding="utf-8")
    head, _, rest = page.partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    DOCS.write_text(f"{head}{_BEGIN}\n\n{markdown(result, path.name)}\n\n{_END}{tail}", encoding="utf-8")
    return path


def markdown(result: dict[str, Any], name: str) -> str:
    """The table as it stands in the docs."""
    lines = [f"| {' | '.join(_HEADS)} |", f"|{'---|' * len(_HEADS)}"]
    lines += [f"| {' | '.join(row)} |" for row in _rows(result["medians"])]
    lines += ["", *(f"- {sentence}" for sentence in _sentences(result)), f"- All samples: `bench/results/{name}`."]
    return "\n".join(lines)


def _rows(medians: Medians) -> Iterable[tuple[str, ...]]:
    for line in LINES:
        own, beside, ratio = line.figures(medians)
        if own is None:
            continue
        yield (
            line.target,
            line.work,
            f"{_number(own)} {line.unit}",
            f"{_number(beside)} {line.unit} ({line.beside_name})" if beside is not None else "",
            f"{ratio:.2f}" if ratio is not None else "",
            _bound(line, line.must),
            _bound(line, line.aim),
            line.reached(medians),
        )


def _bound(line: Line, bound: float | None) -> str:
    if bound is None:
        return ""
    sign = "≤" if line.at_most else "≥"
    unit = f" {line.unit}" if line.bounds == "figure" else ""
    return f"{sign} {bound:g}{unit}{' *' if line.indicative else ''}"


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _sentences(result: dict[str, Any]) -> list[str]:
    machine, postgres, samples = result["machine"], result["postgres"], result["samples"]
    settings = ", ".join(f"{name} {value}" for name, value in postgres["settings"].items())
    count, duplicates, losses = (sum(sample[name] for sample in samples) for name in ("count", "duplicates", "losses"))
    dirty = ", with changes that are not committed" if result["changed"] else ""
    where = f"{machine['cores']} cores, {machine['processor']}, {machine['memory_gib']} GiB, {machine['kernel']}"
    others = sorted(sample["others"] for sample in samples)
    sentences = [
        f"Duplicates {duplicates}, losses {losses}: looked up in the database after each measurement, over {count:,} in all.",
        f"Command: `{result['command']}` (rounds: {result['rounds']}), {result['date']}, commit {result['commit']}{dirty}.",
        f"Machine: {where}, Python {machine['python']}.",
        f"PostgreSQL {postgres['version']}, embedded: {settings}.",
        f"Other programs took {others[len(others) // 2]:.0%} of the machine in the median sample, {others[-1]:.0%} at worst.",
    ]
    if any(line.indicative for line in LINES):
        sentences.append("A bound with * is worked out from figures of peers taken another day, see below.")
    return sentences
