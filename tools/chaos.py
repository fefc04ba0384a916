"""Kill, freeze, restart and cut at random under load, and say what was lost or done twice: nothing may be.

`python -m tools.chaos` runs Deedbox's own processes on an embedded PostgreSQL of the run's, with providers that count what they
really did, for ten minutes; everything random follows from the seed that it prints first. The exit code is 0 where nothing was
lost or doubled, and 1 where something was.
"""

import argparse
import asyncio
import random
import sys

from deedbox.embedded import EmbeddedError
from tests.chaos.run import Plan, Report, run
from tests.failover.house import Size


def _plan(arguments: list[str]) -> tuple[Plan, bool]:
    default = Plan(0)
    parser = argparse.ArgumentParser(prog="python -m tools.chaos", description="Break everything at random and check.")
    parser.add_argument("--seconds", type=float, default=default.seconds, help="how long faults go on (%(default)s)")
    parser.add_argument("--seed", type=int, help="of an earlier run, to draw the same again")
    parser.add_argument("--per-s", type=float, default=default.per_s, help="keys per second (%(default)s)")
    parser.add_argument("--fault-every", type=float, default=default.fault_every_s, help="seconds (%(default)s)")
    parser.add_argument("--restart-every", type=float, default=default.restart_every_s, help="seconds (%(default)s)")
    parser.add_argument("--processes", type=int, default=default.size.api, help="of each part (%(default)s)")
    parser.add_argument("--app", default=default.app, help="what runs; another one may break a promise on purpose")
    parser.add_argument("--keep", action="store_true", help="keep the directory with the logs")
    given = parser.parse_args(arguments)
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10**6)
    size = Size(given.processes, given.processes, given.processes)
    return Plan(seed, given.seconds, given.per_s, given.fault_every, given.restart_every, size, given.app), given.keep


def main() -> int:
    """Run it and print the report."""
    plan, keep = _plan(sys.argv[1:])
    print(f"seed {plan.seed}, {plan.seconds:.0f} s of faults", flush=True)
    report: Report | None = None
    try:
        report = asyncio.run(run(plan, keep=keep))
    except* EmbeddedError as group:
        print("\n".join(f"failed: {error}" for error in group.exceptions), file=sys.stderr)
    if report is None:
        return 1
    print("\n".join(report.lines()))
    if keep or report.faults:
        print(f"logs in {report.engine.state}")
    return 1 if report.faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
