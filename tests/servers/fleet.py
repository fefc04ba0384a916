"""Real `deedbox` processes on one database: servers and workers that can be killed without warning and started again."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from deedbox.access import IdSource, Pool, add_key
from tests.database import TestDatabase
from tests.road import until
from tests.servers.commands import ROOT, environment
from tests.servers.listening import free_port

UP_WITHIN_S = 120.0


@dataclass
class Started:
    """One process, and where it listens when it is a server."""

    process: asyncio.subprocess.Process
    port: int | None = None

    @property
    def pid(self) -> int:
        """Its number."""
        return self.process.pid

    async def kill(self) -> None:
        """End it without warning."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


@dataclass
class Fleet:
    """The processes of one test."""

    database: TestDatabase
    app: str
    folder: Path
    key: str = ""
    started: list[Started] = field(default_factory=list[Started])
    settings: dict[str, str] = field(default_factory=dict[str, str])

    async def server(self, port: int | None = None) -> Started:
        """Start a server, on a port that was used before where one is named, and wait until it is ready."""
        chosen = port or free_port()
        one = await self._start("api", DEEDBOX_PORT=str(chosen), DEEDBOX_PUBLIC_URL=f"http://127.0.0.1:{chosen}")
        one.port = chosen
        async with httpx2.AsyncClient(trust_env=False, timeout=10) as client:

            async def ready() -> int:
                assert one.process.returncode is None, self.said
                with suppress(httpx2.HTTPError):
                    return (await client.get(f"http://127.0.0.1:{chosen}/healthz")).status_code
                return 0

            await until(ready, lambda status: status == 200, within=UP_WITHIN_S)
        return one

    async def worker(self) -> Started:
        """Start a worker."""
        return await self._start("worker")

    async def _start(self, command: str, **extra: str) -> Started:
        env = environment(self.database.owner_url, {"DEEDBOX_LEASE_S": "1.5", **self.settings, **extra})
        env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        with (self.folder / "said.log").open("ab") as out:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "deedbox.cli.main", command, self.app, env=env, cwd=ROOT, stdout=out, stderr=out
            )
        one = Started(process)
        self.started.append(one)
        return one

    @property
    def said(self) -> str:
        """What they all said."""
        return (self.folder / "said.log").read_text(errors="replace")[-4000:]

    def gate(self, name: str = "gate") -> Path:
        """The file that a job waits for."""
        return self.folder / name

    async def holder(self, gate: Path) -> int:
        """The process that holds the job which waits for the file, once there is one that is alive."""

        async def look() -> int:
            alive = {one.pid for one in self.started if one.process.returncode is None}
            found = [int(path.suffix[1:]) for path in gate.parent.glob(f"{gate.name}.*") if path.suffix[1:].isdecimal()]
            return next((pid for pid in found if pid in alive), 0)

        return int(await until(look, bool, within=UP_WITHIN_S))

    async def answered(self) -> None:
        """Wait until a server has answered a call at `/mcp` that led to a job."""

        async def look() -> bool:
            lines = (self.folder / "said.log").read_text(errors="replace").splitlines()
            return any('"route": "/mcp"' in line and '"job_id"' in line for line in lines)

        await until(look, bool, within=UP_WITHIN_S)

    async def stored(self) -> int:
        """How many jobs there are."""
        return int(str(await self.database.value("SELECT count(*) FROM deedbox.job")))


@asynccontextmanager
async def fleet(
    database: TestDatabase, folder: Path, app: str = "tests.apps.mcp_desk:app", *roles: str, **settings: str
) -> AsyncGenerator[Fleet]:
    """No process yet, and the key of a service with these roles; whatever was started ends with the block."""
    pool = Pool(database.url, "fleet", size=1)
    await pool.open(wait=True)
    try:
        key = await add_key(pool, await IdSource.read(pool), "default", "agent", roles or ("operator",), "")
    finally:
        await pool.close()
    one = Fleet(database, app, folder, key, settings=settings)
    try:
        yield one
    finally:
        await asyncio.gather(*(each.kill() for each in one.started))
