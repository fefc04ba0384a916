"""Handlers that do not let themselves be stopped: the process that was told to stop ends all the same, and the job goes on."""

import asyncio
import time
from pathlib import Path

import pytest

from deedbox.cli.output import Exit
from deedbox.cli.serve import AFTER_DRAIN_S
from tests.apps.launch import fleet
from tests.apps.rough import app
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.road import road

pytestmark = pytest.mark.anyio
DRAIN_S = 1.0


@proves("G-DRAIN-ENDS")
@pytest.mark.parametrize(("action", "code"), [("never_listen", 0), ("never_turn", Exit.STOPPED)])
async def test_a_process_told_to_stop_ends_whatever_its_handler_does(
    database: TestDatabase, tmp_path: Path, action: str, code: int
) -> None:
    """One ignores every cancellation, and is left behind; the other blocks the event loop, and nothing is left in order."""
    async with road(database, app) as one, fleet(database, "tests.apps.rough:app", tmp_path / "log") as workers:
        job = await one.submit(action, {"gate": "shut"})
        stubborn = await workers.start(DEEDBOX_DRAIN_S=str(DRAIN_S))
        first = await workers.holder()
        await workers.start()
        told = time.monotonic()
        stubborn.terminate()
        async with asyncio.timeout(DRAIN_S + AFTER_DRAIN_S + 10):
            assert await stubborn.wait() == code
        assert time.monotonic() - told > DRAIN_S
        second = await workers.holder(beside=first)
        await one.until(job.job_id, "completed", within=30)
        assert await database.value("SELECT (output ->> 'pid')::int FROM deedbox.result") == second
        assert await database.value("SELECT attempt FROM deedbox.result") == 2
