"""The one command: `python -m bench.run` measures everything in one run and prints the table.

Rounds are interleaved: each goes through all cells, in another order each time; the product, the bare thing beside it and the
peers follow one another, so that all meet the same neighbours. What counts is the median over the rounds.
"""

import argparse
import asyncio
import json
import random
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench import machine, report
from bench.database import Server
from bench.peers import set_up
from bench.peers.catalogue import PEERS, Peer
from bench.rounds import GROUPS, ONCE, QUICK, WHOLE, Extent, cells
from bench.samples import Sample, medians


async def measure(
    rounds: int, extent: Extent, only: Sequence[str], peers: Sequence[Peer], state: Path
) -> tuple[list[Sample], dict[str, Any], list[str]]:
    """All rounds; returns the samples, what the server was, and a line for each measurement that broke."""
    samples: list[Sample] = []
    broken: list[str] = []
    server = await Server.start(state)
    try:
        postgres = {"version": server.version, "settings": await server.settings()}
        for number in range(rounds):
            order = [cell for group, cell in cells(extent, only, peers) if number == 0 or group not in ONCE]
            random.shuffle(order)
            for one in (one for cell in order for one in cell):
                try:
                    measured = await one(server)
                except Exception as error:  # noqa: BLE001 -- an hour of samples is not thrown away for one that broke
                    broken.append(f"round {number}: {type(error).__name__}: {error}"[:2000])
                    print(f"broken: {broken[-1]}", file=sys.stderr, flush=True)
                    continue
                for sample in measured if isinstance(measured, list) else [measured]:
                    samples.append(replace(sample, round=number))
                    _say(samples[-1])
    finally:
        server.stop()
    return samples, postgres, broken


def _say(sample: Sample) -> None:
    figures = "  ".join(f"{name} {value:,.2f}" for name, value in sample.values.items())
    checked = f"duplicates {sample.duplicates}  losses {sample.losses}"
    print(f"round {sample.round}  {sample.cell:14} {figures}  {checked}  others {sample.others:.0%}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.run", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    names = ",".join(peer.name for peer in PEERS)
    parser.add_argument("--rounds", type=int, help="how often everything is measured (3; with --quick 1)")
    parser.add_argument("--quick", action="store_true", help="a few minutes, to see that it works; kept as quick.json alone")
    parser.add_argument("--only", default=",".join(GROUPS), help=f"some of {','.join(GROUPS)}; kept as quick.json alone")
    parser.add_argument("--peers", default=names, help=f"some of {names}, or none; those that are not set up are left out")
    parser.add_argument(
        "--write-docs", action="store_true", help="measure nothing: put the newest results into docs/performance.md"
    )
    given = parser.parse_args()
    unknown = set(given.only.split(",")) - set(GROUPS) | set(given.peers.split(",")) - {"none", *names.split(",")}
    if unknown:
        parser.error(f"not known: {', '.join(sorted(unknown))}")
    return given


def main() -> int:
    """Measure, print, keep; the exit code is 1 where a job was lost or run twice, or a measurement broke."""
    given = _arguments()
    if given.write_docs:
        print(f"docs/performance.md now shows {report.write_docs().name}")
        return 0
    only = [name for name in GROUPS if name in given.only.split(",")]
    chosen = [peer for peer in PEERS if peer.name in given.peers.split(",")]
    peers = [peer for peer in set_up.ready() if peer in chosen]
    absent = set_up.missing(peer for peer in chosen if peer not in peers)
    if absent:
        print(absent, file=sys.stderr)
    rounds = given.rounds or (1 if given.quick else 3)
    extent = QUICK if given.quick else WHOLE
    commit, changed = machine.commit()
    with TemporaryDirectory(prefix="deedbox-bench-") as state:
        samples, postgres, broken = asyncio.run(measure(rounds, extent, only, peers, Path(state) / "state"))
    partly = given.quick or only != list(GROUPS) or chosen != list(PEERS)
    result: dict[str, Any] = {
        "date": machine.now(),
        "commit": commit,
        "changed": changed,
        "command": shlex.join(["python", "-m", "bench.run", *sys.argv[1:]]),
        "quick": partly,
        "rounds": rounds,
        "extent": asdict(extent),
        "machine": machine.describe(),
        "postgres": postgres,
        "peers": [
            {"name": peer.name, "version": peer.version, "settings": peer.settings, "lacks": peer.lacks} for peer in peers
        ],
        "absent": absent,
        "broken": broken,
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
    return 1 if broken or any(sample.duplicates or sample.losses for sample in samples) else 0


if __name__ == "__main__":
    raise SystemExit(main())
