"""A small application and the stations of the road, for tests that walk it without HTTP."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from deedbox.extend.registry import App
from deedbox.intake.request import Accepted, Request
from deedbox.intake.submit import Intake
from deedbox.model.identity import Principal
from deedbox.model.lease import Lease
from deedbox.store.ids import IdSource
from deedbox.store.pool import Pool
from deedbox.worker.loop import Worker, WorkerSettings
from tests.database import TestDatabase


class Poll:
    """A wake that never comes: the poll alone drives the loop, quickly."""

    live = False

    def __init__(self, seconds: float = 0.02) -> None:
        self.seconds = seconds

    async def wait(self, timeout_s: float) -> None:
        """Wait for the poll's interval."""
        await asyncio.sleep(min(self.seconds, timeout_s))


@dataclass
class Road:
    """One database with an application on it."""

    database: TestDatabase
    pool: Pool
    ids: IdSource
    app: App
    caller: Principal
    approver: Principal
    intake: Intake
    loops: list[tuple[asyncio.Task[None], asyncio.Event]] = field(
        default_factory=list[tuple[asyncio.Task[None], asyncio.Event]]
    )

    async def submit(self, action: str, body: Mapping[str, Any], key: str | None = None) -> Accepted:
        """Submit as the caller."""
        return await self.intake.submit(Request(self.caller, action, dict(body), key, "http"))

    def worker(
        self, name: str = "w1", *, lease: Lease | None = None, slots: int = 8, drain_s: float = 10, queues: tuple[str, ...] = ()
    ) -> Worker:
        """A worker that is not running yet."""
        return Worker(
            url=self.database.url,
            pool=self.pool,
            ids=self.ids,
            app=self.app,
            lease=lease or Lease(2.0),
            settings=WorkerSettings(name=name, build="test", slots=slots, drain_s=drain_s, poll_s=0.05, queues=queues),
            wake=Poll(),
        )

    def start(self, loop: Any) -> asyncio.Event:
        """Run a loop until its event is set or the road ends."""
        stop = asyncio.Event()
        self.loops.append((asyncio.create_task(loop.run(stop)), stop))
        return stop

    async def stop_all(self) -> None:
        """Stop every loop and wait for its end."""
        for _, stop in self.loops:
            stop.set()
        await asyncio.gather(*(task for task, _ in self.loops))
        self.loops.clear()

    async def state(self, job_id: UUID) -> str:
        """The job's state, live or ended."""
        return str(
            await self.database.value(
                "SELECT coalesce((SELECT state FROM deedbox.queue WHERE job_id = %s),"
                " (SELECT state FROM deedbox.result WHERE job_id = %s))",
                job_id,
                job_id,
            )
        )

    async def until(self, job_id: UUID, *states: str, within: float = 15) -> str:
        """Wait until the job is in one of the states."""
        return await until(lambda: self.state(job_id), lambda state: state in states, within=within)

    async def events(self, job_id: UUID) -> list[tuple[int, str]]:
        """Number and type of the job's events."""
        rows = await self.database.rows("SELECT seq, type FROM deedbox.event WHERE job_id = %s ORDER BY seq", job_id)
        return [(int(str(row[0])), str(row[1])) for row in rows]


async def until(look: Callable[[], Any], good: Callable[[Any], bool], *, within: float = 15) -> Any:
    """Look again and again until what is seen is good; fails loudly with what was seen last."""
    seen: Any = None
    try:
        async with asyncio.timeout(within):
            while True:
                seen = await look()
                if good(seen):
                    return seen
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not seen within {within} s; last seen: {json.dumps(seen, default=str)}") from None


@asynccontextmanager
async def road(database: TestDatabase, app: App, *, callbacks: Sequence[str] = ()) -> AsyncGenerator[Road]:
    """Open the stations on a database; loops that the test started are stopped at the end. `callbacks` are the receivers."""
    pool = Pool(database.url, "test", size=10)
    await pool.open(wait=True)
    try:
        ids = await IdSource.read(pool)
        caller = await principal(database, ids, "caller", "service", "operator")
        approver = await principal(database, ids, "approver", "person", "manager")
        url = "http://127.0.0.1:8484"
        intake = Intake(pool, ids, app.actions, public_url=url, max_waiting=1000, callbacks=callbacks)
        one = Road(database, pool, ids, app, caller, approver, intake)
        try:
            yield one
        finally:
            await one.stop_all()
    finally:
        await pool.close()


async def principal(database: TestDatabase, ids: IdSource, name: str, kind: str, *roles: str) -> Principal:
    """A principal with roles, stored."""
    principal_id = ids.new()
    await database.rows(
        "INSERT INTO deedbox.principal (principal_id, tenant, kind, name) VALUES (%s, 'default', %s, %s)",
        principal_id,
        kind,
        name,
    )
    for role in roles:
        await database.rows('INSERT INTO deedbox."grant" (principal_id, role) VALUES (%s, %s)', principal_id, role)
    method = "session" if kind == "person" else "api_key"
    return Principal(str(principal_id), "default", name, "person" if kind == "person" else "service", frozenset(roles), method)
