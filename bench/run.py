"""The one command: `python -m bench.run` measures everything in one run and prints the table.

Rounds are interleaved: each goes through all cells, in another order each time, the product's and the bare thing beside it
one after the other, so that both meet the same neighbours. What counts is the median over the rounds.
"""

import argparse
import asyncio
import json
import random
import shlex
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench import machine, report
from bench.cells import accept, drain, http_accept, raw_accept, raw_drain, start
from bench.database import Server
from bench.samples import Sample, medians

GROUPS = ("accept", "drain", "start", "http")
Cell = Callable[[Server], Awaitable[list[Sample]]]


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured: seconds of each rate, jobs of each drain, jobs of the light load."""

    seconds: float
    jobs: int
    paced: int


WHOLE = Extent(seconds=3.0, jobs=10_000, paced=500)
QUICK = Extent(seconds=1.0, jobs=3_000, paced=100)


def cells(extent: Extent, only: list[str]) -> list[Cell]:
    """The cells of one round; each measures the product and what stands beside it."""
    chosen: list[Cell] = []

    def accepting(submitters: int) -> Cell:
        async def cell(server: Server) -> list[Sample]:
            pair = [accept.measure, raw_accept.measure]
            random.shuffle(pair)
            return [await one(server, submitters, extent.seconds) for one in pair]

        return cell

    async def draining(server: Server) -> list[Sample]:
        return [
            await drain.measure(server, extent.jobs, 1),
            await raw_drain.measure(server, extent.jobs),
            await drain.measure(server, extent.jobs, 2),
        ]

    async def starting(server: Server) -> list[Sample]:
        return [await start.measure(server, extent.paced)]

    async def serving(server: Server) -> list[Sample]:
        return await http_accept.measure(server, extent.seconds)

    if "accept" in only:
        chosen += [accepting(submitters) for submitters in (1, 8, 64)]
    if "drain" in only:
        chosen.append(draining)
    if "start" in only:
        chosen.append(starting)
    if "http" in only:
        chosen.append(serving)
    return chosen


async def measure(rounds: int, extent: Extent, only: list[str], state: Path) -> tuple[list[Sample], dict[str, Any]]:
    """All rounds; returns the samples and what the server was."""
    samples: list[Sample] = []
    server = await Server.start(state)
    try:
        postgres = {"version": server.version, "settings": await server.settings()}
        for number in range(rounds):
            order = cells(extent, only)
            random.shuffle(order)
            for cell in order:
                for sample in await cell(server):
                    samples.append(replace(sample, round=number))
                    _say(samples[-1])
    finally:
        server.stop()
    return samples, postgres


def _say(sample: Sample) -> None:
    figures = "  ".join(f"{name} {value:,.2f}" for name, value in sample.values.items())
    checked = f"duplicates {sample.duplicates}  losses {sample.losses}"
    print(f"round {sample.round}  {sample.cell:14} {figures}  {checked}  others {sample.others:.0%}", flush=True)


def main() -> int:
    """Measure, print, keep; the exit code is 1 where a job was lost or run twice."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.run", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, help="how often everything is measured (3; with --quick 1)")
    parser.add_argument("--quick", action="store_true", help="about a minute, to see that it works; kept as quick.json alone")
    parser.add_argument("--only", default=",".join(GROUPS), help=f"some of {','.join(GROUPS)}; kept as quick.json alone")
    parser.add_argument(
        "--write-docs", action="store_true", help="measure nothing: put the newest results into docs/performance.md"
    )
    given = parser.parse_args()
    if given.write_docs:
        print(f"docs/performance.md now shows {report.write_docs().name}")
        return 0
    only = [name for name in GROUPS if name in given.only.split(",")]
    rounds = given.rounds or (1 if given.quick else 3)
    commit, changed = machine.commit()
    with TemporaryDirectory(prefix="deedbox-bench-") as state:
        samples, postgres = asyncio.run(measure(rounds, QUICK if given.quick else WHOLE, only, Path(state) / "state"))
    partly = given.quick or only != list(GROUPS)
    result: dict[str, Any] = {
        "date": machine.now(),
        "commit": commit,
        "changed": changed,
        "command": shlex.join(["python", "-m", "bench.run", *sys.argv[1:]]),
        "quick": partly,
        "rounds": rounds,
        "machine": machine.describe(),
        "postgres": postgres,
        "medians": {
            cell: {name: round(value, 4) for name, value in values.items()} for cell, values in medians(samples).items()
        },
        "samples": [sample.as_json() for sample in samples],
    }
    name = "quick" if partly else result["date"].replace(":", "")
    report.RESULTS.mkdir(exist_ok=True)
    path = report.RESULTS / f"{name}.json"
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    report.show(result)
    print(f"kept in {path.relative_to(report.ROOT)}")
    return 1 if any(sample.duplicates or sample.losses for sample in samples) else 0


if __name__ == "__main__":
    raise SystemExit(main())
