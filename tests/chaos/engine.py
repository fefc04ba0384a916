"""An embedded PostgreSQL of the run's own, which is restarted under everybody's feet."""

import asyncio
import os
import random
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import psycopg

from deedbox import embedded

Mode = Literal["fast", "immediate"]
_SIGNALS: dict[Mode, signal.Signals] = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}


@dataclass(slots=True)
class Engine:
    """A running server; `restarts` counts by mode."""

    state: Path
    info: embedded.Embedded
    restarts: Counter[str] = field(default_factory=Counter[str])
    cuts: int = 0
    keep: bool = False
    """Whether its directory, with everybody's logs, stays when it ends."""

    async def restart(self, mode: Mode, away_s: float) -> None:
        """Stop the server, stay away for a while, and start it; `immediate` leaves it to recovery, as a crash does.

        Raises EmbeddedError where it does not come back.
        """
        pid = (await asyncio.to_thread(embedded.status, self.state)).pid
        if pid is None:
            return
        os.kill(pid, _SIGNALS[mode])
        await asyncio.sleep(away_s)
        running = await asyncio.to_thread(embedded.start, self.state)
        # One user is enough; this one was only needed to start it.
        await asyncio.to_thread(running.stop)
        self.restarts[mode] += 1

    async def cut(self, rng: random.Random, most: int) -> None:
        """Terminate some of the application's sessions."""
        with suppress(psycopg.OperationalError):
            async with await psycopg.AsyncConnection.connect(self.info.owner_url, autocommit=True, connect_timeout=2) as admin:
                cursor = await admin.execute("SELECT pid FROM pg_stat_activity WHERE usename = 'deedbox_app' ORDER BY pid")
                pids = [row[0] for row in await cursor.fetchall()]
                chosen = rng.sample(pids, min(len(pids), rng.randint(1, most)))
                await admin.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s::integer[]) AS pid", [chosen])
                self.cuts += len(chosen)


def _directory() -> Path:
    """One of our own, which the account that runs the server can pass through."""
    state = Path(tempfile.mkdtemp(prefix="deedbox-chaos-"))
    state.chmod(0o711)
    return state


@asynccontextmanager
async def engine(*, keep: bool = False) -> AsyncGenerator[Engine]:
    """A server until the block ends. Its directory is kept where `keep` or the block says so, or the block raised."""
    state = _directory()
    running = await asyncio.to_thread(embedded.start, state)
    one = Engine(state, running.info, keep=keep)
    try:
        yield one
    except BaseException:
        one.keep = True
        raise
    finally:
        await asyncio.to_thread(running.stop)
        if not one.keep:
            await asyncio.to_thread(embedded.remove, state)
            shutil.rmtree(state, ignore_errors=True)
