"""Kill the leader of a PostgreSQL cluster under load, several times, and say what was lost: nothing may be.

`python -m tools.failover` installs what is absent where that may be done (Patroni, etcd, HAProxy, PostgreSQL 15), brings up
the cluster of `deploy/patroni` on loopback with Deedbox's own processes on it, and prints what the checker found. The exit code
is 0 where nothing was lost or doubled, 1 where something was, and 0 with one line of reason where the programs are not there.
"""

import argparse
import asyncio
import sys

from tests.failover.cluster import ClusterError
from tests.failover.house import Size
from tests.failover.network import NetworkError, reason_for_no_network
from tests.failover.programs import PROGRAMS, reason_not_to_run
from tests.failover.run import CUTS, KILLS, Plan, Report, run
from tools.system import provide

_CUT_ALL = ("cut-leader", "cut-api", "cut-worker", "cut-dispatch", "machine")


def _plan(arguments: list[str]) -> tuple[Plan, bool]:
    default = Plan()
    parser = argparse.ArgumentParser(prog="python -m tools.failover", description="Kill the leader under load and check.")
    parser.add_argument("--machines", action="store_true", help="in network namespaces, so that cables can be cut; needs root")
    parser.add_argument("--faults", help=f"by commas, of {', '.join((*KILLS, *CUTS))}; cuts only with --machines")
    parser.add_argument("--per-s", type=float, default=default.per_s, help="submits per second (%(default)s)")
    parser.add_argument("--calm-s", type=float, default=default.calm_s, help="seconds of load between faults (%(default)s)")
    parser.add_argument("--processes", type=int, default=default.size.api, help="of each part (%(default)s)")
    parser.add_argument("--keep", action="store_true", help="keep the directory with the logs")
    given = parser.parse_args(arguments)
    modes = tuple(given.faults.split(",")) if given.faults else _CUT_ALL if given.machines else default.modes
    if not set(modes) <= set(KILLS + CUTS if given.machines else KILLS):
        parser.error(f"--faults: {given.faults} cannot be done; see --help")
    size = Size(given.processes, given.processes, given.processes)
    return Plan(modes, given.per_s, given.calm_s, size, machines=given.machines), given.keep


def main() -> int:
    """Run it and print the report."""
    plan, keep = _plan(sys.argv[1:])
    provide(PROGRAMS)
    reason = reason_not_to_run() or (reason_for_no_network() if plan.machines else None)
    if reason is not None:
        print(f"skipped: {reason}")
        return 0
    report: Report | None = None
    try:
        report = asyncio.run(run(plan, keep=keep))
    except* (ClusterError, NetworkError) as group:
        print("\n".join(f"failed: {error}" for error in _leaves(group)), file=sys.stderr)
    if report is None:
        return 1
    print("\n".join(report.lines()))
    return 1 if report.faults else 0


def _leaves(group: BaseExceptionGroup[Exception]) -> list[Exception]:
    found: list[Exception] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


if __name__ == "__main__":
    raise SystemExit(main())
