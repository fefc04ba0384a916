"""Send effects by the thousand to providers that break at one request in five, and count at the providers what came of it.

`python -m tools.effects` sends ten thousand, on an embedded PostgreSQL of the run's; the faults follow from the seed that it
prints first. The exit code is 0 where nothing was done twice, lost, or done and not told, and 1 where something was.
"""

import argparse
import asyncio
import os
import random
import secrets
import shutil
import sys

from deedbox import embedded, telemetry
from tests.counted.run import Count, run
from tests.database import RUN, fresh_database, state_of_run


async def _run(effects: int, seed: int) -> Count:
    async with fresh_database() as database:
        return await run(database, effects, seed=seed)


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
        count = asyncio.run(_run(given.count, seed))
    finally:
        if (state := state_of_run()).exists():
            embedded.remove(state)
            shutil.rmtree(state)
    print("\n".join(count.lines()))
    return 1 if count.faults else 0


if __name__ == "__main__":
    sys.exit(main())
