"""Which peers there are, what is asked about them in SQL, how they are set, and what they do not do.

This side knows no peer's code: that is in the modules of the same names, which run in the peers' own environments.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString

from bench.child import ROOT
from tools.own_environment import OwnEnvironment

LOCKS = ROOT / "requirements" / "peers"
ENVIRONMENTS = ROOT / ".make" / "peers"


@dataclass(frozen=True, slots=True)
class Peer:
    """One peer.

    `accepted` counts the jobs it holds, `unfinished` says whether one of them has not ended. `settings` and `lacks` are
    sentences for the report; what a peer lacks was read in the code of the version that the lock file pins.
    """

    name: str
    package: str
    accepted: LiteralString
    unfinished: LiteralString
    settings: str
    lacks: str

    @property
    def lock(self) -> Path:
        """The versions of its environment, with their hashes."""
        return LOCKS / f"{self.name}.txt"

    @property
    def environment(self) -> OwnEnvironment:
        """Its environment, which has a web server like every peer's."""
        return OwnEnvironment(ENVIRONMENTS / self.name, self.lock, "uvloop")

    @property
    def python(self) -> Path:
        """The interpreter of its environment."""
        return self.environment.python

    @property
    def version(self) -> str:
        """The version that is pinned."""
        found = re.search(rf"^{re.escape(self.package)}==(\S+)", self.lock.read_text(encoding="utf-8"), re.MULTILINE)
        return found.group(1) if found else "?"


PEERS: tuple[Peer, ...] = (
    Peer(
        "procrastinate",
        "procrastinate",
        accepted="SELECT count(*) FROM procrastinate_jobs",
        unfinished="SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))",
        settings="psycopg pool as large as the load; a worker with 20 jobs at once, LISTEN on; bulk by batches of 1,000",
        lacks=(
            "Keeps jobs and events, but no result: what a task returns is only logged. No fence: a job that is todo or doing "
            "is finished by its number, whoever asks. Where a worker died its job stays `doing` until code of one's own looks "
            "for stalled jobs. No idempotency key: a queueing lock holds while a job waits, and the payload is not looked at."
        ),
    ),
    Peer(
        "pgqueuer",
        "pgqueuer",
        accepted="SELECT count(*) FROM pgqueuer",
        unfinished="SELECT EXISTS (SELECT FROM pgqueuer)",
        settings=(
            "asyncpg pool as large as the load; a worker with batches of 500 for the drain and 10 at light load, LISTEN on; "
            "all tables logged (durable); bulk in one statement"
        ),
        lacks=(
            "Deletes the job with its payload when it is done and keeps log rows (queued, picked, successful); no result. No "
            "fence: ends are written by number, in batches, whoever holds the job now. The dedupe key holds while a job waits "
            "or runs and no longer, and the payload is not looked at."
        ),
    ),
    Peer(
        "dbos",
        "dbos",
        accepted="SELECT count(*) FROM dbos.workflow_status",
        unfinished="SELECT EXISTS (SELECT FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING'))",
        settings=(
            "client pool and threads as many as the load; a worker with 200 workflows at once, 16 threads and 20 connections; "
            "queues are polled, here every 50 ms, 10 ms at light load (LISTEN is for messages); bulk by enqueue_in_transaction"
        ),
        lacks=(
            "Keeps input, output and steps; an outcome needs the owner's token, so it is fenced. No lease: what a dead process "
            "held waits until an executor of the same name starts, or a service of its own moves it. No history of attempts. A "
            "workflow id serves as idempotency key; another input under it is not noticed."
        ),
    ),
    Peer(
        "absurd",
        "absurd-sdk",
        accepted="SELECT count(*) FROM absurd.t_bench",
        unfinished="SELECT EXISTS (SELECT FROM absurd.t_bench WHERE state IN ('pending', 'running', 'sleeping'))",
        settings=(
            "one connection per submitter; a worker with 50 tasks at once for the drain and 10 at light load; it polls, here "
            "every 250 and 10 ms (there is no LISTEN); bulk by spawns in one transaction (there is no call for many)"
        ),
        lacks=(
            "Keeps task, runs and result; an end is refused once its run has failed or was taken over, so it is fenced. A "
            "claim is prolonged by steps and by a handler that asks for it, not by itself. No history of what happened when. "
            "An idempotency key stays with the task; another payload under it is not noticed."
        ),
    ),
)
