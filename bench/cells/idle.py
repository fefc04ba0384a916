"""Statements per second of a process with nothing to do: all roles, as `deedbox serve` runs them, from the server's log.

Every BEGIN and COMMIT counts as one; `work` is the rest.
"""

import asyncio
import re
from typing import Any

from psycopg import sql

from bench import processor
from bench.app import make_app
from bench.child import Bench, Child, run
from bench.database import Server
from bench.samples import Sample
from deedbox.settings import Settings
from deedbox.telemetry import configure_logging
from deedbox.wiring import ALL_ROLES, opened, run_roles
from deedbox.wiring import Database as Store

MODULE = "bench.cells.idle"
_STARTING_S = 3.0


async def measure(server: Server, seconds: float) -> Sample:
    """Count what reaches the server in so many seconds, from the third second after the start on."""
    async with server.fresh() as database:
        name = sql.Identifier(database.name)
        # Of the connections that are opened from now on; ours is open already.
        await database.owner.execute(sql.SQL("ALTER DATABASE {} SET log_statement = 'all'").format(name))
        async with Child(MODULE, {}, database.url) as child:
            await child.hear()
            await asyncio.sleep(_STARTING_S)
            log = server.log()
            offset = log.stat().st_size
            before = processor.read(server.postmaster, [child.pid])
            await asyncio.sleep(seconds)
            used = processor.between(before, processor.read(server.postmaster, [child.pid]))
            with log.open("rb") as file:
                file.seek(offset)
                text = file.read().decode(errors="replace")
    found = re.findall(rf"@{database.name} LOG:  (?:statement|execute .*?): (BEGIN|COMMIT|ROLLBACK)?", text)
    count, work = len(found), found.count("")
    busy = (used.ours[child.pid] + used.server) / used.seconds
    return Sample(
        "idle", {"statements": count / used.seconds, "work": work / used.seconds, "cpu_share": busy}, count, 0, 0, used.others
    )


async def main(_options: dict[str, Any], url: str, bench: Bench) -> None:
    """Run every loop until told to stop; the HTTP face asks nothing while nobody asks it."""
    settings = Settings()
    configure_logging(settings.log_level)
    async with opened(settings, make_app(), Store(url, url), roles=ALL_ROLES) as installation:
        stop = asyncio.Event()
        loops = asyncio.create_task(run_roles(installation, ALL_ROLES, stop))
        bench.say(ready=True)
        await bench.told()
        stop.set()
        await loops


if __name__ == "__main__":
    run(main)
