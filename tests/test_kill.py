"""Real workers in real processes, killed without warning."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.apps.slow import app
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import Road, road, until

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).resolve().parent.parent


async def spawn_worker(database: TestDatabase, log: Path) -> asyncio.subprocess.Process:
    """A worker process on the test's database."""
    environment = os.environ | {
        "DEEDBOX_DATABASE_URL": database.owner_url,
        "DEEDBOX_LEASE_S": "1.5",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
    }
    with log.open("ab") as out:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "deedbox.cli.main",
            "worker",
            "tests.apps.slow:app",
            env=environment,
            cwd=ROOT,
            stdout=out,
            stderr=out,
        )


async def holder(one: Road) -> int:
    """The process that reported progress last."""
    rows = await one.database.rows(
        "SELECT payload->>'message' FROM deedbox.event WHERE type = 'job.progress' ORDER BY seq DESC"
    )
    return int(str(rows[0][0]).removeprefix("pid ")) if rows else 0


@proves("G-KILL9", "G-RESCUE")
async def test_another_worker_finishes_the_job_of_a_killed_one(database: TestDatabase, tmp_path: Path) -> None:
    gate, log = tmp_path / "gate", tmp_path / "workers.log"
    workers: list[asyncio.subprocess.Process] = []
    async with road(database, app) as one:
        try:
            job = await one.submit("wait_for", {"gate": str(gate)})
            workers.append(await spawn_worker(database, log))
            first = await until(lambda: holder(one), bool, within=30)
            workers.append(await spawn_worker(database, log))
            os.kill(first, signal.SIGKILL)
            await workers[0].wait()
            second = await until(lambda: holder(one), lambda pid: pid != first, within=30)
            gate.touch()
            await one.until(job.job_id, "completed", within=30)
            assert await database.value("SELECT (output->>'pid')::int FROM deedbox.result") == second
            moves = await database.rows("SELECT attempt, move, code FROM deedbox.attempt ORDER BY attempt")
            assert moves == [(1, "rescue", "worker_lost"), (2, "complete", None)]
        finally:
            for worker in workers:
                if worker.returncode is None:
                    worker.kill()
                    await worker.wait()


@proves("G-FENCE")
async def test_a_stopped_worker_that_wakes_up_late_changes_nothing(database: TestDatabase, tmp_path: Path) -> None:
    gate, log = tmp_path / "gate", tmp_path / "workers.log"
    workers: list[asyncio.subprocess.Process] = []
    async with road(database, app) as one:
        try:
            job = await one.submit("wait_for", {"gate": str(gate)})
            workers.append(await spawn_worker(database, log))
            first = await until(lambda: holder(one), bool, within=30)
            os.kill(first, signal.SIGSTOP)
            workers.append(await spawn_worker(database, log))
            second = await until(lambda: holder(one), lambda pid: pid != first, within=30)
            gate.touch()
            await one.until(job.job_id, "completed", within=30)
            os.kill(first, signal.SIGCONT)
            workers[0].terminate()
            await asyncio.wait_for(workers[0].wait(), 30)
            assert await database.value("SELECT count(*) FROM deedbox.result") == 1
            assert await database.value("SELECT (output->>'pid')::int FROM deedbox.result") == second
            finals = await database.value("SELECT count(*) FROM deedbox.event WHERE type IN ('job.completed', 'job.failed')")
            assert finals == 1
        finally:
            for worker in workers:
                if worker.returncode is None:
                    os.kill(worker.pid, signal.SIGCONT)
                    worker.kill()
                    await worker.wait()


@proves("G-DRAIN")
async def test_sigterm_lets_a_running_job_finish(database: TestDatabase, tmp_path: Path) -> None:
    gate, log = tmp_path / "gate", tmp_path / "workers.log"
    async with road(database, app) as one:
        job = await one.submit("wait_for", {"gate": str(gate)})
        worker = await spawn_worker(database, log)
        try:
            await until(lambda: holder(one), bool, within=30)
            worker.terminate()
            gate.touch()
            assert await asyncio.wait_for(worker.wait(), 30) == 0
            assert await one.state(job.job_id) == "completed"
            assert await database.value("SELECT attempt FROM deedbox.result") == 1
        finally:
            if worker.returncode is None:
                worker.kill()
                await worker.wait()
