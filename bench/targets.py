"""What is to be reached, and what each figure is held against."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Medians: TypeAlias = Mapping[str, Mapping[str, float]]
Against: TypeAlias = Literal["peer", "beside", "itself"]
Reached: TypeAlias = Literal["aim", "must", "missed", "-"]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table.

    `own` and `beside` name a cell and a value in it; what is beside is a limit of this machine, or another cell of our own.
    `must` and `aim` are bounds of the ratio to the best peer or to what is beside, or of the figure itself, as `against` says;
    `at_most` where less is better, which decides as well who is the best peer. With `peers` their figures are shown.
    """

    target: str
    work: str
    own: tuple[str, str]
    unit: str
    against: Against = "itself"
    must: float | None = None
    aim: float | None = None
    beside: tuple[str, str] | None = None
    beside_name: str = ""
    at_most: bool = False
    peers: bool = False

    def figure(self, medians: Medians) -> float | None:
        """The own figure, if it was measured."""
        return medians.get(self.own[0], {}).get(self.own[1])

    def limit(self, medians: Medians) -> float | None:
        """The figure beside it."""
        return medians.get(self.beside[0], {}).get(self.beside[1]) if self.beside else None

    def of_peers(self, medians: Medians, names: Iterable[str]) -> dict[str, float]:
        """The figures of those peers that were measured."""
        if not self.peers:
            return {}
        found = {name: medians.get(f"{self.own[0]}@{name}", {}).get(self.own[1]) for name in names}
        return {name: value for name, value in found.items() if value is not None}

    def best(self, medians: Medians, names: Iterable[str]) -> tuple[str, float] | None:
        """The best peer and its figure."""
        figures = self.of_peers(medians, names)
        if not figures:
            return None
        name = (min if self.at_most else max)(figures, key=figures.__getitem__)
        return name, figures[name]

    def judged(self, medians: Medians, names: Iterable[str]) -> float | None:
        """What the bounds are about: a ratio, or the figure."""
        own = self.figure(medians)
        best = self.best(medians, names)
        other = {"peer": best[1] if best else None, "beside": self.limit(medians), "itself": 1.0}[self.against]
        return own / other if own is not None and other else None

    def reached(self, medians: Medians, names: Iterable[str]) -> Reached:
        """Which bound is met; `-` where there is none, or nothing to hold the figure against."""
        value = self.judged(medians, names)
        if value is None or (self.must is None and self.aim is None):
            return "-"
        sign = -1 if self.at_most else 1
        if self.aim is not None and sign * value >= sign * self.aim:
            return "aim"
        return "must" if self.must is not None and sign * value >= sign * self.must else "missed"


_GATHERED = "bare gathered inserts"
_LOOP = "bare claim-and-complete loop"
_BARE = "same server, no database"
_HTTPX2 = "bare httpx2 loop"
_SAMPLE = "the SDK's own server, a plain function"
_EMPTY = "the same on empty tables"


def _accept(submitters: int, must: float, aim: float) -> Line:
    many = f"{submitters} submitter{'s' if submitters > 1 else ''}"
    cell = f"accept_{submitters}"
    return Line(
        "P1",
        f"accept in process, {many}",
        (cell, "rate"),
        "/s",
        "peer",
        must,
        aim,
        (f"raw_{cell}", "rate"),
        _GATHERED,
        peers=True,
    )


