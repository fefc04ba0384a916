"""The tables of a result file, on the terminal and in the docs."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.child import ROOT
from bench.targets import LINES, Line, Medians

RESULTS = ROOT / "bench" / "results"
DOCS = ROOT / "docs" / "performance.md"
_BEGIN, _END = "<!-- figures: begin -->", "<!-- figures: end -->"
_HEADS = ("", "work", "Deedbox", "best peer", "ratio", "beside it", "ratio", "must", "aim", "reached")


def newest() -> Path:
    """The newest whole result file. Raises FileNotFoundError where there is none."""
    found = sorted(path for path in RESULTS.glob("*.json") if not json.loads(path.read_text(encoding="utf-8"))["quick"])
    if not found:
        raise FileNotFoundError("no results yet: run `python -m bench.run` first")
    return found[-1]


def show(result: dict[str, Any]) -> None:
    """Print the tables, and below them what was measured where."""
    # Where the output goes into a file there is no width to keep to.
    console = Console() if Console().is_terminal else Console(width=200)
    for title, heads, rows in _tables(result):
        table = Table(*heads, title=title, title_justify="left")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for sentence in _sentences(result):
        console.print(sentence, markup=False, highlight=False)


def write_docs() -> Path:
    """Put the tables of the newest result file into the page on performance, and return the file's path."""
    path = newest()
    result = json.loads(path.read_text(encoding="utf-8"))
    page = DOCS.read_text(encoding="utf-8")
    head, _, rest = page.partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    DOCS.write_text(f"{head}{_BEGIN}\n\n{markdown(result, path.name)}\n\n{_END}{tail}", encoding="utf-8")
    return path


def markdown(result: dict[str, Any], name: str) -> str:
    """The tables as they stand in the docs."""
    lines: list[str] = []
    for title, heads, rows in _tables(result):
        lines += [f"**{title}**", "", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
        lines += [f"| {' | '.join(row)} |" for row in rows]
        lines.append("")
    lines += [*(f"- {sentence}" for sentence in _sentences(result)), f"- All samples: `bench/results/{name}`."]
    return "\n".join(lines)


def _tables(result: dict[str, Any]) -> Iterable[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    # Result files from before there were peers have none.
    peers: list[dict[str, str]] = result.get("peers", [])
    names = [peer["name"] for peer in peers]
    medians = result["medians"]
    measured = [line for line in LINES if line.figure(medians) is not None]
    yield (
        "Deedbox, the best peer, and the limit of the machine (medians)",
        _HEADS,
        [_row(line, medians, names) for line in measured],
    )
    if peers:
        compared = [line for line in measured if line.of_peers(medians, names)]
        heads = ("", "work", "Deedbox", *(f"{peer['name']} {peer['version']}" for peer in peers))
        yield "Each peer (medians)", heads, [_compared(line, medians, names) for line in compared]
        facts = [(f"{peer['name']} {peer['version']}", peer["lacks"], peer["settings"]) for peer in peers]
        yield "What each peer keeps and does not do, and how it was set", ("", "what to know", "settings"), facts


def _row(line: Line, medians: Medians, names: Sequence[str]) -> tuple[str, ...]:
    own, limit, best = line.figure(medians), line.limit(medians), line.best(medians, names)
    return (
        line.target,
        line.work,
        _with_unit(own, line),
        f"{_with_unit(best[1], line)} ({best[0]})" if best else "",
        _ratio(own, best[1] if best else None),
        f"{_with_unit(limit, line)} ({line.beside_name})" if limit is not None else "",
        _ratio(own, limit),
        _bound(line, line.must),
        _bound(line, line.aim),
        line.reached(medians, names),
    )


def _compared(line: Line, medians: Medians, names: Sequence[str]) -> tuple[str, ...]:
    figures = line.of_peers(medians, names)
    return (
        line.target,
        line.work,
        _with_unit(line.figure(medians), line),
        *(_with_unit(figures.get(name), line) for name in names),
    )


def _ratio(own: float | None, other: float | None) -> str:
    return f"{own / other:.2f}" if own is not None and other else ""


def _bound(line: Line, bound: float | None) -> str:
    if bound is None:
        return ""
    what = {"peer": " of the peer's", "beside": " of that beside", "itself": f" {line.unit}".rstrip()}[line.against]
    return f"{'≤' if line.at_most else '≥'} {bound:g}{what}"


def _with_unit(value: float | None, line: Line) -> str:
    return "" if value is None else f"{_number(value)} {line.unit}".rstrip()


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _sentences(result: dict[str, Any]) -> list[str]:
    machine, postgres, samples = result["machine"], result["postgres"], result["samples"]
    settings = ", ".join(f"{name} {value}" for name, value in postgres["settings"].items())
    own = [sample for sample in samples if "@" not in sample["cell"]]
    count, duplicates, losses = (sum(sample[name] for sample in own) for name in ("count", "duplicates", "losses"))
    dirty = ", with changes that are not committed" if result["changed"] else ""
    where = f"{machine['cores']} cores, {machine['processor']}, {machine['memory_gib']} GiB, {machine['kernel']}"
    others = sorted(sample["others"] for sample in samples)
    sentences = [
        f"Deedbox: duplicates {duplicates}, losses {losses}, looked up after each measurement, over {count:,} in all.",
        *_peers(samples),
        f"Command: `{result['command']}` (rounds: {result['rounds']}), {result['date']}, commit {result['commit']}{dirty}.",
        f"Machine: {where}, Python {machine['python']}.",
        f"PostgreSQL {postgres['version']}, embedded: {settings}.",
    ]
    if others:
        middle = others[len(others) // 2]
        sentences.append(f"Other programs took {middle:.0%} of the machine in the median sample, {others[-1]:.0%} at worst.")
    sentences += [sentence for sentence in (result.get("absent", ""),) if sentence]
    sentences += [f"Broken, so not in the medians: {line.splitlines()[0][:300]}" for line in result.get("broken", [])]
    return sentences


def _peers(samples: Sequence[dict[str, Any]]) -> Iterable[str]:
    names = dict.fromkeys(sample["cell"].partition("@")[2] for sample in samples if "@" in sample["cell"])
    found: list[str] = []
    for name in names:
        own = [sample for sample in samples if sample["cell"].endswith(f"@{name}")]
        found.append(f"{name} {sum(one['duplicates'] for one in own)} and {sum(one['losses'] for one in own)}")
    if found:
        yield f"Peers: duplicates and losses, from what handlers saw and what rows there are: {', '.join(found)}."
