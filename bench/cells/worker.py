"""One worker process, put together as `deedbox serve` does it, that tells what its handlers saw."""

import asyncio
from pathlib import Path
from typing import Any

from bench.app import make_app
from bench.child import Bench, run
from bench.tally import Tally
from deedbox.settings import Settings
from deedbox.telemetry import configure_logging
from deedbox.wiring import Database as Store
from deedbox.wiring import opened, run_roles

MODULE = "bench.cells.worker"


async def main(options: dict[str, Any], url: str, bench: Bench) -> None:
    """Run the worker from the first word to the second, then say when each note's handler began."""
    tally = Tally(Path(options["tally"]))
    starts: list[tuple[int, float]] = []
    keep: bool = options.get("keep", True)

    def began(number: int, at: float) -> None:
        if keep:
            starts.append((number, at))
        tally.add()

    settings = Settings(worker_slots=options["slots"], drain_s=5.0)
    configure_logging(settings.log_level)
    async with opened(settings, make_app(began), Store(url, url), roles=["worker"]) as installation:
        stop = asyncio.Event()
        bench.say(ready=True)
        await bench.told()
        loops = asyncio.create_task(run_roles(installation, ["worker"], stop))
        await bench.told()
        stop.set()
        await loops
        await bench.report(starts=starts)


if __name__ == "__main__":
    run(main)
