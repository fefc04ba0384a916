"""What is to be reached, and what each figure is held against."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

Medians = Mapping[str, Mapping[str, float]]
Kind = Literal["ratio", "figure"]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table.

    `own` and `beside` name a cell and a value in it. `must` and `aim` are bounds of the ratio of the two, or of the own figure
    where `bounds` says so; `at_most` where less is better. `indicative` marks bounds that are worked out and not measured here:
    their real ones compare with peers in the same run, which the bench does not start yet.
    """

    target: str
    work: str
    own: tuple[str, str]
    unit: str
    beside: tuple[str, str] | None = None
    beside_name: str = ""
    bounds: Kind = "ratio"
    must: float | None = None
    aim: float | None = None
    at_most: bool = False
    indicative: bool = False

    def figures(self, medians: Medians) -> tuple[float | None, float | None, float | None]:
        """The own figure, the one beside it, and their ratio, as far as they were measured."""
        own = medians.get(self.own[0], {}).get(self.own[1])
        beside = medians.get(self.beside[0], {}).get(self.beside[1]) if self.beside else None
        return own, beside, own / beside if own is not None and beside else None

    def reached(self, medians: Medians) -> Literal["aim", "must", "missed", "-"]:
        """Which bound the figure meets."""
        own, _, ratio = self.figures(medians)
        value = ratio if self.bounds == "ratio" else own
        if value is None or self.must is None:
            return "-"
        meets: Callable[[float], bool] = (lambda bound: value <= bound) if self.at_most else (lambda bound: value >= bound)
        if self.aim is not None and meets(self.aim):
            return "aim"
        return "must" if meets(self.must) else "missed"


_GATHERED = "bare gathered inserts"
_LOOP = "bare claim-and-complete loop"
_BARE = "same server, no database"

LINES: tuple[Line, ...] = (
    Line(
        "P1",
        "accept in process, 1 submitter",
        ("accept_1", "rate"),
        "/s",
        ("raw_accept_1", "rate"),
        _GATHERED,
        must=0.76,
        aim=0.91,
        indicative=True,
    ),
    Line(
        "P1",
        "accept in process, 8 submitters",
        ("accept_8", "rate"),
        "/s",
        ("raw_accept_8", "rate"),
        _GATHERED,
        must=0.47,
        aim=0.66,
        indicative=True,
    ),
    Line(
        "P1",
        "accept in process, 64 submitters",
        ("accept_64", "rate"),
        "/s",
        ("raw_accept_64", "rate"),
        _GATHERED,
        must=0.43,
        aim=0.69,
        indicative=True,
    ),
    Line("P1", "its p99 at 64 submitters", ("accept_64", "p99"), "ms", ("raw_accept_64", "p99"), _GATHERED),
    Line("P2", "HTTP accept, 32 connections", ("http_accept", "rate"), "/s", ("http_bare", "rate"), _BARE, must=0.5, aim=0.7),
    Line("P2", "its p50", ("http_accept", "p50"), "ms", ("http_bare", "p50"), _BARE),
    Line("P2", "its p99", ("http_accept", "p99"), "ms", ("http_bare", "p99"), _BARE),
    Line(
        "P3",
        "drain, one worker process",
        ("drain_1", "rate"),
        "/s",
        ("raw_drain", "rate"),
        _LOOP,
        must=0.79,
        aim=1.32,
        indicative=True,
    ),
    Line("P3", "drain, two worker processes", ("drain_2", "rate"), "/s", ("drain_1", "rate"), "one process"),
    Line(
        "P5",
        "call to handler's first line, p50",
        ("start", "p50"),
        "ms",
        bounds="figure",
        must=3.4,
        aim=2.6,
        at_most=True,
        indicative=True,
    ),
    Line(
        "P5",
        "call to handler's first line, p99",
        ("start", "p99"),
        "ms",
        bounds="figure",
        must=8.7,
        aim=7.8,
        at_most=True,
        indicative=True,
    ),
    Line("P5", "answer to handler's first line, p50", ("start", "answer_p50"), "ms"),
    Line("P5", "answer to handler's first line, p99", ("start", "answer_p99"), "ms"),
    Line(
        "P16",
        "processor time of an accept, 64 submitters",
        ("accept_64", "cpu_us"),
        "µs",
        ("raw_accept_64", "cpu_us"),
        _GATHERED,
        "figure",
        80,
        50,
        at_most=True,
    ),
    Line(
        "P16",
        "processor time of a drained job",
        ("drain_1", "cpu_us"),
        "µs",
        ("raw_drain", "cpu_us"),
        _LOOP,
        "figure",
        90,
        60,
        at_most=True,
    ),
    Line(
        "P16",
        "processor time of an HTTP accept",
        ("http_accept", "cpu_us"),
        "µs",
        ("http_bare", "cpu_us"),
        _BARE,
        "figure",
        450,
        350,
        at_most=True,
    ),
)
