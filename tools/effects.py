"""Send effects by the thousand to providers that break at one request in five, and count at the providers what came of it.

`python -m tools.effects` sends ten thousand, on an embedded PostgreSQL of the run's; the faults follow from the seed that it
prints first. The exit code is 0 where nothing was done twice, lost, or done and not told, and every fault was met; else 1.
"""

import argparse
import asyncio
import os
import random
import secrets
import shutil
import sys

from deedbox import embedded, telemetry
from tests.builders import outbox_on
from tests.chaos.outbox import Count, count, unplayed
from tests.database import RUN, fresh_database, state_of_run

_MANY = 5000
"""So many effects meet every fault there is; a run that did not has shown less than it says."""


async def _run(effects: int, seed: int) -> Count:
    async with fresh_database() as database, outbox_on(database) as box:
        return await count(box, effects, seed=seed, within_s=300 + effects)


def main() -> int:
    """Run it and print the count."""
    parser = argparse.ArgumentParser(prog="python -m tools.effects", description="Break providers and count effects.")
    parser.add_argument("--count", type=int, default=10_000, help="how many effects (%(default)s)")
    parser.add_argument("--seed", type=int, help="of an earlier run, to draw the same again")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}, {given.count} effects", flush=True)
    telemetry.configure_logging("error")
    os.environ[RUN] = secrets.token_hex(5)
    try:
        found = asyncio.run(_run(given.count, seed))
    finally:
        if (state := state_of_run()).exists():
            embedded.remove(state)
            shutil.rmtree(state)
    missing = unplayed(found) if given.count >= _MANY else []
    print("\n".join([*found.lines(), *(f"never met: {fault}" for fault in missing)]))
    return 1 if found.faults or missing else 0


if __name__ == "__main__":
    sys.exit(main())