LINES: tuple[Line, ...] = (
    _accept(1, 1.0, 1.2),
    _accept(8, 2.5, 3.5),
    _accept(64, 5.0, 8.0),
    Line(
        "P1",
        "its p99 at 64 submitters",
        ("accept_64", "p99"),
        "ms",
        "peer",
        None,
        0.12,
        ("raw_accept_64", "p99"),
        _GATHERED,
        at_most=True,
        peers=True,
    ),
    Line("P2", "HTTP accept, 32 connections", ("http_accept", "rate"), "/s", "peer", 2.0, 4.0, peers=True),
    Line(
        "P2",
        "the same, beside the server alone",
        ("http_accept", "rate"),
        "/s",
        "beside",
        0.5,
        0.7,
        ("http_bare", "rate"),
        _BARE,
    ),
    Line(
        "P2", "its p50", ("http_accept", "p50"), "ms", beside=("http_bare", "p50"), beside_name=_BARE, at_most=True, peers=True
    ),
    Line(
        "P2", "its p99", ("http_accept", "p99"), "ms", beside=("http_bare", "p99"), beside_name=_BARE, at_most=True, peers=True
    ),
    Line(
        "P3", "drain, one worker process", ("drain_1", "rate"), "/s", "peer", 1.2, 2.0, ("raw_drain", "rate"), _LOOP, peers=True
    ),
    Line("P3", "drain, two worker processes", ("drain_2", "rate"), "/s", "peer", 1.2, 2.0, peers=True),
    Line("P4", "bulk submit", ("bulk", "rate"), "/s", "peer", 0.8, 1.0, peers=True),
    Line("P5", "call to handler's first line, p50", ("start", "p50"), "ms", "peer", 0.8, 0.6, at_most=True, peers=True),
    Line("P5", "call to handler's first line, p99", ("start", "p99"), "ms", "peer", 1.0, 0.9, at_most=True, peers=True),
    Line("P5", "answer to handler's first line, p50", ("start", "answer_p50"), "ms"),
    Line("P5", "answer to handler's first line, p99", ("start", "answer_p99"), "ms"),
    Line(
        "P6",
        "drain beside finished jobs",
        ("drain_finished", "rate"),
        "/s",
        "beside",
        0.85,
        0.95,
        ("drain_empty", "rate"),
        _EMPTY,
    ),
    Line(
        "P6",
        "drain beside waiting jobs",
        ("drain_waiting", "rate"),
        "/s",
        "beside",
        0.85,
        0.95,
        ("drain_empty", "rate"),
        _EMPTY,
    ),
    Line(
        "P7",
        "drain, an old snapshot held",
        ("drain_held", "rate"),
        "/s",
        "beside",
        0.7,
        0.9,
        ("drain_free", "rate"),
        "none held",
    ),
    Line("P8", "statements of an idle process", ("idle", "statements"), "/s", "itself", 3.0, 2.0, at_most=True),
    Line("P9", "effects, 32 at once", ("effects", "rate"), "/s", "beside", 0.5, 0.7, ("bare_effects", "rate"), _HTTPX2),
    Line("P10", "approval to the provider's first byte, p50", ("approve", "p50"), "ms"),
    Line("P10", "approval to the provider's first byte, p95", ("approve", "p95"), "ms", "itself", 50.0, 20.0, at_most=True),
    Line(
        "P9",
        "effects, many sent before",
        ("effects_sent", "rate"),
        "/s",
        "beside",
        0.85,
        0.95,
        ("effects", "rate"),
        _EMPTY,
    ),
    Line(
        "P10",
        "approval to the first byte, many sent before, p95",
        ("approve_sent", "p95"),
        "ms",
        "itself",
        50.0,
        20.0,
        at_most=True,
    ),
    Line("P12", "MCP start, 8 at once", ("mcp_start", "rate"), "/s", "beside", 0.7, 0.9, ("mcp_sample", "rate"), _SAMPLE),
    Line("P12", "its p50", ("mcp_start", "p50"), "ms", beside=("mcp_sample", "p50"), beside_name=_SAMPLE, at_most=True),
    Line("P12", "its p99", ("mcp_start", "p99"), "ms", "itself", 2000.0, None, ("mcp_sample", "p99"), _SAMPLE, at_most=True),
    Line(
        "P12",
        "MCP call with its result, 8 at once",
        ("mcp_call", "rate"),
        "/s",
        beside=("mcp_sample", "rate"),
        beside_name=_SAMPLE,
    ),
    Line("P12", "its p50", ("mcp_call", "p50"), "ms", beside=("mcp_sample", "p50"), beside_name=_SAMPLE, at_most=True),
    Line("P12", "its p99", ("mcp_call", "p99"), "ms", "itself", 2000.0, None, ("mcp_sample", "p99"), _SAMPLE, at_most=True),
    Line("P12", "progress call to the widget's repaint, p50", ("repaint", "p50"), "ms"),
    Line("P12", "progress call to the widget's repaint, p95", ("repaint", "p95"), "ms"),
    Line("P13", "a worker's memory, late to early", ("memory", "growth"), "x", "itself", 1.05, 1.05, at_most=True),
    Line("P13", "its threads", ("memory", "threads"), "", beside=("memory", "threads_early"), beside_name="early"),
    Line("P13", "its descriptors", ("memory", "descriptors"), "", beside=("memory", "descriptors_early"), beside_name="early"),
    Line(
        "P14",
        "write-ahead log of a job, accept to end",
        ("drain_1", "wal_bytes"),
        "B",
        "itself",
        4000,
        3000,
        at_most=True,
        peers=True,
    ),
    Line("P14", "dead rows of a job", ("drain_1", "dead_rows"), "", at_most=True, peers=True),
    Line("P14", "those with its payload", ("drain_1", "dead_payloads"), "", "itself", 0, 0, at_most=True),
    Line(
        "P16",
        "processor time of an accept, 64 submitters",
        ("accept_64", "cpu_us"),
        "µs",
        "itself",
        80,
        50,
        ("raw_accept_64", "cpu_us"),
        _GATHERED,
        at_most=True,
        peers=True,
    ),
    Line(
        "P16",
        "processor time of a drained job",
        ("drain_1", "cpu_us"),
        "µs",
        "itself",
        90,
        60,
        ("raw_drain", "cpu_us"),
        _LOOP,
        at_most=True,
        peers=True,
    ),
    Line(
        "P16",
        "processor time of an HTTP accept",
        ("http_accept", "cpu_us"),
        "µs",
        "itself",
        450,
        350,
        ("http_bare", "cpu_us"),
        _BARE,
        at_most=True,
        peers=True,
    ),
)
