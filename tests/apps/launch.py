"""Worker processes for tests: started on a test's database, and ended with the test whatever became of them."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.database import TestDatabase
from tests.road import until

ROOT = Path(__file__).resolve().parent.parent.parent
STARTED_WITHIN_S = 60.0


@dataclass
class Fleet:
    """The worker processes of one test."""

    database: TestDatabase
    app: str
    log: Path
    lease_s: float
    processes: list[asyncio.subprocess.Process] = field(default_factory=list[asyncio.subprocess.Process])

    async def start(self, **settings: str) -> asyncio.subprocess.Process:
        """Start one more worker, with further settings; it may need seconds until it claims."""
        environment = os.environ | {
            "DEEDBOX_DATABASE_URL": self.database.owner_url,
            "DEEDBOX_LEASE_S": str(self.lease_s),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
            **settings,
        }
        with self.log.open("ab") as out:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "deedbox.cli.main", "worker", self.app, env=environment, cwd=ROOT, stdout=out, stderr=out
            )
        self.processes.append(process)
        return process

    async def holder(self, *, beside: int = 0) -> int:
        """The process that reported progress last; waits until one other than `beside` has."""

        async def last() -> int:
            rows = await self.database.rows(
                "SELECT payload->>'message' FROM deedbox.event WHERE type = 'job.progress' ORDER BY seq DESC LIMIT 1"
            )
            return int(str(rows[0][0]).removeprefix("pid ")) if rows else 0

        found: int = await until(last, lambda pid: pid not in (0, beside), within=STARTED_WITHIN_S)
        return found


@asynccontextmanager
async def fleet(database: TestDatabase, app: str, log: Path, *, lease_s: float = 1.5) -> AsyncGenerator[Fleet]:
    """A fleet without workers yet; all that it started are killed at the end."""
    one = Fleet(database, app, log, lease_s)
    try:
        yield one
    finally:
        for process in one.processes:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            await process.wait()
